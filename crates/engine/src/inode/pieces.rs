//! A long range in pieces, each of which fits into one journal handle.
//!
//! Input: a range of file blocks. Output: its first or last piece, and the credits of a handle that changes it. Invariants: a piece is
//! not empty unless the range is; the blocks that are freed with one piece lie in a bounded number of groups. Limits: blocks, as it reads
//! the map of the piece.

use crate::alloc::MARK_CREDITS;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::map::edit::{self, End, NewRun};
use crate::mapping::{Mapping, MappingState};
use crate::orphan::ORPHAN_CREDITS;
use diorite_format::{FsBlock, GroupNo, MapKind};
use std::collections::BTreeSet;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// One past the last file block that can be mapped.
pub(crate) const END: u32 = u32::MAX;

/// Credits for the inode itself, and for its place in the orphan list.
const OWN_CREDITS: u32 = 1 + ORPHAN_CREDITS;

/// How many leaves of a map one piece touches at most.
const MOST_LEAVES: u32 = 64;

/// A part of a range, and the credits of a handle that changes it.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) blocks: Range<u32>,
    pub(crate) credits: u32,
}

impl Inode {
    /// The piece at one end of the range, for a handle that frees everything that the piece maps.
    pub(crate) fn piece_to_free(&self, range: Range<u32>, end: End) -> Result<Piece, Error> {
        let leaves = self.leaves_per_handle();
        let disk = self.disk();
        let part = edit::part(&self.volume, &disk, range, leaves, end)?;
        let tree = edit::credits(&self.volume, &disk, leaves, &[]);
        let most = self
            .volume
            .most_credits()
            .saturating_sub(OWN_CREDITS + tree);
        let mut groups = Groups::of(self, tree);
        let mappings = self.mappings(u64::from(part.start)..u64::from(part.end))?;
        let runs = mappings.iter().filter_map(|m| match m.state {
            MappingState::Hole => None,
            MappingState::Unwritten(at) | MappingState::Written(at) => Some((m.start, m.len, at)),
        });
        // Blocks that are logged need a revoke record each, which takes room in the log as a block does.
        let revokes = self.holds_metadata();
        let most_in_a_run = if revokes { most / 4 } else { END };
        let runs = runs.flat_map(|run| cut(run, u64::from(most_in_a_run.max(1))));
        let mut runs: Vec<_> = runs.collect();
        if end == End::Last {
            runs.reverse();
        }
        let (mut blocks, mut revoked) = (part.clone(), 0u32);
        let mut freed = groups.credits();
        for (n, (start, len, at)) in runs.into_iter().enumerate() {
            groups.add(at, len);
            if revokes {
                revoked = revoked.saturating_add(u32::try_from(len).unwrap_or(END));
            }
            let more = groups.credits().saturating_add(revoked);
            if n > 0 && more > most {
                let short = |b: u64| u32::try_from(b).unwrap_or(END);
                match end {
                    End::First => blocks.end = short(start),
                    End::Last => blocks.start = short(start + len),
                }
                break;
            }
            freed = more;
        }
        let credits = OWN_CREDITS + tree + freed;
        Ok(Piece { blocks, credits })
    }

    /// Credits of a handle that changes at most `leaves` leaves, maps `new`, and frees nothing but nodes.
    pub(crate) fn credits_to_map(&self, leaves: u32, new: &[NewRun]) -> u32 {
        let tree = edit::credits(&self.volume, &self.disk(), leaves, new);
        let mut groups = Groups::of(self, tree);
        for run in new {
            groups.add(run.start, u64::from(run.len));
        }
        OWN_CREDITS + tree + groups.credits()
    }

