//! One block group in memory.
//!
//! Input: its descriptor; its block bitmap, when somebody looks for space. Output: runs of free clusters; the next state of the
//! descriptor. Invariants: the merged bitmap is the bitmap on disk, with bits set for what is claimed and what waits for a commit; it can
//! be rebuilt from these three at any time, so it may be dropped at any time. Limits: a search looks at `MOST_LOOKS` runs at most.

use super::Clusters;
use super::runs::RunSet;
use super::totals::Totals;
use super::waiting::Waiting;
use crate::error::Error;
use crate::locks::ALLOC_GROUP;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use diorite_block::sync::{Mutex, MutexGuard, Parts};
use diorite_format::{GroupDesc, Tid, bitmap};
use std::ops::Range;

/// The highest number of directories without files that a group may get, however large it is.
pub(super) const MOST_DEBT: u32 = 255;

/// How many runs one search in a group looks at.
const MOST_LOOKS: u32 = 1024;
/// A run of this many clusters right at the goal is good enough, even if more are wanted.
const GOOD_AT_GOAL: u32 = 16;

/// A group, with the numbers that may be read without its lock.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) brief: Brief,
    state: Mutex<Group>,
}

/// Numbers that are written under the group's lock and read without it.
#[derive(Debug)]
pub(super) struct Brief {
    /// Free clusters: neither claimed nor waiting.
    pub(super) free: AtomicU32,
    /// An upper bound for the length of the group's free runs.
    pub(super) longest: AtomicU32,
    /// Free inodes, and number of directories.
    pub(super) inodes: AtomicU32,
    pub(super) dirs: AtomicU32,
    /// Directories that were made here since the volume was opened, minus files that were: directories whose files are still to come.
    pub(super) debt: AtomicU32,
    /// The block of the inode table into which an inode was written last, and in which transaction.
    pub(super) written: AtomicU64,
    /// The merged bitmap is in memory; it was used since the eviction clock last passed.
    loaded: AtomicBool,
    used: AtomicBool,
}

/// What is known about a group's inode bitmap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inodes {
    /// No inode before this one is free, except those that wait for a round.
    pub(super) taken: u32,
    /// The bitmap was checked: no inode is in use where the inode table was never written. That stays true.
    pub(super) checked: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Group {
    /// The descriptor as the running transaction has it.
    pub(super) desc: GroupDesc,
    claimed: RunSet,
    /// Freed clusters that are not usable before the commit.
    waiting: RunSet,
    merged: Option<Box<[u8]>>,
    /// The end of the run that was claimed last: where the next search begins.
    hint: u32,
    pub(super) inodes: Inodes,
    /// The transaction that changed the bitmap of inodes last.
    pub(super) inodes_changed: Option<Tid>,
    /// The commit has to write the checksum of the bitmap of inodes, and the descriptor: see `unsealed`.
    pub(super) is_unsealed: bool,
    /// Inodes freed by rounds that are not durable yet; only without a journal.
    pub(super) inodes_waiting: Waiting,
}

/// A group whose lock is held.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    pub(super) brief: &'a Brief,
    pub(super) group: MutexGuard<'a, Group>,
}

impl Brief {
    /// An upper bound for the length of the group's free runs.
    pub(super) fn bound(&self) -> u32 {
        self.longest.load(SeqCst).min(self.free.load(SeqCst))
    }
}

impl Slot {
    pub(super) fn new(level: u8, desc: GroupDesc) -> Slot {
        let brief = Brief {
            free: AtomicU32::new(desc.free_clusters),
            longest: AtomicU32::new(desc.free_clusters),
            inodes: AtomicU32::new(desc.free_inodes),
            dirs: AtomicU32::new(desc.used_dirs),
            debt: AtomicU32::new(0),
            written: AtomicU64::new(u64::MAX),
            loaded: AtomicBool::new(false),
            used: AtomicBool::new(false),
        };
        let group = Group {
            desc,
            claimed: RunSet::default(),
            waiting: RunSet::default(),
            merged: None,
            hint: 0,
            inodes: Inodes::default(),
            inodes_changed: None,
            is_unsealed: false,
            inodes_waiting: Waiting::default(),
        };
        let state = Mutex::at_level(&ALLOC_GROUP, level, group);
        Slot { brief, state }
    }

