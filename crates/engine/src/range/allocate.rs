//! Preallocation: unwritten blocks for holes.
//!
//! Input: an inode whose gate is closed, and a range. Output: no hole in it. Invariants: what is allocated reads as zeros until it is
//! written; each run is claimed first, then mapped in a handle of its own; after an error the holes that were filled are made holes again.
//! Limits: after a power cut, or an error that ends all changes, a part may be allocated; the size has not changed.

use super::punch;
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::map::edit::NewRun;
use crate::mapping::{Mapping, MappingState};
use std::ops::Range;

#[cfg(test)]
mod tests;

/// How many blocks are claimed at once: as many as two unwritten extents can have.
const MOST_AT_ONCE: u64 = 65534;

/// A hole lies between at most so many leaves of the map.
const LEAVES_AROUND: u32 = 2;

/// Maps every hole of the range to unwritten blocks, or none. Returns the ranges that were filled.
pub(super) fn fill_holes(inode: &Inode, blocks: Range<u64>) -> Result<Vec<Range<u32>>, Error> {
    check_space(inode, blocks.clone())?;
    let mut filled = Vec::new();
    let done = fill_all(inode, blocks, &mut filled);
    inode.claims.close(inode);
    // There may still be too little space: others have taken it meanwhile, or the map needs more nodes.
    or_undo(inode, &filled, done)?;
    Ok(filled)
}

/// Makes the filled ranges holes again, if `done` is an error, which is returned whether or not that succeeds.
pub(super) fn or_undo<T>(
    inode: &Inode,
    filled: &[Range<u32>],
    done: Result<T, Error>,
) -> Result<T, Error> {
    if done.is_err() {
        let mut filled = filled.iter().cloned();
        let _first_error_wins = filled.try_for_each(|run| punch::unallocate(inode, run));
    }
    done
}

/// Fails at once if there is too little space for the range. Most failures are found here, and report the whole number of blocks.
fn check_space(inode: &Inode, blocks: Range<u64>) -> Result<(), Error> {
    let ratio = u64::from(inode.volume.sb.geometry().cluster_ratio());
    // The file may already have the clusters at the edges of a hole, so only whole ones are counted.
    let whole = |m: &Mapping| {
        let inside = m.start.next_multiple_of(ratio)..(m.start + m.len) / ratio * ratio;
        inside.end.saturating_sub(inside.start) / ratio
    };
    let (mut at, mut clusters) = (blocks.start, 0);
    while at < blocks.end {
        let mapping = mapping_at(inode, at, blocks.end)?;
        if mapping.state == MappingState::Hole {
            clusters += whole(&mapping);
        }
        at = mapping.start + mapping.len;
    }
    let volume = &inode.volume;
    let reserve = || volume.alloc()?.reserve(clusters, volume.reach);
    volume.with_space_of_others(reserve).map(drop)
}

/// Fills the holes one after the other, and adds each to `filled`.
fn fill_all(inode: &Inode, blocks: Range<u64>, filled: &mut Vec<Range<u32>>) -> Result<(), Error> {
    let mut at = blocks.start;
    while at < blocks.end {
        let mapping = mapping_at(inode, at, blocks.end)?;
        at = match mapping.state {
            MappingState::Hole => {
                let blocks = fill(inode, &mapping)?;
                filled.push(blocks.clone());
                u64::from(blocks.end)
            }
            MappingState::Unwritten(_) | MappingState::Written(_) => mapping.start + mapping.len,
        };
    }
    Ok(())
}

/// The mapping of `at` and the blocks behind it, as far as it is loaded and before `end`.
pub(super) fn mapping_at(inode: &Inode, at: u64, end: u64) -> Result<Mapping, Error> {
    let view = inode.load_map(at..at + 1)?;
    let first = view.walk(at, end).next();
    Ok(first
        .expect("the range is not empty")
        .expect("its first block was loaded a line above"))
}

/// Fills a hole from its start; returns the blocks that were filled.
fn fill(inode: &Inode, hole: &Mapping) -> Result<Range<u32>, Error> {
    let volume = &inode.volume;
    let file_block = u32::try_from(hole.start).expect("the largest size was checked");
    let want = u32::try_from(hole.len.min(MOST_AT_ONCE)).expect("the constant has 32 bits");
    let around = inode.whole_clusters(hole.start..hole.start + u64::from(want));
    let view = inode.load_map(around)?;
    let take = || inode.claims.take(inode, &view, hole.start, want);
    let run = volume.with_space_of_others(take)?;
    let new = NewRun {
        file_block,
        len: run.len,
        start: run.start,
        unwritten: true,
    };
    let credits = inode.credits_to_map(LEAVES_AROUND, &[new]);
    let map = |handle: &JournalHandle<'_>| {
        let mut remap = inode.remap(handle)?;
        remap.map_claimed(&[new])?;
        remap.publish()
    };
    let mapped = volume.with_space_of_others(|| volume.in_handle(credits, map));
    if mapped.is_err() {
        inode.give_back(run);
    }
    mapped.map(|()| file_block..file_block + run.len)
}
