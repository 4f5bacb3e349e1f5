//! References to inodes by number: see `inode::known`.
//!
//! Input: inode numbers, when they are handed out and when they are forgotten. Output: none. Invariants: a known inode is not deleted: if
//! it loses its last name, its number and its data stay until it is forgotten. Limits: the counts are in memory only; after a crash such
//! inodes are on the orphan list, and recovery deletes them.

use super::Volume;
use crate::delete;
use crate::error::Error;
use diorite_format::Ino;
use std::time::{Duration, Instant};

impl Volume {
    /// Adds a reference to an inode: as long as it has one it can be opened and changed by number, even after it has lost its last name.
    /// A FUSE server calls this for each successful LOOKUP, a file server when it gives out a handle. Returns the generation that the
    /// inode had at its first reference, which tells it from others that had its number before. Blocks while metadata is read.
    ///
    /// # Errors
    /// `NotInUse`; damage; a device that fails.
    pub fn know(&self, ino: Ino) -> Result<u32, Error> {
        self.inner().check_open()?;
        let inode = self.inner().inode(ino)?;
        Ok(self.inner().known.add(inode))
    }

    /// Drops `times` references of an inode, or all if it has fewer. If the last one is dropped, and the inode has no name and no other
    /// user, it is deleted; an inode whose deletion fails stays on the orphan list. Blocks only for such a deletion.
    pub fn forget(&self, ino: Ino, times: u64) {
        let gone = self.inner().known.sub(ino, times);
        let is_unlinked = gone.as_ref().is_some_and(|inode| inode.is_unlinked());
        drop(gone);
        if is_unlinked {
            delete::delete_unlinked_best_effort(self.inner());
            self.inner().known.note_gone(ino);
        }
    }

    /// The known inodes that lost their last name, or a user after it (see [`Volume::note_closed`]), at most so long ago, and when; also
    /// those that are just being deleted. Their space is free once they are not among these, unless somebody has them open.
    #[must_use]
    pub fn known_without_name(&self, ago: Duration) -> Vec<(Ino, Instant)> {
        self.inner().known.leaving(ago)
    }

    /// Waits until all of these, of [`Volume::known_without_name`], are forgotten and deleted, or have a name again, but not longer than
    /// `until`. Returns whether one is. Blocks.
    #[must_use]
    pub fn await_forgotten(&self, those: Vec<(Ino, Instant)>, until: Instant) -> bool {
        self.inner().known.await_gone(those, until)
    }

    /// Call when somebody who had a known inode open has closed it: if it has no name it may be forgotten soon.
    pub fn note_closed(&self, ino: Ino) {
        self.inner().known.note_closed(ino);
    }

    /// Deletes the inodes that have no name and have lost their last user: for a caller who has just dropped a [`crate::File`] without a
    /// name and wants its space to be free now. Otherwise the next deletion or periodic commit does it. An inode whose deletion fails stays
    /// on the orphan list. Blocks if there is any.
    pub fn delete_unused(&self) {
        delete::delete_unlinked_best_effort(self.inner());
    }
}
