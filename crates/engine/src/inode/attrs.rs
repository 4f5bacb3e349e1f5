//! Whether what an inode says of itself may be changed.
//!
//! Input: an inode. Output: why not. Invariants: none. Limits: who may set what is the caller's policy.

use super::Inode;
use crate::error::Error;
use diorite_format::InodeFlags;

impl Inode {
    /// May its attributes, its names, its place be changed?
    pub(crate) fn check_settable(&self) -> Result<(), Error> {
        let (ino, flags) = (self.ino, self.disk().flags);
        let refused = |flag| Err(Error::NotPermitted { ino, flag });
        if self.volume.is_system_inode(ino) {
            return refused("one of the volume's own");
        }
        if flags.has(InodeFlags::IMMUTABLE) {
            return refused("immutable");
        }
        if flags.has(InodeFlags::APPEND) {
            return refused("append-only");
        }
        Ok(())
    }
}
