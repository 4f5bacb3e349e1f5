//! Edits the map of ext2 and ext3: pointers in the inode, and indirect blocks.
//!
//! Input: the pointers in the inode, a range, and the runs to map it to. Output: blocks of pointers to write in the plan,
//! new pointers in the inode, and the segments for views. Invariants: a block of pointers that would be empty is removed;
//! one is taken only if there are pointers for it. Limits: maps written blocks only.

use super::NewRun;
use super::plan::{Node, Plan};
use crate::error::Error;
use crate::map::load::{END, check_places, direct_segments, pointer_segments};
use crate::map::{Segment, SegmentKind};
use diorite_format::FsBlock;
use diorite_format::indirect::{self, PointerBlock};
use std::ops::Range;

/// The parameters of an edit.
struct Edit<'a> {
    range: Range<u64>,
    new: &'a [NewRun],
    /// Pointers per block.
    per: u64,
}

/// A place in the map for a block of pointers, which may not exist.
#[derive(Clone, Copy)]
struct Spot {
    /// The number of levels of pointers below it, itself included: 1 to 3.
    level: u16,
    /// The first file block below it.
    start: u64,
}

/// Edits the map of the plan's inode.
pub(super) fn edit(plan: &mut Plan<'_>, range: Range<u32>, new: &[NewRun]) -> Result<(), Error> {
    let sb = &plan.volume().sb;
    let most = indirect::max_file_blocks(sb);
    let last = new
        .last()
        .map_or(0, |n| u64::from(n.file_block) + u64::from(n.len));
    if last > most || new.iter().any(|n| n.unwritten) {
        return Err(Error::Invalid(format!(
            "inode {} has no extents: it maps {most} blocks, and none as unwritten",
            plan.inode.ino
        )));
    }
    plan.new_runs = new.iter().map(|n| (n.start, n.len)).collect();
    let edit = Edit {
        range: u64::from(range.start)..u64::from(range.end).min(most),
        new,
        per: u64::from(indirect::pointers_per_block(sb)),
    };
    edit.direct(plan)?;
    let mut start = u64::from(indirect::DIRECT);
    for level in 1..=3 {
        let spot = Spot { level, start };
        let slot = indirect::DIRECT + u32::from(level) - 1;
        let old = indirect::root_pointer(sb, &plan.inode, slot)?;
        let new = edit.below(plan, spot, old)?;
        if new != old {
            indirect::set_root_pointer(sb, &mut plan.inode.i_block, slot, new)?;
        }
        start = edit.blocks(spot).end;
    }
    Ok(())
}

