//! How many nodes a map may need for mapping some runs, and how many entries it has room for.
//!
//! Input: an inode, and the lengths of runs that are going to be mapped one after another. Output: upper bounds. Invariants: a split
//! leaves both nodes half free, so the next split of the same node is that many entries away, unless it appends to the last leaf, which
//! stays full; a run splits one node of each level, and the root may move down; without a journal a split makes two new nodes, and the one
//! that they replace is free only later. Limits: ignores joins, which need no blocks.

use crate::journal::Store;
use crate::map::load::{extent_node, pointer_block};
use diorite_format::extent::{
    ExtentNode, MAX_DEPTH, MAX_UNWRITTEN_LEN, ROOT_CAPACITY, block_capacity, raw,
};
use diorite_format::indirect::{self, PointerBlock};
use diorite_format::{Inode as DiskInode, MapKind};
use std::ops::Range;

/// The largest number of nodes that mapping runs of these lengths makes, and of entries that it adds to leaves.
pub(crate) fn most_nodes(
    volume: &Store,
    inode: &DiskInode,
    lens: impl Iterator<Item = u64>,
) -> (u32, u32) {
    most_nodes_of(volume, inode, lens.map(|len| (len, 1)))
}

/// As [`most_nodes`], for lengths with the number of runs of each.
fn most_nodes_of(
    volume: &Store,
    inode: &DiskInode,
    runs: impl Iterator<Item = (u64, u32)>,
) -> (u32, u32) {
    let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let sum = |each: &dyn Fn(u64) -> u32| {
        runs.fold((0u32, 0u32), |(count, sum), (len, times)| {
            let more = each(len).saturating_mul(times);
            (count.saturating_add(times), sum.saturating_add(more))
        })
    };
    match inode.map_kind() {
        MapKind::Extents => {
            let pieces = |len: u64| short(len.div_ceil(u64::from(MAX_UNWRITTEN_LEN))) + 1;
            let (count, entries) = sum(&pieces);
            if count == 0 {
                return (0, 0);
            }
            (nodes_for(volume, inode, count, entries), entries)
        }
        MapKind::Indirect => {
            let per = u64::from(indirect::pointers_per_block(&volume.sb));
            // A run may begin in the middle of one block of pointers and end in the middle of another.
            let blocks = |len: u64| if len == 1 { 1 } else { len / per + 2 };
            let levels = |len: u64| blocks(len) + 2 * blocks(blocks(len));
            let (count, nodes) = sum(&|len| short(levels(len)));
            (nodes, count)
        }
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => (0, 0),
    }
}

/// As [`most_nodes`], for so many runs with so many blocks together, each of which may be mapped in any number of pieces, in any order.
pub(crate) fn most_nodes_in_pieces(
    volume: &Store,
    inode: &DiskInode,
    runs: u64,
    blocks: u64,
) -> (u32, u32) {
    let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match inode.map_kind() {
        MapKind::Extents if blocks > 0 => {
            // Each block may become an extent, and a run may begin and end inside an unwritten one.
            let entries = short(blocks.saturating_add(runs));
            // A first piece behind all others begins a node and leaves a full one, which the next piece may have to split.
            let places = runs.saturating_add(blocks.saturating_sub(runs).min(runs));
            (nodes_for(volume, inode, short(places), entries), entries)
        }
        _ => {
            let len = blocks.checked_div(runs).map(|len| (len + 1, short(runs)));
            most_nodes_of(volume, inode, len.into_iter())
        }
    }
}

/// The largest number of nodes that so many entries make, which are added at `places` places of an extent tree.
fn nodes_for(volume: &Store, inode: &DiskInode, places: u32, entries: u32) -> u32 {
    let half = u32::from(block_capacity(&volume.sb)) / 2;
    let (mut nodes, mut level) = (0u32, places.saturating_add(entries / half));
    for _ in 0..=raw::depth(&inode.i_block) {
        nodes = nodes.saturating_add(level);
        level = level.div_ceil(half);
    }
    // The tree may become deeper more than once.
    let mut below = u32::from(ROOT_CAPACITY) * half;
    while below < entries {
        nodes = nodes.saturating_add(1);
        below = below.saturating_mul(half);
    }
    nodes.saturating_mul(made_by_a_split(volume))
}

