//! Splits a long range into parts that fit into one handle each.
//!
//! Input: a range, and how many leaves one edit may touch. Output: the first or the last part of the range that touches so many leaves,
//! and the credits for an edit of it. Invariants: a part is empty only if the range is, so a loop over parts ends; leaves themselves are
//! not read. Limits: blocks while the device reads.
//!
//! A truncation to `from` is: `while from < end { let p = part(.., from..end, leaves, End::Last)?; replace(.., p, &[])?; end = p.start }`,
//! with one handle per iteration.

use crate::error::Error;
use crate::journal::Store;
use crate::map::load::{END, extent_node, pointer_block, pointer_segments};
use crate::map::{Segment, SegmentKind};
use diorite_format::extent::{Expect, ExtentNode, MAX_DEPTH, block_capacity, raw};
use diorite_format::indirect;
use diorite_format::{Inode as DiskInode, MapKind};
use std::ops::Range;

use super::NewRun;
use super::bound::made_by_a_split;

/// The end of the range from which the part is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    First,
    Last,
}

/// Credits for an edit: the largest number of blocks of the map that it changes, makes or removes if its range touches `leaves` leaves (or
/// blocks of pointers to data) and is mapped to `new`.
pub(crate) fn credits(volume: &Store, inode: &DiskInode, leaves: u32, new: &[NewRun]) -> u32 {
    match inode.map_kind() {
        MapKind::Extents => extent_credits(volume, inode, leaves, new),
        MapKind::Indirect => {
            let per = indirect::pointers_per_block(&volume.sb);
            // A run may begin in the middle of one block of pointers and end in the middle of another.
            let made: u32 = new.iter().map(|n| n.len / per + 2).sum();
            3 * (leaves + made)
        }
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => 0,
    }
}

/// Each level may have as many nodes as there are leaves, plus two neighbours to join, plus the nodes that splits make.
fn extent_credits(volume: &Store, inode: &DiskInode, leaves: u32, new: &[NewRun]) -> u32 {
    let depth = u32::from(raw::depth(&inode.i_block).min(MAX_DEPTH));
    let capacity = u32::from(block_capacity(&volume.sb));
    let pieces = |n: &NewRun| n.len.div_ceil(diorite_format::extent::MAX_UNWRITTEN_LEN);
    let mut more = new.iter().map(pieces).sum::<u32>() + 2;
    let mut sum = 0;
    for _ in 0..depth {
        more = more.div_ceil(capacity) + 1;
        sum += leaves + 2 + more * made_by_a_split(volume);
    }
    // The root's entries may move into new blocks, once or twice.
    sum + more.div_ceil(capacity) + 2
}

/// The part of `range` at one of its ends that touches at most `leaves` leaves; `leaves` is at least one. In a file without a map of
/// blocks the whole range is one part.
pub(crate) fn part(
    volume: &Store,
    inode: &DiskInode,
    range: Range<u32>,
    leaves: u32,
    end: End,
) -> Result<Range<u32>, Error> {
    assert!(leaves > 0, "a part has a leaf");
    let mut count = Count {
        volume,
        inode,
        range: u64::from(range.start)..u64::from(range.end),
        left: leaves,
        end,
    };
    let cut = match inode.map_kind() {
        MapKind::Extents => {
            let root = ExtentNode::parse_root(&volume.sb, inode)?;
            count.extents(&root)?
        }
        MapKind::Indirect => count.pointers()?,
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => None,
    };
    let short = |b: u64| u32::try_from(b).unwrap_or(END);
    Ok(match (cut, end) {
        (None, _) => range,
        (Some(cut), End::First) => range.start..short(cut.end).min(range.end),
        (Some(cut), End::Last) => short(cut.start).max(range.start)..range.end,
    })
}

/// A traversal from one end of the range that counts leaves.
struct Count<'a> {
    volume: &'a Store,
    inode: &'a DiskInode,
    range: Range<u64>,
    left: u32,
    end: End,
}

impl Count<'_> {
    /// The file blocks of the leaf at which the count is reached; None if there are fewer leaves.
    fn extents(&mut self, node: &ExtentNode) -> Result<Option<Range<u64>>, Error> {
        let all = node.indexes().iter();
        let meets = all.filter(|e| e.block.get() < self.range.end && e.end > self.range.start);
        let children: Vec<_> = match self.end {
            End::First => meets.collect(),
            End::Last => meets.rev().collect(),
        };
        for child in children {
            if node.depth == 1 {
                if self.is_full() {
                    return Ok(Some(child.block.get()..child.end));
                }
                continue;
            }
            let expect: Expect = node.expect_child(child);
            let below = extent_node(self.volume, self.inode, child.child, expect)?.1;
            if let Some(found) = self.extents(&below)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn pointers(&mut self) -> Result<Option<Range<u64>>, Error> {
        let per = u64::from(indirect::pointers_per_block(&self.volume.sb));
        let mut roots = Vec::new();
        let mut start = u64::from(indirect::DIRECT);
        for level in 1..=3u16 {
            let slot = indirect::DIRECT + u32::from(level) - 1;
            let at = indirect::root_pointer(&self.volume.sb, self.inode, slot)?;
            let end = start + per.pow(u32::from(level));
            if !at.is_none() && start < u64::from(END) {
                let until = end.min(u64::from(END));
                roots.push(Segment {
                    start: u32::try_from(start).unwrap_or(END),
                    len: u32::try_from(until - start).unwrap_or(END),
                    kind: SegmentKind::IndirectNode(at, level),
                });
            }
            start = end;
        }
        self.nodes(roots)
    }

    fn nodes(&mut self, nodes: Vec<Segment>) -> Result<Option<Range<u64>>, Error> {
        let blocks = |s: &Segment| u64::from(s.start)..u64::from(s.start) + u64::from(s.len);
        let meets = |s: &Segment| {
            let of = blocks(s);
            of.start < self.range.end && of.end > self.range.start
        };
        let mut nodes: Vec<Segment> = nodes.into_iter().filter(meets).collect();
        if self.end == End::Last {
            nodes.reverse();
        }
        for node in nodes {
            let found = match node.kind {
                SegmentKind::IndirectNode(_, 1) => self.is_full().then(|| blocks(&node)),
                SegmentKind::IndirectNode(at, _) => {
                    let raw = pointer_block(self.volume, at)?;
                    let below = pointer_segments(&self.volume.sb, self.inode.ino, &node, &raw)?;
                    self.nodes(below)?
                }
                _ => None,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn is_full(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }
}
