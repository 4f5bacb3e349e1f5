//! Counters of a budget of cached pages.
//!
//! Input: events of all files that share it. Output: [`PageStats`]. Invariant: counters only grow. Limits: the numbers are not taken at one
//! instant; reads that find their bytes in the cache are not counted, as counting would cost them more than the lookup.

use diorite_block::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The state and the counters of a [`crate::PageCache`]: see [`crate::PageCache::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageStats {
    /// The budget, in bytes.
    pub cache_bytes: u64,
    /// Bytes of cached pages.
    pub used_bytes: u64,
    /// Of these, bytes that are dirty or being written back.
    pub dirty_bytes: u64,
    /// Bytes of memory that is kept for the next pages, inside the budget.
    pub idle_bytes: u64,
    /// Bytes that were read from devices into pages, because somebody asked for them.
    pub filled_bytes: u64,
    /// Bytes that were read ahead into pages.
    pub ahead_bytes: u64,
    /// Bytes that were handed to write-back.
    pub written_bytes: u64,
    /// Runs of blocks that were written back, each as one request.
    pub write_backs: u64,
    /// Runs whose write-back has failed.
    pub failed: u64,
    /// Pieces of memory (folios) that were dropped to make room for others.
    pub reclaimed: u64,
    /// Times that a writer had to write back first, as half of the budget was dirty.
    pub throttled: u64,
}

impl PageStats {
    /// Each number with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("cache-bytes", self.cache_bytes),
            ("used-bytes", self.used_bytes),
            ("dirty-bytes", self.dirty_bytes),
            ("idle-bytes", self.idle_bytes),
            ("filled-bytes", self.filled_bytes),
            ("ahead-bytes", self.ahead_bytes),
            ("written-bytes", self.written_bytes),
            ("write-backs", self.write_backs),
            ("failed", self.failed),
            ("reclaimed", self.reclaimed),
            ("throttled", self.throttled),
        ]
        .into_iter()
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) filled: AtomicU64,
    pub(super) ahead: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) write_backs: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) reclaimed: AtomicU64,
    pub(super) throttled: AtomicU64,
}

impl Tally {
    pub(super) fn add_to(&self, of: PageStats) -> PageStats {
        PageStats {
            filled_bytes: self.filled.load(Relaxed),
            ahead_bytes: self.ahead.load(Relaxed),
            written_bytes: self.written.load(Relaxed),
            write_backs: self.write_backs.load(Relaxed),
            failed: self.failed.load(Relaxed),
            reclaimed: self.reclaimed.load(Relaxed),
            throttled: self.throttled.load(Relaxed),
            ..of
        }
    }
}
