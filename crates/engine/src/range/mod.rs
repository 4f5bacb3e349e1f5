//! The range module: operations that change a file's size or its map without writing data (truncate, fallocate, seek).
//!
//! | file | takes -> gives |
//! |---|---|
//! | `bounds` | a caller's numbers -> bytes that the file can have |
//! | `check` | the arguments of an operation -> the bytes that it concerns, or the reason of a refusal |
//! | `truncate` | a size -> the file with that size |
//! | `nodes` | extents that are going to be split -> blocks reserved for nodes of the map |
//! | `allocate` | holes -> unwritten blocks |
//! | `punch` | bytes -> zeros: as a hole, as unwritten blocks, or as written blocks |
//! | `shift` | a range -> removed from the file (collapse), or inserted |
//! | `zero_out` | preallocated blocks, no block for a node -> written zeros, which need none |
//! | `seek` | a position -> the next data or hole |
//!
//! Input: requests of a queue, or calls on a file. Output: changed maps and sizes, each step in a journal handle. Invariants: before the
//! size is looked at, direct requests are kept out and those in flight have ended (rules G13, G15); for that only the exclusive turn is
//! held, so submitters park at the gate and wait for no lock; no handle is open while anything but metadata is waited for. Limits: all of
//! it blocks, so it runs on a worker.

mod allocate;
mod bounds;
mod check;
mod nodes;

mod punch;
mod seek;
mod shift;
mod truncate;
mod zero_out;

pub(crate) use check::check;
pub(crate) use seek::seek_with_pages;
pub(crate) use truncate::{end_cut, shrink, truncate};
pub(crate) use zero_out::zero_out;

use crate::error::Error;
use crate::inode::Inode;
use crate::op::Fallocate;
use nodes::{Becomes, Nodes};
use std::ops::Range;

/// Runs a fallocate operation. Blocks; the caller has the turn, and `bytes` come from [`bounds`].
pub(crate) fn fallocate(inode: &Inode, mode: Fallocate, bytes: Range<u64>) -> Result<(), Error> {
    let end = bytes.end;
    end_cut(inode)?;
    match mode {
        Fallocate::Allocate { keep_size } => {
            let filled = allocate::fill_holes(inode, blocks_of(inode, bytes))?;
            allocate::or_undo(inode, &filled, grow_to(inode, end, keep_size))
        }
        Fallocate::PunchHole => {
            let whole = punch::whole_blocks(inode, bytes.clone());
            let _nodes = nodes::set_aside(inode, long(&whole), Becomes::Hole)?;
            punch::zero_edges(inode, bytes)?;
            punch::punch(inode, whole)
        }
        Fallocate::ZeroRange { keep_size } => {
            let (filled, _nodes) = zero(inode, bytes, Becomes::Unwritten)?;
            allocate::or_undo(inode, &filled, grow_to(inode, end, keep_size))
        }
        Fallocate::CollapseRange => shift::collapse(inode, bytes),
        Fallocate::InsertRange => shift::insert(inode, bytes),
        Fallocate::WriteZeroes { keep_size } => {
            let (filled, _nodes) = zero(inode, bytes.clone(), Becomes::Zeros)?;
            allocate::or_undo(inode, &filled, grow_to(inode, end, keep_size))?;
            // Only up to the size: a map may not have written blocks behind it.
            let seen = blocks_of(inode, bytes.start..end.min(inode.size()));
            let short = |b: u64| u32::try_from(b).unwrap_or(crate::inode::pieces::END);
            punch::write_zeros(inode, short(seen.start)..short(seen.end))
        }
    }
}

/// Makes the range read as zeros and have blocks. Returns the holes that were filled, and a reserve of nodes for the final state,
/// `becomes`.
fn zero(
    inode: &Inode,
    bytes: Range<u64>,
    becomes: Becomes,
) -> Result<(Vec<Range<u32>>, Nodes<'_>), Error> {
    // First the steps for which there may be no space: if they fail nothing has been zeroed.
    let filled = allocate::fill_holes(inode, blocks_of(inode, bytes.clone()))?;
    let whole = punch::whole_blocks(inode, bytes.clone());
    let changed = match becomes {
        // The blocks that the range only touches become written, too.
        Becomes::Zeros => blocks_of(inode, bytes.clone()),
        _ => long(&whole),
    };
    let zeroed = nodes::set_aside(inode, changed, becomes).and_then(|nodes| {
        punch::zero_edges(inode, bytes)?;
        punch::unwrite(inode, whole)?;
        Ok(nodes)
    });
    let nodes = allocate::or_undo(inode, &filled, zeroed)?;
    Ok((filled, nodes))
}

fn long(blocks: &Range<u32>) -> Range<u64> {
    u64::from(blocks.start)..u64::from(blocks.end)
}

fn grow_to(inode: &Inode, end: u64, keep_size: bool) -> Result<(), Error> {
    if keep_size || end <= inode.size() {
        return Ok(());
    }
    truncate::grow(inode, end)
}

/// The blocks that a range of bytes touches.
fn blocks_of(inode: &Inode, bytes: Range<u64>) -> Range<u64> {
    let block = u64::from(inode.volume.block_size());
    bytes.start / block..bytes.end.div_ceil(block)
}
