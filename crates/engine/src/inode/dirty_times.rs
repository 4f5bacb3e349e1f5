//! Inodes whose times were noted in memory and are not in the inode table yet.
//!
//! Input: notes of reads and writes; inodes that lose or get a name. Output: times in the running transaction, by handles with credits. Invariants:
//! an inode is in the list before anybody can see its mark, until its times are in a transaction: who syncs finds the one or the other; one that has no
//! name is not kept by it; what cannot be written stays in the list. Limits:
//! one entry for each inode; from [`MANY`] on the keeper is told not to wait for its interval, from [`TOO_MANY`] on who opens a file,
//! follows a path, or reads a directory or a link writes them first. While a group of changes is open nobody can, and it is as long as the
//! files that are used in it are many.

use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::journal::Journal;
use crate::locks::DIRTY_TIMES;
use diorite_block::sync::Mutex;
use diorite_format::Ino;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

#[cfg(test)]
mod tests;

/// Inodes with noted times that do not wait for the periodic commit any more.
const MANY: usize = 1024;
/// Inodes with noted times beyond which nobody opens or reads another one by its name before they are written.
const TOO_MANY: usize = 4096;

/// Inodes whose times one handle writes. Neighbours share a block of the inode table, but need not.
const PER_HANDLE: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct DirtyTimes(Mutex<BTreeMap<Ino, Dirty>>);

/// How the list holds an inode.
#[derive(Debug)]
enum Dirty {
    Kept(Arc<Inode>),
    /// It goes with its last user, and its times with it.
    Nameless(Weak<Inode>),
}

impl Dirty {
    fn inode(&self) -> Option<Arc<Inode>> {
        match self {
            Dirty::Kept(inode) => Some(inode.clone()),
            Dirty::Nameless(inode) => inode.upgrade(),
        }
    }

    /// Is it this one, and not another that has got its number?
    fn is(&self, inode: &Inode) -> bool {
        match self {
            Dirty::Kept(kept) => std::ptr::eq(Arc::as_ptr(kept), inode),
            Dirty::Nameless(weak) => std::ptr::eq(weak.as_ptr(), inode),
        }
    }
}

