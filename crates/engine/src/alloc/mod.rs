//! The alloc room: which blocks and inodes of a volume are free, and who gets them.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `claim` | a wish near a place -> a run of clusters that is nobody else's, in memory |
//! | `bits` | which bits of a group change -> its bitmap and its descriptor on disk, together |
//! | `around` | blocks of a file -> the clusters that they lie in, and which of these are claimed |
//! | `mark` | a claimed run -> used on disk; a used one -> free on disk, and usable after the commit |
//! | `inode`, `orlov` | a parent -> a new inode's number, and the group for it |
//! | `exact` | what a replay knows to be in use -> used on disk |
//! | `waiting` | inodes that a round without a journal freed -> which of them it still holds |
//! | `loan` | a claimed run -> the same, free again when whoever has it ends, in whatever way |
//! | `trim` | a range -> its free runs, one by one, claimed while they are discarded |
//! | `group`, `runs` | one group in memory: descriptor, bitmap, claims, what waits for a commit |
//! | `load` | a group -> its bitmap in memory, read without its lock and checked under it |
//! | `totals` | the volume's counts, and reservations of them |
//!
//! A cluster is *free*, *claimed* (in memory only: a claim dies with the process), *used* (its bit is set on disk by a journal handle)
//! or *waiting* (freed by a transaction that is not durable yet: rule G17). Free counts on disk follow the bitmaps on disk, in the same
//! handle; they know nothing of claims and count what waits as free.
//!
//! Input: goals, and handles. Output: runs, inode numbers, changed bitmaps and descriptors. Invariants: a cluster is in one state; no lock
//! is wider than a group; runs are whole clusters, cut only by the end of the volume. Limits: a run stays inside its group; merged
//! bitmaps of at most `budget` bytes stay in memory between two claims.

mod around;
mod bits;
mod claim;
mod exact;
mod group;
mod inode;
mod load;
mod loan;
mod mark;
mod orlov;
mod runs;
#[cfg(test)]
mod tests;
mod totals;
mod trim;
mod waiting;

pub(crate) use inode::NEW_INODE_CREDITS;
pub(crate) use loan::Loan;
pub(crate) use mark::MARK_CREDITS;
pub(crate) use totals::Reservation;

use crate::error::Error;
use diorite_block::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use diorite_format::{FsBlock, GroupDesc, GroupNo, Ino, Superblock};
use group::Slot;
use std::sync::Arc;
use totals::Totals;

/// Blocks of the volume, whole clusters of one group.
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
    groups: Box<[Slot]>,
    totals: Arc<Totals>,
    /// Merged bitmaps in memory, how many there may be, and where the clock's hand is.
    loaded: AtomicUsize,
    most_loaded: usize,
    hand: AtomicUsize,
    /// Where the next directory of the root begins to look.
    next_spread: AtomicU32,
}

impl Alloc {
    /// For a volume at `level`, with at most `budget` bytes of bitmaps. No I/O.
    pub(crate) fn new(level: u8, sb: &Superblock, groups: &[GroupDesc], budget: usize) -> Alloc {
        let slots = groups.iter().map(|desc| Slot::new(level, desc.clone()));
        Alloc {
            groups: slots.collect(),
            totals: Arc::new(Totals::new(sb, groups)),
            loaded: AtomicUsize::new(0),
            most_loaded: (budget / sb.block_size() as usize).max(4),
            hand: AtomicUsize::new(0),
            next_spread: AtomicU32::new(0),
        }
    }

    /// Blocks that the bitmaps on disk say are free: what the superblock must say at a commit.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.totals.free_blocks_on_disk()
    }

    /// Blocks that are nobody's now, and those that wait for a commit.
    pub(crate) fn now_free(&self) -> (u64, u64) {
        (
            self.totals.usable_blocks(true),
            self.totals.waiting_blocks(),
        )
    }

    /// Inodes that the bitmaps on disk say are free.
    pub(crate) fn free_inodes(&self) -> u32 {
        self.totals.free_inodes()
    }

    #[cfg(test)]
    /// Blocks that a caller could get now: neither claimed nor reserved nor waiting, nor kept for the privileged.
    pub(crate) fn usable_blocks(&self, privileged: bool) -> u64 {
        self.totals.usable_blocks(privileged)
    }

    /// Sets `clusters` aside for that many allocations of a block of metadata, each of which takes a cluster.
    ///
    /// # Errors
    /// As [`Alloc::claim`], for all of them together.
    pub(crate) fn reserve(&self, clusters: u64, privileged: bool) -> Result<Reservation, Error> {
        Totals::reserve(&self.totals, clusters, privileged)
    }

    /// Where the data of an inode is best begun.
    pub(crate) fn goal_of(&self, sb: &Superblock, ino: Ino) -> FsBlock {
        let place = sb.inode_place(ino);
        let group = place.map_or(GroupNo::new(0), |place| place.group);
        sb.group_first_block(group)
    }

    /// A run was freed by a transaction that is durable now: it may be used again.
    pub(crate) fn reuse(&self, sb: &Superblock, start: FsBlock, len: u32) {
        for part in parts(sb, Run { start, len }) {
            let known = part.is_ok_and(|part| {
                let reused = self.slot(part.group).lock().reuse(part, &self.totals);
                if reused {
                    self.totals.reused(part.len);
                }
                reused
            });
            // Else it stays unused until the volume is opened again.
            debug_assert!(known, "a commit gives back what was freed");
        }
    }

    /// Lets bitmaps go while there are more in memory than the budget allows. No lock may be held.
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

    fn slot(&self, group: GroupNo) -> &Slot {
        &self.groups[group.get() as usize]
    }
}

/// The clusters of a run, group by group.
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

/// The clusters of the group of `at`, and how many blocks they are.
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

/// A run that a damaged map names.
fn outside(run: Run) -> Error {
    let (first, last) = (run.start, run.end().get().saturating_sub(1));
    Error::Damaged(format!(
        "blocks {first} to {last} are no clusters of this volume"
    ))
}

impl Clusters {
    /// The same as blocks.
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
