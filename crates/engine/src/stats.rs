//! Counters of queues and of the journal, and the statistics of all lock classes of the process.
//!
//! Input: plain increments under a queue's lock. Output: sums per queue and per volume, snapshots of lock classes.
//! Invariant: counters only grow. Limits: a volume's sum is taken queue by queue, not at one instant.

use crate::reason::Reason;
use diorite_block::sync::LockStats;

/// The counters of a queue, or their sums over the queues of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that completed where they were reaped (or needed no device).
    pub inline: u64,
    /// Requests whose completion was handed to a worker, by [`Reason`].
    pub deferred: [u64; Reason::ALL.len()],
    /// Times a request was parked at a file's gate.
    pub parked: u64,
    /// Times a request waited for another request's range of new space.
    pub parked_for_range: u64,
    /// Requests for which a worker had to change or read metadata before their data could go down.
    pub prepared: u64,
    /// Requests that wrote zeros around their data, into the rest of newly allocated blocks.
    pub pads: u64,
    /// Extending requests that ended before extending requests at smaller offsets, and waited for them.
    pub held_for_size: u64,
    /// Requests for which a worker had to load a part of the map.
    pub map_loads: u64,
    /// Direct requests for which dirty pages had to be written back first.
    pub written_back: u64,
    /// Requests that did not take the direct path: inline data, and data that goes through the journal.
    pub fallback_buffered: u64,
    /// Requests that failed.
    pub failed: u64,
}

impl Counters {
    /// Adds the counters of another queue.
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
        self.written_back += other.written_back;
        self.fallback_buffered += other.fallback_buffered;
        self.failed += other.failed;
    }

    /// Each counter with its name.
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
            .chain(one("written-back", self.written_back))
            .chain(one("fallback-buffered", self.fallback_buffered))
            .chain(one("failed", self.failed))
    }
}

/// What a volume holds at one moment: see [`crate::Volume::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Free blocks by the bitmaps, uncommitted changes included. 0 where the volume is open for reading only.
    pub free_on_disk: u64,
    /// Of these, blocks that are neither claimed nor reserved.
    pub free: u64,
    /// Of these, blocks that were freed and may be used again after the next commit.
    pub waiting: u64,
    /// Inodes that are free.
    pub free_inodes: u64,
    /// Open queues, those of blocking calls included.
    pub queues: u64,
    /// Files attached to these queues.
    pub attached: u64,
    /// Requests that were accepted and whose completion has not been handed out yet.
    pub requests: u64,
    /// Of these, requests that wait for other requests: for the turn, for a range or a place, or for the size to move over earlier ones.
    pub waiting_requests: u64,
    /// Requests that inodes count in flight.
    pub in_flight: u64,
    /// Entries in pending maps: ranges of new space, and places in the order of sizes, that writes hold for themselves.
    pub pending: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Inodes whose times have changed in memory and are not in the inode table yet.
    pub dirty_times: u64,
    /// Segments of maps in memory, without the roots inside the inodes.
    pub map_segments: u64,
    /// Blocks of metadata in memory.
    pub cached_blocks: u64,
    /// Of these, blocks whose bytes somebody besides the cache holds.
    pub pinned_blocks: u64,
}

impl Usage {
    /// Free blocks that are claimed or reserved.
    #[must_use]
    pub fn claimed(&self) -> u64 {
        self.free_on_disk.saturating_sub(self.free + self.waiting)
    }
}

/// What a volume's journal has done since the volume was opened. Without a journal: what its ordered rounds have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Handles begun.
    pub handles: u64,
    /// Transactions made durable.
    pub commits: u64,
    /// Blocks of metadata in these transactions.
    pub blocks: u64,
    /// Checkpoints: times that all committed blocks were written home and the log was emptied.
    pub checkpoints: u64,
    /// Blocks that handles changed beyond their credits. Must be 0: otherwise a transaction may become larger than the log.
    pub uncredited: u64,
}

/// Every lock class of the process with its statistics: the engine's in lock order, then the block crate's.
#[must_use]
pub fn lock_stats() -> Vec<(&'static str, LockStats)> {
    let all = crate::locks::CLASSES
        .iter()
        .chain(&diorite_block::sync::CLASSES);
    all.map(|c| (c.name(), c.stats())).collect()
}