impl Edit<'_> {
    fn direct(&self, plan: &mut Plan<'_>) -> Result<(), Error> {
        let sb = &plan.volume().sb;
        let slots = self.meets(0..u64::from(indirect::DIRECT));
        if slots.is_empty() {
            return Ok(());
        }
        check_places(
            plan.volume(),
            &plan.inode,
            &direct_segments(sb, &plan.inode)?,
        )?;
        for block in slots {
            let slot = u32::try_from(block).unwrap_or(u32::MAX);
            let old = indirect::root_pointer(sb, &plan.inode, slot)?;
            let new = self.replaced(plan, block, old);
            indirect::set_root_pointer(sb, &mut plan.inode.i_block, slot, new)?;
        }
        plan.touch(0..indirect::DIRECT);
        plan.segments = direct_segments(sb, &plan.inode)?;
        Ok(())
    }

    /// Edits everything below a pointer; returns the pointer that replaces it.
    fn below(&self, plan: &mut Plan<'_>, spot: Spot, at: FsBlock) -> Result<FsBlock, Error> {
        let blocks = self.meets(self.blocks(spot));
        if blocks.is_empty() || at.is_none() && !self.has_new(&blocks) {
            return Ok(at);
        }
        let volume = plan.volume();
        let node = segment(self.blocks(spot), at, spot.level);
        let mut bytes = vec![0; volume.block_size() as usize];
        if !at.is_none() {
            bytes = plan.read_pointers(at)?;
            let all = pointer_segments(&volume.sb, plan.inode.ino, &node, &bytes)?;
            check_places(volume, &plan.inode, &all)?;
        }
        let old = bytes.clone();
        self.slots(plan, spot, blocks, &mut bytes)?;
        if spot.level == 1 {
            plan.touch(node.start..node.start + node.len);
            let all = pointer_segments(&volume.sb, plan.inode.ino, &node, &bytes)?;
            plan.segments.extend(all);
        }
        self.place(plan, at, &old, bytes)
    }

    /// Edits the pointers of a block.
    fn slots(
        &self,
        plan: &mut Plan<'_>,
        spot: Spot,
        blocks: Range<u64>,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let sb = &plan.volume().sb;
        let span = self.per.pow(u32::from(spot.level) - 1);
        let slot_of = |block: u64| u32::try_from((block - spot.start) / span).unwrap_or(u32::MAX);
        for slot in slot_of(blocks.start)..=slot_of(blocks.end - 1) {
            let old = PointerBlock::new(sb, plan.inode.ino, FsBlock::NONE, bytes)?.get(slot)?;
            let start = spot.start + u64::from(slot) * span;
            let new = match spot.level {
                1 => self.replaced(plan, start, old),
                level => {
                    let level = level - 1;
                    self.below(plan, Spot { level, start }, old)?
                }
            };
            if new != old {
                indirect::set_pointer(sb, bytes, slot, new)?;
            }
        }
        Ok(())
    }

    /// Plans the write of a block of pointers; takes a block for it if it has none, or removes it if it is empty. Returns the pointer to
    /// it.
    fn place(
        &self,
        plan: &mut Plan<'_>,
        at: FsBlock,
        old: &[u8],
        bytes: Vec<u8>,
    ) -> Result<FsBlock, Error> {
        let is_empty = bytes.iter().all(|b| *b == 0);
        match (at.is_none(), is_empty) {
            (true, true) => {}
            (false, true) => plan.let_go(at)?,
            (true, false) => {
                let near = self.new.first().map_or(FsBlock::NONE, |n| n.start);
                let taken = plan.take(near)?;
                plan.write(taken, Node::Pointers(bytes));
                return Ok(taken);
            }
            (false, false) => {
                if bytes != old {
                    plan.write(at, Node::Pointers(bytes));
                }
                return Ok(at);
            }
        }
        Ok(FsBlock::NONE)
    }

    /// The new pointer of a block in the range. Notes the block that it was mapped to before.
    fn replaced(&self, plan: &mut Plan<'_>, block: u64, old: FsBlock) -> FsBlock {
        if !old.is_none() {
            plan.old_runs.push((old, 1));
        }
        let n = self
            .new
            .partition_point(|n| u64::from(n.file_block) <= block);
        let run = n.checked_sub(1).and_then(|n| self.new.get(n));
        run.map(|r| (block - u64::from(r.file_block), r))
            .filter(|(skip, r)| *skip < u64::from(r.len))
            .map_or(FsBlock::NONE, |(skip, r)| {
                FsBlock::new(r.start.get() + skip)
            })
    }

    fn blocks(&self, spot: Spot) -> Range<u64> {
        spot.start..spot.start + self.per.pow(u32::from(spot.level))
    }

    fn meets(&self, blocks: Range<u64>) -> Range<u64> {
        blocks.start.max(self.range.start)..blocks.end.min(self.range.end)
    }

    fn has_new(&self, blocks: &Range<u64>) -> bool {
        self.new.iter().any(|n| {
            let start = u64::from(n.file_block);
            start < blocks.end && start + u64::from(n.len) > blocks.start
        })
    }
}

/// The segment of a view for a block of pointers that is not loaded.
fn segment(blocks: Range<u64>, at: FsBlock, level: u16) -> Segment {
    let short = |b: u64| u32::try_from(b).unwrap_or(END);
    let start = short(blocks.start);
    Segment {
        start,
        len: short(blocks.end) - start,
        kind: SegmentKind::IndirectNode(at, level),
    }
}
