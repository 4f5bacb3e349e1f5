//! What inodes say of themselves, by number: permissions, owners, times, flags, attributes.
//!
//! Input: numbers of inodes. Output: their attributes, or these changed. Invariants: those of the rooms `inode` and `xattr`. Limits: all of it
//! blocks; who may do what is the caller's policy.

use super::Volume;
use crate::attr::{self, SetAttr, set_attr};
use crate::error::Error;
use crate::inode::timestamp;
use crate::xattr::{self, Xattr, XattrWhen};
use diorite_format::{Ino, InodeFlags, Timestamp};

impl Volume {
    /// Sets what an inode says of itself. Durable with the next [`Volume::sync`] or commit, or at once where it has the flag `S`. Blocks.
    ///
    /// # Errors
    /// `NotPermitted` by the inode's flags; the volume may not be changed; damage; a device that fails.
    pub fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<(), Error> {
        self.inner().check_open()?;
        let inode = self.inner().inode(ino)?;
        set_attr(&inode, set, Some(self.maker()))
    }

    /// The volume's clock, as an inode stores it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        timestamp(self.inner().now_nanos())
    }

    /// Sets the flags of an inode, as FS_IOC_SETFLAGS does: those that are not a user's to change stay. Durable as what
    /// [`Volume::set_attr`] sets, where it had or has the flag `S`. Blocks; where a file begins or ends to have its data go through the
    /// journal, until its requests have ended.
    ///
    /// # Errors
    /// `NotSupported` for flags that inodes of this kind do not have; `NotPermitted` for an immutable inode that stays so, and
    /// the volume's own; the volume may not be changed; damage; a device that fails.
    pub fn set_flags(&self, ino: Ino, flags: InodeFlags) -> Result<(), Error> {
        self.inner().check_open()?;
        self.inner().inode(ino)?.set_flags(flags)
    }

    /// Sets the generation number of an inode, as FS_IOC_SETVERSION does. Else as [`Volume::set_flags`].
    ///
    /// # Errors
    /// `NotSupported` on a volume whose checksums the number is a part of; those of [`Volume::set_flags`].
    pub fn set_generation(&self, ino: Ino, generation: u32) -> Result<(), Error> {
        self.inner().check_open()?;
        self.inner().inode(ino)?.set_generation(generation)
    }

    /// Every extended attribute of an inode, those kept inside it first. Blocks while metadata is read.
    ///
    /// # Errors
    /// Damaged attributes.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, Error> {
        xattr::all(&*self.inner().inode(ino)?)
    }

    /// One extended attribute of an inode, by its whole name. Blocks while metadata is read.
    ///
    /// # Errors
    /// `NoAttribute`; damaged attributes.
    pub fn xattr(&self, ino: Ino, name: &(impl AsRef<[u8]> + ?Sized)) -> Result<Vec<u8>, Error> {
        xattr::one(&*self.inner().inode(ino)?, name.as_ref())
    }

    /// Sets an attribute by its whole name; the value of an ACL is that of the kernel's interface, and changes the mode. Durable with the
    /// next [`Volume::sync`] or commit, or at once where the inode has the flag `S`. Blocks.
    ///
    /// # Errors
    /// `AttributesFull`; `NoSpace`, `NoInodes`; `AttributeName` for a name that is too long, `AttributeTooBig` for a value; `Invalid` and
    /// `NotSupported` for a name that cannot be stored; `NotPermitted` by the inode's flags or kind; damage; a device that fails.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &(impl AsRef<[u8]> + ?Sized),
        value: &[u8],
    ) -> Result<(), Error> {
        self.set_xattr_when(ino, name, value, XattrWhen::Always)
    }

    /// As [`Volume::set_xattr`], if it is there, or is not.
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

    /// Removes an attribute by its whole name. Else as [`Volume::set_xattr`].
    ///
    /// # Errors
    /// `NoAttribute`, but for an access control list, which need not be there; those of [`Volume::set_xattr`].
    pub fn remove_xattr(&self, ino: Ino, name: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        attr::remove_xattr(self.inner(), ino, name.as_ref())
    }
}
