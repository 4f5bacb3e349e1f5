//! Changing what a file's blocks are mapped to: on disk, in the inode, and in the view that readers use.
//!
//! Input: a range of file blocks and what it shall be mapped to, under a journal handle and the map lock. Output: the edited tree, blocks
//! freed, the inode's count of blocks; then one publication. Invariants: the map is published before the size; what was claimed is marked
//! used in the handle that maps it; freed blocks are not used again before that handle's transaction is durable. Limits: one contiguous
//! range per edit.

use super::Inode;
use crate::alloc::{Alloc, Run};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::map::edit::{self, Edited, MappedRun, NewRun, TreeBlocks};
use crate::mapping::MappingState;
use diorite_block::sync::MutexGuard;
use diorite_format::{FsBlock, Inode as DiskInode, InodeFlags, Timestamp};
use std::ops::Range;

/// The flags that say of what kind the map is.
const MAP_FLAGS: InodeFlags = InodeFlags::EXTENTS.with(InodeFlags::INLINE_DATA);

/// A file's map under change. Nothing is seen by others before [`Remap::publish`].
pub(crate) struct Remap<'a> {
    inode: &'a Inode,
    handle: &'a JournalHandle<'a>,
    alloc: &'a Alloc,
    /// The inode as it will be.
    pub(crate) disk: DiskInode,
    edits: Vec<Edited>,
    /// Blocks that were claimed, are mapped now, and not marked used yet.
    mapped: Vec<Run>,
    written_at: Option<Timestamp>,
    _map: MutexGuard<'a, ()>,
}

impl Inode {
    /// Takes the map lock to change the map in this handle.
    pub(crate) fn remap<'a>(&'a self, handle: &'a JournalHandle<'a>) -> Result<Remap<'a>, Error> {
        let alloc = self.volume.alloc()?;
        Ok(self.remap_locked(handle, alloc, self.map_lock.lock()))
    }

    /// As [`Inode::remap`], if nobody has the map lock.
    pub(crate) fn remap_at_once<'a>(&'a self, handle: &'a JournalHandle<'a>) -> Option<Remap<'a>> {
        let (alloc, map) = (self.volume.alloc().ok()?, self.map_lock.try_lock()?);
        Some(self.remap_locked(handle, alloc, map))
    }

    /// The blocks of the volume that a range of the file is mapped to, in whole clusters of the file. Blocks while the device reads.
    pub(crate) fn mapped_runs(&self, range: Range<u64>) -> Result<Vec<MappedRun>, Error> {
        let mappings = self.mappings(self.whole_clusters(range))?;
        // A file has fewer blocks than 32 bits can say.
        let short = |len: u64| u32::try_from(len).unwrap_or(u32::MAX);
        let runs = mappings.iter().filter_map(|m| match m.state {
            MappingState::Hole => None,
            MappingState::Written(at) | MappingState::Unwritten(at) => Some((at, short(m.len))),
        });
        Ok(runs.collect())
    }

    fn remap_locked<'a>(
        &'a self,
        handle: &'a JournalHandle<'a>,
        alloc: &'a Alloc,
        map: MutexGuard<'a, ()>,
    ) -> Remap<'a> {
        Remap {
            disk: DiskInode::clone(&self.disk()),
            edits: Vec::new(),
            mapped: Vec::new(),
            written_at: None,
            inode: self,
            handle,
            alloc,
            _map: map,
        }
    }
}

