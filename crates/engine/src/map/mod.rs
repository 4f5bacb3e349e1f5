//! The map module: from file blocks to the blocks of the volume.
//!
//! Input: an inode and a range. Output: [`Mapping`]s that cover the range in order. Invariants: an iteration covers its range
//! without gap or overlap and always makes progress; a view never changes once it is published. Limits: file blocks are
//! 32-bit numbers, the last one that can be mapped is 2^32 - 2.
//!
//! # Views
//!
//! The in-core map is an immutable tree of small nodes. A change copies one node per level and publishes a new root: it stores the root
//! under a lock that is held briefly, then raises a sequence number. Each queue keeps the view that it fetched last and compares numbers,
//! one load per request, so lookups share neither a reference count nor a lock. Nodes of the map on disk are read one by one, when a
//! request needs them. When memory is short, a map is reduced to the root inside the inode.

pub(crate) mod edit;
mod load;
mod published;
mod tree;

pub(crate) use load::{read_node, root_segments, root_view, segments_in_inode, segments_in_node};
pub(crate) use published::{Cached, Published, Publishers, Retired};
pub(crate) use tree::Tree;

use crate::mapping::{Mapping, MappingState};
use diorite_format::FsBlock;

/// A run of file blocks in one state, or below one node of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The first file block.
    pub(crate) start: u32,
    /// The number of blocks, one or more; `start + len` is at most 2^32 - 1.
    pub(crate) len: u32,
    pub(crate) kind: SegmentKind,
}

/// What is mapped in a segment. File blocks that no segment covers are holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// Data, from this block of the volume on.
    Written(FsBlock),
    /// Allocated from this block on; reads as zeros.
    Unwritten(FsBlock),
    /// A node of the extent tree, at this depth, that has not been read.
    ExtentNode(FsBlock, u16),
    /// An indirect block of this level (1 to 3) that has not been read.
    IndirectNode(FsBlock, u16),
}

impl Segment {
    /// The last file block.
    #[inline]
    pub(crate) fn last(&self) -> u32 {
        self.start + (self.len - 1)
    }

    pub(crate) fn is_unloaded(&self) -> bool {
        matches!(
            self.kind,
            SegmentKind::ExtentNode(..) | SegmentKind::IndirectNode(..)
        )
    }
}

/// The lookup cannot go on: the node that covers this file block has not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotLoaded {
    pub(crate) block: u32,
}

/// A published version of an inode's map.
#[derive(Debug)]
pub(crate) struct MapView {
    pub(crate) tree: Tree,
    /// The number of edits of the map on disk before this view. Nodes that an older view shows as not loaded may have been freed since.
    edits: u64,
}

impl MapView {
    /// The number of edits of the map on disk before this view.
    pub(crate) fn edits(&self) -> u64 {
        self.edits
    }

    /// Was the map on disk not edited between the two views?
    pub(crate) fn is_of_same_map(&self, other: &MapView) -> bool {
        self.edits == other.edits
    }

    /// The view, with another number of edits.
    pub(crate) fn after(self, edits: u64) -> MapView {
        MapView { edits, ..self }
    }

    /// A view of the same map with another tree: more or fewer nodes are loaded.
    pub(crate) fn with_tree(&self, tree: Tree) -> MapView {
        MapView {
            tree,
            edits: self.edits,
        }
    }

    /// The written run that holds file block `block`: its first file block, its length, its first block on the volume.
    pub(crate) fn written_run(&self, block: u64) -> Option<(u64, u64, u64)> {
        let segment = self.tree.at_or_after(u32::try_from(block).ok()?)?;
        match segment.kind {
            SegmentKind::Written(at) if u64::from(segment.start) <= block => {
                Some((u64::from(segment.start), u64::from(segment.len), at.get()))
            }
            _ => None,
        }
    }

    /// Iterates over the mappings that cover the file blocks `first..end`, in order.
    #[inline]
    pub(crate) fn walk(&self, first: u64, end: u64) -> Walk<'_> {
        Walk {
            view: self,
            next: first,
            end,
        }
    }
}

/// See [`MapView::walk`].
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    view: &'a MapView,
    next: u64,
    end: u64,
}

impl Iterator for Walk<'_> {
    type Item = Result<Mapping, NotLoaded>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        // Behind the last block that can be mapped there are only holes.
        let segment = u32::try_from(self.next)
            .ok()
            .and_then(|b| self.view.tree.at_or_after(b));
        let (until, state) = match segment {
            None => (self.end, MappingState::Hole),
            Some(s) if u64::from(s.start) > self.next => (u64::from(s.start), MappingState::Hole),
            Some(s) => {
                let skip = self.next - u64::from(s.start);
                let state = match s.kind {
                    SegmentKind::Written(at) => {
                        MappingState::Written(FsBlock::new(at.get() + skip))
                    }
                    SegmentKind::Unwritten(at) => {
                        MappingState::Unwritten(FsBlock::new(at.get() + skip))
                    }
                    SegmentKind::ExtentNode(..) | SegmentKind::IndirectNode(..) => {
                        let block = s.start.max(u32::try_from(self.next).unwrap_or(s.start));
                        return Some(Err(NotLoaded { block }));
                    }
                };
                (u64::from(s.last()) + 1, state)
            }
        };
        let until = until.min(self.end);
        assert!(until > self.next, "a mapping makes progress");
        let mapping = Mapping {
            start: self.next,
            len: until - self.next,
            state,
        };
        self.next = until;
        Some(Ok(mapping))
    }
}
