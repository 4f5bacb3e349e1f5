//! Whether the inode's flags allow changes of its attributes and names.
//!
//! Input: an inode. Output: an error that names the flag which forbids the change. Invariants: none. Limits: the caller's permissions are
//! not checked: frontends do that.

use super::Inode;
use crate::error::Error;
use diorite_format::InodeFlags;

impl Inode {
    /// May its attributes be changed, and may it get or lose names? Not if it is immutable, append-only, or one of the volume's own.
    pub(crate) fn check_settable(&self) -> Result<(), Error> {
        self.check_touchable()?;
        match self.disk().flags.has(InodeFlags::APPEND) {
            true => Err(Error::NotPermitted {
                ino: self.ino,
                flag: "append-only",
            }),
            false => Ok(()),
        }
    }

    /// May its times become the current time? As [`Inode::check_settable`], but it may be append-only.
    pub(crate) fn check_touchable(&self) -> Result<(), Error> {
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
        Ok(())
    }
}
