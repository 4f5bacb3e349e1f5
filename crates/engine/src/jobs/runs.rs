//! The runs that conversions map: joined where they are neighbours, divided where they are too many for one handle.
//!
//! Input: runs of one file, and what a handle costs that maps some of them. Output: the same blocks in other runs, how many go together,
//! where the file may end then. Invariants: pure; no block is lost, none is in two runs; a cut lies between clusters. Limits: none of its
//! own.

use crate::map::edit::NewRun;
use diorite_format::FsBlock;
use std::ops::Range;

/// Runs to map, of one file, in the order of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) run: NewRun,
    pub(super) claimed: bool,
}

/// Blocks up to which one run is in one group, or two, and its nodes as well: no need to look.
const FEW: u32 = 64;

impl Mapped {
    pub(super) fn blocks(&self) -> Range<u64> {
        let start = u64::from(self.run.file_block);
        start..start + u64::from(self.run.len)
    }

    /// The other goes on where this one ends, in the file and on the volume.
    fn is_followed_by(&self, next: &Mapped) -> bool {
        let (a, b) = (self.run, next.run);
        self.claimed == next.claimed
            && a.file_block + a.len == b.file_block
            && a.start.get() + u64::from(a.len) == b.start.get()
    }
}

/// Neighbours in the file that are neighbours on the volume become one run.
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

/// Have the runs to be looked at one by one to know what their conversion costs?
pub(super) fn are_many(runs: &[Mapped]) -> bool {
    match runs {
        [] => false,
        [one] => one.run.len > FEW,
        _ => true,
    }
}

/// All of them are claimed, and between two of them nothing of the file is mapped.
pub(super) fn fill_one_hole(runs: &[Mapped]) -> bool {
    let next = |w: &[Mapped]| w[0].blocks().end == w[1].blocks().start;
    runs.iter().all(|m| m.claimed) && runs.windows(2).all(next)
}

/// How many of these, one at least, cost no more than `most` together, and what they cost. Those behind are not asked.
pub(super) fn how_many(costs: impl Iterator<Item = u32>, most: u32) -> (usize, u32) {
    let (mut count, mut sum) = (0, 0);
    for cost in costs {
        if count > 0 && sum + cost > most {
            break;
        }
        (count, sum) = (count + 1, sum + cost);
    }
    (count, sum)
}

/// The runs from the front that one handle holds; a run that is too long alone is cut. `ratio`: blocks of a cluster.
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

/// What was cut off goes before the others; what was cut off before it is its end again.
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

/// Cuts a run between clusters; gives what is behind.
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

/// Where a file may end that has been written up to byte `end`, when its blocks are mapped up to this one: at that byte if all parts, the last one with
/// them, are.
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
