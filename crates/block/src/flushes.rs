//! Flush epochs: which flush of a device covers which data.
//!
//! Input: the moments at which data ended; flushes that begin and end. Output: whether data is durable; one flush for all
//! callers that may share it. Invariants: A flush covers only what had ended before it began. Only a successful flush covers
//! anything, and only once all flushes that began before it have been reported, because one of them may have failed first and a
//! host reports a failure only once. Data that had ended before a failed flush, and was not covered, is never covered: the
//! device below may have dropped it, and the next flush does not know that. Limits: one account for each device; it counts only
//! the flushes that run through it, so data may be durable without the account knowing it.
//!
//! Every flush has a number, larger than all earlier ones. The end of a failed flush gets a number, too. Data carries an
//! [`Epoch`]: the newest number at the time when the data had ended. A flush with a larger number began afterwards; a failure
//! with a larger number ended afterwards.
//!
//! | event | newest number | epoch of the data |
//! |---|---|---|
//! | flush 1 begins | 1 | |
//! | a write ends | 1 | 1: flush 1 may have begun before it ended |
//! | flush 1 ends | 1 | not covered: 1 is not larger than 1 |
//! | flush 2 begins and ends | 2 | covered |
//! | a write ends | 2 | 2 |
//! | flush 3 begins and fails | 4 | lost: 4 is larger than 2 |
//! | flush 5 begins and ends | 5 | lost; data that ended after number 4 is covered |
//!
//! The owner of one write compares its epoch. A caller that is responsible for everything written so far, at any epochs (an
//! fsync), keeps a [`Told`]: the newest failure that it has reported. A newer failure is reported to every sync that began
//! before the failure was reported, and to at least one sync.

use crate::bio::{BioError, BioErrorKind};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, FLUSHES, Mutex, thread};

/// When some data had ended, counted in flushes that had begun by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// The number of a flush that has begun. What it covers is known after [`Flushes::ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlushNumber(u64);

/// The account of one device. Send and Sync.
#[derive(Debug)]
pub struct Flushes {
    /// The newest number: of a flush that began, or of the end of one that failed.
    given: AtomicU64,
    /// The newest successful flush before which all older ones have been reported.
    covered: AtomicU64,
    /// The number of the last failure.
    failed: AtomicU64,
    shared: Mutex<Shared>,
    /// A flush has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    /// The newest flush that others wait for instead of flushing themselves.
    under_way: Option<FlushNumber>,
    /// Flushes that have begun and not ended.
    begun: Vec<FlushNumber>,
    /// Successful flushes that began after one that has not ended.
    well: Vec<FlushNumber>,
    /// The error of the last failure.
    why: Option<BioError>,
}

/// The newest failure that has been reported to an object that syncs from time to time: an open file, a volume, a stacked
/// device. Send and Sync.
#[derive(Debug)]
pub struct Told(AtomicU64);

