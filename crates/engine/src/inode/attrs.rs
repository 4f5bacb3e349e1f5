//! Whether what an inode says of itself may be changed.
//!
//! Input: an inode. Output: why not. Invariants: none. Limits: who may set what is the caller's policy.

use super::Inode;
use crate::error::Error;
use diorite_format::InodeFlags;

impl Inode {
    /// May its attributes, its names, its place be changed?
    pub(crate) fn check_settable(&self) -> Result<(), Error> {
        let (ino, disk) = (self.ino, self.disk());
        let (flags, refused) = (disk.flags, |flag| Err(Error::NotPermitted { ino, flag }));
        if self.volume.is_own_inode(ino) {
            return refused("one of the volume's own");
        }
        // Its times say what the value is, and how many attributes name it.
        if disk.holds_value() {
            return refused("the value of an attribute");
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