impl Remap<'_> {
    /// Maps claimed blocks, whose data is there, to file blocks that were a hole: runs that follow each other.
    pub(crate) fn map_claimed(&mut self, new: &[NewRun]) -> Result<(), Error> {
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return Ok(());
        };
        // First what may fail for space, and then changes nothing: the runs are still claimed.
        self.replace(first.file_block..last.file_block + last.len, new)?;
        for run in new {
            let run = Run {
                start: run.start,
                len: run.len,
            };
            if self.inode.volume.sb.geometry().cluster_ratio() == 1 {
                // All of them together, in `publish`: their bitmaps and descriptors are mostly the same.
                self.mapped.push(run);
                self.disk.blocks += self.units(run.len);
            } else {
                let marked = self.alloc.mark_claimed(self.handle, run);
                self.disk.blocks += self.units(self.handle.or_abort(marked)?);
            }
        }
        Ok(())
    }

    /// Maps a run of blocks that are used already, in an allocation of `whole` blocks.
    pub(crate) fn map_allocated(&mut self, new: NewRun, whole: u32) -> Result<(), Error> {
        self.replace(new.file_block..new.file_block + new.len, &[new])?;
        self.disk.blocks += self.units(whole);
        Ok(())
    }

    /// Maps a run of blocks that are used already, whatever was mapped there: that is freed, unless it was the same. Of the clusters
    /// around, those with blocks of `before`, which the file has there so far, are not counted again.
    pub(crate) fn map_known(&mut self, new: NewRun, before: &[MappedRun]) -> Result<(), Error> {
        self.replace(new.file_block..new.file_block + new.len, &[new])?;
        // What lies around is mapped as it was, so its clusters are among those of `before`.
        let volume = &self.inode.volume;
        let now = whole_clusters(volume, &[(new.start, new.len)])?;
        let before = whole_clusters(volume, before)?;
        for (_, len) in edit::without(self.inode.ino, &now, &before)? {
            self.disk.blocks += self.units(len);
        }
        Ok(())
    }

    /// Maps a range to `new`; what was mapped there and is not any more is freed.
    pub(crate) fn replace(&mut self, range: Range<u32>, new: &[NewRun]) -> Result<(), Error> {
        let mut blocks = FromAlloc {
            handle: self.handle,
            alloc: self.alloc,
            inode: self.inode,
        };
        let around = range.clone();
        let edited = edit::replace(self.handle, &mut blocks, &mut self.disk, range, new);
        self.take_over(self.inode.volume.watched(edited)?, &around)
    }

    /// Moves what a range is mapped to by `by` blocks.
    pub(crate) fn shift(&mut self, range: Range<u32>, by: i64) -> Result<(), Error> {
        let mut blocks = FromAlloc {
            handle: self.handle,
            alloc: self.alloc,
            inode: self.inode,
        };
        let around = range.clone();
        let edited = edit::shift(self.handle, &mut blocks, &mut self.disk, range, by);
        self.take_over(self.inode.volume.watched(edited)?, &around)
    }

    /// The contents change with this.
    pub(crate) fn written_at(&mut self, time: Timestamp) {
        self.written_at = Some(time);
    }

    /// Writes the inode, then shows the map, then the size, to everybody; a smaller size before the map: readers load the size first. Of
    /// the inode only what a map decides is written: names and orphans are others' to change meanwhile.
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
            mapped,
            alloc,
            written_at,
            _map,
        } = self;
        alloc.mark_all_used(handle, &mapped)?;
        let size = disk.size;
        let others = disk.flags.without(MAP_FLAGS);
        let map_flags = disk.flags.without(others);
        inode.volume.announce_size(handle, size)?;
        inode.change(handle, |now| {
            (now.size, now.blocks, now.i_block) = (size, disk.blocks, disk.i_block);
            now.flags = now.flags.without(MAP_FLAGS).with(map_flags);
            if let Some(time) = written_at {
                inode.forget_noted_write();
                (now.mtime, now.ctime) = (time, time);
            }
        })?;
        // Rule D3: who sees the new map or size finds that they are not committed.
        inode.note_map_change(handle.tid());
        if size < inode.size() {
            inode.publish_size(size);
        }
        inode.publish_edits(&edits)?;
        inode.publish_size(size);
        Ok(())
    }

    /// Frees and counts what an edit says. Nothing of the edit can be taken back: what fails aborts the journal.
    fn take_over(&mut self, edited: Edited, range: &Range<u32>) -> Result<(), Error> {
        let freed = self.free_all(&edited, range);
        self.edits.push(edited);
        self.handle.or_abort(freed)
    }

    fn free_all(&mut self, edited: &Edited, range: &Range<u32>) -> Result<(), Error> {
        let sb = &self.inode.volume.sb;
        let ratio = sb.geometry().cluster_ratio();
        self.disk.blocks += self.units(edited.nodes_taken.saturating_mul(ratio));
        let mut freed = match ratio {
            1 => edited.removed.clone(),
            _ => self.unused_clusters(&edited.removed, range)?,
        };
        for node in &edited.nodes_removed {
            let run = Alloc::around(
                sb,
                Run {
                    start: *node,
                    len: 1,
                },
            )?;
            freed.push((run.start, run.len));
        }
        for (start, len) in freed {
            self.alloc.free(self.handle, start, len)?;
            self.disk.blocks = self.disk.blocks.saturating_sub(self.units(len));
        }
        if self.inode.holds_metadata() {
            // Else replaying the log could bring them back over what comes there next.
            for (start, len) in edited.removed.iter().copied() {
                let blocks = start.get()..start.get() + u64::from(len);
                blocks.for_each(|at| self.handle.forget(FsBlock::new(at)));
            }
        }
        Ok(())
    }

    /// The clusters of blocks that an edit of `range` has unmapped, without those of which the file still maps a block: such a block lies
    /// before or behind the range.
    fn unused_clusters(
        &self,
        removed: &[MappedRun],
        range: &Range<u32>,
    ) -> Result<Vec<MappedRun>, Error> {
        let whole = whole_clusters(&self.inode.volume, removed)?;
        if whole.is_empty() {
            return Ok(whole);
        }
        let inside = u64::from(range.start)..u64::from(range.end);
        let around = self.inode.whole_clusters(inside.clone());
        let mut kept = Vec::new();
        for edge in [around.start..inside.start, inside.end..around.end] {
            kept.extend(edit::mapped_to(&self.inode.volume, &self.disk, edge)?);
        }
        let kept = whole_clusters(&self.inode.volume, &kept)?;
        edit::without(self.inode.ino, &whole, &kept)
    }

    /// Blocks in the units of an inode's count.
    fn units(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.inode.volume.block_size() / 512)
    }
}

