//! Allocation ahead of writing: unwritten blocks for holes.
//!
//! Input: an inode whose gate is closed, and a range. Output: no hole in it. Invariants: what is allocated reads as zeros until it is written;
//! a run is claimed first, then mapped in a handle of its own. Limits: without space what was allocated stays, and the size where it was.

use crate::error::Error;
use crate::inode::{Claimed, Inode};
use crate::map::edit::NewRun;
use crate::map::{Mapping, MappingState};
use std::ops::Range;

/// Blocks that are claimed at once: as many as two unwritten extents have.
const MOST_AT_ONCE: u64 = 65534;

/// Leaves between which a hole may lie.
const LEAVES_AROUND: u32 = 2;

/// Maps every hole of the range to unwritten blocks.
pub(super) fn fill_holes(inode: &Inode, blocks: Range<u64>) -> Result<(), Error> {
    let mut at = blocks.start;
    while at < blocks.end {
        let mapping = mapping_at(inode, at, blocks.end)?;
        at = match mapping.state {
            MappingState::Hole => fill(inode, &mapping)?,
            MappingState::Unwritten(_) | MappingState::Written(_) => mapping.start + mapping.len,
        };
    }
    inode.claims.close(inode);
    Ok(())
}

/// The mapping of `at`, as far as that is in memory and before `end`.
pub(super) fn mapping_at(inode: &Inode, at: u64, end: u64) -> Result<Mapping, Error> {
    let view = inode.load_map(at..at + 1)?;
    let first = view.walk(at, end).next();
    Ok(first
        .expect("the range is not empty")
        .expect("its first block was loaded a line above"))
}

/// Fills a hole from its start; gives the block behind what was filled.
fn fill(inode: &Inode, hole: &Mapping) -> Result<u64, Error> {
    let volume = &inode.volume;
    let file_block = u32::try_from(hole.start).expect("the largest size was checked");
    let want = u32::try_from(hole.len.min(MOST_AT_ONCE)).expect("the constant has 32 bits");
    let around = inode.whole_clusters(hole.start..hole.start + u64::from(want));
    let view = inode.load_map(around)?;
    let take = || inode.claims.take(inode, &view, hole.start, want);
    let run = volume.with_all_space(take)?;
    let claimed = Claimed { file_block, run };
    let new = NewRun {
        file_block,
        len: run.len,
        start: run.start,
        unwritten: true,
    };
    let credits = inode.credits_to_map(LEAVES_AROUND, &[new]);
    let mapped = volume.in_handle(credits, |handle| {
        let mut remap = inode.remap(handle)?;
        remap.map_claimed(&[new])?;
        remap.publish()
    });
    if mapped.is_err() {
        inode.give_back(run);
    }
    mapped.map(|()| claimed.blocks().end)
}
