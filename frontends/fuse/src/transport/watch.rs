//! Which thread of a mount waits for the next request.
//!
//! Input: the threads of a mount, the requests that come, and which of them may block. Output: who waits in the kernel, and who is parked.
//! Invariants: one thread at most is on watch, which is: looks for a request, then sleeps until one comes. Whoever has got a request is
//! not on watch any more. A request that may block is handed to the threads that have nothing to do before it is executed, by one of
//! them going on watch; so is what the kernel has behind a request. If a request blocks that should not, the deputy, one of those that
//! are parked, sees within [`TICK`] or two that nobody is on watch and nothing is received, and sends one there. Limit: a look takes
//! processor time from others for [`LOOK`] at most; where there is one processor nobody looks.
//!
//! A program that makes one system call after the other, as tar and rm do, has its next request there a few microseconds after the reply to
//! the last. Two processors that wake each other for each of them take longer than the requests do, and the kernel wakes a thread that
//! sleeps in its list for every request, even if another one looks and takes it.

use super::awake::Awake;
use diorite_block::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use diorite_block::sync::{Condvar, LockClass, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Who is parked.
static FUSE_PARKED: LockClass = LockClass::new("fuse-parked", 68);

/// How long a thread looks.
const LOOK: Duration = Duration::from_micros(100);
/// After so many looks in vain there are none, until requests follow each other closely again.
const IN_VAIN: u32 = 8;
/// How often the deputy checks that requests are received.
const TICK: Duration = Duration::from_millis(1);
/// After so many checks without a request the deputy sleeps until one comes. Soon where schedules are explored, so that they have it.
const QUIET: u32 = if cfg!(feature = "_shuttle") { 2 } else { 16 };

/// Where the requests come from, and where one thread puts them.
pub(super) trait Source {
    /// Why nothing can be received.
    type Error;

    /// Takes a request. False: the mount is gone. None: there is no request now.
    fn take(&mut self) -> Result<Option<bool>, Self::Error>;

    /// Whether there is a request, or the mount is gone. `waits`: until that is so, or a signal has come.
    fn is_ready(&self, waits: bool) -> Result<bool, Self::Error>;

    /// Whether nobody waits for the request that was taken, and it mostly ends before a thread would be there that is called for the
    /// request behind it. If it takes long, the deputy sees that.
    fn is_brief(&self) -> bool;
}

/// What the threads of a mount share.
#[derive(Debug)]
pub(super) struct Watch {
    looks: bool,
    /// Most requests come another way: a thread that waits here does not look.
    sleeps_at_once: AtomicBool,
    awake: Option<Awake>,
    is_taken: AtomicBool,
    in_vain: AtomicU32,
    /// When the last reply was given, in nanoseconds since `began`.
    replied: AtomicU64,
    began: Instant,
    received: AtomicU64,
    /// Threads that are parked and have not been called.
    idle: AtomicUsize,
    deputy_sleeps: AtomicBool,
    parked: Mutex<Parked>,
    for_others: Condvar,
    for_deputy: Condvar,
}

/// Who is parked.
#[derive(Debug, Default)]
struct Parked {
    /// Beside the deputy, and not called.
    others: u32,
    others_called: u32,
    has_deputy: bool,
    deputies_called: u32,
    /// The mount is gone: nobody is parked any more.
    is_over: bool,
}

impl Watch {
    /// `looks`: a thread that has replied looks for the next request for a moment before it sleeps.
    pub(super) fn new(looks: bool) -> Watch {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let looks = looks && processors > 1;
        Watch {
            looks,
            sleeps_at_once: AtomicBool::new(false),
            awake: looks.then(Awake::open).flatten(),
            is_taken: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            replied: AtomicU64::new(0),
            began: Instant::now(),
            received: AtomicU64::new(0),
            idle: AtomicUsize::new(0),
            deputy_sleeps: AtomicBool::new(false),
            parked: Mutex::new(&FUSE_PARKED, Parked::default()),
            for_others: Condvar::new(),
            for_deputy: Condvar::new(),
        }
    }

    /// Waits for a request. False: the mount is gone. Blocks.
    ///
    /// # Errors
    /// The source's.
    pub(super) fn receive<S: Source>(&self, source: &mut S) -> Result<bool, S::Error> {
        let came = self.next(source);
        match came {
            Ok(true) => {
                let is_more = || source.is_ready(false).unwrap_or(false);
                self.received(|| !source.is_brief() && is_more());
            }
            Ok(false) => self.end(),
            // This thread receives nothing any more: another one has to.
            Err(_) => self.call(),
        }
        came
    }

    fn next<S: Source>(&self, source: &mut S) -> Result<bool, S::Error> {
        loop {
            if let Some(came) = source.take()? {
                return Ok(came);
            }
            let Some(on_watch) = self.take() else {
                continue;
            };
            if let Some(found) = on_watch.look(|| source.take().transpose()) {
                return found;
            }
            while source.is_ready(true)? {
                if let Some(came) = source.take()? {
                    on_watch.woken();
                    return Ok(came);
                }
            }
        }
    }

    /// Goes on watch. None: another thread was, and this one has been parked meanwhile; there may be a request now. Blocks.
    fn take(&self) -> Option<OnWatch<'_>> {
        if !self.is_taken.swap(true, SeqCst) {
            return Some(OnWatch(self));
        }
        self.park();
        None
    }

    /// A request has been received, by a thread that is not on watch any more. `is_more`: whether there is another one. It is not asked
    /// if nobody could take that.
    fn received(&self, is_more: impl FnOnce() -> bool) {
        self.received.fetch_add(1, SeqCst);
        if self.deputy_sleeps.load(SeqCst) {
            drop(self.parked.lock());
            self.for_deputy.notify_one();
        }
        if self.has_idle() && is_more() {
            self.call();
        }
    }

    /// The request that was received may block: another thread goes on watch, if one has nothing to do.
    pub(super) fn hand_over(&self) {
        if !self.has_idle() && !self.is_taken.swap(true, SeqCst) {
            // Nobody will be there to notice that no request comes any more.
            let on_watch = OnWatch(self);
            on_watch.0.rest();
        }
        if self.has_idle() && !self.is_taken.load(SeqCst) {
            self.call();
        }
    }

    /// The mount is gone, which every thread will find when it asks.
    fn end(&self) {
        self.parked.lock().is_over = true;
        self.for_others.notify_all();
        self.for_deputy.notify_all();
    }

    /// A reply has been given.
    pub(super) fn replied(&self) {
        if self.looks {
            self.replied.store(self.now(), Relaxed);
        }
    }

    /// Most requests come another way from now on.
    pub(super) fn sleeps_at_once(&self) {
        self.sleeps_at_once.store(true, Relaxed);
    }

    /// Whether a thread that has replied may look for the next request, here or where most requests come.
    pub(super) fn may_look(&self) -> bool {
        self.looks
    }

    /// A request came while a thread looked for it.
    pub(super) fn came_soon(&self) {
        if let Some(awake) = &self.awake {
            awake.came_soon();
        }
    }

    /// None came, or it takes long.
    pub(super) fn rest(&self) {
        if let Some(awake) = &self.awake {
            awake.rest();
        }
    }

    fn has_idle(&self) -> bool {
        self.idle.load(SeqCst) > 0
    }

    fn call(&self) {
        self.call_one(&mut self.parked.lock());
    }

    /// Calls one of those that are parked, the deputy last.
    fn call_one(&self, parked: &mut Parked) {
        if parked.others > 0 {
            parked.others -= 1;
            parked.others_called += 1;
            self.for_others.notify_one();
        } else if parked.has_deputy {
            parked.has_deputy = false;
            parked.deputies_called += 1;
            self.for_deputy.notify_one();
        } else {
            return;
        }
        self.idle.fetch_sub(1, SeqCst);
    }

    /// Waits until it is called, or the mount is gone. Returns at once if nobody is on watch.
    fn park(&self) {
        let mut parked = self.parked.lock();
        // Whoever leaves the watch looks for somebody to call behind that: it sees this thread, or is seen here.
        self.idle.fetch_add(1, SeqCst);
        if parked.is_over || !self.is_taken.load(SeqCst) {
            self.idle.fetch_sub(1, SeqCst);
            return;
        }
        if !parked.has_deputy {
            parked.has_deputy = true;
            self.stand_in(parked);
            return;
        }
        parked.others += 1;
        while parked.others_called == 0 && !parked.is_over {
            parked = self.for_others.wait(parked);
        }
        parked.others_called = parked.others_called.saturating_sub(1);
    }

    /// Waits as the deputy.
    fn stand_in(&self, mut parked: MutexGuard<'_, Parked>) {
        let (mut last, mut quiet) = (None, 0);
        while parked.deputies_called == 0 && !parked.is_over {
            let received = self.received.load(SeqCst);
            let is_new = last.replace(received) != Some(received);
            quiet = if is_new { 0 } else { quiet + 1 };
            let is_taken = self.is_taken.load(SeqCst);
            if is_taken && quiet >= QUIET {
                self.deputy_sleeps.store(true, SeqCst);
                // What is received from now on finds it asleep.
                if self.received.load(SeqCst) == received {
                    parked = self.for_deputy.wait(parked);
                }
                self.deputy_sleeps.store(false, SeqCst);
                continue;
            }
            if !is_taken && !is_new {
                self.call_one(&mut parked);
            }
            if parked.deputies_called == 0 {
                parked = self.for_deputy.wait_timeout(parked, TICK);
            }
        }
        parked.deputies_called = parked.deputies_called.saturating_sub(1);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// One thread is on watch.
#[derive(Debug)]
struct OnWatch<'w>(&'w Watch);

impl OnWatch<'_> {
    /// Looks as long as `look` finds nothing and the time has not come. Not at all where that has been in vain.
    fn look<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let OnWatch(watch) = self;
        if !watch.looks
            || watch.sleeps_at_once.load(Relaxed)
            || watch.in_vain.load(Relaxed) >= IN_VAIN
        {
            return None;
        }
        let until = Instant::now() + LOOK;
        loop {
            if let Some(found) = look() {
                watch.in_vain.store(0, Relaxed);
                watch.came_soon();
                return Some(found);
            }
            if Instant::now() >= until {
                watch.in_vain.fetch_add(1, Relaxed);
                watch.rest();
                return None;
            }
        }
    }

    /// A request has come while the thread slept.
    fn woken(&self) {
        let OnWatch(watch) = self;
        if watch.looks && watch.in_vain.load(Relaxed) >= IN_VAIN {
            let gap = watch.now().saturating_sub(watch.replied.load(Relaxed));
            if u128::from(gap) < LOOK.as_nanos() {
                watch.in_vain.store(0, Relaxed);
            }
        }
    }
}

impl Drop for OnWatch<'_> {
    fn drop(&mut self) {
        self.0.is_taken.store(false, SeqCst);
    }
}

#[cfg(all(test, not(feature = "_shuttle")))]
#[path = "watch/tests.rs"]
mod tests;
