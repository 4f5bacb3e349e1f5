//! One attribute set.
//!
//! Input: an inode, a name, a value. Output: the attribute in the inode's own area if that has room, else in its block of attributes, which is made, or
//! copied where others share it. Invariants: it is in one of the two places; what may fail for space comes first and has changed nothing.
//! Limits: values of one block at most, as none are put into inodes of their own; an access control list does not change the
//! permissions; `user.` attributes are for files and directories.

use super::MOST_VALUE;
use super::remove::{Named, REMOVE_CREDITS};
use crate::cache::Kind;
use crate::error::{Error, NotYet};
use crate::inode::{CAPABILITY, Inode, timestamp};
use crate::journal::JournalHandle;
use crate::volume::Volume;
use diorite_format::features::Compat;
use diorite_format::xattr::{self, NameIndex, XattrValue, Xattrs};
use diorite_format::{Ino, acl};

/// As for removing one, and a new block's bitmap and descriptor.
const SET_CREDITS: u32 = REMOVE_CREDITS + 2;

impl Volume {
    /// Sets an attribute by its whole name; the value of an ACL is that of the kernel's interface. Durable with the next [`Volume::sync`] or commit.
    /// Blocks.
    ///
    /// # Errors
    /// `AttributesFull`; `NoSpace`; `NotSupported` for a name that cannot be stored; `NotPermitted` by the inode's flags or kind; damage; a device
    /// that fails.
    pub fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let (inode, which) = self.to_change(ino, name)?;
        if value.len() > MOST_VALUE as usize {
            let ino = inode.ino;
            return Err(Error::AttributesFull { ino });
        }
        let is_acl = matches!(which.0, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT);
        let converted = match is_acl {
            true => acl::to_disk(value)?,
            false => value.to_vec(),
        };
        self.inner().in_handle(SET_CREDITS, |handle| {
            let _map = inode.map_lock.lock();
            inode.set_xattr(handle, which, &converted)?;
            if inode.disk().is_file() && which == CAPABILITY {
                inode.note_privileges();
            }
            handle.or_abort(inode.note_attributes(handle))
        })
    }

    /// Removes an attribute by its whole name. Else as [`Volume::set_xattr`].
    ///
    /// # Errors
    /// `NotFound`; those of [`Volume::set_xattr`].
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Error> {
        let (inode, which) = self.to_change(ino, name)?;
        if !self.xattrs(ino)?.iter().any(|x| x.name == name) {
            let path = String::from_utf8_lossy(name).into_owned();
            return Err(Error::NotFound { path });
        }
        self.inner().in_handle(REMOVE_CREDITS, |handle| {
            let _map = inode.map_lock.lock();
            inode.remove_xattr(handle, which)?;
            handle.or_abort(inode.note_attributes(handle))
        })
    }

    /// The inode whose attribute changes, and how the name is stored.
    fn to_change<'n>(
        &self,
        ino: Ino,
        name: &'n [u8],
    ) -> Result<(std::sync::Arc<Inode>, Named<'n>), Error> {
        let volume = self.inner();
        volume.check_open()?;
        volume.check_writable()?;
        let inode = volume.inode(ino)?;
        inode.check_settable()?;
        let shown = || String::from_utf8_lossy(name).into_owned();
        let stored = NameIndex::split(name).filter(|w| *w != (NameIndex::SYSTEM, b"data"));
        let which = stored.filter(|(_, rest)| rest.len() <= 255 && !rest.contains(&0));
        let Some(which) = which else {
            return Err(Error::NotSupported(format!("an attribute {}", shown())));
        };
        if !volume.sb.features().compat.has(Compat::EXT_ATTR) {
            let what = "attributes on a volume without the feature ext_attr";
            return Err(Error::NotSupported(what.to_owned()));
        }
        let disk = inode.disk();
        if which.0 == NameIndex::USER && !disk.is_file() && !disk.is_dir() {
            let flag = "no file or directory";
            return Err(Error::NotPermitted { ino, flag });
        }
        Ok((inode, which))
    }
}

