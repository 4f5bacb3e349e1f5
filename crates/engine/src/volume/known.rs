//! Inodes that a frontend refers to by number, with a count of references for each (the lookup count of FUSE).
//!
//! Input: inode numbers, when they are handed out and when they are forgotten. Output: none. Invariants: a known inode is not deleted: if
//! it loses its last name, its number and its data stay until it is forgotten. Limits: the counts are in memory only; after a crash such
//! inodes are on the orphan list, and recovery deletes them.

use super::Volume;
use crate::delete;
use crate::error::Error;
use crate::inode::Inode;
use crate::locks::KNOWN;
use diorite_block::sync::Mutex;
use diorite_format::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The known inodes, each with its count of references; see the module.
#[derive(Debug)]
pub(super) struct Known(Mutex<BTreeMap<Ino, (Arc<Inode>, u64)>>);

impl Known {
    pub(super) fn new(level: u8) -> Known {
        Known(Mutex::at_level(&KNOWN, level, BTreeMap::new()))
    }

    /// Drops all references.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }

    pub(super) fn has(&self, ino: Ino) -> bool {
        self.0.lock().contains_key(&ino)
    }
}

impl Volume {
    /// Adds a reference to an inode: as long as it has one it can be opened and changed by number, even after it has lost its last name.
    /// A FUSE server calls this for each successful LOOKUP, a file server when it gives out a handle. Blocks while metadata is read.
    ///
    /// # Errors
    /// `NotInUse`; damage; a device that fails.
    pub fn know(&self, ino: Ino) -> Result<(), Error> {
        self.inner().check_open()?;
        let inode = self.inner().inode(ino)?;
        let mut known = self.known().0.lock();
        let (_, times) = known.entry(ino).or_insert((inode, 0));
        *times = times.saturating_add(1);
        Ok(())
    }

    /// Drops `times` references of an inode, or all if it has fewer. If the last one is dropped, and the inode has no name and no other
    /// user, it is deleted; an inode whose deletion fails stays on the orphan list. Blocks only for such a deletion.
    pub fn forget(&self, ino: Ino, times: u64) {
        let mut known = self.known().0.lock();
        let Some((_, left)) = known.get_mut(&ino) else {
            return;
        };
        *left = left.saturating_sub(times);
        let gone = match *left {
            0 => known.remove(&ino),
            _ => None,
        };
        drop(known);
        let is_unlinked = gone.as_ref().is_some_and(|(inode, _)| inode.is_unlinked());
        drop(gone);
        if is_unlinked {
            delete::delete_unlinked_best_effort(self.inner());
        }
    }
}
