//! Replays records of ranges: what files' blocks are mapped to.
//!
//! Input: extents of files, and ranges that became holes. Output: maps changed, blocks used and freed on disk. Invariants: the blocks of
//! all extents are marked used before the first allocation; at the end every block of every inode that was named is marked used, even if
//! another inode has freed it in between. Limits: files with extents or indirect blocks.

use super::{Place, Replay, damaged};
use crate::alloc::{MARK_CREDITS, Run};
use crate::error::Error;
use crate::inode::Inode;
use crate::map::edit::{End, NewRun};
use diorite_format::extent::Extent;
use diorite_format::journal::FastRecord;
use diorite_format::{FsBlock, Ino, MapKind};

/// One past the last file block that can be mapped; no range ends behind it.
const END: u32 = u32::MAX;
/// For credits: how many leaves a new extent may touch.
const LEAVES: u32 = 8;

impl Replay<'_> {
    /// Marks the blocks that a record names as used, so that nobody else gets them.
    pub(super) fn reserve(&self, record: &FastRecord) -> Result<(), Error> {
        let FastRecord::AddRange { ino, extent } = record else {
            return Ok(());
        };
        self.check_ino(*ino)?;
        if !self.volume.sb.holds(extent.start, u64::from(extent.len)) {
            return Err(damaged(*ino, "gets blocks outside the volume"));
        }
        let run = Run {
            start: extent.start,
            len: extent.len,
        };
        self.use_run(run)
    }

    fn use_run(&self, run: Run) -> Result<(), Error> {
        let (volume, alloc) = (self.volume, self.volume.alloc()?);
        let (mut start, end) = (run.start, run.end());
        // Group by group: if groups are small, an extent may lie in more of them than one transaction has room for.
        while start < end {
            let group = volume.sb.group_of(start).ok_or_else(|| {
                Error::Damaged(format!("fast commits: {run} are outside the volume"))
            })?;
            let first = volume.sb.group_first_block(group).get();
            let past = first + u64::from(volume.sb.group_blocks(group));
            let past = FsBlock::new(past.min(end.get()));
            let len = u32::try_from(past.get() - start.get()).expect("a part of a run");
            volume
                .in_handle(MARK_CREDITS, |handle| {
                    alloc.use_blocks(handle, Run { start, len })
                })
                .map_err(|e| e.at("fast commits"))?;
            start = past;
        }
        Ok(())
    }

    pub(super) fn add_range(
        &mut self,
        ino: Ino,
        extent: &Extent,
        place: Place<'_>,
    ) -> Result<(), Error> {
        let inode = self.named(ino, place)?;
        let inode = inode.ok_or_else(|| damaged(ino, "is not in use and gets blocks"))?;
        let takes = match inode.disk().map_kind() {
            MapKind::Extents => true,
            MapKind::Indirect => !extent.unwritten,
            _ => false,
        };
        let file_block = u32::try_from(extent.block.get()).ok().filter(|_| takes);
        let file_block =
            file_block.ok_or_else(|| damaged(ino, "gets blocks that it cannot have"))?;
        let new = NewRun {
            file_block,
            len: extent.len,
            start: extent.start,
            unwritten: extent.unwritten,
        };
        let before = inode.mapped_runs(extent.block.get()..extent.end())?;
        self.volume
            .in_handle(inode.credits_to_map(LEAVES, &[new]), |handle| {
                let mut remap = inode.remap(handle)?;
                remap.map_known(new, &before)?;
                remap.publish()
            })
            .map_err(|e| e.at(format!("fast commits, inode {ino}")))
    }

    pub(super) fn remove_range(
        &mut self,
        ino: Ino,
        (start, len): (u32, u32),
        place: Place<'_>,
    ) -> Result<(), Error> {
        let Some(inode) = self.named(ino, place)? else {
            return Ok(());
        };
        if !matches!(
            inode.disk().map_kind(),
            MapKind::Extents | MapKind::Indirect
        ) {
            return Ok(());
        }
        let mut left = start..start.saturating_add(len);
        while !left.is_empty() {
            let piece = inode.piece_to_free(left.clone(), End::Last)?;
            self.volume.in_handle(piece.credits, |handle| {
                let mut remap = inode.remap(handle)?;
                remap.replace(piece.blocks.clone(), &[])?;
                remap.publish()
            })?;
            left.end = piece.blocks.start;
        }
        Ok(())
    }

    /// Marks all blocks of this inode as used.
    pub(super) fn own_blocks(&self, inode: &Inode) -> Result<(), Error> {
        if !matches!(
            inode.disk().map_kind(),
            MapKind::Extents | MapKind::Indirect
        ) {
            return Ok(());
        }
        for (start, len) in inode.mapped_runs(0..u64::from(END))? {
            self.use_run(Run { start, len })?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use crate::fast_commit::replay;
    use crate::testing::small_volume;
    use diorite_format::extent::Extent;
    use diorite_format::journal::FastRecord;
    use diorite_format::{FileBlock, FsBlock};

    /// An extent over twenty groups of 256 blocks. The defect: room was asked for what is changed in four groups.
    #[test]
    fn an_extent_over_many_small_groups_has_room() {
        let small = ["-g", "256", "-G", "128", "-O", "^resize_inode"];
        let volume = small_volume("24M", &small);
        let file = volume.create("/file", 0o644).unwrap();
        volume.sync().unwrap();
        let free = volume.usage().free_on_disk;
        let extent = Extent {
            block: FileBlock::new(0),
            len: 4900,
            start: FsBlock::new(1 + 60 * 256),
            unwritten: false,
        };
        let ino = file.ino();
        replay(
            volume.inner(),
            &[vec![FastRecord::AddRange { ino, extent }]],
        )
        .unwrap();
        assert_eq!(volume.journal_stats().uncredited, 0);
        assert_eq!(volume.usage().free_on_disk, free - 4900);
        drop(file);
        volume.close().unwrap();
    }
}
