//! What a queue and a journal count, and the lock classes of the whole process.
//!
//! Input: plain increments under a queue's lock. Output: sums per queue and per volume, snapshots of lock classes.
//! Invariant: counters only grow. Limits: a volume's sum is taken queue by queue, not at one instant.

use crate::reason::Reason;
use diorite_block::sync::LockStats;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that completed where they were reaped (or needed no device).
    pub inline: u64,
    /// Requests whose completion was handed to a worker, by [`Reason`].
    pub deferred: [u64; Reason::ALL.len()],
    /// Times a request waited on a gate's list.
    pub parked: u64,
    /// Times a request waited for another one's range of new space.
    pub parked_for_range: u64,
    /// Requests that a worker had to claim or read something for, before their data could go down.
    pub prepared: u64,
    /// Requests that wrote zeros around their data, into what they left of new blocks.
    pub pads: u64,
    /// Extending requests that had ended before others in front of them, and waited for those.
    pub held_for_size: u64,
    /// Requests that a worker had to load a part of the map for.
    pub map_loads: u64,
    /// Requests that were served without the direct path: inline data.
    pub fallback_buffered: u64,
    /// Requests that failed.
    pub failed: u64,
}

impl Counters {
    /// Adds another queue's.
    pub fn add(&mut self, other: &Counters) {
        self.inline += other.inline;
        self.deferred
            .iter_mut()
            .zip(other.deferred)
            .for_each(|(a, b)| *a += b);
        self.parked += other.parked;
        self.parked_for_range += other.parked_for_range;
        self.prepared += other.prepared;
        self.pads += other.pads;
        self.held_for_size += other.held_for_size;
        self.map_loads += other.map_loads;
        self.fallback_buffered += other.fallback_buffered;
        self.failed += other.failed;
    }

    /// Every counter with its name.
    pub fn named(&self) -> impl Iterator<Item = (String, u64)> {
        let deferred = Reason::ALL
            .iter()
            .zip(self.deferred)
            .map(|(r, n)| (format!("deferred-{}", r.name()), n));
        let one = |name: &str, n| std::iter::once((name.to_owned(), n));
        one("inline", self.inline)
            .chain(deferred)
            .chain(one("parked", self.parked))
            .chain(one("parked-for-range", self.parked_for_range))
            .chain(one("prepared", self.prepared))
            .chain(one("pads", self.pads))
            .chain(one("held-for-size", self.held_for_size))
            .chain(one("map-loads", self.map_loads))
            .chain(one("fallback-buffered", self.fallback_buffered))
            .chain(one("failed", self.failed))
    }
}

/// What a volume holds at one moment: see [`crate::Volume::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Blocks that the bitmaps on disk, with what is not committed yet, show free. 0 where the volume is open for reading.
    pub free_on_disk: u64,
    /// Of these, blocks that nobody has claimed or set aside.
    pub free: u64,
    /// Of these, blocks that may be used again after the next commit.
    pub waiting: u64,
    /// Inodes that are free.
    pub free_inodes: u64,
    /// Queues, with those that blocking calls keep.
    pub queues: u64,
    /// Files attached to them.
    pub attached: u64,
    /// Requests that were accepted and not handed back.
    pub requests: u64,
    /// Of these, requests that wait for others: for a turn, for a range or a place, for the size to move over those before.
    pub waiting_requests: u64,
    /// Requests that inodes count in flight.
    pub in_flight: u64,
    /// Ranges of new space, and places in the order of sizes, that writes have for themselves.
    pub pending: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Inodes whose times were noted and not written.
    pub dirty_times: u64,
    /// Segments of maps in memory, beyond the inodes' roots.
    pub map_segments: u64,
    /// Blocks of metadata in memory.
    pub cached_blocks: u64,
    /// Of these, blocks whose bytes somebody holds beside the cache.
    pub pinned_blocks: u64,
}

impl Usage {
    /// Free blocks that somebody has claimed or set aside.
    #[must_use]
    pub fn claimed(&self) -> u64 {
        self.free_on_disk.saturating_sub(self.free + self.waiting)
    }
}

/// What the journal of a volume has done since it was opened, or its rounds where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Handles begun.
    pub handles: u64,
    /// Transactions made durable.
    pub commits: u64,
    /// Blocks of metadata in them.
    pub blocks: u64,
    /// Times that everything was brought home to empty the log.
    pub checkpoints: u64,
    /// Blocks beyond those that their handles had asked room for: none, or a transaction may become larger than the log.
    pub uncredited: u64,
}

/// Every lock class of the process with what it has counted: the engine's in lock order, then the block crate's.
#[must_use]
pub fn lock_stats() -> Vec<(&'static str, LockStats)> {
    let all = crate::locks::CLASSES
        .iter()
        .chain(&diorite_block::sync::CLASSES);
    all.map(|c| (c.name(), c.stats())).collect()
}
