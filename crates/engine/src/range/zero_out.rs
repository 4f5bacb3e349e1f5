//! Zeros instead of a split: what is preallocated takes writes although no block is free for a node of the map.
//!
//! Input: file blocks that are going to be written, none of them a hole; the caller has the turn. Output: fewer unwritten blocks there, or
//! more room where they are mapped; or nothing, if that is impossible. Invariants: blocks become written after zeros were written to them,
//! and whole extents at once, so the map gets no entry more; nothing behind the size does; the pending map has no entry but the caller's
//! (rule U5). Limits: each call changes the extents of the range, or one other; an extent has at most 32,767 blocks, which are all written.

use super::nodes::{self, Becomes};
use super::punch;
use crate::error::Error;
use crate::inode::Inode;
use crate::inode::pieces::END;
use crate::map::edit::{self, End};
use crate::mapping::{Mapping, MappingState};
use diorite_format::extent::max_len;
use std::ops::Range;

/// Prepares the file for a write of these blocks that found no block for a node of the map. Returns whether another attempt may succeed.
/// Blocks.
pub(crate) fn zero_out(inode: &Inode, blocks: Range<u64>) -> Result<bool, Error> {
    debug_assert!(inode.gate.is_held(), "who zeroes has the turn");
    let size = inode.size().div_ceil(u64::from(inode.volume.block_size()));
    let leaf = extents_of_leaf(inode, &blocks)?;
    let meets = |m: &&Mapping| m.start < blocks.end && blocks.start < m.start + m.len;
    if leaf
        .iter()
        .filter(meets)
        .any(|m| m.state == MappingState::Hole)
    {
        return Ok(false);
    }
    let own = leaf.iter().filter(meets).filter(|m| is_unwritten(m));
    let own: Vec<Range<u64>> = own.filter_map(|m| inside(m, size)).collect();
    let joining = leaf.windows(3).filter(|three| joins(three));
    let whole = joining
        .map(|three| &three[1])
        .filter(|m| m.start + m.len <= size);
    let shortest = whole
        .filter_map(|m| inside(m, size))
        .min_by_key(|b| b.end - b.start);
    let cost: u64 = own.iter().map(|blocks| blocks.end - blocks.start).sum();
    let chosen = match shortest {
        Some(other) if own.is_empty() || other.end - other.start < cost => vec![other],
        _ => own,
    };
    let mut some = false;
    for blocks in chosen {
        some |= make_written(inode, blocks)?;
    }
    Ok(some)
}

/// The part of an extent before the size, in blocks.
fn inside(extent: &Mapping, size: u64) -> Option<Range<u64>> {
    let end = size.min(extent.start + extent.len);
    (extent.start < end).then_some(extent.start..end)
}

/// Makes unwritten blocks written. False if the extent goes on behind the size, and there is no room to divide it there.
fn make_written(inode: &Inode, blocks: Range<u64>) -> Result<bool, Error> {
    let _nodes = match nodes::set_aside(inode, blocks.clone(), Becomes::Zeros) {
        Err(Error::NoSpace { .. }) => return Ok(false),
        nodes => nodes?,
    };
    let short = |block: u64| u32::try_from(block).unwrap_or(END);
    punch::write_zeros(inode, short(blocks.start)..short(blocks.end))?;
    Ok(true)
}

/// The extents and holes around a range: those of its leaves of the map, with a hole of no length at either end.
fn extents_of_leaf(inode: &Inode, blocks: &Range<u64>) -> Result<Vec<Mapping>, Error> {
    let (volume, disk) = (&inode.volume, inode.disk());
    let short = |block: u64| u32::try_from(block).unwrap_or(END);
    let before = edit::part(volume, &disk, 0..short(blocks.start + 1), 1, End::Last)?;
    let behind = edit::part(volume, &disk, short(blocks.end - 1)..END, 1, End::First)?;
    let range = u64::from(before.start)..u64::from(behind.end);
    let nothing = |start| Mapping {
        start,
        len: 0,
        state: MappingState::Hole,
    };
    let mut all = vec![nothing(range.start)];
    all.extend(inode.mappings(range.clone())?);
    all.push(nothing(range.end));
    Ok(all)
}

fn is_unwritten(mapping: &Mapping) -> bool {
    matches!(mapping.state, MappingState::Unwritten(_))
}

/// Would the middle one, written, become one extent with a neighbour?
fn joins(three: &[Mapping]) -> bool {
    let [left, middle, right] = three else {
        return false;
    };
    let MappingState::Unwritten(at) = middle.state else {
        return false;
    };
    let fits = |other: &Mapping| other.len + middle.len <= u64::from(max_len(false));
    let follows = |place: u64, len: u64, next: u64| place + len == next;
    let joins_left = match left.state {
        MappingState::Written(place) => follows(place.get(), left.len, at.get()),
        _ => false,
    };
    let joins_right = match right.state {
        MappingState::Written(place) => follows(at.get(), middle.len, place.get()),
        _ => false,
    };
    joins_left && fits(left) || joins_right && fits(right)
}
