//! Splitting a full leaf where it lies.
//!
//! Input: a leaf in memory whose parent has room for one more entry. Output: its upper entries in a new leaf on its right, which the parent
//! names; or nothing done. Invariants: what the file is mapped to stays the same, and so does every view of it; the new entry's key is the new
//! leaf's first; a block is taken before anything is changed. Limits: a parent that is full, too, is the general edit's affair, and so is a
//! volume without a journal: the leaf could be on disk whole, and its upper half a second time.

use super::TreeBlocks;
use super::place::{Place, owner, too_full};
use super::plan::twice;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::extent::{ExtentIndex, raw, seal_block};
use diorite_format::{FsBlock, Inode as DiskInode};
use smallvec::SmallVec;

/// A leaf with less room than this is not worth it: both halves must take what an edit adds.
const LEAST_ROOM: usize = 8;

/// What became of a leaf.
pub(super) struct Halves {
    left: FsBlock,
    right: FsBlock,
    /// The first block of the right one.
    key: u64,
}

impl Halves {
    /// The leaf in which a file block belongs now: it is in memory, as what the handle's transaction has changed. Nobody asks for what is above it.
    pub(super) fn place(&self, handle: &JournalHandle<'_>, block: u32) -> Option<Place> {
        let right = u64::from(block) >= self.key;
        let at = if right { self.right } else { self.left };
        let leaf = handle.store().cache.peek(at, Kind::Map)?;
        Some(Place {
            at,
            leaf,
            parent: None,
            way: SmallVec::new(),
        })
    }
}

/// Does it, if it can be done so. Blocks while the device reads.
pub(super) fn leaf(
    handle: &JournalHandle<'_>,
    blocks: &mut impl TreeBlocks,
    inode: &mut DiskInode,
    full: &Place,
) -> Result<Option<Halves>, Error> {
    let count = raw::count(&full.leaf);
    let from = count / 2;
    let Some(first) = raw::extent(&full.leaf, from).filter(|_| count >= LEAST_ROOM) else {
        return Ok(None);
    };
    let has_room = |node: &[u8]| raw::count(node) < raw::room(node);
    let parent = full.parent.as_ref();
    let parent_has_room =
        parent.map_or_else(|| has_room(&inode.i_block), |(_, node)| has_room(node));
    if !parent_has_room || !handle.store().has_journal() {
        return Ok(None);
    }
    let child = blocks.take(full.at)?;
    if full.way.contains(&child) {
        blocks.give_back(child)?;
        return Err(twice(inode, child));
    }
    let entry = ExtentIndex {
        block: first.block,
        end: 0,
        child,
    };
    let done = split(handle, inode, full, from, &entry);
    handle.or_abort(done)?;
    Ok(Some(Halves {
        left: full.at,
        right: child,
        key: first.block.get(),
    }))
}

/// Both nodes are held by `full`, so they are in memory and verified until they are changed.
fn split(
    handle: &JournalHandle<'_>,
    inode: &mut DiskInode,
    full: &Place,
    from: usize,
    entry: &ExtentIndex,
) -> Result<(), Error> {
    let (ino, generation) = (inode.ino, inode.generation);
    let done = |done: bool| done.then_some(()).ok_or_else(|| too_full(ino));
    let mut copied = false;
    handle.create(entry.child, Kind::Map, |bytes| {
        let sb = &handle.store().sb;
        copied = raw::copy_upper(&full.leaf, from, bytes, sb);
        seal_block(sb, ino, generation, bytes);
    });
    done(copied)?;
    let owner = owner(inode);
    let change = |at: FsBlock, change: &dyn Fn(&mut [u8]) -> bool| {
        let unsealed = (at, Kind::Map.into(), owner);
        handle.update_unsealed(unsealed, |_| Ok(()), |bytes| done(change(bytes)))
    };
    let count = raw::count(&full.leaf);
    change(full.at, &|leaf| raw::splice(leaf, from, count, &[]))?;
    let name = |node: &mut [u8]| {
        let key = u32::try_from(entry.block.get()).unwrap_or(u32::MAX);
        raw::insert_child(node, raw::up_to(node, key), entry)
    };
    match &full.parent {
        Some((at, _)) => change(*at, &name),
        None => done(name(&mut inode.i_block)),
    }
}