/// How many new nodes a split makes: two without a journal, since the old one is not changed in place.
pub(super) fn made_by_a_split(volume: &Store) -> u32 {
    if volume.has_journal() { 1 } else { 2 }
}

/// The largest number of nodes that are rewritten in new blocks when the extents in `leaves` leaves move to other file blocks.
pub(crate) fn most_moved(volume: &Store, inode: &DiskInode, leaves: u32) -> u32 {
    let depth = u32::from(raw::depth(&inode.i_block).min(MAX_DEPTH));
    match depth {
        _ if volume.has_journal() => 0,
        0 => 0,
        1 => u32::try_from(raw::count(&inode.i_block)).unwrap_or(u32::MAX),
        // The leaves of one part have at most two parents per level, or fewer than there are leaves.
        _ => leaves + 2 * depth,
    }
}

/// How many entries can be added below file block `end` before a new node is needed, as far as the inode alone tells; 0 if it does not.
pub(crate) fn room_in_root(inode: &DiskInode, end: u64) -> u32 {
    match inode.map_kind() {
        MapKind::Extents if raw::depth(&inode.i_block) == 0 => {
            let (used, room) = (raw::count(&inode.i_block), raw::room(&inode.i_block));
            u32::try_from(room.saturating_sub(used)).unwrap_or(0)
        }
        MapKind::Indirect if end <= u64::from(indirect::DIRECT) => u32::MAX,
        _ => 0,
    }
}

/// How many entries can be added where a run of blocks belongs before a new node is needed; 0 if unknown. Blocks while the device reads.
pub(crate) fn room_for(volume: &Store, inode: &DiskInode, run: Range<u64>) -> u32 {
    match inode.map_kind() {
        MapKind::Extents => room_in_leaf(volume, inode, run.start).unwrap_or(0),
        MapKind::Indirect => {
            let (direct, per) = (
                u64::from(indirect::DIRECT),
                u64::from(indirect::pointers_per_block(&volume.sb)),
            );
            // The first file block of each block of pointers behind the one that has the start.
            let next = match run.start.checked_sub(direct) {
                Some(behind) => direct + (behind / per + 1) * per,
                None => direct,
            };
            let mut starts = std::iter::once(run.start)
                .chain((next..run.end).step_by(usize::try_from(per).unwrap_or(usize::MAX)));
            match starts.all(|at| has_pointers(volume, inode, at) == Some(true)) {
                true => u32::MAX,
                false => 0,
            }
        }
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => 0,
    }
}

fn room_in_leaf(volume: &Store, inode: &DiskInode, block: u64) -> Option<u32> {
    let mut node = ExtentNode::parse_root(&volume.sb, inode).ok()?;
    while node.depth > 0 {
        let after = node.indexes().partition_point(|e| e.block.get() <= block);
        let child = node.indexes().get(after.saturating_sub(1))?;
        let expect = node.expect_child(child);
        // A conversion may have removed the node meanwhile; then the answer is unknown.
        node = extent_node(volume, inode, child.child, expect).ok()?.1;
    }
    let used = u32::from(raw_count(&node));
    Some(u32::from(node.max).saturating_sub(used))
}

fn raw_count(leaf: &ExtentNode) -> u16 {
    u16::try_from(leaf.extents().len()).unwrap_or(u16::MAX)
}

/// Does a block of pointers for this file block exist, or does it need none?
fn has_pointers(volume: &Store, inode: &DiskInode, block: u64) -> Option<bool> {
    let sb = &volume.sb;
    let direct = u64::from(indirect::DIRECT);
    let Some(mut rest) = block.checked_sub(direct) else {
        return Some(true);
    };
    let per = u64::from(indirect::pointers_per_block(sb));
    for level in 1..=3u32 {
        if rest >= per.pow(level) {
            rest -= per.pow(level);
            continue;
        }
        let slot = indirect::DIRECT + level - 1;
        let mut at = indirect::root_pointer(sb, inode, slot).ok()?;
        for below in (1..level).rev() {
            if at.is_none() {
                return Some(false);
            }
            let bytes = pointer_block(volume, at).ok()?;
            let pointers = PointerBlock::new(sb, inode.ino, at, &bytes)
                .ok()?
                .to_vec()
                .ok()?;
            let index = usize::try_from(rest / per.pow(below)).ok()?;
            at = *pointers.get(index)?;
            rest %= per.pow(below);
        }
        return Some(!at.is_none());
    }
    None
}
