//! The parts of a file behind the limit, as pieces of whole clusters.
//!
//! Input: the runs of a file's map, in the order of the file. Output: pieces that move as a whole: a run of clusters, and what the file
//! maps there. Invariants: a cluster is in one piece; without bigalloc a piece is a part of one extent. Limits: a file block and its block
//! on the volume have the same offset in their clusters; a piece ends after [`MOST_RUNS`] runs where a cluster does.

use super::tree::Data;
use crate::alloc::{Alloc, Region, Run};
use crate::error::Error;
use diorite_format::{FsBlock, Ino, Superblock};
use std::ops::Range;

/// The number of runs after which a piece ends, if they need not be together.
const MOST_RUNS: usize = 32;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) ino: Ino,
    /// The clusters.
    pub(super) old: Run,
    /// What is mapped there, in order.
    pub(super) runs: Vec<Data>,
}

impl Piece {
    /// The file blocks from the first to the last one.
    pub(super) fn file_blocks(&self) -> Range<u32> {
        let (first, last) = (self.runs.first(), self.runs.last());
        let start = first.map_or(0, |run| run.file_block);
        start..last.map_or(start, |run| run.file_block + run.len)
    }

    /// Cuts the piece behind its first `len` blocks, a whole number of clusters. Returns the rest, if there is one.
    pub(super) fn cut(&mut self, len: u32) -> Option<Piece> {
        if len >= self.old.len {
            return None;
        }
        let cut = FsBlock::new(self.old.start.get() + u64::from(len));
        let mut rest = Piece {
            ino: self.ino,
            old: Run {
                start: cut,
                len: self.old.len - len,
            },
            runs: Vec::new(),
        };
        self.old.len = len;
        for run in std::mem::take(&mut self.runs) {
            let (before, behind) = split(run, cut);
            self.runs.extend(before);
            rest.runs.extend(behind);
        }
        Some(rest)
    }
}

/// A part of a run: so many blocks from the `skip`th on.
fn part(run: Data, skip: u32, len: u32) -> Data {
    Data {
        file_block: run.file_block + skip,
        len,
        at: FsBlock::new(run.at.get() + u64::from(skip)),
        unwritten: run.unwritten,
    }
}

/// The parts of a run before and behind a block.
fn split(run: Data, at: FsBlock) -> (Option<Data>, Option<Data>) {
    let before = at.get().saturating_sub(run.at.get());
    let before = u32::try_from(before).map_or(run.len, |n| n.min(run.len));
    let parts = (part(run, 0, before), part(run, before, run.len - before));
    (
        (parts.0.len > 0).then_some(parts.0),
        (parts.1.len > 0).then_some(parts.1),
    )
}

/// Collects the pieces of one file, run by run.
pub(super) struct Pieces<'a> {
    sb: &'a Superblock,
    ino: Ino,
    /// The blocks that count.
    region: &'a Region,
    pub(super) all: Vec<Piece>,
}

impl<'a> Pieces<'a> {
    pub(super) fn of(sb: &'a Superblock, ino: Ino, region: &'a Region) -> Pieces<'a> {
        let all = Vec::new();
        Pieces {
            sb,
            ino,
            region,
            all,
        }
    }

    /// Adds the parts of a run that lie in the region.
    pub(super) fn add(&mut self, run: Data) -> Result<(), Error> {
        let blocks = run.at.get()..run.at.get() + u64::from(run.len);
        for inside in self.region.inside(blocks) {
            let short = |n: u64| u32::try_from(n).expect("a part of a run is no longer than it");
            let skip = short(inside.start - run.at.get());
            self.add_part(part(run, skip, short(inside.end - inside.start)))?;
        }
        Ok(())
    }

    fn add_part(&mut self, run: Data) -> Result<(), Error> {
        let (start, len) = (run.at, run.len);
        let old = Alloc::around(self.sb, Run { start, len })?;
        let ratio = self.sb.geometry().cluster_ratio();
        if u64::from(run.file_block % ratio) != run.at.get() % u64::from(ratio) {
            let (ino, block) = (self.ino, run.file_block);
            let what = "does not lie in its cluster as in the file";
            let told = format!("inode {ino}: file block {block} {what}; run e2fsck");
            return Err(Error::Damaged(told));
        }
        match self.all.last_mut() {
            // They share a cluster.
            Some(piece)
                if ratio > 1 && old.start < piece.old.end() && piece.old.start <= old.start =>
            {
                let more = old.end().get().saturating_sub(piece.old.end().get());
                piece.old.len += u32::try_from(more).expect("a part of a run is no longer than it");
                piece.runs.push(run);
            }
            _ => self.all.push(Piece {
                ino: self.ino,
                old,
                runs: vec![run],
            }),
        }
        self.end_long();
        Ok(())
    }

    /// Divides the last piece if it has many runs: its last cluster stays together with what may follow.
    fn end_long(&mut self) {
        let Some(piece) = self.all.last_mut() else {
            return;
        };
        let last = piece
            .old
            .len
            .saturating_sub(self.sb.geometry().cluster_ratio());
        if piece.runs.len() > MOST_RUNS
            && last > 0
            && let Some(rest) = piece.cut(last)
        {
            self.all.push(rest);
        }
    }
}
