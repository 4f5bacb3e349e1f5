//! Where the volume's own structures are: superblocks, group descriptors, bitmaps, inode tables, the journal.
//!
//! Input: the superblock and the group descriptors. Output: for a range of blocks, which structure lies in it; structures that overlap.
//! Invariant: the runs are sorted and do not overlap. Limits: with flex_bg the structures merge into few runs; a volume of 1 TiB has some
//! thousands.

use crate::error::Error;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock};
use std::fmt;

/// See the module.
#[derive(Debug, Default)]
pub struct Zone {
    runs: Box<[Run]>,
    overlaps: Box<[Overlap]>,
}

/// Two structures in one block, which no sound volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The first block that both have.
    pub at: FsBlock,
    /// What they are.
    pub what: [&'static str; 2],
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, [one, other]) = (self.at, self.what);
        write!(f, "block {at} belongs to {one} and to {other}")
    }
}

/// Descriptors are found in two ways: by the places of their blocks, and by the heads of groups.
const DESCRIPTORS: &str = "group descriptors";

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    what: &'static str,
}

impl Zone {
    /// Superblocks, group descriptors, bitmaps and inode tables.
    pub fn of_groups(sb: &Superblock, groups: &[GroupDesc]) -> Result<Zone, Error> {
        let mut runs = Vec::new();
        let table = u64::from(sb.geometry().inode_table_blocks());
        for group in groups {
            // A descriptor that cannot be read has no places.
            for (at, len, what) in [
                (group.block_bitmap, 1, "a block bitmap"),
                (group.inode_bitmap, 1, "an inode bitmap"),
                (group.inode_table, table, "an inode table"),
            ] {
                if !at.is_none() {
                    push(&mut runs, at.get(), len, what);
                }
            }
            if sb.has_super_backup(group.group) {
                push(
                    &mut runs,
                    super_block_of(sb, group.group),
                    1,
                    "a superblock",
                );
            }
        }
        push_descriptors(sb, &mut runs)?;
        Ok(Zone::from_runs(runs))
    }

    /// A zone of given runs, which all hold the same kind of structure.
    pub(crate) fn of(what: &'static str, places: impl Iterator<Item = (FsBlock, u64)>) -> Zone {
        Zone::from_runs(
            places
                .map(|(at, len)| Run {
                    start: at.get(),
                    end: at.get() + len,
                    what,
                })
                .collect(),
        )
    }

    /// Its runs, sorted: first block, length, and what it is.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (FsBlock, u64, &'static str)> + '_ {
        let run = |r: &Run| (FsBlock::new(r.start), r.end - r.start, r.what);
        self.runs.iter().map(run)
    }

    /// Structures that have a block in common, each with one that begins before it.
    pub fn overlaps(&self) -> impl Iterator<Item = &Overlap> + '_ {
        self.overlaps.iter()
    }

    /// Whether all structures lie in the volume, and none in another.
    pub(crate) fn fits(&self, sb: &Superblock) -> bool {
        let end = sb.geometry().blocks_count();
        self.overlaps.is_empty() && self.runs.last().is_none_or(|run| run.end <= end)
    }

    fn from_runs(mut runs: Vec<Run>) -> Zone {
        runs.sort_by_key(|r| r.start);
        let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
        let mut overlaps = Vec::new();
        // Of the runs so far, the one that ends last.
        let mut before: Option<Run> = None;
        for run in runs {
            if let Some(before) = before.filter(|b| run.start < b.end) {
                let what = [before.what, run.what];
                if what != [DESCRIPTORS; 2] {
                    let at = FsBlock::new(run.start);
                    overlaps.push(Overlap { at, what });
                }
            }
            if before.is_none_or(|b| b.end < run.end) {
                before = Some(run);
            }
            match merged.last_mut() {
                Some(last)
                    if run.start < last.end || run.start == last.end && run.what == last.what =>
                {
                    last.end = last.end.max(run.end);
                }
                _ => merged.push(run),
            }
        }
        Zone {
            runs: merged.into(),
            overlaps: overlaps.into(),
        }
    }

    /// Number of blocks of all clusters, of `ratio` blocks each, that have a block in the zone.
    pub(crate) fn blocks(&self, ratio: u64) -> u64 {
        let (mut count, mut counted) = (0, 0);
        for run in &self.runs {
            let start = (run.start / ratio).max(counted);
            counted = run.end.div_ceil(ratio).max(start);
            count += counted - start;
        }
        count * ratio
    }

    /// The structure that lies in `len` blocks from `at`, if any does.
    pub fn find(&self, at: FsBlock, len: u64) -> Option<&'static str> {
        self.within(at, len).next().map(|r| r.what)
    }

    /// The runs with a block among `len` blocks from `at`, sorted: first block and length, as in [`Zone::runs`].
    pub(crate) fn runs_within(
        &self,
        at: FsBlock,
        len: u64,
    ) -> impl Iterator<Item = (FsBlock, u64)> + '_ {
        let run = |r: &Run| (FsBlock::new(r.start), r.end - r.start);
        self.within(at, len).map(run)
    }

    fn within(&self, at: FsBlock, len: u64) -> impl Iterator<Item = &Run> {
        let first = self.runs.partition_point(|r| r.end <= at.get());
        let end = at.get().saturating_add(len);
        self.runs[first..].iter().take_while(move |r| r.start < end)
    }
}

fn push(runs: &mut Vec<Run>, start: u64, len: u64, what: &'static str) {
    runs.push(Run {
        start,
        end: start.saturating_add(len),
        what,
    });
}

fn super_block_of(sb: &Superblock, group: GroupNo) -> u64 {
    if group.get() == 0 {
        sb.super_block().get()
    } else {
        sb.group_first_block(group).get()
    }
}

/// The group descriptors and their copies, each with the blocks reserved for their growth.
fn push_descriptors(sb: &Superblock, runs: &mut Vec<Run>) -> Result<(), Error> {
    let geometry = sb.geometry();
    for index in 0..geometry.gdt_blocks() {
        push(runs, sb.gdt_location(index)?.get(), 1, DESCRIPTORS);
    }
    for group in (0..geometry.group_count()).map(GroupNo::new) {
        let first = sb.group_first_block(group).get();
        let end = first.saturating_add(sb.group_head_blocks(group).into());
        let start = match sb.has_super_backup(group) {
            true => super_block_of(sb, group) + 1,
            false => first,
        };
        if start < end {
            push(runs, start, end - start, DESCRIPTORS);
        }
    }
    Ok(())
}
