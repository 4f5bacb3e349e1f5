//! Attributes of inodes by number: permissions, owners, times, inode flags, generation, extended attributes.
//!
//! Input: inode numbers. Output: their attributes, or changes of them. Invariants: those of the modules `inode` and `xattr`. Limits: every
//! call blocks; the caller's permissions are not checked: frontends do that.

use super::Volume;
use crate::attr::{self, SetAttr, set_attr};
use crate::error::Error;
use crate::inode::timestamp;
use crate::xattr::{self, Xattr, XattrWhen};
use diorite_format::superblock::Tuning;
use diorite_format::{Ino, InodeFlags, Timestamp};

impl Volume {
    /// Sets permissions, owner, group or times of an inode. Durable with the next [`Volume::sync`] or commit; when the call returns if the
    /// inode has the flag `S` (sync). Blocks.
    ///
    /// # Errors
    /// `NotPermitted` if the inode's flags forbid it; the volume may not be changed; damage; a device that fails.
    pub fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<(), Error> {
        self.inner().check_open()?;
        let inode = self.inner().inode(ino)?;
        set_attr(&inode, set, Some(self.maker()))
    }

    /// The time of the volume's clock, in the form in which inodes store it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        timestamp(self.inner().now_nanos())
    }

    /// Sets the flags of an inode, as FS_IOC_SETFLAGS does: flags that a user may not change keep their values. Durable with the next
    /// [`Volume::sync`] or commit; when the call returns if the inode had or gets the flag `S`. Blocks; a change of the flag `j` (data
    /// through the journal) waits until the file's requests have ended.
    ///
    /// # Errors
    /// `NotSupported` for flags that inodes of this kind do not have; `NotPermitted` for an inode that is immutable and stays so, and for
    /// the volume's own inodes; the volume may not be changed; damage; a device that fails.
    pub fn set_flags(&self, ino: Ino, flags: InodeFlags) -> Result<(), Error> {
        self.inner().check_open()?;
        self.inner().inode(ino)?.set_flags(flags)
    }

    /// Sets the generation number of an inode, as FS_IOC_SETVERSION does. Durability and blocking as for [`Volume::set_flags`].
    ///
    /// # Errors
    /// `NotSupported` on a volume with metadata checksums, which include the generation; those of [`Volume::set_flags`].
    pub fn set_generation(&self, ino: Ino, generation: u32) -> Result<(), Error> {
        self.inner().check_open()?;
        self.inner().inode(ino)?.set_generation(generation)
    }

    /// Sets the volume's label: at most 16 bytes, without a NUL. As [`Volume::tune`].
    ///
    /// # Errors
    /// `Invalid` for a longer label or a NUL; those of [`Volume::tune`].
    pub fn set_label(&self, label: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        let label = label.as_ref();
        if label.len() > 16 || label.contains(&0) {
            let what = "a label has at most 16 bytes, none of which is NUL";
            return Err(Error::Invalid(what.to_owned()));
        }
        let mut field = [0; 16];
        field[..label.len()].copy_from_slice(label);
        self.tune(&Tuning {
            label: Some(field),
            ..Tuning::default()
        })
    }

    /// Sets the volume's UUID. As [`Volume::tune`].
    ///
    /// # Errors
    /// `NotSupported` if checksums have the UUID in them: with metadata_csum and no metadata_csum_seed, and with uninit_bg; those of
    /// [`Volume::tune`].
    pub fn set_uuid(&self, uuid: [u8; 16]) -> Result<(), Error> {
        self.tune(&Tuning {
            uuid: Some(uuid),
            ..Tuning::default()
        })
    }

    /// All extended attributes of an inode, those inside the inode first. Blocks while metadata is read.
    ///
    /// # Errors
    /// Damaged attributes.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, Error> {
        xattr::all(&*self.inner().inode(ino)?)
    }

    /// The value of one extended attribute of an inode, by its full name with the prefix (`user.x`). Blocks while metadata is read.
    ///
    /// # Errors
    /// `NoAttribute`; damaged attributes.
    pub fn xattr(&self, ino: Ino, name: &(impl AsRef<[u8]> + ?Sized)) -> Result<Vec<u8>, Error> {
        xattr::one(&*self.inner().inode(ino)?, name.as_ref())
    }

    /// Sets an extended attribute by its full name. The value of an ACL has the form of the kernel's setxattr interface, and setting it
    /// changes the mode. Durable with the next [`Volume::sync`] or commit; when the call returns if the inode has the flag `S`. Blocks.
    ///
    /// # Errors
    /// `AttributesFull`; `NoSpace`, `NoInodes`; `AttributeName` for a name that is too long, `AttributeTooBig` for such a value; `Invalid`
    /// and `NotSupported` for a name that cannot be stored; `NotPermitted` if the inode's flags or type forbid it; damage; a device that
    /// fails.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &(impl AsRef<[u8]> + ?Sized),
        value: &[u8],
    ) -> Result<(), Error> {
        self.set_xattr_when(ino, name, value, XattrWhen::Always)
    }

    /// As [`Volume::set_xattr`], on the condition that the attribute exists, or that it does not.
    ///
    /// # Errors
    /// `AttributeExists`, `NoAttribute`; those of [`Volume::set_xattr`].
    pub fn set_xattr_when(
        &self,
        ino: Ino,
        name: &(impl AsRef<[u8]> + ?Sized),
        value: &[u8],
        when: XattrWhen,
    ) -> Result<(), Error> {
        let named = (name.as_ref(), value);
        attr::set_xattr(self.inner(), ino, named, when, self.maker())
    }

    /// Removes an extended attribute by its full name. Durability and blocking as for [`Volume::set_xattr`].
    ///
    /// # Errors
    /// `NoAttribute`, except for an ACL, whose absence is no error; those of [`Volume::set_xattr`].
    pub fn remove_xattr(&self, ino: Ino, name: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        attr::remove_xattr(self.inner(), ino, name.as_ref())
    }
}
