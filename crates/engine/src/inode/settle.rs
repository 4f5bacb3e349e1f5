//! Changes that are durable when the call returns: of inodes with the flags for that.
//!
//! Input: an inode that was just changed. Output: what changed it is committed, if it has the flag. Invariant: no lock is held, so
//! changes by others at the same time share the commit. Limits: a change in a group is durable with the group.
//! Source: man 1 chattr (D, S); man 8 mount (dirsync, sync).

use super::Inode;
use crate::error::Error;
use diorite_format::InodeFlags;

impl Inode {
    /// Commits the last change of it. Blocks; no lock may be held.
    pub(crate) fn commit_change(&self) -> Result<(), Error> {
        match self.uncommitted_change() {
            Some(tid) if !self.volume.has_group() => self.volume.commit_up_to(tid),
            _ => Ok(()),
        }
    }

    /// The same, of what it says of itself, its attributes or its flags, if it has the flag `S`.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        match self.disk().flags.has(InodeFlags::SYNC) {
            true => self.commit_change(),
            false => Ok(()),
        }
    }
}
