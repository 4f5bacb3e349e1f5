//! A check of the whole map of a file, made before its blocks are freed.
//!
//! Input: an inode. Output: an error that names a damaged node. Invariants: every node is read once; a node that occurs twice in the map
//! is damage, so the iteration ends; only the numbers of nodes are kept. Limits: mapped blocks are only compared with the volume's own
//! structures.

use crate::error::Error;
use crate::inode::Inode;
use crate::map::{Segment, SegmentKind, root_segments};
use diorite_format::FsBlock;
use std::collections::HashSet;

impl Inode {
    /// Checks that every node of the map can be read which covers blocks from `from` on. Blocks.
    pub(crate) fn check_nodes(&self, from: u32) -> Result<(), Error> {
        let concerns = |node: &Segment| node.is_unloaded() && node.last() >= from;
        // A map without nodes needs no lock: nodes that it gets meanwhile are ours.
        if !root_segments(&self.volume, &self.disk())?
            .iter()
            .any(concerns)
        {
            return Ok(());
        }
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
