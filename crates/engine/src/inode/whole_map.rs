//! A check of the whole map of a file, made before its blocks are freed.
//!
//! Input: an inode. Output: an error that names a damaged node. Invariants: every node is read once; a node that occurs twice in the map
//! is damage, so the iteration ends; only the numbers of nodes are kept. Limits: mapped blocks are only compared with the volume's own
//! structures.

use crate::error::Error;
use crate::inode::Inode;
use crate::map::{Segment, SegmentKind, root_segments};
use diorite_format::{FsBlock, Inode as DiskInode};
use std::collections::HashSet;

impl Inode {
    /// Has the map nodes outside of the inode that cover blocks from `from` on? `disk`: the inode as it is now.
    fn has_nodes(&self, disk: &DiskInode, from: u32) -> Result<bool, Error> {
        let concerns = |node: &Segment| node.is_unloaded() && node.last() >= from;
        Ok(root_segments(&self.volume, disk)?.iter().any(concerns))
    }

    /// Checks that every node of the map can be read which covers blocks from `from` on. `disk`: the inode as it is now. Blocks.
    pub(crate) fn check_nodes(&self, disk: &DiskInode, from: u32) -> Result<(), Error> {
        // A map without nodes needs no lock: nodes that it gets meanwhile are ours.
        if !self.has_nodes(disk, from)? {
            return Ok(());
        }
        let concerns = |node: &Segment| node.is_unloaded() && node.last() >= from;
        let _map = self.map_lock.lock();
        let mut left = root_segments(&self.volume, &self.disk())?;
        left.retain(concerns);
        let mut seen = HashSet::new();
        while let Some(node) = left.pop() {
            if !seen.insert(place(&node)) {
                return Err(self.has_node_twice(&node));
            }
            left.extend(self.read_node(&node)?.into_iter().filter(concerns));
        }
        Ok(())
    }

    fn has_node_twice(&self, node: &Segment) -> Error {
        let (ino, at) = (self.ino, place(node));
        Error::Damaged(format!(
            "inode {ino}: block {at} is a node of its map twice; run e2fsck"
        ))
    }
}

/// The block of the volume that a node is in.
fn place(node: &Segment) -> FsBlock {
    let (SegmentKind::ExtentNode(at, _)
    | SegmentKind::IndirectNode(at, _)
    | SegmentKind::Written(at)
    | SegmentKind::Unwritten(at)) = node.kind;
    at
}
