//! Reading an inode: from its number to the in-core inode.
//!
//! Input: a number. Output: an [`Inode`], with its inline contents if it has some. Invariants: the number is in range, the
//! checksum holds, the slot is in use. Limits: blocks while the inode table is read.

use crate::cache::Kind;
use crate::error::Error;
use crate::inode::Inode;
use crate::volume::VolumeShared;
use crate::xattr;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, MapKind};
use std::sync::Arc;

impl VolumeShared {
    /// The block of the inode table with this inode, and where in it the inode begins.
    pub(crate) fn inode_place(&self, ino: Ino) -> Result<(FsBlock, usize), Error> {
        let place = self.sb.inode_place(ino)?;
        let table = self.groups[place.group.get() as usize].inode_table;
        let block = FsBlock::new(table.get() + u64::from(place.table_block));
        Ok((block, place.offset as usize))
    }
}

/// Reads inode `ino` from its table.
pub(crate) fn read_inode(volume: &Arc<VolumeShared>, ino: Ino) -> Result<Inode, Error> {
    let read = || -> Result<Inode, Error> {
        let (block, from) = volume.inode_place(ino)?;
        let bytes = volume
            .cache
            .read(&volume.blocking, block, Kind::InodeTable, |_| Ok(()))?;
        let raw: Box<[u8]> = bytes[from..from + volume.sb.geometry().inode_size() as usize].into();
        let disk = DiskInode::parse(&volume.sb, ino, &raw)?;
        if disk.is_free() && !volume.is_system_inode(ino) {
            return Err(Error::NotFound {
                path: format!("inode {ino}"),
            });
        }
        let inline = match disk.map_kind() {
            MapKind::Inline if !disk.is_dir() => {
                Some(xattr::inline_contents(volume, &disk, &raw)?.into())
            }
            _ => None,
        };
        Inode::new(volume, disk, raw, inline)
    };
    read().map_err(|e| {
        if e.is_corrupt() {
            e.at(format!("{}, inode {ino}", volume.name()))
        } else {
            e
        }
    })
}
