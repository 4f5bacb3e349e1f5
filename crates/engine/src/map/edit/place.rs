//! The leaf of a map to which a file block belongs, found in memory.
//!
//! Input: a file block. Output: its leaf and the nodes above it, if all of them are in memory. Invariants: nothing is read from the device.
//! Limits: a map with a node that is not in memory is left to the general edit.

use crate::disk::cache::{Kind, MetaRef, NodeOf, Unsealed};
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::extent::{MAX_DEPTH, raw};
use diorite_format::{FsBlock, Ino, Inode as DiskInode};
use smallvec::SmallVec;

/// A leaf in memory, and its parent; None if that is the root in the inode.
pub(super) struct Place {
    pub(super) at: FsBlock,
    pub(super) leaf: MetaRef,
    pub(super) parent: Option<(FsBlock, MetaRef)>,
    /// All nodes between the root in the inode and the leaf, and the leaf as the last.
    pub(super) way: SmallVec<[FsBlock; MAX_DEPTH as usize]>,
}

/// The leaf to which the block belongs, and the file block at which the next leaf's range begins. None if the block lies before everything
/// in the tree, or if a node is not in memory.
pub(super) fn find_leaf(
    handle: &JournalHandle<'_>,
    inode: &DiskInode,
    block: u32,
) -> Option<(Place, u32)> {
    let (mut parent, mut way) = (None, SmallVec::new());
    let mut depth = raw::depth(&inode.i_block);
    let end_in = |node: &[u8]| raw::next_key(node, block).unwrap_or(u32::MAX);
    let mut end = end_in(&inode.i_block);
    let mut at = raw::child(&inode.i_block, block)?;
    loop {
        depth = depth.checked_sub(1)?;
        // A node in memory was checked against its parent. Others are left to the general edit, which knows the range that the parent
        // gives.
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

/// The error for a node that has less room than its header says.
pub(super) fn too_full(ino: Ino) -> Error {
    Error::Damaged(format!("inode {ino}: a node of its map is too full"))
}

/// What the checksum of a node of the inode's map is made with, at the commit.
pub(super) fn owner(inode: &DiskInode) -> Unsealed {
    Unsealed::Node(NodeOf {
        ino: inode.ino,
        generation: inode.generation,
    })
}
