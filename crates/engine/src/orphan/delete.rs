//! Deleting an inode that nothing names and nobody uses.
//!
//! Input: an inode on the list. Output: its blocks, its attributes' block and its number free. Invariants: its blocks go in pieces, in handles of
//! their own; the last handle takes it off the list and frees its number, so a crash leaves an orphan or nothing. Limits: an inode with
//! attributes' values in inodes of their own is refused by name.

use crate::cache::Kind;
use crate::error::{Error, NotYet};
use crate::inode::Inode;
use crate::range;
use crate::volume::VolumeShared;
use diorite_format::features::Incompat;
use diorite_format::xattr::{XattrValue, Xattrs};
use diorite_format::{FsBlock, Ino, MapKind};
use std::sync::Arc;

/// The number's bitmap and descriptor, the attributes' block, its bitmap and descriptor, the inode.
const DELETE_CREDITS: u32 = 6;

impl VolumeShared {
    /// Deletes what has lost its last name and its last user. Blocks; no lock may be held.
    pub(crate) fn delete_doomed(self: &Arc<Self>) -> Result<(), Error> {
        while let Some(ino) = self.orphans.next_doomed() {
            self.delete_orphan(ino)?;
        }
        Ok(())
    }

    /// Deletes an inode that is on the list. Blocks; no lock may be held.
    pub(super) fn delete_orphan(self: &Arc<Self>, ino: Ino) -> Result<(), Error> {
        let inode = self.orphans.read(self, ino)?;
        delete(&inode).map_err(|e| e.at(format!("deleting inode {ino}")))
    }
}

fn delete(inode: &Inode) -> Result<(), Error> {
    let volume = &inode.volume;
    check_deletable(inode)?;
    if matches!(
        inode.disk().map_kind(),
        MapKind::Extents | MapKind::Indirect
    ) {
        range::shrink(inode, 0)?;
    }
    let now = u32::try_from(volume.now().as_secs()).unwrap_or(u32::MAX);
    let is_dir = inode.disk().is_dir();
    let credits = DELETE_CREDITS + super::ORPHAN_CREDITS;
    volume.in_handle(credits, |handle| {
        inode.release_xattr_block(handle)?;
        volume.orphans.remove(handle, inode, now.max(1))?;
        inode.change(handle, |disk| disk.size = 0)?;
        volume.alloc()?.free_inode(handle, inode.ino, is_dir)
    })
}

/// Can it be deleted? Asked before its last name goes.
pub(crate) fn check_deletable(inode: &Inode) -> Result<(), Error> {
    let (volume, disk, ino) = (&inode.volume, inode.disk(), inode.ino);
    inode.check_map()?;
    if !volume.sb.features().incompat.has(Incompat::EA_INODE) {
        return Ok(());
    }
    let apart = |attrs: &Xattrs<'_>| {
        let mut values = attrs.entries.iter().map(|e| e.value);
        values.any(|v| matches!(v, XattrValue::Inode { .. }))
    };
    let inside = apart(&Xattrs::parse_inode(&volume.sb, &disk, &inode.raw())?);
    let block = match disk.file_acl {
        FsBlock::NONE => false,
        at => {
            let check = |raw: &[u8]| Xattrs::parse_block(&volume.sb, ino, at, raw).map(|_| ());
            let raw = volume
                .cache
                .read(&volume.blocking, at, Kind::Xattr, check)?;
            apart(&Xattrs::parse_block(&volume.sb, ino, at, &raw)?)
        }
    };
    match inside || block {
        true => Err(Error::NotYet(NotYet::AttributeInodes { ino })),
        false => Ok(()),
    }
}
