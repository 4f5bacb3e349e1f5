//! Inodes that a frontend knows by their numbers, each as often as it was told of them.
//!
//! Input: numbers, as they are handed out and forgotten. Output: none. Invariants: what is known stays what it is: an inode that has lost its last
//! name keeps its number and its data until it is forgotten. Limits: in memory; a crash leaves such inodes on the list of orphans.

use super::Volume;
use crate::delete;
use crate::error::Error;
use crate::inode::Inode;
use crate::locks::KNOWN;
use diorite_block::sync::Mutex;
use diorite_format::Ino;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct Known(Mutex<BTreeMap<Ino, (Arc<Inode>, u64)>>);

impl Known {
    pub(super) fn new(level: u8) -> Known {
        Known(Mutex::at_level(&KNOWN, level, BTreeMap::new()))
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }

    pub(super) fn has(&self, ino: Ino) -> bool {
        self.0.lock().contains_key(&ino)
    }
}

impl Volume {
    /// Notes that somebody has been told of this inode, once more: until it is forgotten as often it can be opened and changed by its number,
    /// also when it has lost its last name. What a FUSE server says behind a LOOKUP, a file server when it gives out a handle. Blocks while
    /// metadata is read.
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

    /// Forgets an inode so many times; more often than it is known is as often. One without a name that nobody else uses is deleted then; what
    /// cannot be deleted stays on the list of orphans. Blocks where that is so.
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
