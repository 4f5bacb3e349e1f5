//! Whether the inode's flags allow changes of its attributes and names.
//!
//! Input: an inode. Output: an error that names the flag which forbids the change. Invariants: none. Limits: the caller's permissions are
//! not checked: frontends do that.

use super::Inode;
use crate::error::Error;
use diorite_format::{FileType, InodeFlags};

impl Inode {
    /// May its attributes be changed, and may it get or lose names? Not if it is immutable, append-only, or one of the volume's own.
    pub(crate) fn check_settable(&self) -> Result<(), Error> {
        self.check_touchable()?;
        match self.flags().has(InodeFlags::APPEND) {
            true => Err(Error::NotPermitted {
                ino: self.ino,
                flag: "append-only",
            }),
            false => Ok(()),
        }
    }

    /// May its times become the current time? As [`Inode::check_settable`], but it may be append-only.
    pub(crate) fn check_touchable(&self) -> Result<(), Error> {
        let (ino, flags) = (self.ino, self.flags());
        let refused = |flag| Err(Error::NotPermitted { ino, flag });
        if self.volume.is_own_inode(ino) {
            return refused("one of the volume's own");
        }
        // Its times say what the value is, and how many attributes name it.
        if self.file_type() == Some(FileType::Regular) && flags.has(InodeFlags::EA_INODE) {
            return refused("the value of an attribute");
        }
        if flags.has(InodeFlags::IMMUTABLE) {
            return refused("immutable");
        }
        Ok(())
    }
}