    pub(super) fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("alloc: group", self);
        if let Some(bitmap) = &self.lock().group.merged {
            parts.add("alloc: bitmap", &**bitmap);
        }
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let (brief, group) = (&self.brief, self.state.lock());
        Locked { brief, group }
    }

    pub(super) fn try_lock(&self) -> Option<Locked<'_>> {
        let (brief, group) = (&self.brief, self.state.try_lock()?);
        Some(Locked { brief, group })
    }

    /// Drops the merged bitmap, unless somebody holds the group or has used the bitmap since the last call. Returns whether it did.
    pub(super) fn let_go(&self) -> bool {
        if !self.brief.loaded.load(SeqCst) || self.brief.used.swap(false, SeqCst) {
            return false;
        }
        let Some(mut locked) = self.try_lock() else {
            return false;
        };
        locked.brief.loaded.store(false, SeqCst);
        locked.group.merged.take().is_some()
    }
}

impl Locked<'_> {
    pub(super) fn is_loaded(&self) -> bool {
        self.brief.used.store(true, SeqCst);
        self.group.merged.is_some()
    }

    /// Makes the merged bitmap from the one on disk, whose first `bits` bits count, and from what is claimed and what waits.
    pub(super) fn load(&mut self, on_disk: &[u8], bits: u32) -> Result<(), Error> {
        let group = &mut *self.group;
        let (number, said) = (group.desc.group, group.desc.free_clusters);
        let found = bitmap::count_zeros(on_disk, bits);
        if found != said {
            let what = format!(
                "group {number}: its bitmap has {found} free clusters and its descriptor says {said}; run e2fsck"
            );
            return Err(Error::Damaged(what));
        }
        let mut merged: Box<[u8]> = on_disk.into();
        for (start, len) in group.claimed.iter().chain(group.waiting.iter()) {
            bitmap::set_range(&mut merged, start, len)
                .map_err(|clash| clash.corrupt(number, bitmap::BitmapKind::Block))?;
        }
        group.merged = Some(merged);
        self.brief.loaded.store(true, SeqCst);
        Ok(())
    }

    /// The first run of `want` free clusters from `near` on, wrapping around at the end; without `near`, from where the last run was
    /// claimed. If there is no such run, the longest that was seen. The bitmap must be loaded.
    pub(super) fn find(&mut self, near: Option<u32>, want: u32, bits: u32) -> Option<(u32, u32)> {
        let group = &*self.group;
        let map = group.merged.as_deref()?;
        let from = near.unwrap_or(group.hint).min(bits);
        if let Some((start, len)) = bitmap::next_zero_run(map, from, bits, want)
            && start == from
            && len >= want.min(GOOD_AT_GOAL)
        {
            return Some((start, len));
        }
        let (mut best, mut looks) = ((0, 0), 0);
        for (mut at, limit) in [(from, bits), (0, from)] {
            while let Some((start, len)) = bitmap::next_zero_run(map, at, bits, want) {
                if start >= limit {
                    break;
                }
                if len >= want || looks == MOST_LOOKS {
                    return Some(if len > best.1 { (start, len) } else { best });
                }
                looks += 1;
                if len > best.1 {
                    best = (start, len);
                }
                at = start + len;
            }
        }
        // The search has seen every run, so the longest is known.
        self.brief.longest.store(best.1, SeqCst);
        (best.1 > 0).then_some(best)
    }

    /// The first run of free clusters in `from..to`. The bitmap must be loaded.
    pub(super) fn next_free(&self, from: u32, to: u32) -> Option<(u32, u32)> {
        bitmap::next_zero_run(self.group.merged.as_deref()?, from, to, u32::MAX)
    }

    /// Claims a run that was found free under this lock.
    pub(super) fn claim(&mut self, run: Clusters) {
        let group = &mut *self.group;
        let map = group.merged.as_deref_mut().expect("a run was found in it");
        bitmap::set_range(map, run.start, run.len).expect("the run was found free under this lock");
        let new = group.claimed.insert(run.start, run.len);
        assert!(new, "what is claimed is not free in the merged bitmap");
        group.hint = run.start + run.len;
        self.brief.free.fetch_sub(run.len, SeqCst);
    }

    pub(super) fn is_claimed(&self, run: Clusters) -> bool {
        self.group.claimed.contains(run.start, run.len)
    }

    /// Ends a claim whose run is used on disk now.
    pub(super) fn claim_is_used(&mut self, run: Clusters) {
        let known = self.group.claimed.remove(run.start, run.len);
        assert!(known, "the caller has asked under this lock");
    }

    /// Notes that a used run was freed on disk, in a transaction that is not durable yet.
    pub(super) fn wait(&mut self, run: Clusters) {
        let new = self.group.waiting.insert(run.start, run.len);
        assert!(new, "what waits is clear on disk, so it is not freed again");
    }

    /// Ends a claim whose run was not used. Returns false if the run is not claimed.
    pub(super) fn unclaim(&mut self, run: Clusters, totals: &Totals) -> bool {
        let known = self.group.claimed.remove(run.start, run.len);
        if known {
            self.free(run, totals);
        }
        known
    }

    /// Makes a run free that waited for a commit. Returns false if it does not wait.
    pub(super) fn reuse(&mut self, run: Clusters, totals: &Totals) -> bool {
        let known = self.group.waiting.remove(run.start, run.len);
        if known {
            self.free(run, totals);
        }
        known
    }

    /// Claims a run that waited for a commit, so that nobody gets it. Returns false if it does not wait.
    pub(super) fn hold(&mut self, run: Clusters) -> bool {
        let known = self.group.waiting.remove(run.start, run.len);
        known && self.group.claimed.insert(run.start, run.len)
    }

    /// The parts of claimed runs that are among these bits.
    pub(super) fn claimed_in(&self, bits: Range<u32>) -> Vec<(u32, u32)> {
        let runs = self.group.claimed.iter();
        let parts = runs.map(|(start, len)| start.max(bits.start)..(start + len).min(bits.end));
        let parts = parts.filter(|part| !part.is_empty());
        parts
            .map(|part| (part.start, part.end - part.start))
            .collect()
    }

    /// Notes that an inode was made in this group.
    pub(super) fn note_new(&self, is_dir: bool) {
        let debt = self.brief.debt.load(SeqCst);
        let now = match is_dir {
            true => (debt + 1).min(MOST_DEBT),
            false => debt.saturating_sub(1),
        };
        self.brief.debt.store(now, SeqCst);
    }

    /// Takes over a descriptor of a group that has got more clusters, all free, which was written under the running handle already. Returns
    /// whether that drops a merged bitmap.
    pub(super) fn set_grown(&mut self, desc: GroupDesc) -> bool {
        let more = desc.free_clusters - self.group.desc.free_clusters;
        self.group.desc = desc;
        self.brief.free.fetch_add(more, SeqCst);
        self.brief.longest.store(u32::MAX, SeqCst);
        self.brief.loaded.store(false, SeqCst);
        self.group.merged.take().is_some()
    }

    /// Takes over a descriptor with new counts of inodes, which was written under the running handle already.
    pub(super) fn set_inodes(&mut self, desc: GroupDesc, inodes: Inodes) {
        self.group.inodes = inodes;
        self.brief.inodes.store(desc.free_inodes, SeqCst);
        self.brief.dirs.store(desc.used_dirs, SeqCst);
        self.group.desc = desc;
    }

    /// Makes a run free, in the order that `totals` asks for: the bit, the group's numbers, then `returned`. The caller counts it as
    /// available.
    fn free(&mut self, run: Clusters, totals: &Totals) {
        if let Some(map) = self.group.merged.as_deref_mut() {
            bitmap::clear_range(map, run.start, run.len)
                .expect("what is claimed or waits is set in the merged bitmap");
        }
        // The run may have joined its neighbours, so only the number of free clusters bounds the longest run.
        self.brief.free.fetch_add(run.len, SeqCst);
        self.brief.longest.store(u32::MAX, SeqCst);
        totals.note_returned();
    }
}