impl Inode {
    /// Attributes have changed now.
    fn note_attributes(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let now = timestamp(self.volume.now_nanos());
        self.change(handle, |disk| disk.ctime = now)
    }

    /// Sets an attribute. The map lock is held, so that nobody else does. Blocks.
    fn set_xattr(
        &self,
        handle: &JournalHandle<'_>,
        which: Named<'_>,
        value: &[u8],
    ) -> Result<(), Error> {
        let (index, name) = which;
        let (sb, disk, raw) = (&self.volume.sb, self.disk(), self.raw());
        let inside = Xattrs::parse_inode(sb, &disk, &raw)?;
        self.check_value_here(&inside, which)?;
        let entries = inside.with(index, name, value);
        let fits = xattr::write_inode(&disk, &entries, &mut raw.to_vec()).is_ok();
        if !fits {
            self.put_in_block(handle, which, value)?;
            return handle.or_abort(self.remove_inside(handle, which));
        }
        self.remove_from_block(handle, which)?;
        let set = self.change_attributes(handle, |disk, raw| {
            let old = raw.to_vec();
            let entries = Xattrs::parse_inode(sb, disk, &old)?;
            let entries = entries.with(index, name, value);
            xattr::write_inode(disk, &entries, raw).map_err(Error::from)
        });
        handle.or_abort(set)
    }

    /// A value in an inode of its own would be lost to its inode.
    fn check_value_here(&self, attrs: &Xattrs<'_>, (index, name): Named<'_>) -> Result<(), Error> {
        let ino = self.ino;
        match attrs.get(index, name).map(|e| e.value) {
            Some(XattrValue::Inode { .. }) => Err(Error::NotYet(NotYet::AttributeInodes { ino })),
            _ => Ok(()),
        }
    }

    fn put_in_block(
        &self,
        handle: &JournalHandle<'_>,
        which: Named<'_>,
        value: &[u8],
    ) -> Result<(), Error> {
        let (volume, ino, at) = (&self.volume, self.ino, self.disk().file_acl);
        let sb = &volume.sb;
        let (index, name) = which;
        let full = |_| Error::AttributesFull { ino };
        let mut scratch = vec![0; volume.block_size() as usize];
        if at.is_none() {
            let none = Xattrs::default();
            let entries = none.with(index, name, value);
            xattr::write_block(sb, at, &entries, 1, &mut scratch).map_err(full)?;
            return self.new_block(handle, |new, raw| {
                xattr::write_block(sb, new, &entries, 1, raw).map_err(Error::from)
            });
        }
        let check = self.check_of_block(at)?;
        let raw = handle.read(at, Kind::Xattr, check)?.to_vec();
        let attrs = Xattrs::parse_block(sb, ino, at, &raw)?;
        self.check_value_here(&attrs, which)?;
        let entries = attrs.with(index, name, value);
        xattr::write_block(sb, at, &entries, 1, &mut scratch).map_err(full)?;
        if attrs.refcount > 1 {
            return self.own_block(handle, &entries, attrs.refcount);
        }
        handle.update(at, Kind::Xattr, check, |raw| {
            xattr::write_block(sb, at, &entries, 1, raw).map_err(Error::from)
        })
    }

    /// The inode's first block of attributes.
    fn new_block(
        &self,
        handle: &JournalHandle<'_>,
        fill: impl FnOnce(diorite_format::FsBlock, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (volume, alloc) = (&self.volume, self.volume.alloc()?);
        let goal = alloc.goal_of(&volume.sb, self.ino);
        let new = alloc.allocate(handle, goal, 1, volume.privileged)?.start;
        let mut filled = Ok(());
        handle.create(new, Kind::Xattr, |raw| filled = fill(new, raw));
        handle.or_abort(filled)?;
        let units = u64::from(volume.sb.geometry().cluster_size() / 512);
        handle.or_abort(self.change(handle, |disk| {
            (disk.file_acl, disk.blocks) = (new, disk.blocks + units);
        }))
    }
}
