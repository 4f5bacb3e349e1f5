//! Allocates given blocks and inodes, which the replay of fast commits knows to be in use.
//!
//! Input: runs and inode numbers, under a handle. Output: those of them that were free are used, and counts and checksums fit. Invariants:
//! what is used already does not change, so the replay may be repeated; the volume's own structures are refused. Limits: what waits for a
//! commit, or is claimed, is not free.

use super::inode::{SET, Shape};
use super::{Alloc, Run, parts};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::journal::Store;
use diorite_format::bitmap;
use diorite_format::{FsBlock, Ino};

impl Alloc {
    /// Marks the free ones of the clusters around a run as used. Blocks while metadata is read.
    ///
    /// # Errors
    /// The run is not on this volume, or in the volume's own structures; damage; a device that fails.
    pub(crate) fn use_blocks(&self, handle: &JournalHandle<'_>, run: Run) -> Result<(), Error> {
        let volume = handle.store();
        let run = Alloc::around(&volume.sb, run)?;
        if let Some(what) = volume.metadata_in(run.start, u64::from(run.len)) {
            let what = format!("{run} are to hold a file's data, where {what} lies; run e2fsck");
            return Err(Error::Damaged(what));
        }
        for part in parts(&volume.sb, run) {
            let part = part?;
            let range = (part.start, part.start + part.len);
            while let Some(free) = self.claim_next(volume, part.group, range, (1, u32::MAX))? {
                let _used = self.mark_or_give_back(handle, free.run(&volume.sb))?;
            }
        }
        Ok(())
    }

    /// Is this inode in use? Blocks while metadata is read.
    ///
    /// # Errors
    /// The number is not one of this volume; damage; a device that fails.
    pub(crate) fn has_inode(&self, volume: &Store, ino: Ino) -> Result<bool, Error> {
        let place = volume.sb.inode_place(ino)?;
        let desc = self.desc_of(place.group);
        if desc.flags.inode_uninit() {
            return Ok(false);
        }
        let verify = |raw: &[u8]| desc.verify_inode_bitmap(&volume.sb, raw);
        let map = volume
            .cache
            .read(&volume.blocking, desc.inode_bitmap, Kind::Bitmap, verify)?;
        Ok(bitmap::next_zero(&map, place.index, place.index + 1).is_none())
    }

    /// Marks an inode as used if it is free, and returns whether it was. The caller writes its slot in the inode table then. Blocks while
    /// metadata is read.
    ///
    /// # Errors
    /// The number is not one of this volume; damage; a device that fails.
    pub(crate) fn use_inode(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
        is_dir: bool,
    ) -> Result<bool, Error> {
        let sb = &handle.store().sb;
        let place = sb.inode_place(ino)?;
        SET.warm(handle, &self.desc_of(place.group))?;
        let mut locked = self.slot(place.group).lock();
        let mut desc = locked.group.desc.clone();
        let known = locked.group.inodes_now(handle);
        let shape = Shape::of(sb, &desc, known);
        let bits = SET.begin(handle, &mut desc, |map| {
            let free = bitmap::next_zero(map, place.index, place.index + 1);
            Ok(free.map(|index| (index, 1)).into_iter().collect::<Vec<_>>())
        })?;
        if bits.is_empty() {
            return Ok(false);
        }
        desc.free_inodes = desc.free_inodes.saturating_sub(1);
        desc.used_dirs = desc.used_dirs.saturating_add(u32::from(is_dir));
        desc.itable_unused = desc.itable_unused.min(shape.count - place.index - 1);
        SET.finish(handle, &locked.group.desc, &desc, &bits)?;
        // The contents of blocks of the table in which no inode was ever used are undefined.
        let per_block = sb.block_size() / sb.geometry().inode_size();
        for block in shape.unused.div_ceil(per_block)..=place.index / per_block {
            let at = FsBlock::new(desc.inode_table.get() + u64::from(block));
            handle.create(at, Kind::InodeTable, |_| {});
        }
        locked.group.inodes_waiting.remove(place.index);
        locked.set_inodes(desc, known);
        locked.note_new(is_dir);
        self.totals.took_inode();
        Ok(true)
    }
}
