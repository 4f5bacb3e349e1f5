//! Replays records of inodes: makes inodes as the fast commits describe them.
//!
//! Input: the bytes of an inode, with or without the attributes in it. Output: the inode in the inode table, its number taken.
//! Invariants: an inode keeps its map and its count of blocks, which only range records change; a directory also keeps its size, its
//! count of links, and whether it is hashed; a record with another generation describes another inode: the old one is deleted first, with
//! everything it has. Limits: damaged bytes are refused as in an inode that is read.

use super::{Place, Replay, damaged, is_dir};
use crate::delete;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Inode;
use crate::inode::in_core;
use crate::orphan::ORPHAN_CREDITS;
use diorite_format::dir::init_inline;
use diorite_format::inline::{REST, rest_entry};
use diorite_format::inode::seal;
use diorite_format::xattr::write_inode;
use diorite_format::{Ino, Inode as DiskInode, InodeFlags, MapKind};
use std::sync::Arc;

/// For the bitmap and descriptor of the number, blocks of the inode table that were never used, and the inode.
const INODE_CREDITS: u32 = 64;

impl Replay<'_> {
    /// The inode that a record names: one that exists, or a new one that this fast commit describes, here or further on.
    pub(super) fn named(
        &mut self,
        ino: Ino,
        place: Place<'_>,
    ) -> Result<Option<Arc<Inode>>, Error> {
        let there = self.inode(ino)?;
        let Some(raw) = place.next_of(ino) else {
            return Ok(there);
        };
        let new = self.parse(ino, vec![0; self.inode_size()], raw)?.0;
        if let Some(inode) = there {
            let disk = inode.disk();
            if disk.generation == new.generation && disk.file_type == new.file_type {
                let leaves = disk.map_kind() == MapKind::Inline && is_mapped(&new);
                return match leaves && !disk.is_dir() {
                    true => self.leave_inline(&inode).map(Some),
                    false => Ok(Some(inode)),
                };
            }
            drop((inode, disk));
            self.inodes.remove(&ino);
            self.erase(ino)?;
        }
        self.begin(ino, raw).map(Some)
    }

    /// Replays an inode record: gives the inode these bytes.
    pub(super) fn put_inode(
        &mut self,
        ino: Ino,
        raw: &[u8],
        place: Place<'_>,
    ) -> Result<(), Error> {
        let inode = self.named(ino, place)?;
        let inode = inode.ok_or_else(|| damaged(ino, "is not in use"))?;
        let old = inode.disk();
        let base = self.bytes_of(ino)?;
        let (mut new, bytes) = self.parse(ino, base, raw)?;
        keep_map(&mut new, &old);
        if is_dir(&inode) {
            (new.size, new.links, new.i_block) = (old.size, old.links, old.i_block);
            let kinds = [
                InodeFlags::INDEX,
                InodeFlags::INLINE_DATA,
                InodeFlags::EXTENTS,
            ];
            for flag in kinds {
                new.flags = match old.flags.has(flag) {
                    true => new.flags.with(flag),
                    false => new.flags.without(flag),
                };
            }
        }
        // An inode that had a name is on the list because of a truncation, which orphan recovery completes; it stays there.
        if old.links == 0 && new.links > 0 {
            self.volume
                .in_handle(1 + ORPHAN_CREDITS, |handle| inode.end_orphan(handle, 0))?;
        }
        // While it is on the list its dtime is the link to the next orphan.
        let is_listed = new.links == 0 || self.volume.orphans.has(ino);
        new.dtime = if is_listed { inode.disk().dtime } else { 0 };
        self.write(new, bytes).map(drop)
    }

    /// Creates an inode that did not exist, without data, and takes its number.
    fn begin(&mut self, ino: Ino, raw: &[u8]) -> Result<Arc<Inode>, Error> {
        let (mut new, mut bytes) = self.parse(ino, vec![0; self.inode_size()], raw)?;
        let (volume, as_dir) = (self.volume, new.is_dir());
        let alloc = volume.alloc()?;
        volume.in_handle(INODE_CREDITS, |handle| {
            alloc.use_inode(handle, ino, as_dir).map(drop)
        })?;
        self.names_of.remove(&ino);
        new.dtime = 0;
        new.blocks = 0;
        match new.map_kind() {
            MapKind::Inline if as_dir => {
                init_inline(&mut new, Ino::ROOT);
                new.links = 2;
                new.write_new(&volume.sb, &mut bytes)?;
                write_inode(&new, &[rest_entry(&[])], &mut bytes)?;
            }
            MapKind::Extents | MapKind::Indirect => {
                new.i_block.fill(0);
                if new.flags.has(InodeFlags::EXTENTS) {
                    new.begin_map(&volume.sb);
                }
                if as_dir {
                    (new.size, new.links) = (0, 2);
                    new.flags = new.flags.without(InodeFlags::INDEX);
                }
            }
            _ => {}
        }
        if !new.file_acl.is_none() {
            new.blocks += u64::from(volume.sb.geometry().cluster_size() / 512);
        }
        self.write(new, bytes)
    }

    /// Removes inline data from the inode of a file and gives it an empty map, since its data has moved out; range records fill the map.
    fn leave_inline(&mut self, inode: &Inode) -> Result<Arc<Inode>, Error> {
        let ino = inode.ino;
        self.volume.in_handle(INODE_CREDITS, |handle| {
            let _map = inode.map_lock.lock();
            inode.remove_inside(handle, REST)
        })?;
        let mut disk = DiskInode::clone(&inode.disk());
        disk.end_inline(&self.volume.sb);
        let bytes = self.bytes_of(ino)?;
        self.write(disk, bytes)
    }

    /// Deletes an inode with everything it has, and frees its number.
    pub(super) fn erase(&mut self, ino: Ino) -> Result<(), Error> {
        let volume = self.volume;
        let Some(inode) = self.inode(ino)? else {
            return Ok(());
        };
        self.inodes.remove(&ino);
        volume.in_handle(2 + ORPHAN_CREDITS, |handle| {
            inode.change(handle, |disk| disk.links = 0)?;
            inode.begin_orphan(handle)
        })?;
        drop(inode);
        volume.recent.let_go(ino);
        delete::delete_orphan(volume, ino)
    }

    /// Puts a record's bytes over an inode's bytes; checks the result and sets its checksum.
    fn parse(
        &self,
        ino: Ino,
        mut bytes: Vec<u8>,
        raw: &[u8],
    ) -> Result<(DiskInode, Vec<u8>), Error> {
        let sb = &self.volume.sb;
        let place = bytes.get_mut(..raw.len());
        let too_long = || damaged(ino, "is longer than an inode of this volume");
        place.ok_or_else(too_long)?.copy_from_slice(raw);
        seal(sb, ino, &mut bytes);
        let disk =
            DiskInode::parse(sb, ino, &bytes).map_err(|e| Error::from(e).at("fast commits"))?;
        if disk.file_type.is_none() {
            return Err(damaged(ino, "has no type"));
        }
        Ok((disk, bytes))
    }

    fn write(&mut self, disk: DiskInode, mut bytes: Vec<u8>) -> Result<Arc<Inode>, Error> {
        let (volume, ino) = (self.volume, disk.ino);
        disk.write(&volume.sb, &mut bytes)?;
        let (block, at) = volume.inode_place(ino)?;
        volume.in_handle(1, |handle| {
            handle.update(
                block,
                Kind::InodeTable,
                |_| Ok(()),
                |raw| {
                    raw[at..at + bytes.len()].copy_from_slice(&bytes);
                    Ok(())
                },
            )?;
            volume.announce_size(handle, disk.size)
        })?;
        let inode = in_core(volume, disk, bytes.into())?;
        volume.recent.let_go(ino);
        volume.know(&inode);
        self.inodes.insert(ino, inode.clone());
        Ok(inode)
    }

    fn inode_size(&self) -> usize {
        self.volume.sb.geometry().inode_size() as usize
    }

    fn bytes_of(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        let volume = self.volume;
        let (block, at) = volume.inode_place(ino)?;
        let read = volume
            .cache
            .read(&volume.blocking, block, Kind::InodeTable, |_| Ok(()))?;
        Ok(read[at..at + self.inode_size()].to_vec())
    }
}

/// Keeps the map and the block count, whatever the record says: range records change them.
fn keep_map(new: &mut DiskInode, old: &DiskInode) {
    if is_mapped(new) && new.map_kind() == old.map_kind() {
        new.i_block = old.i_block;
    }
    new.blocks = old.blocks;
}

fn is_mapped(disk: &DiskInode) -> bool {
    matches!(disk.map_kind(), MapKind::Extents | MapKind::Indirect)
}