impl DirtyTimes {
    pub(super) fn new(level: u8) -> DirtyTimes {
        DirtyTimes(Mutex::at_level(&DIRTY_TIMES, level, BTreeMap::new()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Those that are in the list now. They stay in it.
    fn inodes(&self) -> Vec<Arc<Inode>> {
        let mut dirty = self.0.lock();
        let mut inodes = Vec::with_capacity(dirty.len());
        dirty.retain(|_, entry| {
            let inode = entry.inode();
            let is_there = inode.is_some();
            inodes.extend(inode);
            is_there
        });
        inodes
    }
}

impl Fs {
    /// Notes times of an inode: `note` marks it, under the lock of the list, and says whether it has to be in it. Gives what `note` said.
    pub(crate) fn note_touched(&self, inode: &Arc<Inode>, note: impl FnOnce() -> bool) -> bool {
        let Some(journal) = self.journal_if_any() else {
            // Open for overwrites alone: nobody will ever write them.
            return note();
        };
        let mut dirty = self.dirty_times.0.lock();
        if !note() {
            return false;
        }
        // Asked under the lock: see `forget_touched`.
        let entry = match inode.is_unlinked() {
            true => Dirty::Nameless(Arc::downgrade(inode)),
            false => Dirty::Kept(inode.clone()),
        };
        let before = dirty.insert(inode.ino, entry);
        let many = dirty.len() >= MANY;
        drop(dirty);
        // Without the lock: it may be the last reference to an inode that had the number before.
        drop(before);
        // While a group is open nobody could write them.
        if many && !journal.has_group() {
            journal.hurry_commit();
        } else {
            journal.expect_commit();
        }
        true
    }

    /// Inodes whose times are only noted.
    pub(crate) fn count_noted_times(&self) -> usize {
        self.dirty_times.len()
    }

    pub(crate) fn has_noted_times(&self) -> bool {
        self.dirty_times.len() > 0
    }

    /// Writes the times of all inodes that have noted some into the running transaction, and into later ones where it is too small for them (rule
    /// D4). While a group of changes is open they stay where they are: they come after it. Blocks; no lock may be held.
    ///
    /// # Errors
    /// The first; all other inodes are written all the same. `InGroup` if there are some, and they have to wait.
    pub(crate) fn write_noted_times(&self) -> Result<(), Error> {
        if self.has_group() {
            return match self.has_noted_times() {
                true => Err(Error::InGroup),
                false => Ok(()),
            };
        }
        let inodes = self.dirty_times.inodes();
        let most = usize::try_from(self.most_credits()).unwrap_or(PER_HANDLE);
        let mut result = Ok(());
        for some in inodes.chunks(most.clamp(1, PER_HANDLE)) {
            result = result.and(self.write_times_of(some));
        }
        result
    }

    /// The same in one handle. Those whose times could not be written stay in the list, unless nothing will ever be written any more.
    fn write_times_of(&self, inodes: &[Arc<Inode>]) -> Result<(), Error> {
        let credits = u32::try_from(inodes.len()).expect("at most `PER_HANDLE`");
        let mut first_error = Ok(());
        let begun = self.in_handle(credits, |handle| {
            for inode in inodes {
                first_error = first_error.clone().and(inode.write_touched(handle));
            }
            Ok(())
        });
        let over = self.journal_if_any().is_none_or(Journal::is_aborted);
        for inode in inodes {
            self.forget_times_if(inode, |inode| over || !inode.owes_times());
        }
        if !over && inodes.iter().any(|inode| inode.owes_times()) {
            // With the interval, however many they are: what has just failed would fail again.
            let _woken = self.journal_if_any().map(|j| j.expect_commit());
        }
        begun.and(first_error)
    }

    /// Takes an inode that owes no times any more out of the list.
    pub(crate) fn forget_written_times(&self, inode: &Inode) {
        self.forget_times_if(inode, |inode| !inode.owes_times());
    }

    fn forget_times_if(&self, inode: &Inode, is_over: impl FnOnce(&Inode) -> bool) {
        let mut dirty = self.dirty_times.0.lock();
        let is_listed = dirty.get(&inode.ino).is_some_and(|entry| entry.is(inode));
        // Marks are made under the lock.
        let gone = match is_listed && is_over(inode) {
            true => dirty.remove(&inode.ino),
            false => None,
        };
        drop(dirty);
        drop(gone);
    }

    /// Bounds the list, where failures are told to nobody: what cannot be written stays in it. Blocks; no lock may be held.
    pub(crate) fn bound_noted_times_best_effort(&self) {
        if self.dirty_times.len() >= TOO_MANY {
            let _stays = self.write_noted_times();
        }
    }

    /// An inode has lost its last name: its times keep it no longer. Who notes them from now on sees that it has none.
    pub(crate) fn forget_touched(&self, inode: &Inode) {
        if !inode.owes_times() {
            return;
        }
        let mut dirty = self.dirty_times.0.lock();
        let mut gone = None;
        if let Some(entry) = dirty.get_mut(&inode.ino)
            && let Dirty::Kept(kept) = entry
        {
            let nameless = Dirty::Nameless(Arc::downgrade(kept));
            gone = Some(std::mem::replace(entry, nameless));
        }
        drop(dirty);
        drop(gone);
    }

    /// An inode has got a name: its times keep it until they are written. Who notes them from now on, under the lock, sees that it has one.
    pub(crate) fn keep_touched(&self, inode: &Arc<Inode>) {
        if let Some(entry @ Dirty::Nameless(_)) = self.dirty_times.0.lock().get_mut(&inode.ino) {
            *entry = Dirty::Kept(inode.clone());
        }
    }
}
