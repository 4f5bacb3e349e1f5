//! The map room: from file blocks to the blocks of the volume.
//!
//! Input: an inode and a range. Output: [`Mapping`]s that cover it in order. Invariants: an iteration covers its range
//! without gap or overlap and always makes progress; a view never changes once it is published. Limits: file blocks are
//! 32 bits, the last one that can be mapped is 2^32 - 2.
//!
//! # Views
//!
//! The in-core map is an immutable tree of small nodes; a change copies one node per level and publishes a new root. Publication stores
//! the root under a short lock and then raises a number. A queue keeps the version it saw last and compares numbers, one load per
//! request, so lookups neither share a reference count nor a lock. Nodes of the disk's tree are read one by one when a request needs
//! them; under memory pressure a map falls back to its root.

pub(crate) mod edit;
mod load;
mod published;
mod tree;

pub(crate) use load::{read_node, root_segments, root_view};
pub(crate) use published::{Cached, Published};
pub(crate) use tree::Tree;

use crate::mapping::{Mapping, MappingState};
use diorite_format::FsBlock;

/// A run of file blocks in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The first file block.
    pub(crate) start: u32,
    /// How many, one or more; `start + len` is at most 2^32 - 1.
    pub(crate) len: u32,
    pub(crate) kind: SegmentKind,
}

/// What a segment stands for. What no segment covers is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// Data, from this block of the volume on.
    Written(FsBlock),
    /// Allocated from this block on; reads as zeros.
    Unwritten(FsBlock),
    /// An extent tree's node of this depth, not read yet.
    ExtentNode(FsBlock, u16),
    /// An indirect block of this level (1 to 3), not read yet.
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

/// The map cannot be walked on: the node that covers this file block has not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotLoaded {
    pub(crate) block: u32,
}

/// One published state of an inode's map.
#[derive(Debug)]
pub(crate) struct MapView {
    pub(crate) tree: Tree,
    /// How often the map was changed on disk until this view. Nodes that an older view shows as not loaded may be gone.
    edits: u64,
}

impl MapView {
    /// How often the map was changed on disk until this view.
    pub(crate) fn edits(&self) -> u64 {
        self.edits
    }

    /// Was nothing changed on disk between the two?
    pub(crate) fn is_of_same_map(&self, other: &MapView) -> bool {
        self.edits == other.edits
    }

    /// The same as the view so many edits behind the first.
    pub(crate) fn after(self, edits: u64) -> MapView {
        MapView { edits, ..self }
    }

    /// The same map, with another tree.
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

    /// The mappings that cover `first..end` (file blocks), in order.
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
        // Past the last block that can be mapped there are only holes.
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
