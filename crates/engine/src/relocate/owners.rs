//! Who owns the blocks of a region.
//!
//! Input: runs of blocks, as the structures of the volume and the maps of files name them. Output: whether they are exactly the clusters in
//! use there. Invariants: no block is owned twice, every block in use has an owner, and no owned block is free. If this is not so, e2fsck
//! has to repair it first. Limits: holds all runs of the region in memory.

use crate::alloc::{Alloc, Region, Run};
use crate::error::Error;
use crate::inode::Fs;
use diorite_format::{FsBlock, Superblock};
use std::ops::Range;

/// Runs of whole clusters of a region. See the module.
pub(super) struct Owners {
    region: Region,
    runs: Vec<(u64, u64)>,
    /// The last run of data of the present owner. Only its runs of data may share clusters with each other.
    last: Option<usize>,
}

impl Owners {
    pub(super) fn new(region: Region) -> Owners {
        Owners {
            region,
            runs: Vec::new(),
            last: None,
        }
    }

    /// What is added from now on has another owner.
    pub(super) fn next_owner(&mut self) {
        self.last = None;
    }

    /// Adds a block of metadata, which has a cluster of its own. Returns the number of blocks in the region.
    pub(super) fn add_node(&mut self, sb: &Superblock, at: FsBlock) -> Result<u64, Error> {
        let last = self.last.take();
        let added = self.add(sb, at, 1);
        self.last = last;
        added
    }

    /// Adds the parts of a run in the region, in whole clusters. Returns their number of blocks.
    pub(super) fn add(&mut self, sb: &Superblock, at: FsBlock, len: u32) -> Result<u64, Error> {
        let run = at.get()..at.get() + u64::from(len);
        let parts: Vec<_> = self.region.inside(run).collect();
        let mut blocks = 0;
        for part in parts {
            blocks += self.add_part(sb, part)?;
        }
        Ok(blocks)
    }

    fn add_part(&mut self, sb: &Superblock, part: Range<u64>) -> Result<u64, Error> {
        let len = u32::try_from(part.end - part.start).expect("a part of a run");
        let start = FsBlock::new(part.start);
        let run = Alloc::around(sb, Run { start, len })?;
        let (start, end) = (run.start.get(), run.end().get());
        let shares = sb.geometry().cluster_ratio() > 1;
        match self.last.and_then(|last| self.runs.get_mut(last)) {
            Some(last) if shares && (last.0..last.1).contains(&start) => {
                let more = end.saturating_sub(last.1);
                last.1 = last.1.max(end);
                Ok(more)
            }
            _ => {
                self.last = Some(self.runs.len());
                self.runs.push((start, end));
                Ok(end - start)
            }
        }
    }

    /// Checks the runs against the bitmaps. Blocks while these are read.
    pub(super) fn check(mut self, fs: &Fs) -> Result<(), Error> {
        let alloc = fs.alloc()?;
        self.runs.sort_unstable();
        let mut owned: Vec<(u64, u64)> = Vec::with_capacity(self.runs.len());
        for (start, end) in self.runs {
            match owned.last_mut() {
                Some(last) if last.1 > start => return Err(damaged(start, "has two owners")),
                Some(last) if last.1 == start => last.1 = end,
                _ => owned.push((start, end)),
            }
        }
        let mut used: Vec<(u64, u64)> = Vec::new();
        for run in alloc.used_runs(fs, &self.region)? {
            match used.last_mut() {
                Some(last) if last.1 == run.start.get() => last.1 = run.end().get(),
                _ => used.push((run.start.get(), run.end().get())),
            }
        }
        match first_difference(&owned, &used) {
            None => Ok(()),
            Some((block, true)) => Err(damaged(block, "is in use, and nobody owns it")),
            Some((block, false)) => Err(damaged(block, "has an owner, and is free")),
        }
    }
}

/// The first block that only one of the two lists has, and whether that is the second one. Both are sorted and merged.
fn first_difference(owned: &[(u64, u64)], used: &[(u64, u64)]) -> Option<(u64, bool)> {
    let at = (0..).find(|n| owned.get(*n) != used.get(*n) || owned.get(*n).is_none())?;
    match (owned.get(at), used.get(at)) {
        (None, None) => None,
        (Some(owned), None) => Some((owned.0, false)),
        (None, Some(used)) => Some((used.0, true)),
        (Some(owned), Some(used)) if owned.0 != used.0 => {
            Some((owned.0.min(used.0), used.0 < owned.0))
        }
        (Some(owned), Some(used)) => Some((owned.1.min(used.1), owned.1 < used.1)),
    }
}

fn damaged(block: u64, why: &str) -> Error {
    Error::Damaged(format!("block {block} {why}; run e2fsck -f"))
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn the_first_block_that_differs_is_found() {
        let runs = [(10, 20), (30, 40)];
        assert_eq!(first_difference(&runs, &runs), None);
        assert_eq!(first_difference(&runs, &[(10, 20)]), Some((30, false)));
        assert_eq!(first_difference(&[(10, 20)], &runs), Some((30, true)));
        assert_eq!(first_difference(&[(10, 19)], &runs), Some((19, true)));
        assert_eq!(first_difference(&[(11, 20)], &runs), Some((10, true)));
        assert_eq!(
            first_difference(&runs, &[(10, 20), (31, 40)]),
            Some((30, false))
        );
    }
}
