//! The gate of an inode: its count of direct requests in flight, in shards, and the exclusive turn.
//!
//! Input: requests that enter and leave, each through its queue's own [`Shard`]; operations that need the file for themselves and close
//! the gate (exclusive writes, truncate, fallocate, ...). Output: parked requests, released in order to their queues. Invariants: while
//! one has the turn, nobody else is in flight; the last one that leaves wakes the one that waits for the turn; leaving never waits.
//! Limits: the shards are summed only while the gate is closed.
//!
//! # The count in flight
//!
//! An inode's in-flight count has a shard for each queue that has the file attached: a counter on its own cache line. To enter is to
//! increment the shard and load `closed`; to close is to store `closed` and sum the shards. Both sides are sequentially consistent, so
//! either the closer sees the count, or the one that enters sees the closed gate and leaves again. A request that leaves while the gate is
//! closed checks whether the count has reached zero, and then grants the turn. Turns are granted in order; requests parked between two
//! turns enter together, and the next turn waits for them.

use crate::locks::GATE;
use crate::turn::Parked;
use diorite_block::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use diorite_block::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread that waits for a turn sleeps before it drains the volume's queues again: at first, and at most. The pause doubles
/// while these drains find nothing. In a stack of volumes a request passes through several queues, and each may need another drain.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The part of an inode's in-flight count that belongs to one queue; on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Shard {
    count: AtomicU64,
    /// When the queue has written the file's data last: a mark of `inode/written`.
    pub(crate) written: AtomicU64,
    /// What is counted here is the page cache's own.
    of_cache: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    /// A set of [`CLOSED`] and [`PAGED`].
    state: AtomicU32,
    inner: Mutex<Inner>,
    turn_granted: Condvar,
}

/// Somebody has the turn, or waits for it.
const CLOSED: u32 = 1;
/// The file may have cached pages, at which direct requests have to look.
const PAGED: u32 = 2;

#[derive(Debug, Default)]
struct Inner {
    shards: Vec<Arc<Shard>>,
    /// The one of threads that change pages.
    writers: Option<Arc<Shard>>,
    /// Somebody has the turn, or waits for it in `draining`.
    held: bool,
    /// The one that gets the turn when the count is zero.
    draining: Option<Waiter>,
    parked: VecDeque<Waiter>,
}

#[derive(Debug)]
enum Waiter {
    /// A request that wants to enter. It is counted in the shard when it is released.
    Enter(Parked, Arc<Shard>),
    /// A request that wants the turn.
    Exclusive(Parked),
    /// A thread that wants the turn and sleeps on `turn_granted`.
    Thread(Arc<AtomicBool>),
}

/// The answer to a request that wants to enter or to take the turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Granted: go on.
    Now,
    /// The request is on the gate's list; a message to its queue will say when this is granted.
    Parked,
}

impl Gate {
    pub(crate) fn new(level: u8) -> Gate {
        Gate {
            state: AtomicU32::new(0),
            inner: Mutex::at_level(&GATE, level, Inner::default()),
            turn_granted: Condvar::new(),
        }
    }

    /// Adds a shard for one queue.
    pub(crate) fn add_shard(&self) -> Arc<Shard> {
        self.inner.lock().add_shard(false)
    }

    /// As [`Gate::add_shard`], for a queue of the page cache.
    pub(crate) fn add_cache_shard(&self) -> Arc<Shard> {
        self.inner.lock().add_shard(true)
    }

    /// The shard of threads that change cached pages; it stays.
    pub(crate) fn writers_shard(&self) -> Arc<Shard> {
        let mut inner = self.inner.lock();
        if let Some(shard) = &inner.writers {
            return shard.clone();
        }
        let shard = inner.add_shard(true);
        inner.writers = Some(shard.clone());
        shard
    }

    /// Removes a shard, whose count must be zero.
    pub(crate) fn remove_shard(&self, shard: &Arc<Shard>) {
        debug_assert_eq!(
            shard.count.load(Ordering::SeqCst),
            0,
            "a shard is idle when its queue lets the file go"
        );
        self.inner.lock().shards.retain(|s| !Arc::ptr_eq(s, shard));
    }

