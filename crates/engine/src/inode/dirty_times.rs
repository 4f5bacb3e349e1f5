//! The list of inodes whose times were noted in memory and are not in the inode table yet.
//!
//! Input: notes of reads and writes; inodes that lose or get a name. Output: times in the running transaction, by handles with credits.
//! Invariants: an inode is in the list from before anybody can see its mark until its times are in a transaction, so a sync finds either
//! the mark or the transaction; the list does not keep an inode without a name in memory; times that cannot be written stay in the list
//! until the volume is closed or has no user; no read is noted while reads rest.
//! Limits: one entry for each inode. From [`MANY`] entries on the keeper does not wait for its interval. From [`TOO_MANY`] on, opening a
//! file, following a path and reading a directory or a link write the noted times first. While an atomic change is open no times can be
//! written, so the list may become as long as the number of files used in the atomic change.

use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::journal::Journal;
use crate::locks::DIRTY_TIMES;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicUsize, Ordering};
use diorite_format::Ino;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// With so many inodes noted times do not wait for the periodic commit any more.
const MANY: usize = 1024;
/// With so many inodes nobody opens or reads another inode by name before the noted times are written.
const TOO_MANY: usize = 4096;

/// With lazy times: how old they become.
const LAZY: Duration = Duration::from_secs(12 * 60 * 60);

/// How many inodes' times one handle writes. Neighbours share a block of the inode table, but need not.
const PER_HANDLE: usize = 64;

/// The list, by inode number.
#[derive(Debug)]
pub(super) struct DirtyTimes {
    list: Mutex<List>,
    /// The length of the list. Changes under its lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct List {
    dirty: BTreeMap<Ino, Dirty>,
    /// No time is noted any more.
    ended: bool,
    /// Since when the list is not empty, or was written last.
    since: Option<Instant>,
}

/// How the list holds an inode.
#[derive(Debug)]
enum Dirty {
    Kept(Arc<Inode>),
    /// It is dropped with its last user, and its noted times with it.
    Nameless(Weak<Inode>),
}

impl Dirty {
    fn inode(&self) -> Option<Arc<Inode>> {
        match self {
            Dirty::Kept(inode) => Some(inode.clone()),
            Dirty::Nameless(inode) => inode.upgrade(),
        }
    }

    /// Is it an entry of this inode, not of another that has got its number?
    fn is(&self, inode: &Inode) -> bool {
        match self {
            Dirty::Kept(kept) => std::ptr::eq(Arc::as_ptr(kept), inode),
            Dirty::Nameless(weak) => std::ptr::eq(weak.as_ptr(), inode),
        }
    }
}

