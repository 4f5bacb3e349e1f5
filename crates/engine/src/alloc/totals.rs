//! The volume's free counts, and reservations of them.
//!
//! Input: what groups allocate and free. Output: whether there is enough space, exactly. Invariants: at every moment, at least as many
//! clusters are free in the groups' bitmaps as `available` and `spare` say plus what reservations hold. Therefore an allocation first
//! reduces the count and then sets the bits; a release first clears the bits, then raises `returned`, and then the count. Limits: counts
//! are clusters, except of inodes; no lock.

use super::Run;
use crate::error::{Error, Wait};
use diorite_block::sync::atomic::{AtomicU64, Ordering::SeqCst};
use diorite_format::{GroupDesc, Superblock};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct Totals {
    /// Clusters that are neither used, claimed, waiting nor in a [`Reservation`]; includes those of which not everybody gets one.
    available: AtomicU64,
    /// Clusters that were freed and are usable after the commit.
    waiting: AtomicU64,
    /// Those among them that requests in flight may know: they are not usable after the commit.
    known: AtomicU64,
    /// Clusters that are free in the bitmaps on disk.
    on_disk: AtomicU64,
    /// How many times clusters became free in a group.
    returned: AtomicU64,
    /// Free inodes.
    inodes: AtomicU64,
    /// Clusters reserved for privileged users.
    reserved: AtomicU64,
    /// Clusters kept for maps of blocks that files have already.
    for_maps: AtomicU64,
    /// Clusters kept for atomic writes, and how many of them there should be: 0 before the first of these writes.
    spare: AtomicU64,
    most_spare: AtomicU64,
    /// Whether any are kept for maps.
    keeps: bool,
    /// Blocks per cluster.
    ratio: u64,
}

/// How much of the free space a caller may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// What is neither reserved for privileged users nor kept for maps.
    Common,
    /// What is not kept for maps.
    Privileged,
    /// All: for the maps of blocks that a file has already, and for who moves blocks of a volume that nobody else uses.
    All,
}

/// What a caller asks for, as far as counts are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Clusters asked for.
    pub(super) clusters: u64,
    pub(super) reach: Reach,
}

impl Totals {
    pub(super) fn new(sb: &Superblock, groups: &[GroupDesc], keeps: bool) -> Totals {
        let ratio = u64::from(sb.geometry().cluster_ratio());
        let free: u64 = groups.iter().map(|g| u64::from(g.free_clusters)).sum();
        let inodes = groups.iter().map(|g| u64::from(g.free_inodes)).sum();
        Totals {
            available: AtomicU64::new(free),
            waiting: AtomicU64::new(0),
            known: AtomicU64::new(0),
            on_disk: AtomicU64::new(free),
            returned: AtomicU64::new(0),
            inodes: AtomicU64::new(inodes),
            reserved: AtomicU64::new(reserved(sb)),
            for_maps: AtomicU64::new(for_maps(sb, keeps)),
            spare: AtomicU64::new(0),
            most_spare: AtomicU64::new(0),
            keeps,
            ratio,
        }
    }

    pub(super) fn free_blocks_on_disk(&self) -> u64 {
        self.on_disk.load(SeqCst) * self.ratio
    }

    pub(super) fn free_inodes(&self) -> u32 {
        u32::try_from(self.inodes.load(SeqCst)).expect("groups have no more inodes than the volume")
    }

    pub(super) fn waiting_blocks(&self) -> u64 {
        self.waiting.load(SeqCst) * self.ratio
    }

    pub(super) fn usable_blocks(&self, reach: Reach) -> u64 {
        self.usable(reach) * self.ratio
    }

    /// Clusters that a caller could take now.
    pub(super) fn usable(&self, reach: Reach) -> u64 {
        self.available
            .load(SeqCst)
            .saturating_sub(self.floor(reach))
    }

    pub(super) fn blocks_for_maps(&self) -> u64 {
        self.for_maps.load(SeqCst) * self.ratio
    }

    fn floor(&self, reach: Reach) -> u64 {
        let for_maps = || self.for_maps.load(SeqCst);
        match reach {
            Reach::Common => self.reserved.load(SeqCst).saturating_add(for_maps()),
            Reach::Privileged => for_maps(),
            Reach::All => 0,
        }
    }

    /// Takes `least` to `most` clusters from the count, or none. The caller takes their bits afterwards.
    pub(super) fn take(&self, least: u64, most: u64, reach: Reach) -> u64 {
        let floor = self.floor(reach);
        let mut seen = self.available.load(SeqCst);
        loop {
            let part = seen.saturating_sub(floor).min(most);
            if part < least {
                return 0;
            }
            let left = seen - part;
            match self.available.compare_exchange(seen, left, SeqCst, SeqCst) {
                Ok(_) => return part,
                Err(now) => seen = now,
            }
        }
    }

