//! Data in the inode (inline_data): a small file's put there whole, and moved out before its first write.
//!
//! Input: an empty file and its contents; an inode with inline data. Output: the data in the inode; a file with a map, whose first block holds the data. Invariants: the
//! data is on the device before the handle that maps it begins; that handle takes the data out of the inode; the map is published before
//! anybody is told that the data is no longer inside, and readers ask for that first. Limits: the data fits a block, as an inode
//! does; it is put into an inode once while that is in memory.

use super::remap::Remap;
use super::{Inode, timestamp};
use crate::alloc::Run;
use crate::error::Error;
use crate::file::File;
use crate::journal::JournalHandle;
use crate::map::edit::NewRun;
use crate::xattr::INSIDE_CREDITS;
use diorite_block::sync::atomic::Ordering;
use diorite_block::{Bio, Buf};
use diorite_format::features::Incompat;
use diorite_format::inode::I_BLOCK_SIZE;
use diorite_format::xattr::{self, NameIndex, XattrEntry, Xattrs};
use diorite_format::{Inode as DiskInode, InodeFlags, MapKind};

/// The part of the data that does not fit the inode's own field.
const REST: (NameIndex, &[u8]) = (NameIndex::SYSTEM, b"data");

impl File {
    /// Puts the whole contents of an empty file into its inode, on a volume that keeps small files there. False, and nothing done, if there is no
    /// room for it, or something was in the file before: then it has to be written. Waits for direct requests in flight. Blocks.
    ///
    /// # Errors
    /// The file or the volume may not be changed; damage; a device that fails.
    pub fn keep_inside(&self, data: &[u8]) -> Result<bool, Error> {
        let inode = self.inode();
        self.check_writable()?;
        inode.check_writable(false)?;
        inode.check_data_access()?;
        let volume = &inode.volume;
        let has_feature = volume.sb.features().incompat.has(Incompat::INLINE_DATA);
        let small = data.len() <= volume.sb.geometry().inode_size() as usize;
        if !has_feature || !small || data.is_empty() || !inode.disk().is_file() {
            return Ok(false);
        }
        inode.settle_first_write()?;
        let _alone = self.quiesce();
        volume.in_handle(INSIDE_CREDITS, |handle| inode.put_inside(handle, data))
    }
}

impl Inode {
    /// See [`File::keep_inside`]. The caller has the turn.
    fn put_inside(&self, handle: &JournalHandle<'_>, data: &[u8]) -> Result<bool, Error> {
        let sb = &self.volume.sb;
        let _map = self.map_lock.lock();
        let (disk, raw) = (self.disk(), self.raw());
        let mut empty = DiskInode::clone(&disk);
        empty.end_inline(sb);
        if self.size() != 0 || self.inline_data.get().is_some() || disk.i_block != empty.i_block {
            return Ok(false);
        }
        let (head, rest) = data.split_at(data.len().min(I_BLOCK_SIZE));
        let attrs = Xattrs::parse_inode(sb, &disk, &raw)?;
        let (index, name) = REST;
        // Without a hash, as the kernel writes it.
        let entries = attrs.with(XattrEntry {
            hash: 0,
            ..XattrEntry::new(index, name, rest)
        });
        if xattr::write_inode(&disk, &entries, &mut raw.to_vec()).is_err() {
            return Ok(false);
        }
        let now = timestamp(self.volume.now_nanos());
        self.change_attributes(handle, |disk, raw| {
            xattr::write_inode(disk, &entries, raw)?;
            let flags = disk.flags.without(InodeFlags::EXTENTS);
            disk.flags = flags.with(InodeFlags::INLINE_DATA);
            disk.i_block = [0; I_BLOCK_SIZE];
            disk.i_block[..head.len()].copy_from_slice(head);
            disk.size = data.len() as u64;
            (disk.mtime, disk.ctime) = (now, now);
            Ok(())
        })?;
        self.inline_data.get_or_init(|| data.into());
        self.note_inside();
        self.publish_size(data.len() as u64);
        self.note_map_change(handle.tid());
        Ok(true)
    }

    /// The contents of a file that has no blocks because they are in its inode. Asked before the map is.
    #[inline]
    pub(crate) fn inline_data(&self) -> Option<&[u8]> {
        let inside = self.inline_data.get()?;
        (!self.moved_out.load(Ordering::Acquire)).then_some(inside)
    }

    /// Is it a file with an extent tree, or will its first write make it one?
    pub(crate) fn will_have_extents(&self) -> bool {
        let mut disk = DiskInode::clone(&self.disk());
        if self.inline_data().is_some() {
            disk.end_inline(&self.volume.sb);
        }
        disk.map_kind() == MapKind::Extents
    }

    /// Moves the data of a file out of its inode, if it is there. Blocks; no lock may be held and no handle open.
    pub(super) fn move_out(&self) -> Result<(), Error> {
        let Some(data) = self.inline_data() else {
            return Ok(());
        };
        if data.is_empty() {
            return self.start_map(None).map(drop);
        }
        let run = self.claim_first()?;
        let moved = self
            .write_first(run, data)
            .and_then(|()| self.start_map(Some(run)));
        // Somebody else may have moved it meanwhile.
        if !matches!(moved, Ok(true)) {
            self.give_back(run);
        }
        moved.map(drop)
    }

    fn claim_first(&self) -> Result<Run, Error> {
        let view = self.map.load();
        let run = self
            .volume
            .with_all_space(|| self.claims.take(self, &view, 0, 1));
        self.claims.close(self);
        run
    }

    fn write_first(&self, run: Run, data: &[u8]) -> Result<(), Error> {
        let (volume, size) = (&self.volume, self.volume.block_size());
        let mut buf = Buf::zeroed(size as usize);
        buf.copy_in(0, data);
        let pos = run.start.get() * u64::from(size);
        let done = volume.blocking.run(Bio::write(pos, buf, 0)).result;
        // If the cache has the block it is from what was there before.
        volume.cache.forget(run.start);
        done.map_err(|error| Error::of_write(&*volume.device, pos, size, error))
    }

    /// The map in the place of the data, in one handle. False, and nothing done, if it has one already.
    fn start_map(&self, first: Option<Run>) -> Result<bool, Error> {
        let new = first.map(|run| NewRun {
            file_block: 0,
            len: run.len,
            start: run.start,
            unwritten: false,
        });
        let credits = INSIDE_CREDITS + self.credits_to_map(1, new.as_slice());
        self.volume.in_handle(credits, |handle| {
            let mut remap = self.remap(handle)?;
            // What others did is in the inode before the map lock goes, and told after that.
            if remap.disk.map_kind() != MapKind::Inline {
                self.note_moved_out();
                return Ok(false);
            }
            self.remove_inside(handle, REST)?;
            handle.or_abort(self.exchange(&mut remap, new))?;
            remap.publish()?;
            self.note_tail(true);
            self.note_moved_out();
            Ok(true)
        })
    }

    fn exchange(&self, remap: &mut Remap<'_>, new: Option<NewRun>) -> Result<(), Error> {
        remap.disk.end_inline(&self.volume.sb);
        new.map_or(Ok(()), |new| remap.map_claimed(&[new]))
    }
}