/// The clusters around some runs, each once.
fn whole_clusters(volume: &Fs, runs: &[MappedRun]) -> Result<Vec<MappedRun>, Error> {
    let mut all: Vec<MappedRun> = Vec::with_capacity(runs.len());
    let mut runs = runs.to_vec();
    runs.sort_unstable();
    for (start, len) in runs {
        let run = Alloc::around(&volume.sb, Run { start, len })?;
        let from = match all.last() {
            Some((start, len)) => run.start.get().max(start.get() + u64::from(*len)),
            None => run.start.get(),
        };
        // None are left of a cluster that comes again: whoever compares runs passes over that.
        if let Some(left) = run.end().get().checked_sub(from) {
            let len = u32::try_from(left).expect("a part of a run is no longer than it");
            all.push((FsBlock::new(from), len));
        }
    }
    Ok(all)
}

/// Blocks for a map's own nodes, from the allocator.
struct FromAlloc<'a> {
    handle: &'a JournalHandle<'a>,
    alloc: &'a Alloc,
    inode: &'a Inode,
}

impl TreeBlocks for FromAlloc<'_> {
    fn take(&mut self, goal: FsBlock) -> Result<FsBlock, Error> {
        if let Some(run) = self.inode.node_reserve.take(self.alloc, self.handle, goal) {
            return Ok(run?.start);
        }
        // What was set aside is for conversions; who else changes the map has no more right than with data.
        let privileged = self.inode.volume.privileged;
        let take = || self.alloc.allocate(self.handle, goal, 1, privileged);
        let run = take().or_else(|error| match error {
            // Files keep ahead what this needs.
            Error::NoSpace { .. } => {
                self.inode.volume.close_windows();
                take()
            }
            other => Err(other),
        });
        Ok(run?.start)
    }

    fn give_back(&mut self, block: FsBlock) -> Result<(), Error> {
        let run = Alloc::around(
            &self.handle.store().sb,
            Run {
                start: block,
                len: 1,
            },
        )?;
        self.alloc.free(self.handle, run.start, run.len)
    }
}

#[cfg(test)]
mod tests;
