//! The runs that conversions map: neighbours are joined, and runs that are too many for one handle are divided.
//!
//! Input: runs of one file, and the credits that a handle needs to map some of them. Output: the same blocks in other runs, the runs for
//! one handle, the size that the file may have then. Invariants: pure; no block is lost, none is in two runs; runs are divided only
//! between clusters. Limits: none of its own.

use crate::map::edit::NewRun;
use diorite_format::FsBlock;
use std::ops::Range;

/// A run of file blocks to map, and whether it is claimed or unwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) run: NewRun,
    pub(super) claimed: bool,
}

/// One run of at most so many blocks is in one block group, or two, and so are its nodes: its credits need not be counted exactly.
const FEW: u32 = 64;

impl Mapped {
    pub(super) fn blocks(&self) -> Range<u64> {
        let start = u64::from(self.run.file_block);
        start..start + u64::from(self.run.len)
    }

    /// One of its blocks.
    pub(super) fn block(&self, skip: u32) -> Mapped {
        let run = NewRun {
            file_block: self.run.file_block + skip,
            len: 1,
            start: FsBlock::new(self.run.start.get() + u64::from(skip)),
            ..self.run
        };
        Mapped { run, ..*self }
    }

    /// Does `next` start where this run ends, both in the file and on the volume?
    fn is_followed_by(&self, next: &Mapped) -> bool {
        let (a, b) = (self.run, next.run);
        self.claimed == next.claimed
            && a.file_block + a.len == b.file_block
            && a.start.get() + u64::from(a.len) == b.start.get()
    }
}

/// Joins runs that are neighbours in the file and on the volume.
pub(super) fn merged(mut runs: Vec<Mapped>) -> Vec<Mapped> {
    runs.sort_by_key(|m| m.run.file_block);
    let mut out: Vec<Mapped> = Vec::with_capacity(runs.len());
    for next in runs {
        match out.last_mut() {
            Some(last) if last.is_followed_by(&next) => last.run.len += next.run.len,
            _ => out.push(next),
        }
    }
    out
}

/// Do these runs have to be looked at one by one, to know the credits of their conversion?
pub(super) fn are_many(runs: &[Mapped]) -> bool {
    match runs {
        [] => false,
        [one] => one.run.len > FEW,
        _ => true,
    }
}

/// Are all of them claimed, and neighbours in the file without a mapped block in between?
pub(super) fn fill_one_hole(runs: &[Mapped]) -> bool {
    let next = |w: &[Mapped]| w[0].blocks().end == w[1].blocks().start;
    runs.iter().all(|m| m.claimed) && runs.windows(2).all(next)
}

/// How many of the first items, at least one, cost at most `most` together, and their cost. Costs behind those are not computed.
pub(super) fn how_many(costs: impl Iterator<Item = u32>, most: u32) -> (usize, u32) {
    let (mut count, mut sum) = (0, 0u32);
    for cost in costs {
        // `u32::MAX` stands for a cost that is not known.
        let more = sum.saturating_add(cost);
        if count > 0 && more > most {
            break;
        }
        (count, sum) = (count + 1, more);
    }
    (count, sum)
}

/// Takes the runs from the front that one handle can map; a run that alone is too long is cut. `ratio`: blocks of a cluster.
pub(super) fn first_part(
    rest: &mut Vec<Mapped>,
    most: u32,
    ratio: u32,
    credits: impl Fn(&[Mapped]) -> u32,
) -> Vec<Mapped> {
    let mut count = rest.len();
    while count > 1 && credits(&rest[..count]) > most {
        count /= 2;
    }
    let behind = rest.split_off(count);
    let mut part = std::mem::replace(rest, behind);
    if let [long] = &mut part[..] {
        while credits(&[*long]) > most {
            match cut_in_half(long, ratio) {
                Some(behind) => put_in_front(rest, behind),
                None => break,
            }
        }
    }
    part
}

/// Puts a part that was cut off before the other runs; joins it with the part that was cut off before it.
fn put_in_front(rest: &mut Vec<Mapped>, behind: Mapped) {
    match rest.first_mut() {
        Some(first) if behind.is_followed_by(first) => {
            first.run = NewRun {
                len: behind.run.len + first.run.len,
                ..behind.run
            };
        }
        _ => rest.insert(0, behind),
    }
}

/// Cuts a run between clusters, near its middle; returns the second part. None if it cannot be cut.
fn cut_in_half(long: &mut Mapped, ratio: u32) -> Option<Mapped> {
    let run = long.run;
    let at = (run.file_block + run.len / 2) / ratio * ratio;
    let len = at.checked_sub(run.file_block).filter(|len| *len > 0)?;
    long.run.len = len;
    let run = NewRun {
        file_block: at,
        len: run.len - len,
        start: FsBlock::new(run.start.get() + u64::from(len)),
        ..run
    };
    Some(Mapped { run, ..*long })
}

/// The size that a file may have which was written up to byte `end`, if its blocks are mapped up to block `mapped`. It is `end` if this
/// was the last part and all of the part is mapped.
pub(super) fn size_behind(
    mapped: u64,
    block_size: u32,
    end: u64,
    (is_last, is_mapped): (bool, bool),
) -> u64 {
    match is_last && is_mapped {
        true => end,
        false => end.min(mapped * u64::from(block_size)),
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