    /// Gives back to the count clusters whose bits are clear already. What is missing of those kept for atomic writes is kept.
    pub(super) fn give(&self, clusters: u64) {
        let kept = self.add_spare(clusters);
        self.available.fetch_add(clusters - kept, SeqCst);
    }

    /// Adds up to so many clusters to those kept for atomic writes. Returns how many.
    fn add_spare(&self, clusters: u64) -> u64 {
        let most = self.most_spare.load(SeqCst);
        if most == 0 {
            return 0;
        }
        let mut seen = self.spare.load(SeqCst);
        loop {
            let more = most.saturating_sub(seen).min(clusters);
            if more == 0 {
                return 0;
            }
            let now = seen + more;
            match self.spare.compare_exchange(seen, now, SeqCst, SeqCst) {
                Ok(_) => return more,
                Err(other) => seen = other,
            }
        }
    }

    /// Is anything to be kept for atomic writes?
    pub(super) fn has_spare(&self) -> bool {
        self.most_spare.load(SeqCst) > 0
    }

    /// Keeps up to `most` clusters for atomic writes from now on: as many as `reach` leaves, and `least` even if it leaves fewer.
    pub(super) fn keep_spare(&self, (least, most): (u64, u64), reach: Reach) {
        if self
            .most_spare
            .compare_exchange(0, most, SeqCst, SeqCst)
            .is_err()
        {
            return;
        }
        let first = self.take(1, most, reach);
        let more = match least.saturating_sub(first) {
            0 => 0,
            missing => self.take(1, missing, Reach::All),
        };
        let kept = self.add_spare(first + more);
        // Others may have given something meanwhile.
        self.available.fetch_add(first + more - kept, SeqCst);
    }

    /// Takes up to `most` of the clusters kept for atomic writes. None if there are none.
    pub(super) fn take_spare(self: &Arc<Totals>, most: u64) -> Option<Reservation> {
        let less = |spare: u64| Some(spare.saturating_sub(most));
        let before = self.spare.fetch_update(SeqCst, SeqCst, less);
        let left = before.unwrap_or(0).min(most);
        let totals = self.clone();
        (left > 0).then_some(Reservation { totals, left })
    }

    /// Do clusters wait for a commit?
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Clusters that wait for a commit and will be usable after it.
    fn waiting_unknown(&self) -> u64 {
        let known = || self.known.load(SeqCst);
        // Too many rather than too few, if others change both meanwhile: who relies on it commits and asks again.
        let (before, waiting, after) = (known(), self.waiting.load(SeqCst), known());
        waiting.saturating_sub(before.min(after))
    }

    /// Waiting clusters may be known to requests in flight.
    pub(super) fn note_known(&self, clusters: u64) {
        self.known.fetch_add(clusters, SeqCst);
    }

    /// They are not known any more, or not waiting; to be called before they are not waiting.
    pub(super) fn end_known(&self, clusters: u64) {
        self.known.fetch_sub(clusters, SeqCst);
    }

    /// Clusters that are free on disk, and that somebody has claimed or reserved, or that requests in flight may know.
    pub(super) fn spoken_for(&self) -> u64 {
        let spare = self.spare.load(SeqCst);
        let free = self.available.load(SeqCst) + self.waiting_unknown() + spare;
        self.on_disk.load(SeqCst).saturating_sub(free)
    }

    /// Notes that clusters became free in a group. To be called before they are counted as available.
    pub(super) fn note_returned(&self) {
        self.returned.fetch_add(1, SeqCst);
    }

    /// How many times [`Totals::note_returned`] was called.
    pub(super) fn returned(&self) -> u64 {
        self.returned.load(SeqCst)
    }

    /// Clusters were marked as used on disk.
    pub(super) fn marked(&self, clusters: u32) {
        self.on_disk.fetch_sub(u64::from(clusters), SeqCst);
    }

    /// Clusters were marked as free on disk; they wait for the commit.
    pub(super) fn freed(&self, clusters: u32) {
        self.on_disk.fetch_add(u64::from(clusters), SeqCst);
        self.waiting.fetch_add(u64::from(clusters), SeqCst);
    }

    /// Clusters have become free in their group after the commit.
    pub(super) fn reused(&self, clusters: u32) {
        self.give(u64::from(clusters));
        self.waiting.fetch_sub(u64::from(clusters), SeqCst);
    }

    /// The volume has grown: so many clusters and inodes are free in new groups, or at the end of the last one.
    pub(super) fn grew(&self, sb: &Superblock, clusters: u64, inodes: u64) {
        self.reserved.store(reserved(sb), SeqCst);
        self.for_maps.store(for_maps(sb, self.keeps), SeqCst);
        self.on_disk.fetch_add(clusters, SeqCst);
        self.inodes.fetch_add(inodes, SeqCst);
        self.note_returned();
        self.give(clusters);
    }

