//! Changing a file's map on disk: extent trees and blocks of pointers.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `quick` | one run into one leaf -> that leaf, changed where it lies |
//! | `split` | a leaf that is full -> two, the second named by their parent |
//! | `leaf` | a leaf's extents and a change -> its extents afterwards, and what was removed |
//! | `tree` | an extent tree and a change -> the way down, and a new root |
//! | `nodes` | children as they will be -> joined, split, placed; their index entries |
//! | `pointers` | the same for the map of ext2 and ext3 |
//! | `plan` | nodes read, blocks taken, nodes to write -> all of it in one handle, or nothing |
//! | `part` | a long range -> a part of it that one handle can change |
//! | `look` | a range -> what it is mapped to on disk |
//! | `bound` | runs to be mapped -> the nodes that this may need, the room that there is |
//! | `runs` | blocks removed and blocks mapped again -> blocks to free |
//! | `view` | what was edited -> the next view of the in-core map |
//!
//! Input: a range of file blocks and the runs that it shall be mapped to, under a journal handle and the map lock. Output: changed blocks
//! in the handle's transaction, a changed `i_block`, and [`Edited`]. Invariants: everything is read and planned before anything is
//! written, so an error leaves all as it was; every node is checked against its parent as when it is loaded; an index entry's key is the
//! first key of its child wherever a node was changed. Limits: work grows with the leaves that a range touches: see [`part`].
//!
//! # Edits
//!
//! `map::edit` changes the map on disk, under the map lock and in one handle: it reads all nodes on the way and takes all blocks that
//! it needs, and only then writes, so what fails has changed nothing. A range that touches more leaves than a handle should change is
//! done part by part. The edit says which file blocks views are out of date about, and what is there now; that is spliced into the
//! newest view. A view counts the edits before it: who loads a node for an older view starts again from the newest, because the node
//! may be gone.

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

pub(crate) use bound::{most_moved, most_nodes, room_at};
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
    /// Only in files with extents.
    pub(crate) unwritten: bool,
}

impl NewRun {
    fn covers(&self, range: &Range<u32>) -> bool {
        self.file_block == range.start && self.len == range.end - range.start
    }
}

/// Where blocks for the map's own nodes come from.
pub(crate) trait TreeBlocks {
    /// Takes a block, near `goal` if it can.
    fn take(&mut self, goal: FsBlock) -> Result<FsBlock, Error>;
    /// Undoes a `take` whose block was never used.
    fn give_back(&mut self, block: FsBlock) -> Result<(), Error>;
}

/// What an edit did. The caller frees the blocks in the same handle, counts them in the inode, and publishes the view.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Edited {
    /// Runs of data blocks to which the range was mapped and is not any more, in the order of their places.
    pub(crate) removed: Vec<(FsBlock, u32)>,
    /// Blocks of the map's own that are in use no more: forgotten, not freed yet.
    pub(crate) nodes_removed: Vec<FsBlock>,
    /// Blocks of the map's own that were taken.
    pub(crate) nodes_taken: u32,
    /// File blocks about which views of the map are out of date, and all that is there now. Empty if nothing was changed.
    window: Range<u32>,
    segments: SmallVec<[Segment; 3]>,
}

/// Maps `range` to `new`, which are in order and lie inside it; what they leave out becomes a hole. Writes `inode.i_block`, in memory
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

/// Moves all that `range` is mapped to by `by` blocks, for files with extents; an extent that straddles an end of the range is cut
/// there. Where it moves to and the range does not reach, there must be a hole. Else as [`replace`].
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
