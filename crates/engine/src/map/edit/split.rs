//! Splitting a full leaf where it lies.
//!
//! Input: a leaf in memory whose parent has room for one more entry. Output: its upper entries in a new leaf on its right, which the parent
//! names; or nothing done. Invariants: what the file is mapped to stays the same, and so does every view of it; the new entry's key is the new
//! leaf's first; a block is taken before anything is changed. Limits: a parent that is full, too, is the general edit's affair.

use super::TreeBlocks;
use super::plan::twice;
use super::quick::{Place, owner};
use crate::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::extent::{ExtentIndex, raw, seal_block};
use diorite_format::{FsBlock, Inode as DiskInode};

/// A leaf with less room than this is not worth it: both halves must take what an edit adds.
const LEAST_ROOM: usize = 8;

/// What became of a leaf.
pub(super) struct Halves {
    left: FsBlock,
    right: FsBlock,
    /// The first block of the right one.
    key: u64,
    parent: Option<FsBlock>,
}

impl Halves {
    /// The leaf in which a file block belongs now.
    pub(super) fn place(&self, handle: &JournalHandle<'_>, block: u32) -> Option<Place> {
        let right = u64::from(block) >= self.key;
        let at = if right { self.right } else { self.left };
        let leaf = handle.volume().cache.peek(at, Kind::Map)?;
        let parent = self.parent;
        Some(Place { at, leaf, parent })
    }
}

/// Does it, if it can be done so. Blocks while the device reads.
pub(super) fn leaf(
    handle: &JournalHandle<'_>,
    blocks: &mut impl TreeBlocks,
    inode: &mut DiskInode,
    full: Place,
) -> Result<Option<Halves>, Error> {
    let count = raw::count(&full.leaf);
    let from = count / 2;
    let Some(first) = raw::extent(&full.leaf, from).filter(|_| count >= LEAST_ROOM) else {
        return Ok(None);
    };
    if !has_room(handle, inode, full.parent) {
        return Ok(None);
    }
    let child = blocks.take(full.at)?;
    if child == full.at || Some(child) == full.parent {
        blocks.give_back(child)?;
        return Err(twice(inode, child));
    }
    let entry = ExtentIndex {
        block: first.block,
        end: 0,
        child,
    };
    let halves = Halves {
        left: full.at,
        right: child,
        key: first.block.get(),
        parent: full.parent,
    };
    let done = split(handle, inode, full, from, &entry);
    handle.or_abort(done).map(|()| Some(halves))
}

/// The node above has room for an entry.
fn has_room(handle: &JournalHandle<'_>, inode: &DiskInode, parent: Option<FsBlock>) -> bool {
    let fits = |node: &[u8]| raw::count(node) < raw::room(node);
    match parent {
        None => fits(&inode.i_block),
        Some(at) => {
            let node = handle.volume().cache.peek(at, Kind::Map);
            node.is_some_and(|node| fits(&node))
        }
    }
}

fn split(
    handle: &JournalHandle<'_>,
    inode: &mut DiskInode,
    full: Place,
    from: usize,
    entry: &ExtentIndex,
) -> Result<(), Error> {
    let too_full = || {
        Error::Damaged(format!(
            "inode {}: a node of its map is too full",
            inode.ino
        ))
    };
    let done = |done: bool| done.then_some(()).ok_or_else(too_full);
    let sb = &handle.volume().sb;
    let mut copied = false;
    handle.create(entry.child, Kind::Map, |bytes| {
        copied = raw::copy_upper(&full.leaf, from, bytes, sb);
        seal_block(sb, inode.ino, inode.generation, bytes);
    });
    done(copied)?;
    let count = raw::count(&full.leaf);
    drop(full.leaf);
    let change = |at: FsBlock, change: &dyn Fn(&mut [u8]) -> bool| {
        let unsealed = (at, Kind::Map.into(), owner(inode));
        handle.update_unsealed(unsealed, |_| Ok(()), |bytes| done(change(bytes)))
    };
    change(full.at, &|leaf| raw::splice(leaf, from, count, &[]))?;
    let put = |node: &mut [u8]| {
        let key = u32::try_from(entry.block.get()).unwrap_or(u32::MAX);
        raw::insert_child(node, raw::up_to(node, key), entry)
    };
    match full.parent {
        Some(at) => change(at, &put),
        None => {
            let mut root = inode.i_block;
            done(put(&mut root))?;
            inode.i_block = root;
            Ok(())
        }
    }
}
