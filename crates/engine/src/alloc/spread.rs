//! In which group a new inode is looked for.
//!
//! Input: what is known of the groups without a lock. Output: groups in the order in which they are to be tried. Invariants: none is named
//! that had no free inode when it was looked at. Limits: counts may be out of date by the time a group is tried; whoever tries all groups
//! after these misses none. Source: the published idea of Orlov's allocator (directories of the root apart, others near their
//! parents); the thresholds are ours.

use super::group::Slot;
use diorite_block::sync::atomic::Ordering::Relaxed;
use diorite_format::GroupNo;

/// What a group has on average.
#[derive(Clone, Copy, Debug)]
struct Average {
    inodes: u32,
    clusters: u32,
    dirs: u32,
}

impl Average {
    fn of(groups: &[Slot]) -> Average {
        let mut sums = [0u64; 3];
        for brief in groups.iter().map(|slot| &slot.brief) {
            sums[0] += u64::from(brief.inodes.load(Relaxed));
            sums[1] += u64::from(brief.free.load(Relaxed));
            sums[2] += u64::from(brief.dirs.load(Relaxed));
        }
        let count = groups.len().max(1) as u64;
        let [inodes, clusters, dirs] =
            sums.map(|sum| u32::try_from(sum / count).unwrap_or(u32::MAX));
        Average {
            inodes,
            clusters,
            dirs,
        }
    }
}

/// All groups that have free inodes, from `home` on.
pub(super) fn all_from(groups: &[Slot], home: GroupNo) -> impl Iterator<Item = GroupNo> {
    around(groups, home.get()).filter(|g| inodes(groups, *g) > 0)
}

/// For a directory of the root: the group with the fewest directories of those that have inodes and clusters above average, as the
/// root's directories grow into trees of their own.
pub(super) fn for_top_directory(groups: &[Slot], from: u32) -> impl Iterator<Item = GroupNo> {
    let average = Average::of(groups);
    let roomy = |g: &GroupNo| {
        let brief = &groups[g.get() as usize].brief;
        let inodes = brief.inodes.load(Relaxed);
        inodes > 0 && inodes >= average.inodes && brief.free.load(Relaxed) >= average.clusters
    };
    let dirs = |g: &GroupNo| groups[g.get() as usize].brief.dirs.load(Relaxed);
    // Of equals the first, so that `from` decides.
    around(groups, from)
        .filter(roomy)
        .min_by_key(dirs)
        .into_iter()
}

/// For another directory: the first group from its parent's on that is not much fuller than the others.
pub(super) fn for_directory(groups: &[Slot], home: GroupNo) -> impl Iterator<Item = GroupNo> {
    let average = Average::of(groups);
    let fits = move |g: &GroupNo| {
        let brief = &groups[g.get() as usize].brief;
        let inodes = brief.inodes.load(Relaxed);
        inodes > average.inodes / 4
            && brief.free.load(Relaxed) >= average.clusters / 4
            && brief.dirs.load(Relaxed) <= average.dirs.saturating_mul(2).saturating_add(64)
    };
    around(groups, home.get()).filter(fits).take(1)
}

/// For a file: its directory's group, then groups in growing steps from it, so that the files of neighbours do not meet at once.
pub(super) fn for_file(groups: &[Slot], home: GroupNo) -> impl Iterator<Item = GroupNo> {
    let count = groups.len() as u64;
    let jumps = (0..32)
        .map(|n| 1u64 << n)
        .take_while(move |step| *step < count);
    let at = move |step: u64| GroupNo::new(((u64::from(home.get()) + step) % count) as u32);
    let steps = std::iter::once(0).chain(jumps);
    steps.map(at).filter(|g| {
        let brief = &groups[g.get() as usize].brief;
        brief.inodes.load(Relaxed) > 0 && brief.free.load(Relaxed) > 0
    })
}

fn inodes(groups: &[Slot], group: GroupNo) -> u32 {
    groups[group.get() as usize].brief.inodes.load(Relaxed)
}

/// All groups from `from` on, going round.
fn around(groups: &[Slot], from: u32) -> impl Iterator<Item = GroupNo> + use<> {
    let count = u32::try_from(groups.len())
        .expect("groups have 32-bit numbers")
        .max(1);
    let from = from % count;
    (from..count).chain(0..from).map(GroupNo::new)
}