    /// Counts a request as in flight. Returns false, and does not, if the gate is closed. If the file may have cached pages, `no_pages`
    /// says whether there are none in its way.
    #[inline(always)]
    pub(crate) fn enter(&self, shard: &Shard, no_pages: impl FnOnce() -> bool) -> bool {
        // SeqCst on both sides: either the closer sees this count, or this side sees the closed gate.
        shard.count.fetch_add(1, Ordering::SeqCst);
        let state = self.state.load(Ordering::SeqCst);
        if state == 0 || state == PAGED && no_pages() {
            return true;
        }
        self.leave(shard);
        false
    }

    /// Counts a request as in flight; only a closed gate refuses it. The caller looks at the file's pages afterwards, if there may be any.
    #[inline]
    pub(crate) fn enter_with_pages(&self, shard: &Shard) -> bool {
        shard.count.fetch_add(1, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) & CLOSED != 0 {
            self.leave(shard);
            return false;
        }
        true
    }

    /// May the file have cached pages? Asked after the request is counted in flight.
    #[inline]
    pub(crate) fn has_pages(&self) -> bool {
        self.state.load(Ordering::SeqCst) & PAGED != 0
    }

    /// Notes that the file may have cached pages from now on.
    pub(crate) fn note_pages(&self) {
        self.state.fetch_or(PAGED, Ordering::SeqCst);
    }

    /// Is nobody in flight or at his turn who may not have seen what the caller stored (SeqCst) before? The cache's own do not count.
    pub(crate) fn is_quiet(&self) -> bool {
        let inner = self.inner.lock();
        let others = inner.shards.iter().filter(|shard| !shard.of_cache);
        !inner.held && count(others) == 0
    }

    /// Has somebody the exclusive turn?
    pub(crate) fn is_held(&self) -> bool {
        self.inner.lock().held
    }

