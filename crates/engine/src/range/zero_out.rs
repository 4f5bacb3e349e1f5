//! Zeros instead of a split: what is preallocated takes writes although no block is free for a node of the map.
//!
//! Input: file blocks that are going to be written; the caller has the turn. Output: fewer unwritten blocks there, or more room where they
//! are mapped; or nothing, if that is impossible. Invariants: only whole extents become written, after zeros were written to them, so the
//! map gets no entry more; no extent behind the size does; the pending map has no entry but the caller's (rule U5). Limits: each call changes the extents of
//! the range, or one other; an extent has at most 32,767 blocks, all of which are written with zeros.

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
    let inside = |m: &&Mapping| is_unwritten(m) && m.start + m.len <= size;
    let leaf = extents_of_leaf(inode, &blocks)?;
    let own = leaf.iter().filter(inside);
    let own: Vec<&Mapping> = own
        .filter(|m| m.start < blocks.end && blocks.start < m.start + m.len)
        .collect();
    let joining = leaf.windows(3).filter(|three| joins(three));
    let shortest = joining.map(|three| &three[1]).filter(inside);
    let shortest = shortest.min_by_key(|m| m.len);
    let cost: u64 = own.iter().map(|m| m.len).sum();
    let chosen = match shortest {
        Some(other) if own.is_empty() || other.len < cost => vec![other],
        _ => own,
    };
    for extent in &chosen {
        let short = |block: u64| u32::try_from(block).unwrap_or(END);
        punch::write_zeros(inode, short(extent.start)..short(extent.start + extent.len))?;
    }
    Ok(!chosen.is_empty())
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
