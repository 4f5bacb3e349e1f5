//! The blocks that a change of a map leaves unmapped.
//!
//! Input: runs of blocks that were mapped, and runs that are mapped now. Output: the former without the latter. Invariant: no block is
//! returned twice; a file that maps a block twice is damaged. Limits: knows only what it is given.

use crate::error::Error;
use diorite_format::{FsBlock, Ino};

/// A run of blocks: the first block, and the length.
pub(crate) type Run = (FsBlock, u32);

/// The blocks of `old` that are not in `new`, in as few runs as possible, sorted.
pub(crate) fn without(ino: Ino, old: &[Run], new: &[Run]) -> Result<Vec<Run>, Error> {
    let (old, new) = (sorted(old), sorted(new));
    if let Some(w) = old.windows(2).find(|w| w[0].1 > w[1].0) {
        return Err(Error::Damaged(format!(
            "inode {ino} maps block {} twice; run e2fsck",
            w[1].0
        )));
    }
    let mut left: Vec<(u64, u64)> = Vec::new();
    for (start, end) in old {
        let mut at = start;
        let first = new.partition_point(|n| n.1 <= start);
        for n in new[first..].iter().take_while(|n| n.0 < end) {
            add(&mut left, at, n.0);
            at = at.max(n.1);
        }
        add(&mut left, at, end);
    }
    let run = |(start, end): (u64, u64)| {
        let len = u32::try_from(end - start).expect("a file maps fewer than 2^32 blocks");
        (FsBlock::new(start), len)
    };
    Ok(left.into_iter().map(run).collect())
}

fn add(to: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match to.last_mut() {
        _ if start >= end => {}
        Some(last) if last.1 == start => last.1 = end,
        _ => to.push((start, end)),
    }
}

fn sorted(runs: &[Run]) -> Vec<(u64, u64)> {
    let ends = |r: &Run| (r.0.get(), r.0.get() + u64::from(r.1));
    let mut all: Vec<(u64, u64)> = runs.iter().map(ends).collect();
    all.sort_unstable();
    all
}
