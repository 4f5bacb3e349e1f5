//! Changes of a file's map: on disk, in the inode, and in the view that readers use.
//!
//! Input: a range of file blocks and its new mapping, under a journal handle and the map lock. Output: the edited tree, blocks freed, the
//! inode's count of blocks; then one publication. Invariants: the map is published before the size; claimed blocks are marked used in the
//! handle that maps them; freed blocks are not used again before that handle's transaction is durable. Limits: one contiguous range per
//! edit.

use super::Inode;
use crate::alloc::{Alloc, Run};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::map::edit::{self, Edited, MappedRun, NewRun, TreeBlocks};
use crate::map::{MapView, Retired};
use crate::mapping::MappingState;
use diorite_block::sync::MutexGuard;
use diorite_format::{FsBlock, GroupNo, Inode as DiskInode, InodeFlags, Timestamp};
use std::ops::Range;

/// The flags that determine the kind of the map.
const MAP_FLAGS: InodeFlags = InodeFlags::EXTENTS.with(InodeFlags::INLINE_DATA);

/// Changes of a file's map in one handle. Others see nothing of them before [`Remap::publish`].
pub(crate) struct Remap<'a> {
    inode: &'a Inode,
    handle: &'a JournalHandle<'a>,
    alloc: &'a Alloc,
    /// The inode as it will be after the changes.
    pub(crate) disk: DiskInode,
    edits: Vec<Edited>,
    /// Claimed blocks that are mapped now and not yet marked used.
    mapped: Vec<Run>,
    /// The group whose bitmap was loaded last for these.
    loaded: Option<GroupNo>,
    written_at: Option<Timestamp>,
    /// Requests in flight may know the blocks that are unmapped now.
    swaps: bool,
    /// Such blocks that are not freed yet.
    swapped: Vec<MappedRun>,
    /// Takes the view that is replaced.
    retired: Option<&'a Retired<MapView>>,
    _map: MutexGuard<'a, ()>,
}

impl Inode {
    /// Takes the map lock to change the map in this handle.
    pub(crate) fn remap<'a>(&'a self, handle: &'a JournalHandle<'a>) -> Result<Remap<'a>, Error> {
        let alloc = self.volume.alloc()?;
        Ok(self.remap_locked(handle, alloc, self.map_lock.lock()))
    }

    /// As [`Inode::remap`], but None if somebody holds the map lock.
    pub(crate) fn remap_at_once<'a>(&'a self, handle: &'a JournalHandle<'a>) -> Option<Remap<'a>> {
        let (alloc, map) = (self.volume.alloc().ok()?, self.map_lock.try_lock()?);
        Some(self.remap_locked(handle, alloc, map))
    }

    /// The blocks of the volume to which a range of the file, rounded out to clusters, is mapped. Blocks while the device reads.
    pub(crate) fn mapped_runs(&self, range: Range<u64>) -> Result<Vec<MappedRun>, Error> {
        let mappings = self.mappings(self.whole_clusters(range))?;
        // A run of a file is shorter than 2^32 blocks.
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
            loaded: None,
            written_at: None,
            swaps: false,
            swapped: Vec::new(),
            retired: None,
            inode: self,
            handle,
            alloc,
            _map: map,
        }
    }
}

impl<'a> Remap<'a> {
    /// The view that this change replaces will be freed by the owner of `retired`.
    pub(crate) fn retire_to(self, retired: &'a Retired<MapView>) -> Remap<'a> {
        Remap {
            retired: Some(retired),
            ..self
        }
    }
}

impl Remap<'_> {
    /// Makes room for what so many changes leave to do, so that it need not be moved.
    pub(crate) fn expect_edits(&mut self, count: usize) {
        self.edits.reserve(count);
        self.mapped.reserve(count);
    }

