//! Changing what a file's blocks are mapped to: on disk, in the inode, and in the view that readers use.
//!
//! Input: a range of file blocks and what it shall be mapped to, under a journal handle and the map lock. Output: the edited tree, blocks freed,
//! the inode's count of blocks; then one publication. Invariants: the map is published before the size; what was claimed is marked used in the
//! handle that maps it; freed blocks are not used again before that handle's transaction is durable. Limits: one contiguous range per edit.

use super::Inode;
use crate::alloc::{Alloc, Run};
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::map::edit::{self, Edited, NewRun, TreeBlocks};
use diorite_block::sync::MutexGuard;
use diorite_format::{FsBlock, Inode as DiskInode, Timestamp};
use std::ops::Range;

/// A file's map under change. Nothing is seen by others before [`Remap::publish`].
pub(crate) struct Remap<'a> {
    inode: &'a Inode,
    handle: &'a JournalHandle<'a>,
    alloc: &'a Alloc,
    /// The inode as it will be.
    pub(crate) disk: DiskInode,
    edits: Vec<Edited>,
    written_at: Option<Timestamp>,
    _map: MutexGuard<'a, ()>,
}

impl Inode {
    /// Takes the map lock to change the map in this handle.
    pub(crate) fn remap<'a>(&'a self, handle: &'a JournalHandle<'a>) -> Result<Remap<'a>, Error> {
        let alloc = self.volume.alloc()?;
        let map = self.map_lock.lock();
        Ok(Remap {
            disk: DiskInode::clone(&self.disk()),
            edits: Vec::new(),
            written_at: None,
            inode: self,
            handle,
            alloc,
            _map: map,
        })
    }
}

impl Remap<'_> {
    /// Maps claimed blocks, whose data is there, to file blocks that were a hole.
    pub(crate) fn map_claimed(&mut self, new: NewRun) -> Result<(), Error> {
        let run = Run {
            start: new.start,
            len: new.len,
        };
        // First what may fail for space, and then changes nothing: the run is still claimed.
        self.replace(new.file_block..new.file_block + new.len, &[new])?;
        self.disk.blocks += self.units(new.len);
        self.handle.or_abort(self.alloc.mark_used(self.handle, run))
    }

    /// Maps a range to `new`; what was mapped there and is not any more is freed.
    pub(crate) fn replace(&mut self, range: Range<u32>, new: &[NewRun]) -> Result<(), Error> {
        let mut blocks = FromAlloc {
            handle: self.handle,
            alloc: self.alloc,
        };
        let edited = edit::replace(self.handle, &mut blocks, &mut self.disk, range, new);
        self.take_over(self.inode.volume.watched(edited)?)
    }

    /// Moves what a range is mapped to by `by` blocks.
    pub(crate) fn shift(&mut self, range: Range<u32>, by: i64) -> Result<(), Error> {
        let mut blocks = FromAlloc {
            handle: self.handle,
            alloc: self.alloc,
        };
        let edited = edit::shift(self.handle, &mut blocks, &mut self.disk, range, by);
        self.take_over(self.inode.volume.watched(edited)?)
    }

    /// The contents change with this.
    pub(crate) fn written_at(&mut self, time: Timestamp) {
        self.written_at = Some(time);
    }

    /// Writes the inode, then shows the map, then the size, to everybody; a smaller size before the map: readers load the size first. Of the
    /// inode only what a map decides is written: names and orphans are others' to change meanwhile.
    pub(crate) fn publish(self) -> Result<(), Error> {
        let handle = self.handle;
        handle.or_abort(self.publish_all())
    }

    fn publish_all(self) -> Result<(), Error> {
        let Remap {
            inode,
            handle,
            disk,
            edits,
            written_at,
            _map,
            ..
        } = self;
        let size = disk.size;
        inode.change(handle, |now| {
            (now.size, now.blocks, now.i_block) = (size, disk.blocks, disk.i_block);
            if let Some(time) = written_at {
                (now.mtime, now.ctime) = (time, time);
            }
        })?;
        if size < inode.size() {
            inode.publish_size(size);
        }
        inode.publish_edits(&edits)?;
        inode.publish_size(size);
        inode.note_map_change(handle.tid());
        Ok(())
    }

    /// Frees and counts what an edit says. Nothing of the edit can be taken back: what fails aborts the journal.
    fn take_over(&mut self, edited: Edited) -> Result<(), Error> {
        let freed = self.free_all(&edited);
        self.edits.push(edited);
        self.handle.or_abort(freed)
    }

    fn free_all(&mut self, edited: &Edited) -> Result<(), Error> {
        self.disk.blocks += self.units(edited.nodes_taken);
        let nodes = edited.nodes_removed.iter().map(|block| (*block, 1));
        for (start, len) in edited.removed.iter().copied().chain(nodes) {
            self.alloc.free(self.handle, start, len)?;
            self.disk.blocks = self.disk.blocks.saturating_sub(self.units(len));
        }
        Ok(())
    }

    /// Blocks in the units of an inode's count.
    fn units(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.inode.volume.block_size() / 512)
    }
}

/// Blocks for a map's own nodes, from the allocator.
struct FromAlloc<'a> {
    handle: &'a JournalHandle<'a>,
    alloc: &'a Alloc,
}

impl TreeBlocks for FromAlloc<'_> {
    fn take(&mut self, goal: FsBlock) -> Result<FsBlock, Error> {
        let take = || self.alloc.allocate(self.handle, goal, 1, true);
        let run = take().or_else(|error| match error {
            // Files keep ahead what this needs.
            Error::NoSpace { .. } => {
                self.handle.volume().close_windows();
                take()
            }
            other => Err(other),
        });
        Ok(run?.start)
    }

    fn give_back(&mut self, block: FsBlock) -> Result<(), Error> {
        self.alloc.free(self.handle, block, 1)
    }
}
