//! Flush epochs: which flush of a device covers which data.
//!
//! Input: the moments at which data has ended, flushes that begin and end. Output: whether data is durable; one flush for all who may
//! share it. Invariants: a flush covers what had ended before it began, and nothing else; only a flush that succeeded covers. Limits: one
//! account for each device; it counts the flushes that are reported to it, so data may be durable that it does not know of, never the
//! other way round.
//!
//! Every flush has a number, one more than the flush that began before it. Data carries an [`Epoch`]: the number of the newest flush
//! that had begun when the data had ended. A flush with a larger number began afterwards.
//!
//! | what happens | newest flush | epoch of the data |
//! |---|---|---|
//! | flush 1 begins | 1 | |
//! | a write ends | 1 | 1: flush 1 may have begun without it |
//! | flush 1 ends | 1 | not covered: 1 is not larger than 1 |
//! | flush 2 begins and ends | 2 | covered |

use crate::bio::BioError;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, FLUSHES, Mutex};

/// When some data had ended, in flushes that had begun by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// A flush that has begun: its number. What it covers is known once [`Flushes::ended`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushNumber(u64);

/// The account of one device. Send and Sync.
#[derive(Debug)]
pub struct Flushes {
    /// The newest flush that has begun.
    begun: AtomicU64,
    /// The newest flush that has ended well.
    covered: AtomicU64,
    shared: Mutex<Shared>,
    /// A shared flush has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    /// The newest flush that others wait for instead of flushing themselves.
    under_way: Option<FlushNumber>,
    /// The last of them that failed.
    failed: Option<(FlushNumber, BioError)>,
}

impl Default for Flushes {
    fn default() -> Self {
        Flushes::new()
    }
}

impl Flushes {
    /// An account without flushes.
    #[must_use]
    pub fn new() -> Flushes {
        Flushes {
            begun: AtomicU64::new(0),
            covered: AtomicU64::new(0),
            shared: Mutex::new(&FLUSHES, Shared::default()),
            ended: Condvar::new(),
        }
    }

    /// The epoch of data that has ended by now. To be asked after the end of the data was seen.
    #[must_use]
    pub fn now(&self) -> Epoch {
        Epoch(self.begun.load(Ordering::SeqCst))
    }

    /// A flush is about to begin. To be called before it goes down.
    #[must_use]
    pub fn begin(&self) -> FlushNumber {
        FlushNumber(self.begun.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// The flush has ended well. One that failed is not reported: it covers nothing.
    pub fn ended(&self, flush: FlushNumber) {
        self.covered.fetch_max(flush.0, Ordering::SeqCst);
    }

    /// Is data of this epoch durable?
    #[must_use]
    pub fn covers(&self, epoch: Epoch) -> bool {
        self.covered.load(Ordering::SeqCst) > epoch.0
    }

    /// Makes data of this epoch durable. Runs `flush`, unless a flush that began later has ended well or is under way, which is waited
    /// for. Blocks.
    ///
    /// # Errors
    /// That of the flush that was run or waited for.
    pub fn make_durable(
        &self,
        epoch: Epoch,
        flush: impl FnOnce() -> Result<(), BioError>,
    ) -> Result<(), BioError> {
        let mut shared = self.shared.lock();
        let mine = loop {
            if self.covers(epoch) {
                return Ok(());
            }
            match shared.under_way {
                Some(other) if other.0 > epoch.0 => {
                    while shared.under_way == Some(other) {
                        shared = self.ended.wait(shared);
                    }
                    match shared.failed {
                        Some((number, error)) if number == other => return Err(error),
                        _ => {}
                    }
                }
                // None, or one that began before the data had ended.
                _ => {
                    let mine = self.begin();
                    shared.under_way = Some(mine);
                    break mine;
                }
            }
        };
        drop(shared);
        let leader = Leader {
            account: self,
            flush: mine,
        };
        let result = flush();
        leader.end(result);
        result
    }

    fn end_shared(&self, flush: FlushNumber, failed: Option<BioError>) {
        let mut shared = self.shared.lock();
        match failed {
            Some(error) => shared.failed = Some((flush, error)),
            None => self.ended(flush),
        }
        // A newer one may have begun meanwhile.
        if shared.under_way == Some(flush) {
            shared.under_way = None;
        }
        drop(shared);
        self.ended.notify_all();
    }
}

/// The thread that runs a shared flush. Tells those who wait if it panics.
struct Leader<'a> {
    account: &'a Flushes,
    flush: FlushNumber,
}

impl Leader<'_> {
    fn end(self, result: Result<(), BioError>) {
        self.account.end_shared(self.flush, result.err());
        std::mem::forget(self);
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let gone = BioError::new(crate::bio::BioErrorKind::Gone);
        self.account.end_shared(self.flush, Some(gone));
    }
}

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
mod tests;