    /// Maps claimed blocks, whose data is on the device, to file blocks that were a hole. The runs follow each other in the file.
    pub(crate) fn map_claimed(&mut self, new: &[NewRun]) -> Result<(), Error> {
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return Ok(());
        };
        let range = first.file_block..last.file_block + last.len;
        self.map_and_mark(range, new, new.iter().copied().map(run_of))
    }

    /// Maps all of a range to other blocks, in one edit: those of `new` that are claimed, and others that the file has; the data of all is
    /// on the device. Requests in flight may know the blocks that are freed by it.
    pub(crate) fn swap(&mut self, range: Range<u32>, new: &[(NewRun, bool)]) -> Result<(), Error> {
        let runs: Vec<NewRun> = new.iter().map(|(run, _)| *run).collect();
        let claimed = new.iter().filter(|(_, is_claimed)| *is_claimed);
        self.swaps = true;
        let swapped = self.map_and_mark(range, &runs, claimed.map(|(run, _)| run_of(*run)));
        self.swaps = false;
        swapped
    }

    fn map_and_mark(
        &mut self,
        range: Range<u32>,
        new: &[NewRun],
        claimed: impl Iterator<Item = Run> + Clone,
    ) -> Result<(), Error> {
        self.alloc
            .prepare_to_use(self.handle, claimed.clone(), &mut self.loaded)?;
        self.inode.prepare_to_change(self.handle)?;
        // First the step that may fail for lack of space. It changes nothing then, and the runs are still claimed.
        self.replace(range, new)?;
        for run in claimed {
            if self.inode.volume.sb.geometry().cluster_ratio() == 1 {
                // Marked used in `publish`, all together, as most of them share bitmaps and descriptors.
                self.mapped.push(run);
                self.disk.blocks += self.units(run.len);
            } else {
                let marked = self.alloc.mark_claimed(self.handle, run);
                self.disk.blocks += self.units(self.handle.or_abort(marked)?);
            }
        }
        Ok(())
    }

    /// Maps a run of blocks that are marked used already. `whole`: how many blocks to add to the inode's count.
    pub(crate) fn map_allocated(&mut self, new: NewRun, whole: u32) -> Result<(), Error> {
        self.replace(new.file_block..new.file_block + new.len, &[new])?;
        self.disk.blocks += self.units(whole);
        Ok(())
    }

    /// Maps a run of blocks that are marked used already, in the place of `before`, which is freed unless it is the same. A cluster with
    /// blocks of `before` is not counted again for the inode.
    pub(crate) fn map_known(&mut self, new: NewRun, before: &[MappedRun]) -> Result<(), Error> {
        self.replace(new.file_block..new.file_block + new.len, &[new])?;
        // Blocks around the range keep their mapping, so their clusters are among those of `before`.
        let volume = &self.inode.volume;
        let now = whole_clusters(volume, &[(new.start, new.len)])?;
        let before = whole_clusters(volume, before)?;
        for (_, len) in edit::without(self.inode.ino, &now, &before)? {
            self.disk.blocks += self.units(len);
        }
        Ok(())
    }

    /// Maps a range to `new`. Blocks that were mapped there and are not any more are freed.
    pub(crate) fn replace(&mut self, range: Range<u32>, new: &[NewRun]) -> Result<(), Error> {
        let mut blocks = FromAlloc {
            handle: self.handle,
            alloc: self.alloc,
            inode: self.inode,
            range: range.clone(),
        };
        let around = range.clone();
        let edited = edit::replace(self.handle, &mut blocks, &mut self.disk, range, new);
        self.take_over(self.inode.volume.watched(edited)?, &around)
    }

    /// Moves the mapping of a range by `by` blocks of the file.
    pub(crate) fn shift(&mut self, range: Range<u32>, by: i64) -> Result<(), Error> {
        let mut blocks = FromAlloc {
            handle: self.handle,
            alloc: self.alloc,
            inode: self.inode,
            range: range.clone(),
        };
        let around = range.clone();
        let edited = edit::shift(self.handle, &mut blocks, &mut self.disk, range, by);
        self.take_over(self.inode.volume.watched(edited)?, &around)
    }

    /// Sets mtime and ctime when the change is published.
    pub(crate) fn written_at(&mut self, time: Timestamp) {
        self.written_at = Some(time);
    }

    /// Writes the inode, then shows the map and then the size to readers; a smaller size is shown before the map, since readers load the
    /// size first. Only the fields of the inode that belong to the map are written: others, as for names and orphans, may have changed
    /// meanwhile.
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
            loaded: _,
            alloc,
            written_at,
            swaps: _,
            swapped,
            retired,
            _map,
        } = self;
        alloc.mark_all_used(handle, &mapped)?;
        if !swapped.is_empty() {
            // Before the new map is published: whoever takes the turn afterwards finds the note.
            let owner = inode.note_swapped(alloc, &swapped);
            alloc.free_swapped(handle, owner, &swapped)?;
        }
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
        // Rule D3: noted before the new map or size is visible, so whoever sees it finds that it is not committed.
        inode.note_map_change(handle.tid());
        if size < inode.size() {
            inode.publish_size(size);
        }
        inode.publish_edits(&edits, retired)?;
        inode.publish_size(size);
        Ok(())
    }

    /// Takes an edit in: frees the blocks that it has unmapped, and counts. An edit cannot be undone, so a failure aborts the journal.
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
        if self.swaps {
            // Freed in `publish`, all together, as most of them share bitmaps and descriptors.
            for (_, len) in &freed {
                self.disk.blocks = self.disk.blocks.saturating_sub(self.units(*len));
            }
            self.swapped.append(&mut freed);
        }
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
            // Without a revoke, replaying the log could write these blocks over what they hold by then.
            for (start, len) in edited.removed.iter().copied() {
                let blocks = start.get()..start.get() + u64::from(len);
                blocks.for_each(|at| self.handle.forget(FsBlock::new(at)));
            }
        }
        Ok(())
    }

    /// The clusters of blocks that an edit of `range` has unmapped, without clusters of which the file still maps a block, before or
    /// behind the range.
    fn unused_clusters(
        &self,
        removed: &[MappedRun],
        range: &Range<u32>,
    ) -> Result<Vec<MappedRun>, Error> {
        let whole = whole_clusters(&self.inode.volume, removed)?;
        if whole.is_empty() {
            return Ok(whole);
        }
        let kept = mapped_around(self.inode, &self.disk, range)?;
        let kept = whole_clusters(&self.inode.volume, &kept)?;
        edit::without(self.inode.ino, &whole, &kept)
    }

    /// Blocks in the unit of an inode's block count: 512 bytes.
    fn units(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.inode.volume.block_size() / 512)
    }
}

