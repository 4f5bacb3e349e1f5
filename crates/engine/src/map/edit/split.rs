//! Splits a full leaf in place.
//!
//! Input: a leaf in memory whose parent has room for one more entry. Output: its upper entries in a new leaf on its right, which has an
//! entry in the parent; or None and nothing done. Invariants: the file's mappings do not change, so all views stay right; the new index
//! entry's key is the new leaf's first; the block is taken before anything is changed. Limits: a full parent is left to the general edit.
//! So is a volume without a journal: the old leaf could be on disk unchanged beside the new one, with its upper entries twice.

use super::TreeBlocks;
use super::place::{Place, owner, too_full};
use super::plan::twice;
use crate::disk::cache::{Kind, MetaRef};
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::extent::{ExtentIndex, raw, seal_block};
use diorite_format::{FsBlock, Inode as DiskInode};
use smallvec::SmallVec;

/// Leaves with fewer entries are not split: both halves must have room for what an edit adds.
const LEAST_ROOM: usize = 8;

/// The two leaves after a split.
pub(super) struct Halves {
    left: FsBlock,
    right: FsBlock,
    /// The first file block of the right one.
    key: u64,
}

impl Halves {
    /// The leaf to which a file block belongs now. It is in memory, since the handle's transaction has changed it. The nodes above it are
    /// left out:
    /// nobody asks for them.
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

/// Splits the leaf if this is possible in place. Blocks while the device reads.
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
    let left = full.at;
    let done = split(handle, inode, full, from, &entry);
    handle.or_abort(done)?;
    Ok(Some(Halves {
        left,
        right: child,
        key: first.block.get(),
    }))
}

/// Makes the split. `full` holds both old nodes, so they stay in memory and verified until their changes begin.
fn split(
    handle: &JournalHandle<'_>,
    inode: &mut DiskInode,
    full: Place,
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
    let change = |at: FsBlock, held: MetaRef, change: &dyn Fn(&mut [u8]) -> bool| {
        let unsealed = (at, Kind::Map.into(), owner);
        handle.update_held(unsealed, held, |bytes| done(change(bytes)))
    };
    let count = raw::count(&full.leaf);
    let upper_is_gone = |leaf: &mut [u8]| raw::splice(leaf, from, count, &[]);
    change(full.at, full.leaf, &upper_is_gone)?;
    let name = |node: &mut [u8]| {
        let key = u32::try_from(entry.block.get()).unwrap_or(u32::MAX);
        raw::insert_child(node, raw::up_to(node, key), entry)
    };
    match full.parent {
        Some((at, held)) => change(at, held, &name),
        None => done(name(&mut inode.i_block)),
    }
}
