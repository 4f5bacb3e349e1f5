//! The alloc module: which blocks and inodes of a volume are free, and to which file they are given.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `claim` | a goal and a length -> a run of clusters that nobody else gets, in memory only |
//! | `bits` | bits of a group to change -> its bitmap and its descriptor on disk, together |
//! | `around` | blocks of a file -> the clusters that they lie in, and which of these are claimed |
//! | `unsealed` | inodes of a group changed many times in a transaction -> bitmap and descriptor summed once, at its commit |
//! | `mark` | a claimed run -> used on disk; a used one -> free on disk, and usable after the commit |
//! | `inode`, `orlov` | a parent -> a new inode's number, and the group for it |
//! | `exact` | blocks and inodes that a replay knows to be in use -> used on disk |
//! | `waiting` | inodes freed without a journal -> which of them may not be reused before the round is durable |
//! | `limit`, `region` | a region and an inode -> nothing handed out in it, and behind it; what is in use there |
//! | `counts` | counts of a group -> its descriptor with them, for a repair |
//! | `loan` | a claimed run -> the same, given back on drop, unless it is kept |
//! | `grow` | new groups, and more clusters in the last one -> free space of the same volume |
//! | `swapped` | blocks that atomic writes have replaced -> free once nobody in flight knows them; a reserve for these writes |
//! | `trim` | a range -> its free runs, one by one, claimed while the caller works on them |
//! | `group`, `runs` | one group in memory: descriptor, bitmap, claims, runs that wait for a commit |
//! | `load` | a group -> its bitmap in memory, read without its lock and checked under it |
//! | `totals` | the volume's free counts, and reservations of them |
//!
//! A cluster is *free*, *claimed* (in memory only: a claim ends with the process), *used* (its bit is set on disk by a journal handle)
//! or *waiting* (freed by a transaction that is not durable yet; it is not used again before it is). Free counts on disk are
//! changed with the bitmaps on disk, in the same handle: they ignore claims, and count waiting clusters as free.
//!
//! Input: goals, and handles. Output: runs, inode numbers, changed bitmaps and descriptors. Invariants: a cluster is in one state at a
//! time; no lock covers more than a group; runs are whole clusters, cut only by the end of the volume. Limits: a run stays inside its
//! group; merged bitmaps of at most `budget` bytes stay in memory between two claims.

mod around;
mod bits;
mod claim;
mod counts;
mod exact;
mod group;
mod grow;
mod inode;
mod limit;
mod load;
mod loan;
mod mark;
mod orlov;
mod region;
mod runs;
mod swapped;
#[cfg(test)]
mod tests;
mod totals;
mod trim;
mod unsealed;
mod waiting;

pub(crate) use bits::verify_descs;
pub(crate) use counts::{COUNTS_CREDITS, set_counts};
pub(crate) use inode::NEW_INODE_CREDITS;
pub(crate) use loan::Loan;
pub(crate) use mark::MARK_CREDITS;
pub(crate) use region::Region;
pub(crate) use swapped::{MOST_UNIT, Owner};
pub(crate) use totals::{Reach, Reservation};

use crate::error::Error;
use crate::latest::{Latest, Row};
use diorite_block::sync::Parts;
use diorite_block::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use diorite_format::{FsBlock, GroupDesc, GroupNo, Ino, Superblock};
use group::Slot;
use std::sync::Arc;
use swapped::Swapped;
use totals::Totals;
use unsealed::Unsealed;

/// A run of blocks of the volume: whole clusters of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a claimed run is lost to everybody until it is marked used or given back"]
pub(crate) struct Run {
    pub(crate) start: FsBlock,
    pub(crate) len: u32,
}

impl Run {
    /// One past the last block.
    pub(crate) fn end(self) -> FsBlock {
        FsBlock::new(self.start.get() + u64::from(self.len))
    }
}

/// A run as clusters of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clusters {
    group: GroupNo,
    start: u32,
    len: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Alloc {
    groups: Row<Slot>,
    totals: Arc<Totals>,
    /// Number of merged bitmaps in memory, its limit, and the next candidate for eviction.
    loaded: AtomicUsize,
    most_loaded: usize,
    hand: AtomicUsize,
    /// Where the search for a group begins for the next directory in the root.
    next_spread: AtomicU32,
    /// What nothing is handed out of, and the last inode that is handed out: see `limit`.
    region: Latest<Region>,
    inode_limit: AtomicU32,
    swapped: Swapped,
    unsealed: Unsealed,
}

impl Alloc {
    /// The free space of a volume at `level` of the stack, with at most `budget` bytes of bitmaps in memory. `keeps`: some of it is kept
    /// for maps. No I/O.
    pub(crate) fn new(
        level: u8,
        (sb, groups): (&Superblock, &[GroupDesc]),
        budget: usize,
        keeps: bool,
    ) -> Alloc {
        let slots = groups.iter().map(|desc| Slot::new(level, desc.clone()));
        Alloc {
            groups: Row::new(slots),
            totals: Arc::new(Totals::new(sb, groups, keeps)),
            loaded: AtomicUsize::new(0),
            most_loaded: (budget / sb.block_size() as usize).max(4),
            hand: AtomicUsize::new(0),
            next_spread: AtomicU32::new(0),
            region: Latest::new(Region::default()),
            inode_limit: AtomicU32::new(u32::MAX),
            swapped: Swapped::new(level, sb),
            unsealed: Unsealed::new(),
        }
    }

