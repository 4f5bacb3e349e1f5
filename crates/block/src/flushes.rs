//! Flush epochs: which flush of a device covers which data.
//!
//! Input: the moments at which data has ended, flushes that begin and end. Output: whether data is durable; one flush for all who may
//! share it. Invariants: a flush covers what had ended before it began, and nothing else; only a flush that succeeded covers, and only
//! once those that began before it have been reported: one of them may have failed first, and a host tells of a failure once; what had
//! ended before a flush failed, and was not covered, is never covered: the device below may have dropped it, and the next flush does not
//! know. Limits: one account for each device; it counts the flushes that run in it, so data may be durable that it does not know of.
//!
//! Every flush has a number, larger than those given before. One that fails gets another one for its end. Data carries an [`Epoch`]: the
//! newest number that was given when the data had ended. A flush with a larger number began afterwards, a failure with a larger number
//! ended afterwards.
//!
//! | what happens | newest number | epoch of the data |
//! |---|---|---|
//! | flush 1 begins | 1 | |
//! | a write ends | 1 | 1: flush 1 may have begun without it |
//! | flush 1 ends | 1 | not covered: 1 is not larger than 1 |
//! | flush 2 begins and ends | 2 | covered |
//! | a write ends | 2 | 2 |
//! | flush 3 begins and fails | 4 | lost: 4 is larger than 2 |
//! | flush 5 begins and ends | 5 | lost; what ended behind 4 is covered |
//!
//! Who made one write compares its epoch. Who answers for all that was written so far, at whatever epochs - an fsync - keeps a [`Told`]:
//! the newest failure that it has told of. A newer one is told to every sync that began before it was told, and to one at least.

use crate::bio::{BioError, BioErrorKind};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, FLUSHES, Mutex, thread};

/// When some data had ended, in flushes that had begun by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// A flush that has begun: its number. What it covers is known once [`Flushes::ended`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlushNumber(u64);

/// The account of one device. Send and Sync.
#[derive(Debug)]
pub struct Flushes {
    /// The newest number that was given: to a flush that began, or to the end of one that failed.
    given: AtomicU64,
    /// The newest flush that has ended well and that all older ones have been reported to.
    covered: AtomicU64,
    /// The end of the flush that failed last.
    failed: AtomicU64,
    shared: Mutex<Shared>,
    /// A flush has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Shared {
    /// The newest flush that others wait for instead of flushing themselves.
    under_way: Option<FlushNumber>,
    /// Those that have begun and not ended.
    begun: Vec<FlushNumber>,
    /// Those that have ended well beside an older one that has not ended.
    well: Vec<FlushNumber>,
    /// Why the last one failed.
    why: Option<BioError>,
}

/// The newest failed flush that somebody has been told of who syncs now and then: an open file, a volume, a device on top. Send and Sync.
#[derive(Debug)]
pub struct Told(AtomicU64);

impl Told {
    /// For [`Flushes::tell`]: to be asked before the sync begins that tells.
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

    /// The epoch of data that has ended by now. To be asked after the end of the data was seen.
    #[must_use]
    pub fn now(&self) -> Epoch {
        Epoch(self.given.load(Ordering::SeqCst))
    }

    fn next(&self) -> FlushNumber {
        FlushNumber(self.given.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// A flush is about to begin. To be called before it goes down.
    fn begin(&self, shared: &mut Shared) -> FlushNumber {
        let flush = self.next();
        shared.begun.push(flush);
        flush
    }

    /// The flush has ended, well or not. One that would have had to wait has not been tried, and nothing is lost by it. Who waits is to be told
    /// behind it.
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
        // Behind the failures of all that count before them.
        let oldest = shared.begun.iter().min().copied();
        let counts = |flush: &FlushNumber| oldest.is_none_or(|oldest| *flush < oldest);
        if let Some(newest) = shared.well.iter().copied().filter(counts).max() {
            self.covered.fetch_max(newest.0, Ordering::SeqCst);
            shared.well.retain(|flush| !counts(flush));
        }
    }

    /// Runs what is a flush besides, as a write that the host flushes behind; nobody shares it. Gives what it gives besides its result. If
    /// that is well, what had ended before is durable, unless [`Flushes::check`] says that another flush has failed. Blocks.
    pub fn run<T>(&self, flush: impl FnOnce() -> (Result<(), BioError>, T)) -> T {
        let begun = Begun {
            account: self,
            flush: self.begin(&mut self.shared.lock()),
        };
        begun.run(flush).1
    }

    /// Is data of this epoch durable?
    #[must_use]
    pub fn covers(&self, epoch: Epoch) -> bool {
        // In this order: a failure that is not seen here was reported after the flush had been counted.
        self.covered.load(Ordering::SeqCst) > epoch.0
            && self.failed.load(Ordering::SeqCst) <= epoch.0
    }

    /// May data of this epoch still become durable, or be it? Not once a flush has failed since it ended. The end of data is seen later
    /// than it comes, as a flush's is: who has an epoch from before the data went down is on the safe side with that.
    ///
    /// # Errors
    /// That of the flush that failed last.
    pub fn check(&self, epoch: Epoch) -> Result<(), BioError> {
        match self.failed.load(Ordering::SeqCst) > epoch.0 {
            true => Err(self.why()),
            false => Ok(()),
        }
    }

    /// A number that is another one behind each failure: what was known to be on its way to the device may be gone then.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// For somebody who has been told of all failures so far: what failed before is none of his.
    #[must_use]
    pub fn all_told(&self) -> Told {
        Told(AtomicU64::new(self.failed.load(Ordering::SeqCst)))
    }

    /// Tells of the flush that failed last. `since` is what [`Told::since`] said when he began to ask: others who ask for him may have been
    /// told meanwhile, and he must not pass for somebody who asked after them.
    ///
    /// # Errors
    /// Its error, if he had not been told of it.
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

    /// Makes data of this epoch durable. Runs `flush`, unless a flush that began later has ended well or is under way, which is waited
    /// for. Blocks.
    ///
    /// # Errors
    /// That of the flush that was run or waited for, or of any that has failed since the data ended.
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
            // Noted before the failure was counted.
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
                // None, or one that began before the data had ended.
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
        // Another one may have failed meanwhile.
        begun
            .run(|| (flush(), ()))
            .0
            .and_then(|()| self.check(epoch))
    }
}

/// How often a thread whose flush has ended lets others run before it sleeps. Once is all that a test's scheduler has to try.
const YIELDS: u32 = if cfg!(any(feature = "loom", feature = "shuttle")) {
    1
} else {
    64
};

impl Flushes {
    /// The flushes that began before have mostly ended with this one, below, and their threads wait for a processor to say so: to let them
    /// have this one costs less than to sleep and be woken.
    fn let_others_end(&self, flush: FlushNumber) {
        for _ in 0..YIELDS {
            if self.covered.load(Ordering::SeqCst) >= flush.0 {
                return;
            }
            thread::yield_now();
        }
    }
}

/// The thread that runs a flush. Tells those who wait if it panics.
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

    /// Returns when those that began before have ended, too.
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
        // A newer one may have begun meanwhile.
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

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
mod tests;
