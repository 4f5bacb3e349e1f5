//! The range room: operations that change a file's size or what its blocks are mapped to, but not by writing data.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `bounds` | a caller's numbers -> bytes that the file can have |
//! | `check` | a request for any of them -> the bytes that it is about |
//! | `pieces` | a long range -> pieces of it that one handle can change, and the handles |
//! | `truncate` | a size -> the file with that size |
//! | `nodes` | what is going to be split -> blocks for the nodes of the map |
//! | `allocate` | holes -> unwritten blocks |
//! | `punch` | bytes -> zeros: no blocks, unwritten ones, or written ones |
//! | `shift` | a range -> taken out, or put in |
//! | `seek` | a position -> the next data or hole |
//!
//! Input: requests, of a queue or of a call on a file. Output: changed maps and sizes, each step in a journal handle. Invariants:
//! direct requests are kept out, and those in flight have ended, before the size is looked at (rules G13, G15); the turn that does that
//! is all that is held: who submits parks before the gate and waits for no lock; no handle is open while anything but metadata is waited
//! for. Limits: all of it blocks, so it runs on a worker.

mod allocate;
mod bounds;
mod check;
mod nodes;

mod punch;
mod seek;
mod shift;
mod truncate;

pub(crate) use check::check;
pub(crate) use seek::seek;
pub(crate) use truncate::{end_cut, shrink, truncate};

use crate::error::Error;
use crate::inode::Inode;
use crate::op::Fallocate;
use nodes::{Becomes, Nodes};
use std::ops::Range;

/// Does it. Blocks; the caller has the turn, and the bytes from [`bounds`].
pub(crate) fn fallocate(inode: &Inode, mode: Fallocate, bytes: Range<u64>) -> Result<(), Error> {
    let end = bytes.end;
    end_cut(inode)?;
    match mode {
        Fallocate::Allocate { keep_size } => {
            allocate::fill_holes(inode, blocks_of(inode, bytes))?;
            grow_to(inode, end, keep_size)
        }
        Fallocate::PunchHole => {
            let whole = punch::whole_blocks(inode, bytes.clone());
            let _nodes = nodes::set_aside(inode, long(&whole), Becomes::Hole)?;
            punch::zero_edges(inode, bytes)?;
            punch::punch(inode, whole)
        }
        Fallocate::ZeroRange { keep_size } => {
            zero(inode, bytes, Becomes::Unwritten)?;
            grow_to(inode, end, keep_size)
        }
        Fallocate::CollapseRange => shift::collapse(inode, bytes),
        Fallocate::InsertRange => shift::insert(inode, bytes),
        Fallocate::WriteZeroes { keep_size } => {
            let _nodes = zero(inode, bytes.clone(), Becomes::Zeros)?;
            grow_to(inode, end, keep_size)?;
            // Written blocks behind the size are nothing that a map may have.
            let seen = blocks_of(inode, bytes.start..end.min(inode.size()));
            let short = |b: u64| u32::try_from(b).unwrap_or(crate::inode::pieces::END);
            punch::write_zeros(inode, short(seen.start)..short(seen.end))
        }
    }
}

/// The range reads as zeros and has blocks. What is set aside is for what it becomes in the end.
fn zero(inode: &Inode, bytes: Range<u64>, becomes: Becomes) -> Result<Nodes<'_>, Error> {
    // First what there may be no space for: nothing is zeroed then.
    let filled = allocate::fill_holes(inode, blocks_of(inode, bytes.clone()))?;
    let whole = punch::whole_blocks(inode, bytes.clone());
    let changed = match becomes {
        // The blocks at the ends, too.
        Becomes::Zeros => blocks_of(inode, bytes.clone()),
        _ => long(&whole),
    };
    let nodes = nodes::set_aside(inode, changed, becomes);
    let nodes = allocate::undo_without_space(inode, &filled, nodes)?;
    punch::zero_edges(inode, bytes)?;
    punch::unwrite(inode, whole)?;
    Ok(nodes)
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