    /// The volume has become smaller: so many clusters and inodes are free on disk. Nothing more is allocated.
    pub(super) fn shrank(&self, sb: &Superblock, clusters: u64, inodes: u64) {
        self.reserved.store(reserved(sb), SeqCst);
        self.for_maps.store(for_maps(sb, self.keeps), SeqCst);
        self.most_spare.store(0, SeqCst);
        self.spare.store(0, SeqCst);
        self.available.store(clusters, SeqCst);
        self.on_disk.store(clusters, SeqCst);
        self.inodes.store(inodes, SeqCst);
    }

    /// Clusters that waited for a commit are claimed after it.
    pub(super) fn held(&self, clusters: u32) {
        self.waiting.fetch_sub(u64::from(clusters), SeqCst);
    }

    pub(super) fn took_inode(&self) {
        self.inodes.fetch_sub(1, SeqCst);
    }

    pub(super) fn gave_inode(&self) {
        self.inodes.fetch_add(1, SeqCst);
    }

    /// The error for a caller who needs `least` clusters: None if there are enough, or if something was returned since `returned` was
    /// read.
    ///
    /// A returned cluster is first noted in `returned`, then counted as available, and only then not counted as waiting any more. So if
    /// `returned` has not changed, every cluster that was not seen as available was seen as waiting. A commit gives nothing of what
    /// requests in flight may know, and nothing of what is missing of the clusters kept for atomic writes.
    pub(super) fn shortage(&self, wish: Wish, least: u64, returned: u64) -> Option<Error> {
        let free = self.usable(wish.reach);
        if free >= least {
            return None;
        }
        let missing = self.most_spare.load(SeqCst);
        let missing = missing.saturating_sub(self.spare.load(SeqCst));
        let waiting = self.waiting_unknown().saturating_sub(missing);
        let all = self.available.load(SeqCst) + waiting;
        if waiting > 0 && all.saturating_sub(self.floor(wish.reach)) >= least {
            return Some(Error::WouldBlock(Wait::Commit));
        }
        let (asked, free) = (wish.clusters * self.ratio, free * self.ratio);
        (self.returned() == returned).then_some(Error::NoSpace { asked, free })
    }

    /// Takes exactly this many clusters from the count.
    pub(super) fn reserve(
        this: &Arc<Totals>,
        clusters: u64,
        reach: Reach,
    ) -> Result<Reservation, Error> {
        let wish = Wish { clusters, reach };
        loop {
            let returned = this.returned();
            let left = this.take(clusters, clusters, reach);
            if left == clusters {
                let totals = this.clone();
                return Ok(Reservation { totals, left });
            }
            if let Some(error) = this.shortage(wish, clusters, returned) {
                return Err(error);
            }
        }
    }
}

fn reserved(sb: &Superblock) -> u64 {
    let ratio = u64::from(sb.geometry().cluster_ratio());
    sb.geometry().r_blocks_count().div_ceil(ratio)
}

fn for_maps(sb: &Superblock, keeps: bool) -> u64 {
    match keeps {
        true => sb.kept_for_maps() / u64::from(sb.geometry().cluster_ratio()),
        false => 0,
    }
}

/// Clusters taken from the free count for later allocations. What is left is given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the space back"]
pub(crate) struct Reservation {
    totals: Arc<Totals>,
    left: u64,
}

impl Reservation {
    /// The number of allocations left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Splits one allocation off, as a reservation of its own.
    pub(crate) fn take_one(&mut self) -> Option<Reservation> {
        self.left = self.left.checked_sub(1)?;
        let totals = self.totals.clone();
        Some(Reservation { totals, left: 1 })
    }

    /// Splits some allocations off, at most `most`. None if none is left.
    pub(crate) fn take_some(&mut self, most: u64) -> Option<Reservation> {
        let left = self.left.min(most);
        self.left -= left;
        let totals = self.totals.clone();
        (left > 0).then_some(Reservation { totals, left })
    }

    /// Takes over what is left of another reservation.
    pub(crate) fn absorb(&mut self, mut other: Reservation) {
        self.left += std::mem::take(&mut other.left);
    }

    /// Gives back all but `most` allocations.
    pub(crate) fn keep(&mut self, most: u64) {
        let more = self.left.saturating_sub(most);
        self.left -= more;
        self.totals.give(more);
    }

    /// Notes that so many allocations were made.
    pub(super) fn used(&mut self, count: u64) {
        self.left -= count;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.totals.give(self.left);
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} blocks from {}", self.len, self.start)
    }
}
