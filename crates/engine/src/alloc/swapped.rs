//! Blocks that atomic writes have replaced, and the reserve from which these writes take new ones.
//!
//! Input: the old blocks of an atomic write, freed in the handle that maps the new ones; files that have no request in flight. Output: free
//! blocks. Invariants: an old block is not used again before the transaction that freed it is durable, and before every request that may
//! have looked up the old mapping has ended, as its data may still be on the way from or to that block (rule G17); what becomes free goes
//! to the reserve first, so that a full volume overwrites atomically as long as nothing else fails. Limits: the reserve has at most
//! [`MOST_SPARE`] bytes; if the volume has [`MOST_OLD`] bytes of old blocks, or more, a file that has a quarter of that waits until its
//! requests have ended.
//!
//! An old block is free on disk, and in memory first *waiting*, as every freed block. If its transaction becomes durable while earlier
//! requests of the file are in flight it is *claimed*, by nobody, until they have ended.

use super::{Alloc, Clusters, Reach, Reservation, Run, parts};
use crate::error::{Error, Wait};
use crate::journal::{JournalHandle, Store};
use crate::locks::SWAPPED;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use diorite_format::{FsBlock, Superblock};
use std::collections::BTreeMap;

/// The largest atomic write, in bytes.
pub(crate) const MOST_UNIT: u64 = 64 << 10;
/// The most bytes that are kept for atomic writes, and that old blocks have which wait for requests. On a small volume less: a part of it.
const MOST_SPARE: u64 = 1 << 20;
const MOST_OLD: u64 = 16 << 20;
const PART_SPARE: u64 = 64;
const PART_OLD: u64 = 16;
/// The part of the most old blocks that a file has at least when it waits.
const PART_FILE: u64 = 4;

/// Whose old blocks these are: one object of an inode, in memory. Its number is not enough, as an object may be made for a number while the
/// one before is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

/// See the module.
#[derive(Debug)]
pub(super) struct Swapped {
    runs: Mutex<Runs>,
    /// How many there are, so that a commit without any takes no lock.
    count: AtomicU64,
    owners: AtomicU64,
    /// Clusters in `runs` whose file may have requests in flight that know them, and how many there may be.
    known: AtomicU64,
    most_known: u64,
}

#[derive(Debug, Default)]
struct Runs {
    /// By their first blocks.
    all: BTreeMap<u64, Old>,
    /// By owner, the first blocks of those that requests in flight may know.
    known: BTreeMap<u64, Vec<u64>>,
}

#[derive(Debug)]
struct Old {
    len: u32,
    clusters: u64,
    /// The transaction that freed it is durable.
    is_durable: bool,
    /// Nobody in flight knows it.
    is_unknown: bool,
}

impl Swapped {
    pub(super) fn new(level: u8, sb: &Superblock) -> Swapped {
        let cluster = cluster_size(sb);
        let all = sb.geometry().blocks_count() * u64::from(sb.block_size()) / cluster;
        let most = (MOST_OLD / cluster).min(all / PART_OLD);
        Swapped {
            runs: Mutex::at_level(&SWAPPED, level, Runs::default()),
            count: AtomicU64::new(0),
            owners: AtomicU64::new(0),
            known: AtomicU64::new(0),
            most_known: most.max(MOST_UNIT / cluster),
        }
    }
}

fn cluster_size(sb: &Superblock) -> u64 {
    u64::from(sb.geometry().cluster_size())
}

impl Alloc {
    /// An owner of old blocks that nobody else is.
    pub(crate) fn new_owner(&self) -> Owner {
        Owner(self.swapped.owners.fetch_add(1, Relaxed))
    }

    /// Frees blocks that atomic writes of this owner have replaced, as [`Alloc::free`], but each group's bitmap is changed once; nobody uses
    /// them again before [`Alloc::note_unknown`] says that no request in flight knows them.
    pub(crate) fn free_swapped(
        &self,
        handle: &JournalHandle<'_>,
        owner: Owner,
        old: &[(FsBlock, u32)],
    ) -> Result<(), Error> {
        let sb = &handle.store().sb;
        let mut all = Vec::with_capacity(old.len());
        for (start, len) in old.iter().copied() {
            for part in parts(sb, Run { start, len }) {
                all.push(part?);
            }
        }
        all.sort_unstable_by_key(|part| (part.group, part.start));
        self.free_parts(handle, &all)?;
        // The handle is open, so its transaction cannot be durable before this is noted.
        let clusters = all.iter().map(|part| u64::from(part.len)).sum();
        self.swapped.known.fetch_add(clusters, SeqCst);
        self.totals.note_known(clusters);
        self.swapped.count.fetch_add(all.len() as u64, Relaxed);
        let mut runs = self.swapped.runs.lock();
        let Runs {
            all: known,
            known: of,
        } = &mut *runs;
        let own = of.entry(owner.0).or_default();
        for part in all {
            let blocks = part.run(sb);
            let old = Old {
                len: blocks.len,
                clusters: u64::from(part.len),
                is_durable: false,
                is_unknown: false,
            };
            let start = blocks.start.get();
            let before = known.insert(start, old);
            debug_assert!(before.is_none(), "old blocks are not freed again");
            own.push(start);
        }
        Ok(())
    }

