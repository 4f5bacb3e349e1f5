//! The owners of shared blocks: searched only if there are shared blocks.
//!
//! Input: runs of clusters that were claimed more than once. Output: a finding for each, with the inodes and structures that
//! use it. Invariant: all inodes together read no more map blocks than the volume has blocks. Limits: at most [`MOST_RUNS`]
//! runs are named, and of each at most [`MOST_OWNERS`] owners.

use super::context::{Check, STAGE_OWNERS};
use super::reader::Reader;
use super::report::Kind;
use super::walk::{Run, Visit, walk};
use crate::link_counts::Person;
use diorite::Error;
use diorite::probe::Zone;
use diorite_format::{FsBlock, Ino};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most runs that are named.
const MOST_RUNS: usize = 200;
/// The most owners of one run that are named.
const MOST_OWNERS: usize = 8;

/// A run of clusters, and its owners.
struct Shared {
    first: u64,
    end: u64,
    owners: BTreeSet<Ino>,
}

/// Finds and reports the owners of all shared runs.
pub(super) fn name(check: &Check<'_>, attributes: &[(FsBlock, Ino)]) -> Result<(), Error> {
    let runs = check.space.double_runs(MOST_RUNS);
    if runs.is_empty() {
        return Ok(());
    }
    let fresh = || -> Vec<Shared> {
        let shared = |(first, count): &(u64, u64)| Shared {
            first: *first,
            end: first + count,
            owners: BTreeSet::new(),
        };
        runs.iter().map(shared).collect()
    };
    // The limit: a map that contains another map's blocks could otherwise be walked for ever.
    let left = AtomicU64::new(check.source.sb.geometry().blocks_count());
    let begin = || (Reader::new(check.source), fresh());
    let groups = check.source.groups.len();
    let met = check
        .threads
        .each(STAGE_OWNERS, groups, begin, |(reader, shared), group| {
            for (ino, person, _) in check.link_counts.of_group(group) {
                of_inode(check, reader, shared, &left, ino, person)?;
            }
            Ok(())
        })?;
    let mut all = fresh();
    for (_, shared) in met {
        for (to, from) in all.iter_mut().zip(shared) {
            to.owners.extend(from.owners);
        }
    }
    for (at, ino) in attributes {
        note(&mut all, check.space.cluster(at.get()), 1, *ino);
    }
    let zone = Zone::of_groups(&check.source.sb, &check.source.groups)?;
    all.iter().for_each(|s| tell(check, &zone, s));
    Ok(())
}

fn of_inode(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    shared: &mut [Shared],
    left: &AtomicU64,
    ino: Ino,
    person: Person,
) -> Result<(), Error> {
    // The resize inode's blocks are the volume's own structures.
    if person.is_own() && ino == Ino::RESIZE {
        return Ok(());
    }
    let Some((inode, _)) = reader.inode(ino)? else {
        return Ok(());
    };
    let mut visit = Noting {
        check,
        shared,
        left,
        ino,
    };
    walk(&check.source.sb, reader, &inode, &mut visit)
}

struct Noting<'a> {
    check: &'a Check<'a>,
    shared: &'a mut [Shared],
    left: &'a AtomicU64,
    ino: Ino,
}

impl Visit for Noting<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        note(
            self.shared,
            self.check.space.cluster(block.get()),
            1,
            self.ino,
        );
        let less = |n: u64| n.checked_sub(1);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }

    fn run(&mut self, run: Run) {
        let first = self.check.space.cluster(run.at.get());
        let end = self.check.space.cluster(run.at.get() + run.len - 1) + 1;
        note(self.shared, first, end - first, self.ino);
    }

    fn wrong(&mut self, _: &dyn fmt::Display) {
        // Reported when the inode was judged.
    }
}

fn note(shared: &mut [Shared], first: u64, count: u64, ino: Ino) {
    let from = shared.partition_point(|s| s.end <= first);
    for one in shared[from..]
        .iter_mut()
        .take_while(|s| s.first < first + count)
    {
        if one.owners.len() < MOST_OWNERS {
            one.owners.insert(ino);
        }
    }
}

fn tell(check: &Check<'_>, zone: &Zone, shared: &Shared) {
    let (first, after) = (
        check.space.block_of(shared.first),
        check.space.block_of(shared.end),
    );
    let len = after.get() - first.get();
    let mut who: Vec<String> = zone
        .find(first, len)
        .map(str::to_owned)
        .into_iter()
        .collect();
    who.extend(shared.owners.iter().map(|ino| format!("inode {ino}")));
    let twice = if who.len() < 2 {
        ", more than once"
    } else {
        ""
    };
    let blocks = match len {
        1 => format!("block {first} is"),
        _ => format!("blocks {first} to {} are", first.get() + len - 1),
    };
    let what = format_args!("{blocks} in use by {}{twice}", who.join(", "));
    match shared.owners.first() {
        Some(ino) => check.found.of(Kind::DoubleUse, *ino, first, what),
        None => check.found.block(Kind::DoubleUse, first, what),
    }
}