impl Told {
    /// For [`Flushes::tell`]: to be called before the sync begins.
    #[must_use]
    pub fn since(&self) -> Epoch {
        Epoch(self.0.load(Ordering::SeqCst))
    }
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
            given: AtomicU64::new(0),
            covered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            shared: Mutex::new(&FLUSHES, Shared::default()),
            ended: Condvar::new(),
        }
    }

    /// The epoch of data that has ended by now. Call it after the end of the data was seen.
    #[must_use]
    pub fn now(&self) -> Epoch {
        Epoch(self.given.load(Ordering::SeqCst))
    }

    fn next(&self) -> FlushNumber {
        FlushNumber(self.given.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Begins a flush. Call it before the flush is submitted.
    fn begin(&self, shared: &mut Shared) -> FlushNumber {
        let flush = self.next();
        shared.begun.push(flush);
        flush
    }

    /// Ends a flush with its result. A flush that would have had to wait was not tried, and loses nothing. The caller notifies
    /// the waiters afterwards.
    fn ended(&self, shared: &mut Shared, flush: FlushNumber, result: Result<(), BioError>) {
        shared.begun.retain(|other| *other != flush);
        match result {
            Ok(()) => shared.well.push(flush),
            Err(error) if error.kind == BioErrorKind::WouldBlock => {}
            Err(error) => {
                shared.why = Some(error);
                self.failed.store(self.next().0, Ordering::SeqCst);
            }
        }
        // Only flushes before the oldest one that has not ended: their failures are known.
        let oldest = shared.begun.iter().min().copied();
        let counts = |flush: &FlushNumber| oldest.is_none_or(|oldest| *flush < oldest);
        if let Some(newest) = shared.well.iter().copied().filter(counts).max() {
            self.covered.fetch_max(newest.0, Ordering::SeqCst);
            shared.well.retain(|flush| !counts(flush));
        }
    }

    /// Runs an operation that flushes as well, such as a write that the host follows by a flush; nobody shares it. Returns the
    /// operation's second value. On success everything that had ended before is durable, unless [`Flushes::check`] reports that
    /// another flush has failed. Blocks.
    pub fn run<T>(&self, flush: impl FnOnce() -> (Result<(), BioError>, T)) -> T {
        let begun = Begun {
            account: self,
            flush: self.begin(&mut self.shared.lock()),
        };
        begun.run(flush).1
    }

    /// Whether data of this epoch is durable.
    #[must_use]
    pub fn covers(&self, epoch: Epoch) -> bool {
        // In this order: a failure that is not seen here was reported after the flush had been counted.
        self.covered.load(Ordering::SeqCst) > epoch.0
            && self.failed.load(Ordering::SeqCst) <= epoch.0
    }

    /// Whether data of this epoch is, or can still become, durable: not after a flush has failed since it ended. The end of
    /// data is seen later than it happens, as is that of a flush; an epoch from before the data was submitted is on the safe
    /// side.
    ///
    /// # Errors
    /// The error of the flush that failed last.
    pub fn check(&self, epoch: Epoch) -> Result<(), BioError> {
        match self.failed.load(Ordering::SeqCst) > epoch.0 {
            true => Err(self.why()),
            false => Ok(()),
        }
    }

    /// A number that changes with each failure: a value that was read before it may describe data that is lost since.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// For an object that has been told of all failures so far: earlier failures do not concern it.
    #[must_use]
    pub fn all_told(&self) -> Told {
        Told(AtomicU64::new(self.failed.load(Ordering::SeqCst)))
    }

    /// Reports the flush that failed last. `since` is the value of [`Told::since`] from before the sync began: concurrent syncs
    /// of the same object may have been told in the meantime, and this one must not count as a later one.
    ///
    /// # Errors
    /// The error of that flush, if it was not reported before `since`.
    pub fn tell(&self, told: &Told, since: Epoch) -> Result<(), BioError> {
        let failed = self.failed.load(Ordering::SeqCst);
        told.0.fetch_max(failed, Ordering::SeqCst);
        match failed > since.0 {
            true => Err(self.why()),
            false => Ok(()),
        }
    }

    fn why(&self) -> BioError {
        let why = self.shared.lock().why;
        why.expect("the reason is noted before the failure is counted")
    }

    /// Makes data of this epoch durable. Runs `flush`, unless a flush that began later has succeeded, or is running and can be
    /// waited for. Blocks.
    ///
    /// # Errors
    /// The error of the flush that was run or waited for, or of any flush that failed since the data ended.
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
            // `why` is set before the failure is counted.
            let lost = self.failed.load(Ordering::SeqCst) > epoch.0;
            if let Some(error) = shared.why.filter(|_| lost) {
                return Err(error);
            }
            match shared.under_way {
                Some(other) if other.0 > epoch.0 => {
                    while shared.under_way == Some(other) {
                        shared = self.ended.wait(shared);
                    }
                }
                // No flush is running, or the running one began before the data had ended.
                _ => {
                    let mine = self.begin(&mut shared);
                    shared.under_way = Some(mine);
                    break mine;
                }
            }
        };
        drop(shared);
        let begun = Begun {
            account: self,
            flush: mine,
        };
        // Another flush may have failed in the meantime.
        begun
            .run(|| (flush(), ()))
            .0
            .and_then(|()| self.check(epoch))
    }
}

/// How often a thread whose flush has ended yields before it sleeps. Under a test's scheduler once is enough.
const YIELDS: u32 = if cfg!(any(feature = "_loom", feature = "_shuttle")) {
    1
} else {
    64
};

impl Flushes {
    /// Earlier flushes have mostly ended on the device by now, and only their threads need a processor to report it. To yield
    /// costs less than to sleep and be woken.
    fn let_others_end(&self, flush: FlushNumber) {
        for _ in 0..YIELDS {
            if self.covered.load(Ordering::SeqCst) >= flush.0 {
                return;
            }
            thread::yield_now();
        }
    }
}

/// Held by a thread that runs a flush. Ends the flush with an error if the thread panics.
struct Begun<'a> {
    account: &'a Flushes,
    flush: FlushNumber,
}

impl Begun<'_> {
    fn run<T>(
        self,
        flush: impl FnOnce() -> (Result<(), BioError>, T),
    ) -> (Result<(), BioError>, T) {
        let (result, given) = flush();
        self.end(result);
        std::mem::forget(self);
        (result, given)
    }

    /// Ends the flush, and returns when all that began before it have ended, too.
    fn end(&self, result: Result<(), BioError>) {
        let Begun { account, flush } = *self;
        let mut shared = account.shared.lock();
        account.ended(&mut shared, flush, result);
        if shared.well.contains(&flush) {
            drop(shared);
            account.let_others_end(flush);
            shared = account.shared.lock();
        }
        while shared.well.contains(&flush) {
            shared = account.ended.wait(shared);
        }
        // A newer flush may have begun in the meantime.
        if shared.under_way == Some(flush) {
            shared.under_way = None;
        }
        drop(shared);
        account.ended.notify_all();
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.end(Err(BioError::new(BioErrorKind::Gone)));
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;
