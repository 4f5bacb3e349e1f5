//! Clusters of a file: where new blocks lie on volumes that allocate several blocks at once (bigalloc).
//!
//! Input: a hole of a file. Output: which whole clusters it needs, or its blocks in a cluster that the file has. Invariants: the blocks
//! of one cluster of the file lie in one cluster of the volume, each at the same offset; only blocks that were written are mapped, so a
//! cluster belongs to the file as long as one of its blocks is mapped. Limits: files with extents, as the format requires with bigalloc.
//!
//! Example: clusters of 16 blocks. A file has block 33 at 1601. A write of its block 35 gets block 1603. If the file has none of its
//! blocks 32 to 47, a cluster is claimed, say at 1600, and the write gets 1603 too; the other 15 blocks stay a hole.

use super::Inode;
use crate::alloc::{Alloc, Run};
use crate::error::Error;
use crate::map::{MapView, NotLoaded};
use crate::mapping::MappingState;
use diorite_format::FsBlock;
use std::ops::Range;

/// What a hole in a file needs to be filled.
pub(super) enum Shape {
    /// No new cluster: these blocks are in a cluster that the file has.
    Has(Run),
    /// New clusters.
    New(Whole),
}

/// A range of file blocks in whole clusters.
pub(super) struct Whole {
    pub(super) start: u64,
    pub(super) len: u32,
}

impl Inode {
    /// A range of file blocks, rounded out to clusters.
    pub(crate) fn whole_clusters(&self, blocks: Range<u64>) -> Range<u64> {
        let ratio = u64::from(self.volume.sb.geometry().cluster_ratio());
        blocks.start / ratio * ratio..blocks.end.next_multiple_of(ratio)
    }

    /// log2 of the bytes of a cluster. The pending map has this unit, as two writes into one new cluster must not both claim it.
    pub(crate) fn cluster_bits(&self) -> u32 {
        self.volume.sb.geometry().cluster_size().trailing_zeros()
    }
}

/// What the hole at `at` needs if `want` blocks of it are to be mapped. None if a part of the view is not loaded.
pub(super) fn shape(
    inode: &Inode,
    view: &MapView,
    at: u64,
    want: u32,
) -> Result<Option<Shape>, Error> {
    let first = inode.whole_clusters(at..at + 1);
    match neighbour(view, first.clone()) {
        Err(NotLoaded { .. }) => return Ok(None),
        Ok(Some((block, place))) => {
            let len = (first.end - at).min(u64::from(want));
            return beside(inode, (block, place), at, len).map(Some);
        }
        Ok(None) => {}
    }
    // The file may have blocks behind the hole in the last cluster.
    let all = inode.whole_clusters(at..at + u64::from(want));
    let last = all.end - (first.end - first.start)..all.end;
    let end = match neighbour(view, last.clone()) {
        Err(NotLoaded { .. }) => return Ok(None),
        Ok(Some(_)) => last.start,
        Ok(None) => all.end,
    };
    let len = u32::try_from(end - first.start).unwrap_or(u32::MAX);
    let start = first.start;
    Ok(Some(Shape::New(Whole { start, len })))
}

/// A mapped block of the file in a range, and its place on the volume.
fn neighbour(view: &MapView, range: Range<u64>) -> Result<Option<(u64, FsBlock)>, NotLoaded> {
    for mapping in view.walk(range.start, range.end) {
        let mapping = mapping?;
        if let MappingState::Written(place) | MappingState::Unwritten(place) = mapping.state {
            return Ok(Some((mapping.start, place)));
        }
    }
    Ok(None)
}

/// The blocks from `at` on, in a cluster in which the file has another block.
fn beside(
    inode: &Inode,
    (block, place): (u64, FsBlock),
    at: u64,
    len: u64,
) -> Result<Shape, Error> {
    let volume = &inode.volume;
    let crooked = || {
        Error::Damaged(format!(
            "inode {}: block {block} is at {place}, which is not its place in a cluster; run e2fsck",
            inode.ino
        ))
    };
    let cluster = Alloc::around(
        &volume.sb,
        Run {
            start: place,
            len: 1,
        },
    )?;
    let before = |b: u64| b - inode.whole_clusters(b..b + 1).start;
    if place.get() - cluster.start.get() != before(block) {
        return Err(crooked());
    }
    let start = FsBlock::new(cluster.start.get() + before(at));
    let len = u32::try_from(len).map_err(|_| crooked())?;
    let inside = start.get() + u64::from(len) <= cluster.end().get();
    if !inside || volume.metadata_in(start, u64::from(len)).is_some() {
        return Err(crooked());
    }
    Ok(Shape::Has(Run { start, len }))
}

/// The part of claimed clusters that a hole at `at` gets.
pub(super) fn cut(inode: &Inode, run: Run, (at, want): (u64, u32)) -> Result<Run, Error> {
    let lead = at - inode.whole_clusters(at..at + 1).start;
    let len = u64::from(run.len).saturating_sub(lead).min(u64::from(want));
    if len == 0 {
        // Only the last cluster of the volume was free, and it is too short.
        inode.give_back(run);
        let free = u64::from(run.len);
        return Err(Error::NoSpace {
            asked: lead + 1,
            free,
        });
    }
    Ok(Run {
        start: FsBlock::new(run.start.get() + lead),
        len: u32::try_from(len).expect("no more than was wanted"),
    })
}