    /// See [`crate::Volume::parts_in_memory`].
    pub(crate) fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("alloc: other", self);
        parts.add("alloc: free counts", &*self.totals);
        for number in 0..self.groups.len() {
            self.groups[number].parts_in_memory(parts);
        }
    }

    /// Free blocks by the bitmaps on disk, which is what the superblock must say at a commit.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.totals.free_blocks_on_disk()
    }

    /// The number of blocks that are free now, and of those that wait for a commit.
    pub(crate) fn now_free(&self) -> (u64, u64) {
        (
            self.totals.usable_blocks(Reach::All),
            self.totals.waiting_blocks(),
        )
    }

    /// Free blocks that are kept for maps.
    pub(crate) fn kept_for_maps(&self) -> u64 {
        self.totals.blocks_for_maps()
    }

    /// Free inodes by the bitmaps on disk.
    pub(crate) fn free_inodes(&self) -> u32 {
        self.totals.free_inodes()
    }

    #[cfg(test)]
    /// Blocks that a caller could get now: neither claimed nor reserved nor waiting, nor left to others.
    pub(crate) fn usable_blocks(&self, reach: Reach) -> u64 {
        self.totals.usable_blocks(reach)
    }

    /// Reserves `clusters` for as many allocations of one block of metadata each, which takes a whole cluster.
    ///
    /// # Errors
    /// As [`Alloc::claim`], for all of them together.
    pub(crate) fn reserve(&self, clusters: u64, reach: Reach) -> Result<Reservation, Error> {
        Totals::reserve(&self.totals, clusters, reach)
    }

    /// Free clusters that somebody has claimed or reserved, and may give back.
    pub(crate) fn spoken_for(&self) -> u64 {
        self.totals.spoken_for()
    }

    /// The goal for an inode's first block: the start of the inode's group.
    pub(crate) fn goal_of(&self, sb: &Superblock, ino: Ino) -> FsBlock {
        let place = sb.inode_place(ino);
        let group = place.map_or(GroupNo::new(0), |place| place.group);
        sb.group_first_block(group)
    }

    /// Call when a run was freed by a transaction that is durable now: makes it free.
    pub(crate) fn reuse(&self, sb: &Superblock, start: FsBlock, len: u32) {
        if self.keep_swapped(sb, Run { start, len }) {
            return;
        }
        for part in parts(sb, Run { start, len }) {
            let known = part.is_ok_and(|part| {
                if self.region.is_empty() {
                    return self.reuse_part(part);
                }
                let mut all_known = true;
                for (part, is_held) in self.divided(sb, part) {
                    all_known &= match is_held {
                        true => self.hold_part(part),
                        false => self.reuse_part(part),
                    };
                }
                all_known
            });
            // Otherwise the run stays unused until the volume is opened again.
            debug_assert!(known, "a commit gives back what was freed");
        }
    }

    fn reuse_part(&self, part: Clusters) -> bool {
        let known = self.slot(part.group).lock().reuse(part, &self.totals);
        if known {
            self.totals.reused(part.len);
        }
        known
    }

    /// Claims a run that was freed in the region. Returns false if it does not wait.
    fn hold_part(&self, part: Clusters) -> bool {
        let known = self.slot(part.group).lock().hold(part);
        if known {
            self.totals.held(part.len);
        }
        known
    }

    /// Drops merged bitmaps while they exceed the budget. No lock may be held.
    fn trim_memory(&self) {
        let over = || self.loaded.load(Ordering::Relaxed) > self.most_loaded;
        let mut looks = 2 * self.groups.len();
        while looks > 0 && over() {
            looks -= 1;
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % self.groups.len();
            if self.groups[at].let_go() {
                self.loaded.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn group_count(&self) -> u32 {
        u32::try_from(self.groups.len()).expect("groups have 32-bit numbers")
    }

    fn slot(&self, group: GroupNo) -> &Slot {
        &self.groups[group.get() as usize]
    }
}

/// The clusters of a run, split by groups.
fn parts(sb: &Superblock, run: Run) -> impl Iterator<Item = Result<Clusters, Error>> {
    let mut at = run.start;
    std::iter::from_fn(move || {
        let left = run.end().get().checked_sub(at.get()).filter(|l| *l > 0)?;
        let part = part(sb, run, at, left);
        match &part {
            Ok((_, blocks)) => at = FsBlock::new(at.get() + u64::from(*blocks)),
            Err(_) => at = run.end(),
        }
        Some(part.map(|(clusters, _)| clusters))
    })
}

/// The clusters of the run in the group of `at`, and their number of blocks.
fn part(sb: &Superblock, run: Run, at: FsBlock, left: u64) -> Result<(Clusters, u32), Error> {
    let outside = || outside(run);
    let (group, start) = sb.bitmap_bit(at).ok_or_else(outside)?;
    let ratio = sb.geometry().cluster_ratio();
    let first = sb.group_first_block(group).get();
    let inside = u32::try_from(at.get() - first).map_err(|_| outside())?;
    let here = sb.group_blocks(group) - inside;
    let blocks = u32::try_from(left).map_or(here, |left| left.min(here));
    if inside % ratio != 0 || blocks != here && blocks % ratio != 0 {
        return Err(outside());
    }
    let len = blocks.div_ceil(ratio);
    Ok((Clusters { group, start, len }, blocks))
}

/// The error for a run that is not on this volume, or not whole clusters: only a damaged map names such a run.
fn outside(run: Run) -> Error {
    let (first, last) = (run.start, run.end().get().saturating_sub(1));
    Error::Damaged(format!(
        "blocks {first} to {last} are no clusters of this volume"
    ))
}

impl Clusters {
    /// The same run in blocks.
    fn run(self, sb: &Superblock) -> Run {
        let ratio = sb.geometry().cluster_ratio();
        let first = self.start * ratio;
        let start = sb.group_first_block(self.group).get() + u64::from(first);
        let left = sb.group_blocks(self.group) - first;
        Run {
            start: FsBlock::new(start),
            len: self.len.saturating_mul(ratio).min(left),
        }
    }
}
