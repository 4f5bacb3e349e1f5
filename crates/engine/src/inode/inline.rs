//! Inline data (feature inline_data): the contents of a small file are in its inode; they change their length there, and are moved out to
//! a block before the first direct write.
//!
//! Input: an empty file and its contents; an inode with inline data, and a new size, a range of zeros, or a write that is to come.
//! Output: the data in the inode; or a file with a map, whose first block holds the data. Invariants: each change of inline data is one
//! handle; data that moves out is on the device before the handle that maps it begins, and the same handle removes it from the inode; the
//! map is published before readers are told that there is no inline data, for which they look first. Limits: inline data fits into a
//! block, as an inode does; the file may be longer, with zeros behind the data; inline data changes only while no request of the file is
//! under way.

use super::inside::INSIDE_CREDITS;
use super::remap::Remap;
use super::{Inode, timestamp};
use crate::alloc::{Loan, Run};
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::map::edit::NewRun;
use crate::mapping::MappingState;
use diorite_block::sync::atomic::Ordering;
use diorite_block::{Bio, Buf, Epoch};
use diorite_format::extent;
use diorite_format::inline::{REST, rest_entry};
use diorite_format::inode::I_BLOCK_SIZE;
use diorite_format::xattr::{self, Xattrs};
use diorite_format::{Inode as DiskInode, InodeFlags, MapKind};
use std::ops::Range;
use std::sync::Arc;

impl Inode {
    /// The inline data of a file; the rest of the file, up to its size, is zeros. None if the file has a map. Must be asked before the
    /// map is loaded.
    #[inline]
    pub(crate) fn inline_data(&self) -> Option<Arc<[u8]>> {
        match self.is_inside() {
            true => self.inside.bytes.lock().clone(),
            false => None,
        }
    }

