//! Whether the inode's flags allow changes of its attributes and names.
//!
//! Input: an inode. Output: an error that names the flag which forbids the change. Invariants: none. Limits: the caller's permissions are
//! not checked: frontends do that.

use super::{Fs, Glance, Inode};
use crate::error::Error;
use diorite_format::{FileType, Ino, InodeFlags};

impl Inode {
    /// May its attributes be changed, and may it get or lose names? Not if it is immutable, append-only, or one of the volume's own.
    pub(crate) fn check_settable(&self) -> Result<(), Error> {
        let of = (self.ino, self.file_type(), self.flags());
        self.volume.check_settable(of)
    }

    /// May its times become the current time? As [`Inode::check_settable`], but it may be append-only.
    pub(crate) fn check_touchable(&self) -> Result<(), Error> {
        let of = (self.ino, self.file_type(), self.flags());
        self.volume.check_touchable(of)
    }
}

impl Glance {
    /// As [`Inode::check_settable`].
    pub(crate) fn check_settable(&self, volume: &Fs) -> Result<(), Error> {
        let disk = &self.disk;
        volume.check_settable((disk.ino, disk.file_type, disk.flags))
    }
}

/// An inode's number, type and flags.
type Of = (Ino, Option<FileType>, InodeFlags);

impl Fs {
    fn check_settable(&self, of: Of) -> Result<(), Error> {
        self.check_touchable(of)?;
        let (ino, _, flags) = of;
        match flags.has(InodeFlags::APPEND) {
            true => Err(Error::NotPermitted {
                ino,
                flag: "append-only",
            }),
            false => Ok(()),
        }
    }

    fn check_touchable(&self, (ino, kind, flags): Of) -> Result<(), Error> {
        let refused = |flag| Err(Error::NotPermitted { ino, flag });
        if self.is_own_inode(ino) {
            return refused("one of the volume's own");
        }
        // Its times say what the value is, and how many attributes name it.
        if kind == Some(FileType::Regular) && flags.has(InodeFlags::EA_INODE) {
            return refused("the value of an attribute");
        }
        if flags.has(InodeFlags::IMMUTABLE) {
            return refused("immutable");
        }
        Ok(())
    }
}