    /// Are there so many old blocks, or `times` as many, that a file which has so many clusters of them should wait until its requests have
    /// ended? A file with few of them need not: what others have does not come back by that.
    pub(crate) fn has_many_swapped(&self, times: u64, of_file: u64) -> bool {
        let most = self.swapped.most_known;
        of_file >= most / PART_FILE && self.swapped.known.load(SeqCst) >= times * most
    }

    /// Call when nobody has a request of this owner in flight, and after its newest map was published: its old blocks may be used again once
    /// their transactions are durable. Costs as much as the owner has old blocks.
    pub(crate) fn note_unknown(&self, sb: &Superblock, owner: Owner) {
        let mut runs = self.swapped.runs.lock();
        for start in runs.known.remove(&owner.0).unwrap_or_default() {
            let old = runs.all.get_mut(&start);
            let old = old.expect("a run is forgotten when it is not known any more");
            old.is_unknown = true;
            self.swapped.known.fetch_sub(old.clusters, SeqCst);
            if !old.is_durable {
                self.totals.end_known(old.clusters);
                continue;
            }
            let len = old.len;
            self.forget(&mut runs, start);
            let run = Run {
                start: FsBlock::new(start),
                len,
            };
            self.end_hold(sb, run);
        }
    }

    /// The transaction that freed a run is durable. True if the run stays out of use, as requests in flight may know it.
    pub(super) fn keep_swapped(&self, sb: &Superblock, run: Run) -> bool {
        // Who frees old blocks counts them in a handle of the transaction, which has ended before the transaction is durable.
        if self.swapped.count.load(Relaxed) == 0 {
            return false;
        }
        let mut runs = self.swapped.runs.lock();
        let start = run.start.get();
        let Some(old) = runs.all.get_mut(&start).filter(|old| old.len == run.len) else {
            return false;
        };
        if old.is_unknown {
            self.forget(&mut runs, start);
            return false;
        }
        old.is_durable = true;
        self.totals.end_known(old.clusters);
        for part in parts(sb, run) {
            let known = part.is_ok_and(|part| self.hold_part(part));
            debug_assert!(known, "a commit gives back what was freed");
        }
        true
    }

    fn forget(&self, runs: &mut Runs, start: u64) {
        if runs.all.remove(&start).is_some() {
            self.swapped.count.fetch_sub(1, Relaxed);
        }
    }

    /// Gives back a run that [`Alloc::keep_swapped`] has claimed, except what nothing is handed out of.
    fn end_hold(&self, sb: &Superblock, run: Run) {
        for part in parts(sb, run).flatten() {
            let free = match self.region.is_empty() {
                true => vec![(part, false)],
                false => self.divided(sb, part),
            };
            for (part, _) in free.into_iter().filter(|(_, is_held)| !is_held) {
                self.end_claim(part);
            }
        }
    }

    fn end_claim(&self, part: Clusters) {
        let known = self.slot(part.group).lock().unclaim(part, &self.totals);
        debug_assert!(known, "what is kept is claimed");
        if known {
            self.totals.give(u64::from(part.len));
        }
    }

    /// Keeps free blocks for atomic writes, from the first of them on: as many as `reach` leaves, up to the most; and enough for one write
    /// even of those that are kept for others, as it gives back what it takes.
    pub(crate) fn keep_spare(&self, sb: &Superblock, reach: Reach) {
        if self.totals.has_spare() {
            return;
        }
        let cluster = cluster_size(sb);
        let all = sb.geometry().blocks_count() * u64::from(sb.block_size()) / cluster;
        let least = MOST_UNIT / cluster;
        let most = (MOST_SPARE / cluster).min(all / PART_SPARE).max(least);
        self.totals.keep_spare((least, most), reach);
    }

    /// Reserves this many clusters of those that are kept for atomic writes. None if there are fewer.
    ///
    /// # Errors
    /// `WouldBlock(Commit)` if there may be more after a commit.
    pub(crate) fn reserve_spare(&self, clusters: u64) -> Result<Option<Reservation>, Error> {
        let some = self.totals.take_spare(clusters);
        match some.filter(|some| some.left() == clusters) {
            None if self.totals.has_waiting() => Err(Error::WouldBlock(Wait::Commit)),
            some => Ok(some),
        }
    }

    /// Claims up to `want` blocks that replace blocks of a file: as [`Alloc::claim`] or, if it shall not wait, [`Alloc::try_claim`]; from
    /// the reserve if nothing else is free. The file gives back as many.
    pub(crate) fn claim_anew(
        &self,
        volume: &Store,
        (goal, want): (FsBlock, u32),
        reach: Reach,
        waits: bool,
    ) -> Result<Option<Run>, Error> {
        let found = match waits {
            true => self.claim(volume, goal, want, reach).map(Some),
            false => self.try_claim(volume, goal, want, reach),
        };
        let error = match found {
            Err(error @ (Error::NoSpace { .. } | Error::WouldBlock(Wait::Commit))) => error,
            found => return found,
        };
        let ratio = volume.sb.geometry().cluster_ratio();
        let wanted = u64::from(want.div_ceil(ratio));
        let Some(mut spare): Option<Reservation> = self.totals.take_spare(wanted) else {
            // What becomes free goes to the reserve first.
            return Err(match self.totals.has_waiting() {
                true => Error::WouldBlock(Wait::Commit),
                false => error,
            });
        };
        self.claim_from(volume, goal, want, (&mut spare, waits))
    }
}
