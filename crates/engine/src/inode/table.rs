//! The table of in-core inodes, and the count of map segments in memory.
//!
//! Input: inode numbers. Output: the one in-core inode of each. Invariants: an inode stays in memory while it has a user; an inode read
//! from disk is not older than any change made to it in memory. Limits: entries of inodes that are gone are removed only from time to
//! time; there are never many more of them than an eighth of all.

use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::inode::read_inode;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{Ino, Inode as DiskInode, Tid};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The in-core inodes, with entries of some that are gone: see [`Fs::inode`].
#[derive(Debug, Default)]
pub(super) struct InodeTable {
    /// The hash has a random seed, as the numbers come from the image.
    pub(super) known: HashMap<Ino, Weak<Inode>, RandomState>,
    /// How often entries of inodes that are gone were removed, or an inode was changed that is not in memory.
    cleaned: u64,
}

impl InodeTable {
    fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.known.get(&ino).and_then(Weak::upgrade)
    }

    /// As [`InodeTable::find`], for a caller who wants to use the inode.
    ///
    /// # Errors
    /// `NotInUse`: it is being deleted, and another inode will get its number.
    fn find_to_use(&self, ino: Ino) -> Result<Option<Arc<Inode>>, Error> {
        match self.find(ino) {
            Some(inode) if inode.is_deleted() => Err(Error::NotInUse { ino }),
            found => Ok(found),
        }
    }

    /// A token that shows, by [`InodeTable::is_still`], whether the inode came into memory since.
    fn trace(&self, ino: Ino) -> (Option<Weak<Inode>>, u64) {
        (self.known.get(&ino).cloned(), self.cleaned)
    }

    /// Is it certain that the inode has not been in memory since the token was taken?
    fn is_still(&self, ino: Ino, trace: &(Option<Weak<Inode>>, u64)) -> bool {
        let same = match (self.known.get(&ino), &trace.0) {
            (None, None) => true,
            (Some(now), Some(then)) => now.ptr_eq(then),
            _ => false,
        };
        same && self.cleaned == trace.1
    }

    /// Lets threads that are just reading inodes from disk look again.
    pub(super) fn void_reads(&mut self) {
        self.cleaned += 1;
    }

    fn insert(&mut self, inode: &Arc<Inode>) {
        let gone = &inode.volume.inodes_gone;
        // An entry keeps the memory of an inode that is gone, though not what that had of its own.
        if gone.load(Ordering::Relaxed) > 512 + self.known.len() / 8 {
            gone.store(0, Ordering::Relaxed);
            self.known.retain(|_, i| i.strong_count() > 0);
            self.cleaned += 1;
        }
        self.known.insert(inode.ino, Arc::downgrade(inode));
    }
}

impl Fs {
    /// Makes every file give back the blocks that it keeps ahead.
    pub(crate) fn close_windows(&self) {
        for inode in self.known_inodes() {
            inode.claims.close(&inode);
        }
    }

    pub(crate) fn known_inodes(&self) -> Vec<Arc<Inode>> {
        let inodes = self.inodes.lock();
        inodes.known.values().filter_map(Weak::upgrade).collect()
    }

    /// Checks that this inode's data may be written through a [`crate::File`]: only a regular file's, and none of the volume's own.
    pub(crate) fn check_holds_data(&self, inode: &Inode) -> Result<(), Error> {
        let ino = inode.ino;
        let refused = |flag| Err(Error::NotPermitted { ino, flag });
        if self.is_own_inode(ino) {
            return refused("one of the volume's own");
        }
        if inode.is_dir() {
            return Err(Error::IsADirectory {
                path: format!("inode {ino}"),
            });
        }
        if !inode.disk().is_file() {
            return refused("no regular file");
        }
        if inode.disk().holds_value() {
            return refused("the value of an attribute");
        }
        Ok(())
    }

    /// The in-core inode with this number. Blocks while metadata is read. An inode that is being deleted is `NotInUse`. If the inode was
    /// in memory while it was read from disk, it is read again. Without that:
    ///
    /// 1. A reads an inode from the inode table and loses the CPU.
    /// 2. B reads it too, changes it, and drops it.
    /// 3. A finds it not in memory, and goes on with its state from before the change.
    pub(crate) fn inode(self: &Arc<Self>, ino: Ino) -> Result<Arc<Inode>, Error> {
        if ino == Ino::ROOT
            && let Some(root) = self.recent.root()
        {
            return Ok(root);
        }
        loop {
            let trace = {
                let table = self.inodes.lock();
                if let Some(known) = table.find_to_use(ino)? {
                    return Ok(known);
                }
                table.trace(ino)
            };
            let new = read_inode(self, ino)?;
            self.note_uncommitted(&new);
            // An inode with a name is on the orphan list if a truncation has left blocks behind its size.
            new.note_cut(self.orphans.any() && self.orphans.has(ino));
            let mut table = self.inodes.lock();
            if let Some(first) = table.find_to_use(ino)? {
                return Ok(first);
            }
            if table.is_still(ino, &trace) {
                table.insert(&new);
                drop(table);
                self.recent.keep(&new);
                return Ok(new);
            }
        }
    }