impl DirtyTimes {
    pub(super) fn new(level: u8) -> DirtyTimes {
        DirtyTimes {
            list: Mutex::at_level(&DIRTY_TIMES, level, List::default()),
            count: AtomicUsize::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Notes the length of the list, which is locked.
    fn note(&self, list: &List) {
        self.count.store(list.dirty.len(), Ordering::SeqCst);
    }

    /// The inodes that are in the list now. They stay in it.
    fn inodes(&self) -> Vec<Arc<Inode>> {
        let mut list = self.list.lock();
        list.since = None;
        let mut inodes = Vec::with_capacity(list.dirty.len());
        list.dirty.retain(|_, entry| {
            let inode = entry.inode();
            let is_there = inode.is_some();
            inodes.extend(inode);
            is_there
        });
        self.note(&list);
        inodes
    }

    /// Gives the list up: no time is noted from now on, and no inode is kept in memory.
    pub(super) fn end(&self) {
        let mut list = self.list.lock();
        list.ended = true;
        let given_up = std::mem::take(&mut list.dirty);
        self.note(&list);
        drop(list);
        drop(given_up);
    }
}

impl Fs {
    /// Notes times of an inode. `note` marks the inode, under the lock of the list, and returns whether it must be put into the list.
    /// Returns the same. Notes nothing once the list was given up.
    pub(crate) fn note_touched(&self, inode: &Arc<Inode>, note: impl FnOnce() -> bool) -> bool {
        let Some(journal) = self.journal_if_any() else {
            // The volume is open for overwrites only: nobody will ever write these times.
            return note();
        };
        let mut list = self.dirty_times.list.lock();
        if list.ended || !note() {
            return false;
        }
        // Under the lock, because of `forget_touched`.
        let entry = match inode.is_unlinked() {
            true => Dirty::Nameless(Arc::downgrade(inode)),
            false => Dirty::Kept(inode.clone()),
        };
        let before = list.dirty.insert(inode.ino, entry);
        self.dirty_times.note(&list);
        list.since.get_or_insert_with(Instant::now);
        let many = list.dirty.len() >= MANY;
        drop(list);
        // After the lock was released: this may be the last reference to an inode that had the number before.
        drop(before);
        // While an atomic change is open the keeper could not write them.
        if many && !journal.has_atomic() {
            journal.hurry_commit();
        } else if !self.lazy_times {
            journal.expect_commit();
        }
        true
    }

    /// Reads note no times from now on, or they do again. What was noted before is in the list.
    pub(crate) fn rest_reads(&self, rest: bool) {
        let _noting = self.dirty_times.list.lock();
        self.reads_rest.store(rest, Ordering::Relaxed);
    }

    /// Are noted times to be written with the next commit?
    pub(crate) fn noted_times_are_due(&self) -> bool {
        let list = self.dirty_times.list.lock();
        let is_old = |since: Instant| since.elapsed() >= LAZY;
        !self.lazy_times || list.dirty.len() >= MANY || list.since.is_some_and(is_old)
    }

    /// How many inodes have noted times.
    pub(crate) fn count_noted_times(&self) -> usize {
        self.dirty_times.len()
    }

    pub(crate) fn has_noted_times(&self) -> bool {
        self.dirty_times.len() > 0
    }

    /// Writes the noted times of all inodes into the running transaction, or into more than one if that is too small (rule D4). While an
    /// atomic change is open they cannot be written. Blocks; no lock may be held.
    ///
    /// # Errors
    /// The first error; all other inodes' times are written nevertheless. `InAtomic` if an atomic change is open and there are noted times.
    pub(crate) fn write_noted_times(&self) -> Result<(), Error> {
        if self.has_atomic() {
            return match self.has_noted_times() {
                true => Err(Error::InAtomic),
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

    /// Writes the times of these inodes in one handle. Inodes whose times could not be written stay in the list, unless the journal is
    /// aborted.
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
            // After the interval, not at once even if there are many: what has just failed would fail again.
            let _woken = self.journal_if_any().map(|j| j.expect_commit());
        }
        begun.and(first_error)
    }

    /// Takes an inode out of the list if it owes no times any more.
    pub(crate) fn forget_written_times(&self, inode: &Inode) {
        self.forget_times_if(inode, |inode| !inode.owes_times());
    }

    fn forget_times_if(&self, inode: &Inode, is_over: impl FnOnce(&Inode) -> bool) {
        let mut list = self.dirty_times.list.lock();
        let entry = list.dirty.get(&inode.ino);
        let is_listed = entry.is_some_and(|entry| entry.is(inode));
        // Marks are set under this lock, so none is missed.
        let gone = match is_listed && is_over(inode) {
            true => list.dirty.remove(&inode.ino),
            false => None,
        };
        self.dirty_times.note(&list);
        drop(list);
        drop(gone);
    }

    /// Writes the noted times if the list is too long. An error is not reported: those times stay in the list. Blocks; no lock may be
    /// held.
    pub(crate) fn bound_noted_times_best_effort(&self) {
        if self.dirty_times.len() >= TOO_MANY {
            let _stays = self.write_noted_times();
        }
    }

    /// Call when an inode has lost its last name: the list does not keep it in memory any more. Later notes find that it has no name.
    /// Its mark tells nothing: whoever sets its times clears that, and leaves the entry.
    pub(crate) fn forget_touched(&self, inode: &Inode) {
        let mut list = self.dirty_times.list.lock();
        let mut gone = None;
        if let Some(entry) = list.dirty.get_mut(&inode.ino)
            && let Dirty::Kept(kept) = entry
        {
            let nameless = Dirty::Nameless(Arc::downgrade(kept));
            gone = Some(std::mem::replace(entry, nameless));
        }
        drop(list);
        drop(gone);
    }

    /// Call when an inode has got a name: the list keeps it in memory until its times are written. Later notes find, under the lock, that
    /// it has a name.
    pub(crate) fn keep_touched(&self, inode: &Arc<Inode>) {
        let mut list = self.dirty_times.list.lock();
        if let Some(entry @ Dirty::Nameless(_)) = list.dirty.get_mut(&inode.ino) {
            *entry = Dirty::Kept(inode.clone());
        }
    }
}