    /// Credits of a handle that maps runs of one range one after another, each in an edit of its own. `in_hole`: all of the range was a
    /// hole before.
    pub(crate) fn credits_to_convert(&self, runs: &[NewRun], in_hole: bool) -> u32 {
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            return OWN_CREDITS;
        };
        let disk = self.disk();
        let tree = match disk.map_kind() {
            // Pointer blocks depend on the range alone, not on the runs in it.
            MapKind::Indirect => {
                let len = last.file_block + last.len - first.file_block;
                edit::credits(&self.volume, &disk, 2, &[NewRun { len, ..*first }])
            }
            // Consecutive edits leave the nodes that they split half full. In a hole all edits start in the same leaf.
            _ => {
                let others = if in_hole { 0 } else { runs.len() };
                let others = u32::try_from(others).expect("each has a block of the file");
                2 * edit::credits(&self.volume, &disk, others + 2, runs)
            }
        };
        let mut groups = Groups::of(self, tree);
        runs.iter()
            .for_each(|run| groups.add(run.start, u64::from(run.len)));
        OWN_CREDITS + tree + groups.credits()
    }

    /// Credits of a handle that maps `new` in the place of `old`, in one edit.
    pub(crate) fn credits_to_swap(&self, new: &[NewRun], old: &[Mapping]) -> u32 {
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return OWN_CREDITS;
        };
        let disk = self.disk();
        let leaves = u32::try_from(old.len()).unwrap_or(END).saturating_add(2);
        let tree = match disk.map_kind() {
            MapKind::Indirect => {
                let len = last.file_block + last.len - first.file_block;
                edit::credits(&self.volume, &disk, 2, &[NewRun { len, ..*first }])
            }
            _ => edit::credits(&self.volume, &disk, leaves, new),
        };
        let mut groups = Groups::of(self, tree);
        new.iter()
            .for_each(|run| groups.add(run.start, u64::from(run.len)));
        for mapping in old {
            if let MappingState::Written(at) | MappingState::Unwritten(at) = mapping.state {
                groups.add(at, mapping.len);
            }
        }
        OWN_CREDITS + tree + groups.credits()
    }

    /// As [`Inode::credits_to_map`], for changes in which no data block becomes used or free.
    pub(crate) fn credits_to_change(&self, leaves: u32, new: &[NewRun]) -> u32 {
        let tree = edit::credits(&self.volume, &self.disk(), leaves, new);
        OWN_CREDITS + tree + Groups::of(self, tree).credits()
    }

    /// How many leaves one handle may change.
    pub(crate) fn leaves_per_handle(&self) -> u32 {
        (self.volume.most_credits() / 16).clamp(1, MOST_LEAVES)
    }
}

/// Divides a run (first file block, length, place) into parts of at most `most` blocks.
fn cut(
    (start, len, at): (u64, u64, FsBlock),
    most: u64,
) -> impl Iterator<Item = (u64, u64, FsBlock)> {
    let parts = (0..len.div_ceil(most)).map(move |n| n * most);
    parts.map(move |skip| {
        let part = (len - skip).min(most);
        (start + skip, part, FsBlock::new(at.get() + skip))
    })
}

/// The groups whose bitmaps and descriptors are changed: those with the data, and one for each node of the map.
struct Groups<'a> {
    volume: &'a Fs,
    data: BTreeSet<GroupNo>,
    nodes: u32,
}

impl Groups<'_> {
    fn of(inode: &Inode, nodes: u32) -> Groups<'_> {
        Groups {
            volume: &inode.volume,
            data: BTreeSet::new(),
            nodes,
        }
    }

    fn add(&mut self, at: FsBlock, len: u64) {
        let group = |block: u64| self.volume.sb.bitmap_bit(FsBlock::new(block));
        let (first, last) = (group(at.get()), group(at.get() + len.saturating_sub(1)));
        if let (Some((first, _)), Some((last, _))) = (first, last) {
            self.data
                .extend((first.get()..=last.get()).map(GroupNo::new));
        }
    }

    fn credits(&self) -> u32 {
        let groups = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        MARK_CREDITS
            * groups
                .saturating_add(self.nodes)
                .min(self.volume.sb.group_count())
    }
}
