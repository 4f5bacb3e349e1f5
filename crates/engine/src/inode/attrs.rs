//! Whether the inode's flags allow changes of its attributes and names.
//!
//! Input: an inode. Output: the reason why not. Invariants: none. Limits: permissions of callers are not checked, that is the frontend's.

use super::Inode;
use crate::error::Error;
use diorite_format::InodeFlags;

impl Inode {
    /// May its attributes be changed, and may it get or lose names? Not if it is immutable, append-only, or one of the volume's own.
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
