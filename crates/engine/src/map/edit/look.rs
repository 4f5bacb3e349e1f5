//! Looks up a range in the map on disk, for callers that may not use the in-core map.
//!
//! Input: an inode with extents, as it is in the running transaction, and a range. Output: the runs that the range is mapped to.
//! Invariants:
//! every node is checked against its parent; nothing is changed. Limits: blocks while the device reads; the caller holds the map lock.

use super::runs::Run;
use crate::error::Error;
use crate::journal::Store;
use crate::map::load::extent_node;
use diorite_format::extent::{Entries, ExtentIndex, ExtentNode};
use diorite_format::{FsBlock, Inode as DiskInode};
use std::ops::Range;

/// The runs of blocks to which an extent tree maps the file blocks of `range`.
pub(crate) fn mapped_to(
    volume: &Store,
    inode: &DiskInode,
    range: Range<u64>,
) -> Result<Vec<Run>, Error> {
    let root = ExtentNode::parse_root(&volume.sb, inode)?;
    let mut found = Vec::new();
    look(volume, inode, &root, &range, &mut found)?;
    Ok(found)
}

fn look(
    volume: &Store,
    inode: &DiskInode,
    node: &ExtentNode,
    range: &Range<u64>,
    found: &mut Vec<Run>,
) -> Result<(), Error> {
    match &node.entries {
        Entries::Leaf(extents) => {
            for extent in extents {
                let (first, end) = (extent.block.get(), extent.end());
                let (from, to) = (first.max(range.start), end.min(range.end));
                if from < to {
                    let len = u32::try_from(to - from).expect("an extent has 15 bits of blocks");
                    found.push((FsBlock::new(extent.start.get() + (from - first)), len));
                }
            }
        }
        Entries::Index(children) => {
            let meets = |e: &&ExtentIndex| e.block.get() < range.end && e.end > range.start;
            for child in children.iter().filter(meets) {
                let expect = node.expect_child(child);
                let below = extent_node(volume, inode, child.child, expect)?.1;
                look(volume, inode, &below, range, found)?;
            }
        }
    }
    Ok(())
}