    /// As [`Gate::enter_with_pages`], for a thread, which waits while the gate is closed and calls `drain` meanwhile as
    /// [`Gate::wait_turn`] does. Blocks.
    pub(crate) fn wait_enter(&self, shard: &Shard, mut drain: impl FnMut() -> bool) {
        let mut pause = SHORTEST_PAUSE;
        while !self.enter_with_pages(shard) {
            if drain() {
                pause = SHORTEST_PAUSE;
                continue;
            }
            drop(self.turn_granted.wait_timeout(self.inner.lock(), pause));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Ends the count of a request in flight. Never waits for I/O.
    #[inline]
    pub(crate) fn leave(&self, shard: &Shard) {
        self.leave_many(shard, 1);
    }

    /// Ends the count of several requests.
    #[inline]
    pub(crate) fn leave_many(&self, shard: &Shard, requests: u64) {
        let before = shard.count.fetch_sub(requests, Ordering::SeqCst);
        debug_assert!(before >= requests, "who leaves has entered");
        if self.state.load(Ordering::SeqCst) & CLOSED != 0 {
            self.check_drained();
        }
    }

    /// Counts a request as in flight, or parks it until the turn of another has ended.
    pub(crate) fn enter_or_park(
        &self,
        shard: &Arc<Shard>,
        request: impl FnOnce() -> Parked,
    ) -> Admission {
        let mut inner = self.inner.lock();
        if inner.held {
            inner
                .parked
                .push_back(Waiter::Enter(request(), shard.clone()));
            return Admission::Parked;
        }
        shard.count.fetch_add(1, Ordering::SeqCst);
        Admission::Now
    }

    /// Takes the turn, or parks the request until it has it. A request that is counted in flight must leave first.
    pub(crate) fn take_turn(&self, request: impl FnOnce() -> Parked) -> Admission {
        let mut inner = self.inner.lock();
        if inner.held {
            inner.parked.push_back(Waiter::Exclusive(request()));
            return Admission::Parked;
        }
        inner.held = true;
        self.state.fetch_or(CLOSED, Ordering::SeqCst);
        if inner.in_flight() == 0 {
            return Admission::Now;
        }
        inner.draining = Some(Waiter::Exclusive(request()));
        Admission::Parked
    }

    /// Takes the turn if nobody has it and nothing is in flight.
    pub(crate) fn try_turn(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.held {
            return false;
        }
        self.state.fetch_or(CLOSED, Ordering::SeqCst);
        inner.held = inner.in_flight() == 0;
        if !inner.held {
            self.state.fetch_and(!CLOSED, Ordering::SeqCst);
        }
        inner.held
    }

    /// Takes the turn for the calling thread, which may block. It calls `drain` repeatedly while it waits, so that requests in flight are
    /// completed even if their submitter does not come back. `drain` returns whether it made progress.
    pub(crate) fn wait_turn(&self, mut drain: impl FnMut() -> bool) {
        let granted = Arc::new(AtomicBool::new(false));
        self.ask_turn(&granted);
        let mut pause = SHORTEST_PAUSE;
        while !granted.load(Ordering::SeqCst) {
            if drain() {
                pause = SHORTEST_PAUSE;
                continue;
            }
            let inner = self.inner.lock();
            if !granted.load(Ordering::SeqCst) {
                drop(self.turn_granted.wait_timeout(inner, pause));
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    fn ask_turn(&self, granted: &Arc<AtomicBool>) {
        let mut inner = self.inner.lock();
        if inner.held {
            inner.parked.push_back(Waiter::Thread(granted.clone()));
            return;
        }
        inner.held = true;
        self.state.fetch_or(CLOSED, Ordering::SeqCst);
        if inner.in_flight() == 0 {
            granted.store(true, Ordering::SeqCst);
        } else {
            inner.draining = Some(Waiter::Thread(granted.clone()));
        }
    }

    /// Ends the turn: releases parked requests in order, up to the next one that wants the turn.
    pub(crate) fn end_turn(&self) {
        let mut inner = self.inner.lock();
        debug_assert!(
            inner.held && inner.draining.is_none(),
            "who ends a turn has it"
        );
        inner.held = false;
        while let Some(waiter) = inner.parked.pop_front() {
            if let Waiter::Enter(request, shard) = waiter {
                // Counted here for the released request, so that the next turn waits for it.
                shard.count.fetch_add(1, Ordering::SeqCst);
                request.release();
                continue;
            }
            inner.held = true;
            if inner.in_flight() == 0 {
                self.grant(waiter);
            } else {
                inner.draining = Some(waiter);
            }
            return;
        }
        self.state.fetch_and(!CLOSED, Ordering::SeqCst);
    }

    /// The number of requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.inner.lock().in_flight()
    }

    fn check_drained(&self) {
        let mut inner = self.inner.lock();
        if inner.draining.is_some()
            && inner.in_flight() == 0
            && let Some(waiter) = inner.draining.take()
        {
            self.grant(waiter);
        }
    }

    fn grant(&self, waiter: Waiter) {
        match waiter {
            Waiter::Exclusive(request) | Waiter::Enter(request, _) => request.release(),
            Waiter::Thread(granted) => {
                granted.store(true, Ordering::SeqCst);
                self.turn_granted.notify_all();
            }
        }
    }
}

impl Inner {
    fn add_shard(&mut self, of_cache: bool) -> Arc<Shard> {
        let shard = Arc::new(Shard {
            of_cache,
            ..Shard::default()
        });
        self.shards.push(shard.clone());
        shard
    }

    fn in_flight(&self) -> u64 {
        count(self.shards.iter())
    }
}

fn count<'a>(shards: impl Iterator<Item = &'a Arc<Shard>>) -> u64 {
    shards.map(|s| s.count.load(Ordering::SeqCst)).sum()
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use crate::turn::gate::*;

    #[test]
    fn requests_of_the_cache_disturb_nobody_s_quiet() {
        let gate = Gate::new(1);
        let (theirs, ours) = (gate.add_shard(), gate.add_cache_shard());
        assert!(gate.enter_with_pages(&ours) && gate.enter_with_pages(&gate.writers_shard()));
        assert!(gate.is_quiet() && gate.in_flight() == 2);
        assert!(gate.enter_with_pages(&theirs) && !gate.is_quiet());
        gate.leave(&theirs);
        gate.leave(&ours);
        gate.leave(&gate.writers_shard());
        assert!(gate.is_quiet() && gate.try_turn() && !gate.is_quiet());
    }

    /// A removed shard is dropped at once: otherwise a file that is attached again and again would have ever more shards to sum.
    #[test]
    fn a_shard_goes_with_its_queue() {
        let gate = Gate::new(1);
        let (stays, goes) = (gate.add_shard(), gate.add_shard());
        assert!(gate.enter_with_pages(&stays) && gate.enter_with_pages(&goes));
        assert_eq!(gate.in_flight(), 2);
        gate.leave(&goes);
        let left = Arc::downgrade(&goes);
        gate.remove_shard(&goes);
        drop(goes);
        assert!(left.upgrade().is_none());
        assert!(gate.in_flight() == 1 && !gate.try_turn());
        gate.leave(&stays);
        assert!(gate.in_flight() == 0 && gate.try_turn());
    }
}
