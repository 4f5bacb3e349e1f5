//! The whole map of a file, looked through before the file is given up.
//!
//! Input: an inode. Output: an error that names the node and what is wrong with it. Invariants: every node is read once, and one that the
//! map has twice is damage, so the walk ends; nothing is kept but the numbers of nodes. Limits: what the nodes map is only compared with
//! the volume's own structures.

use crate::error::Error;
use crate::inode::Inode;
use crate::map::{Segment, SegmentKind, root_segments};
use diorite_format::FsBlock;
use std::collections::HashSet;

impl Inode {
    /// Can every node of the map be read that has blocks from `from` on? Blocks.
    pub(crate) fn check_nodes(&self, from: u32) -> Result<(), Error> {
        let _map = self.map_lock.lock();
        let concerns = |node: &Segment| node.is_unloaded() && node.last() >= from;
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

/// Where a node is.
fn place(node: &Segment) -> FsBlock {
    let (SegmentKind::ExtentNode(at, _)
    | SegmentKind::IndirectNode(at, _)
    | SegmentKind::Written(at)
    | SegmentKind::Unwritten(at)) = node.kind;
    at
}