    /// Has it inline data?
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        self.inside.there.load(Ordering::Acquire)
    }

    /// Makes inline data `size` bytes long, with zeros behind the old data. Returns false, and does nothing, if there is no inline data or
    /// the inode has no room for so much. Blocks; the caller has the turn, no lock may be held and no handle open.
    pub(crate) fn resize_inside(&self, size: u64) -> Result<bool, Error> {
        let most = u64::from(self.volume.sb.geometry().inode_size());
        let Some(size) = usize::try_from(size).ok().filter(|_| size <= most) else {
            return Ok(false);
        };
        self.change_inside(|data| data.resize(size, 0))
    }

    /// Zeros bytes of inline data. Result and locks as for [`Inode::resize_inside`].
    pub(crate) fn zero_inside(&self, bytes: Range<u64>) -> Result<bool, Error> {
        self.change_inside(|data| {
            let inside = |n| usize::try_from(n).map_or(data.len(), |n: usize| n.min(data.len()));
            let range = inside(bytes.start)..inside(bytes.end);
            data[range].fill(0);
        })
    }

    fn change_inside(&self, change: impl Fn(&mut Vec<u8>)) -> Result<bool, Error> {
        if !self.is_inside() {
            return Ok(false);
        }
        self.volume.in_handle(INSIDE_CREDITS, |handle| {
            let _map = self.map_lock.lock();
            let Some(mut data) = self.whole_inside() else {
                return Ok(false);
            };
            change(&mut data);
            self.write_inside(handle, &data)
        })
    }

    /// The inline data and the zeros that follow it up to the size, unless an inode cannot hold so much.
    fn whole_inside(&self) -> Option<Vec<u8>> {
        let most = u64::from(self.volume.sb.geometry().inode_size());
        let size = usize::try_from(self.size())
            .ok()
            .filter(|_| self.size() <= most)?;
        let mut data = self.inline_data()?.to_vec();
        data.resize(size, 0);
        Some(data)
    }

    /// Is the file empty, without any block? The map lock is held.
    pub(crate) fn is_blank(&self) -> bool {
        let disk = self.disk();
        let maps_nothing = match disk.map_kind() {
            MapKind::Inline => true,
            MapKind::Extents => extent::raw::count(&disk.i_block) == 0,
            MapKind::Indirect => disk.i_block == [0; I_BLOCK_SIZE],
            MapKind::FastSymlink | MapKind::Device | MapKind::None => false,
        };
        self.size() == 0 && maps_nothing
    }

    /// Makes `data` the whole contents of the file, as inline data. Returns false, and does nothing, if the inode has no room for it. The
    /// map lock is held, and the caller has the turn.
    pub(crate) fn write_inside(
        &self,
        handle: &JournalHandle<'_>,
        data: &[u8],
    ) -> Result<bool, Error> {
        let (disk, raw) = (self.disk(), self.raw());
        let (head, rest) = data.split_at(data.len().min(I_BLOCK_SIZE));
        let attrs = Xattrs::parse_inode(&self.volume.sb, &disk, &raw)?;
        if attrs
            .room_for(&disk, REST)
            .is_none_or(|room| rest.len() > room)
        {
            return Ok(false);
        }
        let entries = attrs.with(rest_entry(rest));
        let now = timestamp(self.volume.now_nanos());
        self.change_attributes(handle, |disk, raw| {
            xattr::write_inode(disk, &entries, raw)?;
            let flags = disk.flags.without(InodeFlags::EXTENTS);
            disk.flags = flags.with(InodeFlags::INLINE_DATA);
            disk.i_block = [0; I_BLOCK_SIZE];
            disk.i_block[..head.len()].copy_from_slice(head);
            disk.size = data.len() as u64;
            self.forget_noted_write();
            (disk.mtime, disk.ctime) = (now, now);
            Ok(())
        })?;
        // Rule D3: noted before anybody can see the new data.
        self.note_map_change(handle.tid());
        self.inside.set(Some(data.into()));
        self.note_inside(true);
        self.publish_size(data.len() as u64);
        Ok(true)
    }

    /// Has it an extent tree, or will it have one after its first write?
    pub(crate) fn will_have_extents(&self) -> bool {
        let mut disk = DiskInode::clone(&self.disk());
        if self.is_inside() {
            disk.end_inline(&self.volume.sb);
        }
        disk.map_kind() == MapKind::Extents
    }

    /// Moves inline data out to a block, if there is some. Blocks; no lock may be held and no handle open.
    pub(crate) fn move_out(&self) -> Result<(), Error> {
        match self.inline_data() {
            Some(data) => self.move_out_these(&data),
            None => Ok(()),
        }
    }

    /// Moves out the inline data that was found.
    fn move_out_these(&self, data: &[u8]) -> Result<(), Error> {
        if data.is_empty() {
            return self.start_map(None).map(drop);
        }
        let alloc = self.volume.alloc()?;
        let Some(run) = self.claim_first()? else {
            return Ok(());
        };
        let began = self.volume.data_epoch();
        let loan = Loan::new(alloc, &self.volume, run);
        let written = self.write_first(run, data);
        // A panic from here on happens in a handle or a commit, and aborts the journal, so the claim need not be given back then.
        let run = loan.keep();
        let moved = written.and_then(|()| self.start_map(Some((run, began))));
        // Another thread may have moved the data out meanwhile.
        if !matches!(moved, Ok(true)) {
            self.give_back(run);
        }
        moved.map(drop)
    }

    /// Claims a block for the data. None if another thread has moved it out. Then nothing may be claimed: with clusters a claim next to a
    /// block that the file has would be in that block's cluster, to which others may be writing by now.
    fn claim_first(&self) -> Result<Option<Run>, Error> {
        let view = self.map.load();
        let first = view.walk(0, 1).next();
        if !matches!(first, Some(Ok(mapping)) if mapping.state == MappingState::Hole) {
            // Waits until the other thread, which holds this lock, has noted that the data is moved out.
            drop(self.map_lock.lock());
            return Ok(None);
        }
        let run = self
            .volume
            .with_space_of_others(|| self.claims.take(self, &view, 0, 1));
        self.claims.close(self);
        run.map(Some)
    }

    fn write_first(&self, run: Run, data: &[u8]) -> Result<(), Error> {
        let (volume, size) = (&self.volume, self.volume.block_size());
        let mut buf = Buf::zeroed(size as usize);
        buf.copy_in(0, data);
        let pos = run.start.get() * u64::from(size);
        let done = volume.blocking.run(Bio::write(pos, buf, 0)).result;
        // If the metadata cache has the block, that is an older content of it.
        volume.cache.forget(run.start);
        done.map_err(|error| Error::of_write(&*volume.device, pos, size, error))
    }

    /// Replaces the inline data by a map, in one handle. Returns false, and does nothing, if the file has a map already.
    fn start_map(&self, first: Option<(Run, Epoch)>) -> Result<bool, Error> {
        let new = first.map(|(run, _)| NewRun {
            file_block: 0,
            len: run.len,
            start: run.start,
            unwritten: false,
        });
        let credits = INSIDE_CREDITS + self.credits_to_map(1, new.as_slice());
        self.volume.in_handle(credits, |handle| {
            let mut remap = self.remap(handle)?;
            // Another thread changed the inode before it released the map lock, and notes that the data is gone only after that.
            if remap.disk.map_kind() != MapKind::Inline {
                self.note_moved_out();
                return Ok(false);
            }
            first.map_or(Ok(()), |(_, began)| handle.relies_on(began))?;
            self.remove_inside(handle, REST)?;
            handle.or_abort(self.exchange(&mut remap, new))?;
            remap.publish()?;
            self.learn_tail(self.before_zeros());
            self.note_moved_out();
            Ok(true)
        })
    }

    fn note_moved_out(&self) {
        self.inside.set(None);
        self.note_inside(false);
    }

    fn exchange(&self, remap: &mut Remap<'_>, new: Option<NewRun>) -> Result<(), Error> {
        remap.disk.end_inline(&self.volume.sb);
        new.map_or(Ok(()), |new| remap.map_claimed(&[new]))
    }
}

#[cfg(test)]
mod tests;
