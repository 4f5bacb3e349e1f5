//! Changes that must be durable when the call returns: those of inodes with the flags `S` and `D`.
//!
//! Input: an inode that was just changed. Output: the change is committed, if the inode has the flag. Invariant: no lock is held, so
//! concurrent changes share the commit. Limits: a change in an atomic change is durable only with the atomic change.
//! Source: man 1 chattr (D, S); man 8 mount (dirsync, sync).

use super::Inode;
use crate::error::Error;
use diorite_format::InodeFlags;

impl Inode {
    /// Commits the last change of the inode, unless an atomic change is open. Blocks; no lock may be held.
    pub(crate) fn commit_change(&self) -> Result<(), Error> {
        match self.uncommitted_change() {
            Some(tid) if !self.volume.has_atomic() => self.volume.commit_up_to(tid),
            _ => Ok(()),
        }
    }

    /// As [`Inode::commit_change`], after a change of its attributes or flags, if it has the flag `S`.
    pub(crate) fn sync_if_flagged(&self) -> Result<(), Error> {
        match self.disk().flags.has(InodeFlags::SYNC) {
            true => self.commit_change(),
            false => Ok(()),
        }
    }
}