    /// The in-core inode with this number, if somebody uses it.
    pub(crate) fn known_inode(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.inodes.lock().find(ino)
    }

    /// As [`Fs::know`], for an inode that this transaction makes, whose handle is open, and whose place in the inode table is written.
    /// Returns the one in-core inode: whoever asks for the number in between reads the new inode, and has it then.
    pub(crate) fn know_new(&self, inode: Arc<Inode>, tid: Tid) -> Arc<Inode> {
        inode.note_changed_before(tid);
        let mut table = self.inodes.lock();
        match table.find(inode.ino) {
            Some(read) if !read.is_unlinked() => {
                drop(table);
                read.note_changed_before(tid);
                read
            }
            former => {
                table.insert(&inode);
                drop(table);
                // Not under the lock: this may be its last reference.
                drop(former);
                inode
            }
        }
    }

    /// Puts a new in-core inode into the table.
    pub(crate) fn know(&self, inode: &Arc<Inode>) {
        self.note_uncommitted(inode);
        self.inodes.lock().insert(inode);
    }

    /// Notes that transactions which are not committed yet may have changed an inode that comes into memory. An fsync must wait for them.
    fn note_uncommitted(&self, inode: &Inode) {
        if let Some(tid) = self.newest_uncommitted() {
            inode.note_changed_before(tid);
        }
    }

    /// Takes an inode out of the table if `mine` is the only reference to it, and no frontend knows its number. From then on it can be
    /// found only on disk. Whoever gets a reference from the table, to make its number known, gets it before or after this.
    pub(crate) fn forget_if_sole(&self, mine: &Arc<Inode>) -> bool {
        let mut table = self.inodes.lock();
        let sole = Arc::strong_count(mine) == 1 && !self.known.has(mine.ino);
        if sole {
            table.known.remove(&mine.ino);
            table.void_reads();
        }
        sole
    }

    /// As [`Fs::forget_if_sole`], for an inode with one name left, but it stays in the table and counts as deleted: who asks for its number
    /// gets `NotInUse`, also while its last name is being removed. If that fails, [`Inode::note_kept`] takes it back.
    ///
    /// The names are counted in the same step: who finds the inode by another name finds it as it was, and who is about to give it one more
    /// name has it, so it is not the caller's alone. Whether it `may` go is asked in that step, too: nobody changes it any more.
    pub(crate) fn condemn_if_sole(
        &self,
        mine: &Arc<Inode>,
        may: impl FnOnce(&DiskInode) -> bool,
    ) -> bool {
        let disk = mine.disk.lock();
        if disk.links != 1 || !may(&disk) {
            return false;
        }
        let _table = self.inodes.lock();
        let sole = Arc::strong_count(mine) == 1 && !self.known.has(mine.ino);
        if sole {
            mine.note_deleted();
        }
        sole
    }

    /// How many segments of maps are in memory.
    pub(crate) fn count_segments(&self) -> u64 {
        self.loaded_segments.load(Ordering::Relaxed)
    }

    /// Counts segments that were loaded.
    pub(crate) fn add_segments(&self, more: usize) {
        self.loaded_segments
            .fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Counts segments that were dropped.
    pub(crate) fn sub_segments(&self, fewer: usize) {
        self.loaded_segments
            .fetch_sub(fewer as u64, Ordering::Relaxed);
    }

    /// Makes maps fall back to their roots while more segments are in memory than the budget allows; the map of `busy` is the last.
    pub(crate) fn shrink_maps(&self, busy: &Inode) {
        let over = || self.loaded_segments.load(Ordering::Relaxed) > self.most_segments;
        if !over() {
            return;
        }
        let known = self.known_inodes();
        let others = known.iter().filter(|i| i.ino != busy.ino).map(|i| &**i);
        for inode in others.chain([busy]) {
            if !over() {
                return;
            }
            inode.drop_loaded_map();
        }
    }
}
