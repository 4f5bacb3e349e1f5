//! Changes a file's map on disk: extent trees, and the indirect blocks of ext2 and ext3.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `quick` | one run that fits into one leaf -> that leaf, changed in place |
//! | `split` | a full leaf -> two, the second with an entry in their parent |
//! | `leaf` | a leaf's extents and a change -> its extents afterwards, and what was removed |
//! | `tree` | an extent tree and a change -> the edit from the root down, and a new root |
//! | `nodes` | edited children -> joined, split, placed; their index entries |
//! | `pointers` | a map of indirect blocks and a change -> the same for ext2 and ext3 |
//! | `plan` | nodes to read, blocks to take, nodes to write -> all of it in one handle, or nothing |
//! | `part` | a long range -> a part of it that one handle can change |
//! | `look` | a range -> what it is mapped to on disk |
//! | `bound` | runs that will be mapped -> the nodes that this may need, the free entries that there are |
//! | `runs` | blocks that were mapped, blocks that are mapped now -> blocks to free |
//! | `view` | the result of an edit -> the next view of the in-core map |
//!
//! Input: a range of file blocks and the runs to map it to, under a journal handle and the map lock. Output: changed blocks
//! in the handle's transaction, a changed `i_block`, and [`Edited`]. Invariants: everything is read and planned before anything is
//! written, so an error changes nothing; every node is checked against its parent, as when it is loaded; wherever a node was changed, the
//! key of its index entry is its first key. Limits: the work grows with the leaves that a range touches: see [`part`].
//!
//! # Edits
//!
//! An edit runs under the map lock, in one handle. It reads all nodes on its way and takes all blocks that it needs before it writes
//! anything, so a failed edit has changed nothing. A range that touches more leaves than a handle should change is edited part by part.
//! The edit returns its window, the file blocks about which views are out of date, and the segments that are there now; these are spliced
//! into the latest view. A view has the number of edits before it. A thread that has loaded a node for an older view has to start again
//! from the latest one, because the node may have been freed.

mod bound;
mod leaf;
mod look;
mod nodes;
mod part;
mod place;
mod plan;
mod pointers;
mod quick;
mod runs;
mod split;
#[cfg(test)]
mod tests;
mod tree;
mod view;

pub(crate) use bound::{most_moved, most_nodes, most_nodes_in_pieces, room_for, room_in_root};
pub(crate) use look::mapped_to;
pub(crate) use part::{End, credits, part};
pub(crate) use runs::{Run as MappedRun, without};
pub(crate) use view::{Next, next_view};

use super::Segment;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::{FsBlock, Inode as DiskInode, MapKind};
use leaf::Change;
use plan::Plan;
use smallvec::SmallVec;
use std::ops::Range;

/// A run of file blocks to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewRun {
    pub(crate) file_block: u32,
    pub(crate) len: u32,
    pub(crate) start: FsBlock,
    /// Possible only in files with extents.
    pub(crate) unwritten: bool,
}

impl NewRun {
    fn covers(&self, range: &Range<u32>) -> bool {
        self.file_block == range.start && self.len == range.end - range.start
    }
}

/// Allocates blocks for the nodes of a map.
pub(crate) trait TreeBlocks {
    /// Takes a block, near `goal` if possible.
    fn take(&mut self, goal: FsBlock) -> Result<FsBlock, Error>;
    /// Undoes a `take` whose block was never used.
    fn give_back(&mut self, block: FsBlock) -> Result<(), Error>;
    /// Called before anything is changed, with the inode as it is, the runs that the caller will free after the edit, and the nodes. Loads
    /// what that needs, since the edit cannot be undone then.
    fn prepare_to_free(
        &mut self,
        inode: &DiskInode,
        removed: &[MappedRun],
        nodes: &[FsBlock],
    ) -> Result<(), Error>;
    /// How many entries writes under way may add for which no node is reserved: they count on the room that the leaves have.
    fn counted_on(&self) -> usize;
}

/// The result of an edit. The caller frees the blocks in the same handle, updates the inode's block count, and publishes the next view.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Edited {
    /// Runs of blocks that the range was mapped to before and is not any more, sorted.
    pub(crate) removed: Vec<(FsBlock, u32)>,
    /// Blocks of nodes that are not part of the map any more: forgotten by the journal, not freed yet.
    pub(crate) nodes_removed: Vec<FsBlock>,
    /// Number of blocks that were taken for nodes.
    pub(crate) nodes_taken: u32,
    /// The file blocks about which views are out of date, and all segments that are there now. Empty if nothing was changed.
    window: Range<u32>,
    segments: SmallVec<[Segment; 3]>,
}

/// Maps `range` to the runs `new`, which are sorted and lie in it; the rest of the range becomes a hole. Changes `inode.i_block` in memory
/// only: the caller writes the inode in the same handle. Blocks while the device reads. The caller holds the map lock.
pub(crate) fn replace(
    handle: &JournalHandle<'_>,
    blocks: &mut impl TreeBlocks,
    inode: &mut DiskInode,
    range: Range<u32>,
    new: &[NewRun],
) -> Result<Edited, Error> {
    assert!(
        new.iter()
            .all(|n| n.len > 0 && n.file_block >= range.start && n.len <= range.end - n.file_block),
        "new runs lie in their range"
    );
    let next = |w: &[NewRun]| w[0].file_block + w[0].len <= w[1].file_block;
    assert!(new.windows(2).all(next), "new runs are in order");
    if range.is_empty() {
        return Ok(Edited::default());
    }
    if let ([one], true) = (new, new.first().is_some_and(|n| n.covers(&range)))
        && let Some(edited) = quick::try_replace(handle, blocks, inode, one)?
    {
        return Ok(edited);
    }
    match inode.map_kind() {
        MapKind::Extents => {
            let change = Change::replace(range, new);
            Plan::run(handle, blocks, inode, |plan| tree::edit(plan, &change))
        }
        MapKind::Indirect => Plan::run(handle, blocks, inode, |plan| {
            pointers::edit(plan, range, new)
        }),
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => {
            Err(without_map(inode))
        }
    }
}

/// Moves everything that `range` is mapped to by `by` file blocks; only for files with extents. An extent that crosses an end of the range
/// is cut there. The part of the target outside the range must be a hole. Otherwise as [`replace`].
pub(crate) fn shift(
    handle: &JournalHandle<'_>,
    blocks: &mut impl TreeBlocks,
    inode: &mut DiskInode,
    range: Range<u32>,
    by: i64,
) -> Result<Edited, Error> {
    if inode.map_kind() != MapKind::Extents {
        return Err(without_map(inode));
    }
    if range.is_empty() || by == 0 {
        return Ok(Edited::default());
    }
    let change = Change::shift(range, by);
    Plan::run(handle, blocks, inode, |plan| tree::edit(plan, &change))
}

fn without_map(inode: &DiskInode) -> Error {
    let kind = match inode.map_kind() {
        MapKind::Extents => "an extent tree",
        MapKind::Indirect => "a map of pointers",
        MapKind::Inline => "inline data",
        MapKind::FastSymlink | MapKind::Device | MapKind::None => "no map",
    };
    Error::Invalid(format!(
        "inode {} has {kind}, which cannot be changed in this way",
        inode.ino
    ))
}
