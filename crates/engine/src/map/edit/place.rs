//! A leaf that is in memory, and where it lies.
//!
//! Input: a file block. Output: the leaf below which it belongs, if all nodes above it are in memory. Invariants: nothing is read from the device.
//! Limits: what is not in memory is the general edit's affair.

use crate::disk::cache::{Kind, MetaRef, NodeOf, Unsealed};
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::extent::{MAX_DEPTH, raw};
use diorite_format::{FsBlock, Ino, Inode as DiskInode};
use smallvec::SmallVec;

/// A leaf, where it lies, and the node that names it: None for the root.
pub(super) struct Place {
    pub(super) at: FsBlock,
    pub(super) leaf: MetaRef,
    pub(super) parent: Option<(FsBlock, MetaRef)>,
    /// All nodes on the way, the leaf last.
    pub(super) way: SmallVec<[FsBlock; MAX_DEPTH as usize]>,
}

/// The leaf below which the block belongs, if it is not before all that the tree holds, and the block with which the next one begins.
pub(super) fn find_leaf(handle: &JournalHandle<'_>, inode: &DiskInode, block: u32) -> Option<(Place, u32)> {
    let (mut parent, mut way) = (None, SmallVec::new());
    let mut depth = raw::depth(&inode.i_block);
    let end_in = |node: &[u8]| raw::next_key(node, block).unwrap_or(u32::MAX);
    let mut end = end_in(&inode.i_block);
    let mut at = raw::child(&inode.i_block, block)?;
    loop {
        depth = depth.checked_sub(1)?;
        // What is in memory was checked against its parent; what is not is left to the general edit, which knows the parent's range.
        let leaf = handle.store().cache.peek(at, Kind::Map)?;
        if raw::depth(&leaf) != depth {
            return None;
        }
        way.push(at);
        if depth == 0 {
            let place = Place {
                at,
                leaf,
                parent,
                way,
            };
            return Some((place, end));
        }
        end = end.min(end_in(&leaf));
        let next = raw::child(&leaf, block)?;
        (parent, at) = (Some((at, leaf)), next);
    }
}

/// A node that has less room than it said.
pub(super) fn too_full(ino: Ino) -> Error {
    Error::Damaged(format!("inode {ino}: a node of its map is too full"))
}

/// What seals a node of the inode's map, at the commit.
pub(super) fn owner(inode: &DiskInode) -> Unsealed {
    Unsealed::Node(NodeOf {
        ino: inode.ino,
        generation: inode.generation,
    })
}
