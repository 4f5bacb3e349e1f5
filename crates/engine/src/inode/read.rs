//! Reads an inode from the inode table.
//!
//! Input: an inode number. Output: an [`Inode`], with its inline data if it has some. Invariants: the number is in range, the
//! checksum holds, the inode is in use. Limits: blocks while the inode table is read.

use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::{Inode, inline_contents};
use crate::journal::JournalHandle;
use diorite_format::{Ino, Inode as DiskInode, MapKind};
use std::sync::Arc;

impl Fs {
    /// Loads an inode's block of the inode table, so that a change of it needs no device.
    pub(crate) fn prepare_to_change(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
    ) -> Result<(), Error> {
        let (block, _) = self.inode_place(ino)?;
        handle.read(block, Kind::InodeTable, |_| Ok(())).map(drop)
    }

    /// Changes an inode that is not in memory, in the inode table. Blocks while the device reads.
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

/// Reads inode `ino`, which must have a name.
pub(crate) fn read_inode(volume: &Arc<Fs>, ino: Ino) -> Result<Arc<Inode>, Error> {
    // In a volume open for writing, an inode without a name is an orphan that is going to be deleted.
    let gone = |disk: &DiskInode| {
        (disk.is_free() || disk.links == 0 && volume.alloc.is_some())
            && !volume.is_system_inode(ino)
    };
    read_unless(volume, ino, gone)
}

/// Reads an inode that is on the orphan list.
pub(crate) fn read_orphan(volume: &Arc<Fs>, ino: Ino) -> Result<Arc<Inode>, Error> {
    read_unless(volume, ino, |disk| disk.file_type.is_none())
}

fn read_unless(
    volume: &Arc<Fs>,
    ino: Ino,
    gone: impl Fn(&DiskInode) -> bool,
) -> Result<Arc<Inode>, Error> {
    let read = || -> Result<Arc<Inode>, Error> {
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

/// Makes the in-core inode from an inode's raw and parsed bytes.
pub(crate) fn in_core(
    volume: &Arc<Fs>,
    disk: DiskInode,
    raw: Arc<[u8]>,
) -> Result<Arc<Inode>, Error> {
    let inline = match disk.map_kind() {
        MapKind::Inline if !disk.is_dir() => Some(inline_contents(volume, &disk, &raw)?.into()),
        _ => None,
    };
    Inode::new(volume, disk, raw, inline)
}
