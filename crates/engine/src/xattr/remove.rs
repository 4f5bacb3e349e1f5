//! One attribute taken away.
//!
//! Input: an inode and an attribute, under a handle and the map lock. Output: the inode's own area, or its block of attributes, without it.
//! Invariants: a block that other inodes use too is not changed: the inode gets one of its own, or none if nothing is left; what
//! may fail for space comes first and has changed nothing. Limits: values in inodes of their own are refused by name.

use crate::alloc::{Alloc, Run};
use crate::cache::Kind;
use crate::error::{Error, NotYet};
use crate::inode::Inode;
use crate::journal::JournalHandle;
use diorite_format::xattr::{self, NameIndex, XattrEntry, XattrValue, Xattrs};
use diorite_format::{FormatError, FsBlock};

/// The block of attributes and a new one, their bitmaps and descriptors, the inode.
pub(crate) const REMOVE_CREDITS: u32 = 7;

/// Which attribute.
pub(crate) type Named<'n> = (NameIndex, &'n [u8]);

impl Inode {
    /// Has it the attribute in its own area?
    pub(crate) fn has_inside(&self, (index, name): Named<'_>) -> Result<bool, Error> {
        let (disk, raw) = (self.disk(), self.raw());
        let attrs = Xattrs::parse_inode(&self.volume.sb, &disk, &raw)?;
        Ok(attrs.get(index, name).is_some())
    }

    /// Takes an attribute away, wherever it is. Blocks; the map lock is held, so that nobody else does.
    pub(crate) fn remove_xattr(
        &self,
        handle: &JournalHandle<'_>,
        which: Named<'_>,
    ) -> Result<(), Error> {
        self.remove_from_block(handle, which)?;
        self.remove_inside(handle, which)
    }

    /// From its own area.
    pub(crate) fn remove_inside(
        &self,
        handle: &JournalHandle<'_>,
        which: Named<'_>,
    ) -> Result<(), Error> {
        let (index, name) = which;
        if !self.has_inside(which)? {
            return Ok(());
        }
        let sb = &self.volume.sb;
        self.change_attributes(handle, |disk, raw| {
            let old = raw.to_vec();
            let attrs = Xattrs::parse_inode(sb, disk, &old)?;
            let kept = attrs.without(index, name).unwrap_or_default();
            xattr::write_inode(disk, &kept, raw).map_err(Error::from)
        })
    }

    pub(super) fn remove_from_block(
        &self,
        handle: &JournalHandle<'_>,
        (index, name): Named<'_>,
    ) -> Result<(), Error> {
        let (volume, ino, at) = (&self.volume, self.ino, self.disk().file_acl);
        if at.is_none() {
            return Ok(());
        }
        let check = self.check_of_block(at)?;
        let raw = handle.read(at, Kind::Xattr, check)?.to_vec();
        let attrs = Xattrs::parse_block(&volume.sb, ino, at, &raw)?;
        let Some(kept) = attrs.without(index, name) else {
            return Ok(());
        };
        if kept.is_empty() {
            return self.release_xattr_block(handle);
        }
        if attrs.refcount > 1 {
            return self.own_block(handle, &kept, attrs.refcount);
        }
        handle.update(at, Kind::Xattr, check, |raw| {
            xattr::write_block(&volume.sb, at, &kept, 1, raw).map_err(Error::from)
        })
    }

    /// A block of its own, in the place of a shared one.
    pub(super) fn own_block(
        &self,
        handle: &JournalHandle<'_>,
        kept: &[XattrEntry<'_>],
        users: u32,
    ) -> Result<(), Error> {
        let (volume, ino, old) = (&self.volume, self.ino, self.disk().file_acl);
        // Each inode with a value counts the blocks that name it.
        if kept
            .iter()
            .any(|e| matches!(e.value, XattrValue::Inode { .. }))
        {
            return Err(Error::NotYet(NotYet::AttributeInodes { ino }));
        }
        let new = volume.alloc()?.allocate(handle, old, 1, true)?.start;
        let mut written = Ok(());
        handle.create(new, Kind::Xattr, |raw| {
            written = xattr::write_block(&volume.sb, new, kept, 1, raw);
        });
        handle.or_abort(written.map_err(Error::from))?;
        handle.or_abort(self.set_users(handle, old, users - 1))?;
        handle.or_abort(self.change(handle, |disk| disk.file_acl = new))
    }

    /// Drops one reference to the block of attributes, or frees it with the last.
    pub(crate) fn release_xattr_block(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let (volume, ino, at) = (&self.volume, self.ino, self.disk().file_acl);
        if at.is_none() {
            return Ok(());
        }
        let raw = handle.read(at, Kind::Xattr, self.check_of_block(at)?)?;
        let users = Xattrs::parse_block(&volume.sb, ino, at, &raw)?.refcount;
        drop(raw);
        if users > 1 {
            self.set_users(handle, at, users - 1)?;
        } else {
            let whole = Alloc::around(&volume.sb, Run { start: at, len: 1 })?;
            volume.alloc()?.free(handle, whole.start, whole.len)?;
            handle.forget(at);
        }
        let units = u64::from(volume.sb.geometry().cluster_size() / 512);
        let done = self.change(handle, |disk| {
            disk.file_acl = FsBlock::NONE;
            disk.blocks = disk.blocks.saturating_sub(units);
        });
        handle.or_abort(done)
    }

    fn set_users(&self, handle: &JournalHandle<'_>, at: FsBlock, users: u32) -> Result<(), Error> {
        let sb = &self.volume.sb;
        handle.update(at, Kind::Xattr, self.check_of_block(at)?, |raw| {
            xattr::set_refcount(sb, at, raw, users).map_err(Error::from)
        })
    }

    /// What a block of attributes must be, where nothing else of the volume lies.
    pub(super) fn check_of_block(
        &self,
        at: FsBlock,
    ) -> Result<impl Fn(&[u8]) -> Result<(), FormatError> + Copy + '_, Error> {
        if let Some(what) = self.volume.metadata_in(at, 1) {
            let ino = self.ino;
            return Err(Error::Damaged(format!(
                "inode {ino}: its attribute block {at} holds {what}; run e2fsck"
            )));
        }
        let (sb, ino) = (&self.volume.sb, self.ino);
        Ok(move |raw: &[u8]| Xattrs::parse_block(sb, ino, at, raw).map(|_| ()))
    }
}