fn run_of(new: NewRun) -> Run {
    Run {
        start: new.start,
        len: new.len,
    }
}

/// What the other blocks of the clusters at both ends of a range are mapped to.
fn mapped_around(
    inode: &Inode,
    disk: &DiskInode,
    range: &Range<u32>,
) -> Result<Vec<MappedRun>, Error> {
    let inside = u64::from(range.start)..u64::from(range.end);
    let around = inode.whole_clusters(inside.clone());
    let mut all = Vec::new();
    for edge in [around.start..inside.start, inside.end..around.end] {
        all.extend(edit::mapped_to(&inode.volume, disk, edge)?);
    }
    Ok(all)
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
        // If a cluster comes again nothing is left of it, and the empty run is ignored by those who compare runs.
        if let Some(left) = run.end().get().checked_sub(from) {
            let len = u32::try_from(left).expect("a part of a run is no longer than it");
            all.push((FsBlock::new(from), len));
        }
    }
    Ok(all)
}

/// Takes blocks for a map's nodes from the allocator.
struct FromAlloc<'a> {
    handle: &'a JournalHandle<'a>,
    alloc: &'a Alloc,
    inode: &'a Inode,
    /// The range that is edited.
    range: Range<u32>,
}

impl TreeBlocks for FromAlloc<'_> {
    fn take(&mut self, goal: FsBlock) -> Result<FsBlock, Error> {
        if let Some(run) = self.inode.node_reserve.take(self.alloc, self.handle, goal) {
            return Ok(run?.start);
        }
        // The reserve is for conversions. Any other change of the map leaves to others what data leaves to them.
        let reach = self.inode.volume.reach;
        let take = || self.alloc.allocate(self.handle, goal, 1, reach);
        let run = take().or_else(|error| match error {
            // Files may keep free blocks ahead.
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

    fn prepare_to_free(
        &mut self,
        inode: &DiskInode,
        removed: &[MappedRun],
        nodes: &[FsBlock],
    ) -> Result<(), Error> {
        self.alloc.prepare_to_free(self.handle, removed, nodes)?;
        if self.inode.volume.sb.geometry().cluster_ratio() > 1 && !removed.is_empty() {
            mapped_around(self.inode, inode, &self.range)?;
        }
        self.inode.prepare_to_change(self.handle)
    }

    fn counted_on(&self) -> usize {
        self.inode.node_reserve.counted_on()
    }
}

#[cfg(test)]
mod tests;
