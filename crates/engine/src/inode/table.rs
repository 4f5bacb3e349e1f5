//! The inodes of a volume that are in memory, and the pieces of their maps.
//!
//! Input: inode numbers. Output: the one in-core inode of each. Invariants: an inode stays as long as somebody uses it; what is read from
//! the inode table is not older than what anybody in memory has made of it. Limits: entries of inodes that are gone are thrown away now
//! and then.

use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::inode::read_inode;
use diorite_block::sync::atomic::Ordering;
use diorite_format::Ino;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The inodes in memory, and entries of those that were: see [`Fs::inode`].
#[derive(Debug, Default)]
pub(super) struct InodeTable {
    /// Hashed with a seed of its own: numbers come from the image.
    known: HashMap<Ino, Weak<Inode>, RandomState>,
    /// How often entries of inodes that are gone were thrown away.
    cleaned: u64,
}

impl InodeTable {
    fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.known.get(&ino).and_then(Weak::upgrade)
    }

    /// As [`InodeTable::find`], for who wants to use it.
    ///
    /// # Errors
    /// It is being deleted: its number will soon be another's.
    fn find_to_use(&self, ino: Ino) -> Result<Option<Arc<Inode>>, Error> {
        match self.find(ino) {
            Some(inode) if inode.is_deleted() => Err(Error::NotInUse { ino }),
            found => Ok(found),
        }
    }

    /// Something that changes whenever this inode comes into memory.
    fn trace(&self, ino: Ino) -> (Option<Weak<Inode>>, u64) {
        (self.known.get(&ino).cloned(), self.cleaned)
    }

    /// Has it not been in memory since?
    fn is_still(&self, ino: Ino, trace: &(Option<Weak<Inode>>, u64)) -> bool {
        let same = match (self.known.get(&ino), &trace.0) {
            (None, None) => true,
            (Some(now), Some(then)) => now.ptr_eq(then),
            _ => false,
        };
        same && self.cleaned == trace.1
    }

    fn insert(&mut self, inode: &Arc<Inode>) {
        let known = &mut self.known;
        if known.len() >= 1024 && known.len().is_power_of_two() {
            known.retain(|_, i| i.strong_count() > 0);
            self.cleaned += 1;
        }
        known.insert(inode.ino, Arc::downgrade(inode));
    }
}

impl Fs {
    /// Every file gives back the blocks that it keeps ahead.
    pub(crate) fn close_windows(&self) {
        for inode in self.known_inodes() {
            inode.claims.close(&inode);
        }
    }

    pub(crate) fn known_inodes(&self) -> Vec<Arc<Inode>> {
        let inodes = self.inodes.lock();
        inodes.known.values().filter_map(Weak::upgrade).collect()
    }

    /// Only files' data is written through a [`crate::File`]: no directory, nothing of the volume's own.
    pub(crate) fn check_holds_data(&self, inode: &Inode) -> Result<(), Error> {
        let ino = inode.ino;
        let refused = |flag| Err(Error::NotPermitted { ino, flag });
        if self.is_own_inode(ino) {
            return refused("one of the volume's own");
        }
        if inode.disk().is_dir() {
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

    /// The in-core inode. Blocks while metadata is read. One that is being deleted is not found. It is read again if it was in memory
    /// meanwhile. Without this:
    ///
    /// 1. A reads an inode from the table and loses the CPU.
    /// 2. B reads it too, changes it, and lets it go.
    /// 3. A finds it not in memory, and goes on with what it was before the change.
    pub(crate) fn inode(self: &Arc<Self>, ino: Ino) -> Result<Arc<Inode>, Error> {
        loop {
            let trace = {
                let table = self.inodes.lock();
                if let Some(known) = table.find_to_use(ino)? {
                    return Ok(known);
                }
                table.trace(ino)
            };
            let new = Arc::new(read_inode(self, ino)?);
            self.note_uncommitted(&new);
            // One with a name is on the list for what a truncation has left.
            new.note_cut(self.orphans.has(ino));
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

    /// The in-core inode, if somebody uses it.
    pub(crate) fn known_inode(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.inodes.lock().find(ino)
    }

    /// Makes an in-core inode the one of its number.
    pub(crate) fn know(&self, inode: &Arc<Inode>) {
        self.note_uncommitted(inode);
        self.inodes.lock().insert(inode);
    }

    /// Whoever made an inode that comes into memory, or had it there before, may have changed it since the last commit: that must be
    /// durable after an fsync too.
    fn note_uncommitted(&self, inode: &Inode) {
        if let Some(tid) = self.newest_uncommitted() {
            inode.note_changed_before(tid);
        }
    }

    /// Takes an inode out of the table if `mine` is the only reference to it: from then on nobody finds it here, and in the inode table
    /// only what its place there says.
    pub(crate) fn forget_if_sole(&self, mine: &Arc<Inode>) -> bool {
        let mut table = self.inodes.lock();
        let sole = Arc::strong_count(mine) == 1;
        if sole {
            table.known.remove(&mine.ino);
            // Who reads it just now is to look again.
            table.cleaned += 1;
        }
        sole
    }

    /// Segments of maps in memory.
    pub(crate) fn count_segments(&self) -> u64 {
        self.loaded_segments.load(Ordering::Relaxed)
    }

    /// Counts segments that were read.
    pub(crate) fn add_segments(&self, more: usize) {
        self.loaded_segments
            .fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Counts them out again.
    pub(crate) fn sub_segments(&self, fewer: usize) {
        self.loaded_segments
            .fetch_sub(fewer as u64, Ordering::Relaxed);
    }

    /// Lets maps fall back to their roots while there are more segments in memory than the budget allows; `busy`'s last.
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
