//! Reading an inode: from its number to the in-core inode.
//!
//! Input: a number. Output: an [`Inode`], with its inline contents if it has some. Invariants: the number is in range, the
//! checksum holds, the slot is in use. Limits: blocks while the inode table is read.

use crate::cache::Kind;
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
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

impl VolumeShared {
    /// Changes an inode that is not in memory, in its place. Blocks while the device reads.
    pub(crate) fn change_on_disk(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
        change: impl FnOnce(&mut DiskInode),
    ) -> Result<(), Error> {
        let (block, from) = self.inode_place(ino)?;
        let to = from + self.sb.geometry().inode_size() as usize;
        handle.update(
            block,
            Kind::InodeTable,
            |_| Ok(()),
            |raw| {
                let mut disk = DiskInode::parse(&self.sb, ino, &raw[from..to])?;
                change(&mut disk);
                disk.write(&self.sb, &mut raw[from..to])
                    .map_err(Error::from)
            },
        )
    }
}

/// Reads what stands in an inode's place.
pub(crate) fn read_disk_inode(volume: &VolumeShared, ino: Ino) -> Result<DiskInode, Error> {
    let (block, from) = volume.inode_place(ino)?;
    let bytes = volume
        .cache
        .read(&volume.blocking, block, Kind::InodeTable, |_| Ok(()))?;
    let to = from + volume.sb.geometry().inode_size() as usize;
    Ok(DiskInode::parse(&volume.sb, ino, &bytes[from..to])?)
}

/// Reads inode `ino` from its table: one that has a name.
pub(crate) fn read_inode(volume: &Arc<VolumeShared>, ino: Ino) -> Result<Inode, Error> {
    // In a volume that is changed, what has no name is on its way to be deleted.
    let gone = |disk: &DiskInode| {
        (disk.is_free() || disk.links == 0 && volume.alloc.is_some())
            && !volume.is_system_inode(ino)
    };
    read_unless(volume, ino, gone)
}

/// Reads an inode that is on the list of orphans.
pub(crate) fn read_orphan(volume: &Arc<VolumeShared>, ino: Ino) -> Result<Inode, Error> {
    read_unless(volume, ino, |disk| disk.file_type.is_none())
}

fn read_unless(
    volume: &Arc<VolumeShared>,
    ino: Ino,
    gone: impl Fn(&DiskInode) -> bool,
) -> Result<Inode, Error> {
    let read = || -> Result<Inode, Error> {
        let (block, from) = volume.inode_place(ino)?;
        let bytes = volume
            .cache
            .read(&volume.blocking, block, Kind::InodeTable, |_| Ok(()))?;
        let raw: Arc<[u8]> = bytes[from..from + volume.sb.geometry().inode_size() as usize].into();
        let disk = DiskInode::parse(&volume.sb, ino, &raw)?;
        if gone(&disk) {
            return Err(Error::NotInUse { ino });
        }
        in_core(volume, disk, raw)
    };
    read().map_err(|e| {
        if e.is_corrupt() {
            e.at(format!("{}, inode {ino}", volume.name()))
        } else {
            e
        }
    })
}

/// The in-core inode of what stands in an inode's place.
pub(crate) fn in_core(
    volume: &Arc<VolumeShared>,
    disk: DiskInode,
    raw: Arc<[u8]>,
) -> Result<Inode, Error> {
    let inline = match disk.map_kind() {
        MapKind::Inline if !disk.is_dir() => {
            Some(xattr::inline_contents(volume, &disk, &raw)?.into())
        }
        _ => None,
    };
    Inode::new(volume, disk, raw, inline)
}
