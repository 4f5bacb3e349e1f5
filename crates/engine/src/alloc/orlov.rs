//! Chooses the group for a new inode.
//!
//! Input: what is known of the groups without a lock. Output: groups in the order in which to try them. Invariants: no group is returned
//! that had no free inode when it was looked at. Limits: counts may be out of date by the time a group is tried; a caller that tries all
//! groups after these misses none. Source: the published idea of Orlov's allocator: directories in the root are spread over groups, others
//! are put near their parents, as long as their groups are not much fuller than others, nor in debt; the thresholds are ours.

use crate::alloc::group::{MOST_DEBT, Slot};
use crate::latest::Row;
use diorite_block::sync::atomic::{AtomicU32, Ordering::Relaxed};
use diorite_format::GroupNo;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Free inodes, free clusters and directories of a group, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) inodes: u64,
    pub(super) clusters: u64,
    pub(super) dirs: u64,
    /// Directories that were made here recently and whose files are still to come.
    pub(super) debt: u64,
}

/// The counts of groups, read without a lock.
pub(super) trait Sight {
    fn count(&self) -> u32;
    fn counts(&self, group: u32) -> Counts;
}

impl Sight for Row<Slot> {
    fn count(&self) -> u32 {
        u32::try_from(self.len()).expect("groups have 32-bit numbers")
    }

    fn counts(&self, group: u32) -> Counts {
        let brief = &self[group as usize].brief;
        let of = |count: &AtomicU32| u64::from(count.load(Relaxed));
        Counts {
            inodes: of(&brief.inodes),
            clusters: of(&brief.free),
            dirs: of(&brief.dirs),
            debt: of(&brief.debt),
        }
    }
}

/// The search for a group. It knows flex groups, whose inode tables lie side by side; without flex_bg each group is one by itself.
#[derive(Debug)]
pub(super) struct Orlov<'a, S: Sight + ?Sized> {
    pub(super) groups: &'a S,
    /// The number of groups in a flex group.
    pub(super) flex: u32,
    pub(super) inodes_per_group: u32,
    /// The number of clusters that the files of one directory are expected to need.
    pub(super) per_dir: u64,
}

// Not derived: deriving would require the same of `S`.
impl<S: Sight + ?Sized> Clone for Orlov<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Sight + ?Sized> Copy for Orlov<'_, S> {}

impl<S: Sight + ?Sized> Orlov<'_, S> {
    /// All groups that have free inodes, beginning at `home`.
    pub(super) fn all_from(self, home: GroupNo) -> impl Iterator<Item = GroupNo> {
        let all = around(0..self.groups.count(), home.get());
        all.filter(move |g| self.groups.counts(*g).inodes > 0)
            .map(GroupNo::new)
    }

    /// For a directory in the root, which may become the top of a large tree: of the flex groups that do not have fewer free inodes and
    /// clusters than others, the one with the fewest directories; and in it a group by the same rule.
    pub(super) fn for_top_directory(self, from: u32) -> impl Iterator<Item = GroupNo> {
        let flexible = emptiest(0..self.flexibles(), from, |n| self.sum(self.flexible(n)));
        let group = flexible.and_then(|n| {
            let counts = |g| self.groups.counts(g);
            emptiest(self.flexible(n), from, counts)
        });
        group.into_iter().map(GroupNo::new)
    }

    /// For any other directory: the first group, from its parent's on, that is not in debt and in a flex group that is not much fuller
    /// than others.
    pub(super) fn for_directory(self, home: GroupNo) -> impl Iterator<Item = GroupNo> {
        let all = self.sum(0..self.groups.count());
        let flexibles = around(0..self.flexibles(), home.get() / self.flex);
        let fitting = flexibles.filter(move |n| self.fits(*n, all));
        let groups = fitting.flat_map(move |n| around(self.flexible(n), home.get()));
        groups
            .filter(move |g| self.is_solvent(*g, all))
            .take(1)
            .map(GroupNo::new)
    }

    /// For a file: its directory's group, then groups at distances 1, 2, 4, ... from it, so that files of neighbouring groups do not all
    /// go to the same one.
    pub(super) fn for_file(self, home: GroupNo) -> impl Iterator<Item = GroupNo> {
        let count = u64::from(self.groups.count());
        let jumps = (0..32)
            .map(|n| 1u64 << n)
            .take_while(move |step| *step < count);
        let at = move |step: u64| ((u64::from(home.get()) + step) % count) as u32;
        let steps = std::iter::once(0).chain(jumps).map(at);
        steps
            .filter(move |g| {
                let counts = self.groups.counts(*g);
                counts.inodes > 0 && counts.clusters > 0
            })
            .map(GroupNo::new)
    }

    /// Is the nth flex group not much fuller than others?
    fn fits(self, n: u32, all: Counts) -> bool {
        let (groups, here) = (self.flexible(n), self.sum(self.flexible(n)));
        let share = |sum: u64| sum * groups.len() as u64 / u64::from(self.groups.count());
        let inodes = u64::from(self.inodes_per_group) * groups.len() as u64;
        here.inodes >= share(all.inodes) * 3 / 4
            && here.clusters >= share(all.clusters) * 3 / 4
            && here.dirs <= share(all.dirs) + inodes / 16
    }

    /// Can the group take the files of one more directory, besides those of directories that have none yet?
    fn is_solvent(self, group: u32, all: Counts) -> bool {
        let here = self.groups.counts(group);
        let average = all.clusters / u64::from(self.groups.count());
        let most = (average / self.per_dir).clamp(1, u64::from(MOST_DEBT));
        here.inodes > 0 && here.clusters >= average / 4 && here.debt < most
    }

    fn flexibles(self) -> u32 {
        self.groups.count().div_ceil(self.flex)
    }

    /// The groups of the nth flex group.
    fn flexible(self, n: u32) -> Range<u32> {
        let first = n * self.flex;
        first..first.saturating_add(self.flex).min(self.groups.count())
    }

    fn sum(self, groups: Range<u32>) -> Counts {
        groups.fold(Counts::default(), |sum, g| {
            let more = self.groups.counts(g);
            Counts {
                inodes: sum.inodes + more.inodes,
                clusters: sum.clusters + more.clusters,
                dirs: sum.dirs + more.dirs,
                debt: sum.debt + more.debt,
            }
        })
    }
}

/// Of those that have about the average of free inodes and clusters, or more (at least 15/16 of it, since a few directories more or less
/// must not matter), the one with the fewest directories; among equals the first from `from` on.
fn emptiest(of: Range<u32>, from: u32, counts: impl Fn(u32) -> Counts) -> Option<u32> {
    let (mut inodes, mut clusters) = (0, 0);
    for n in of.clone() {
        let here = counts(n);
        inodes += here.inodes;
        clusters += here.clusters;
    }
    let few = |sum: u64| sum / (of.len() as u64).max(1) / 16 * 15;
    let (inodes, clusters) = (few(inodes), few(clusters));
    let start = of.start + from % of.len().max(1) as u32;
    around(of, start)
        .filter(|n| {
            let here = counts(*n);
            here.inodes > 0 && here.inodes >= inodes && here.clusters >= clusters
        })
        .min_by_key(|n| counts(*n).dirs)
}

/// All elements of a range, beginning at `from` and wrapping around; from the beginning of the range if `from` is not in it.
fn around(of: Range<u32>, from: u32) -> impl Iterator<Item = u32> + use<> {
    let from = if of.contains(&from) { from } else { of.start };
    (from..of.end).chain(of.start..from)
}
