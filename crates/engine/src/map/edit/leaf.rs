//! Applies a change to the extents of one leaf.
//!
//! Input: a leaf's extents, and a change of a range of file blocks. Output: the extents afterwards, and the pieces that were removed.
//! Invariants: pure; extents outside the range keep their blocks; an extent is cut where the range ends inside it, and two are joined
//! where they are contiguous in the file and on the volume, and in the same state. Limits: extents are joined only at the range's ends and
//! among new ones; the result may have more entries than a leaf has room for.

use super::NewRun;
use crate::map::load::END;
use diorite_format::extent::{Extent, max_len};
use diorite_format::{FileBlock, FsBlock};
use std::ops::Range;

/// A change of a range of file blocks.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) range: Range<u32>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Replace(Vec<Extent>),
    Shift(i64),
}

/// A leaf after a change.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) extents: Vec<Extent>,
    /// The extents that the range was mapped to.
    pub(super) removed: Vec<Extent>,
}

impl Change {
    pub(super) fn replace(range: Range<u32>, new: &[NewRun]) -> Change {
        let mut extents = Vec::with_capacity(new.len());
        for run in new {
            push(
                &mut extents,
                Extent {
                    block: FileBlock::new(u64::from(run.file_block)),
                    len: run.len,
                    start: run.start,
                    unwritten: run.unwritten,
                },
            );
        }
        Change {
            range,
            kind: Kind::Replace(extents),
        }
    }

    pub(super) fn shift(range: Range<u32>, by: i64) -> Change {
        Change {
            range,
            kind: Kind::Shift(by),
        }
    }

    pub(super) fn is_shift(&self) -> bool {
        matches!(self.kind, Kind::Shift(_))
    }

    /// The extents that the change maps.
    pub(super) fn new_extents(&self) -> &[Extent] {
        match &self.kind {
            Kind::Replace(new) => new,
            Kind::Shift(_) => &[],
        }
    }

    /// The file blocks that extents of a leaf with the range `blocks` may cover before or after the change. None if that leaves what can
    /// be mapped.
    pub(super) fn reach(&self, blocks: Range<u64>) -> Option<Range<u32>> {
        let (from, to) = (u64::from(self.range.start), u64::from(self.range.end));
        let (mut start, mut end) = (blocks.start, blocks.end);
        if let Kind::Shift(by) = self.kind {
            // Only extents in the range move, and what they move into was a hole.
            start = start.min(start.max(from).saturating_add_signed(by));
            end = end
                .max(end.min(to).saturating_add_signed(by))
                .min(u64::from(END));
        }
        start = start.min(from);
        Some(u32::try_from(start).ok()?..u32::try_from(end).ok()?)
    }

    /// Applies the change to a leaf. The first leaf that the range touches gets the new extents. None if an extent would be moved to file
    /// blocks that cannot be mapped.
    pub(super) fn apply(&self, leaf: &[Extent], is_first: bool) -> Option<Changed> {
        let (from, to) = (u64::from(self.range.start), u64::from(self.range.end));
        let whole = |e: &Extent| e.block.get()..e.end();
        let mut extents: Vec<Extent> = Vec::with_capacity(leaf.len() + 2);
        extents.extend(leaf.iter().filter_map(|e| cut(e, 0..from)));
        let inside: Vec<Extent> = leaf.iter().filter_map(|e| cut(e, from..to)).collect();
        let mut removed = Vec::new();
        match &self.kind {
            Kind::Replace(new) => {
                let new = if is_first { &new[..] } else { &[] };
                new.iter().for_each(|e| push(&mut extents, *e));
                removed = inside;
            }
            Kind::Shift(by) => {
                for extent in inside {
                    push(&mut extents, moved(&extent, *by)?);
                }
            }
        }
        let mut after = leaf.iter().filter_map(|e| cut(e, to..whole(e).end));
        if let Some(first) = after.next() {
            push(&mut extents, first);
        }
        extents.extend(after);
        Some(Changed { extents, removed })
    }
}

/// The part of an extent in a range; None if that is empty.
fn cut(extent: &Extent, range: Range<u64>) -> Option<Extent> {
    let start = extent.block.get().max(range.start);
    let end = extent.end().min(range.end);
    let skip = start - extent.block.get();
    (start < end).then(|| Extent {
        block: FileBlock::new(start),
        len: u32::try_from(end - start).expect("a part is not longer than the whole"),
        start: FsBlock::new(extent.start.get() + skip),
        unwritten: extent.unwritten,
    })
}

fn moved(extent: &Extent, by: i64) -> Option<Extent> {
    let block = extent.block.get().checked_add_signed(by)?;
    (block + u64::from(extent.len) <= u64::from(END)).then(|| Extent {
        block: FileBlock::new(block),
        ..*extent
    })
}

/// Appends an extent of any length. It is joined with the last one as far as an extent may be long, and the rest is added in pieces.
fn push(list: &mut Vec<Extent>, mut extent: Extent) {
    let most = max_len(extent.unwritten);
    if let Some(last) = list.last_mut().filter(|l| continues(l, &extent)) {
        let take = extent.len.min(most.saturating_sub(last.len));
        last.len += take;
        match advance(&extent, take) {
            Some(rest) => extent = rest,
            None => return,
        }
    }
    loop {
        let len = extent.len.min(most);
        list.push(Extent { len, ..extent });
        match advance(&extent, len) {
            Some(rest) => extent = rest,
            None => return,
        }
    }
}

/// An extent without its first `by` blocks.
fn advance(extent: &Extent, by: u32) -> Option<Extent> {
    cut(extent, extent.block.get() + u64::from(by)..extent.end())
}

fn continues(a: &Extent, b: &Extent) -> bool {
    a.end() == b.block.get()
        && a.start.get() + u64::from(a.len) == b.start.get()
        && a.unwritten == b.unwritten
}
