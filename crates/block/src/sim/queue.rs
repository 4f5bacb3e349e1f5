//! A queue of a simulated disk: the requests being served and the ended ones.
//!
//! Input: bios. Output: the same bios, ended by real time or by steps. Invariants: `pending` is in the order in which requests
//! will end (real clock) or were taken (stepped); a bio is in `pending`, in `ended`, in a step that ends it, or reaped. Limits:
//! the lock of a queue is held for list work only, unless the disk tracks what it may lose.

use super::stats::{Histogram, SimCounters};
use super::{Disk, SimClock, SimOptions, alarm};
use crate::bio::{Bio, BioError, BioErrorKind, BioList};
use crate::device::{DeviceQueue, QueueOptions, Waker};
use crate::rng::mix;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::thread::JoinHandle;
use crate::sync::{Condvar, DEVICE_SHARED, DEVICE_SUBMIT, Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// If a request ends sooner than this (nanoseconds), the waiter spins: a sleep of a few tens of microseconds takes twice as
/// long.
pub(super) const SPIN: u64 = 70_000;

/// The limits on requests served at once and on bytes per second, with the real clock.
pub(super) struct Slots {
    limit: u32,
    bandwidth: u64,
    latency: u64,
    jitter: u64,
    seed: u64,
    /// The sum of the depths of all open queues: while it is within the limit, the limit cannot apply and is not checked.
    depths: AtomicU64,
    /// When each busy slot becomes free.
    free_at: Mutex<BinaryHeap<Reverse<u64>>>,
    /// When the bus that all requests' bytes cross one after another becomes free.
    bus_free_at: AtomicU64,
}

impl Slots {
    pub(super) fn new(options: &SimOptions) -> Slots {
        let nanos = |t: Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
        Slots {
            limit: options.parallel,
            bandwidth: options.bandwidth,
            latency: nanos(options.latency),
            jitter: nanos(options.jitter),
            seed: options.seed,
            depths: AtomicU64::new(0),
            free_at: Mutex::new(&DEVICE_SHARED, BinaryHeap::new()),
            bus_free_at: AtomicU64::new(0),
        }
    }

    fn binds(&self) -> bool {
        self.limit > 0 && self.depths.load(Ordering::Relaxed) > u64::from(self.limit)
    }

    #[inline]
    fn service_time(&self, number: u64) -> u64 {
        // Without jitter the remainder's divisor would be 0.
        self.latency
            + mix(self.seed ^ number)
                .checked_rem(self.jitter)
                .unwrap_or(0)
    }

    /// When a request that arrives now will have been served; takes a slot.
    #[inline]
    fn serve(&self, now: u64, number: u64) -> u64 {
        if !self.binds() {
            return now + self.service_time(number);
        }
        let mut free_at = self.free_at.lock();
        let full = free_at.len() >= self.limit as usize;
        let free = if full { free_at.pop() } else { None };
        let due = free.map_or(now, |Reverse(t)| t.max(now)) + self.service_time(number);
        free_at.push(Reverse(due));
        due
    }

    /// When the bytes of a request that was served at `served` have crossed the bus.
    #[inline]
    fn transfer(&self, served: u64, bytes: usize) -> u64 {
        if self.bandwidth == 0 || bytes == 0 {
            return served;
        }
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.bandwidth);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let crossed = |free: u64| free.max(served).saturating_add(nanos);
        let free = self
            .bus_free_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                Some(crossed(free))
            });
        crossed(free.unwrap_or_else(|now| now))
    }
}

/// A request that is being served.
struct Pending {
    /// When it ends, by the real clock.
    due: u64,
    begun: u64,
    number: u64,
    /// The crash log's mark.
    mark: u64,
    bio: Bio,
}

/// Whether the waker is kicked for those who poll its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    /// Nobody polls.
    No,
    /// The queue's thread kicks it when a request has ended: see [`alarm`].
    ByThread,
    /// It stays kicked while anything is served: a reap ends it.
    Always,
}

pub(super) struct State {
    pending: VecDeque<Pending>,
    /// Ended by a step, not reaped.
    ended: BioList,
    /// Threads that wait for a submission: a submitter kicks the waker for them.
    waiters: u32,
    polled: Polled,
    closed: bool,
    counters: SimCounters,
    latency: Histogram,
}

/// The part of a queue that its disk can access, too.
pub(super) struct QueueCore {
    depth: u32,
    waker: Arc<Waker>,
    /// Taken and not reaped. Grows only under the lock, so the holder of the lock knows the free room.
    taken: AtomicU32,
    state: Mutex<State>,
    /// Something was submitted or reaped, completions are held no more, or the queue is closed.
    changed: Condvar,
}

impl QueueCore {
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until something has changed, or the time is over.
    pub(super) fn wait_for_change<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match timeout {
            Some(timeout) => self.changed.wait_timeout(state, timeout),
            None => self.changed.wait(state),
        }
    }

    /// Completions are held no more.
    pub(super) fn release(&self) {
        let _locked = self.state.lock();
        self.changed.notify_all();
        self.waker.kick();
    }

    /// Tells who polls, after requests were submitted or reaped.
    #[inline]
    fn tell(&self, state: &State) {
        match state.polled {
            Polled::No => {}
            Polled::ByThread => self.changed.notify_all(),
            Polled::Always if state.pending.is_empty() && state.ended.is_empty() => {}
            Polled::Always => self.waker.kick(),
        }
    }

    pub(super) fn pending_numbers(&self) -> Vec<u64> {
        self.state.lock().pending.iter().map(|p| p.number).collect()
    }

    pub(super) fn add_to(&self, totals: &mut (SimCounters, Histogram)) {
        let state = self.state.lock();
        totals.0.add(&state.counters);
        totals.1.merge(&state.latency);
    }

    /// Ends the request with this number, if it is still being served.
    pub(super) fn end(&self, disk: &Disk, number: u64) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state.pending.iter().position(|p| p.number == number) else {
            return false;
        };
        let mut pending = state
            .pending
            .remove(at)
            .expect("the position was found under the same lock");
        pending.finish(disk);
        state.ended.push_back(pending.bio);
        drop(state);
        self.waker.kick();
        true
    }

    fn add_waiter(&self, change: i32) {
        let mut state = self.state.lock();
        state.waiters = state.waiters.wrapping_add_signed(change);
    }
}

impl Pending {
    /// Applies the bio's effect. A bio that was failed when it was taken stays failed.
    #[inline]
    fn finish(&mut self, disk: &Disk) {
        if self.bio.result.is_ok() {
            self.bio.result = disk.medium.execute(&mut self.bio);
        }
        if let Some(log) = &disk.log {
            log.ended(&self.bio, self.mark, disk.options.fua);
        }
    }
}

pub(super) struct SimQueue {
    disk: Arc<Disk>,
    core: Arc<QueueCore>,
    alarm: OnceLock<Option<JoinHandle<()>>>,
}

impl SimQueue {
    pub(super) fn open(disk: Arc<Disk>, options: QueueOptions) -> SimQueue {
        let depth = options.depth.clamp(1, 32_768);
        let core = Arc::new(QueueCore {
            depth,
            waker: options.waker,
            taken: AtomicU32::new(0),
            state: Mutex::new(
                &DEVICE_SUBMIT,
                State {
                    pending: VecDeque::with_capacity(depth as usize),
                    ended: BioList::new(),
                    waiters: 0,
                    polled: Polled::No,
                    closed: false,
                    counters: SimCounters::default(),
                    latency: Histogram::new(),
                },
            ),
            changed: Condvar::new(),
        });
        disk.slots
            .depths
            .fetch_add(u64::from(depth), Ordering::Relaxed);
        disk.shared.lock().queues.push(core.clone());
        SimQueue {
            disk,
            core,
            alarm: OnceLock::new(),
        }
    }

    /// Admits a bio: applies faults, and informs the crash log.
    fn admit(&self, bio: &mut Bio) -> u64 {
        bio.result = match &self.disk.plan {
            Some(plan) => plan.check(bio).map_or(Ok(()), Err),
            None => Ok(()),
        };
        let Some(log) = &self.disk.log else { return 0 };
        if bio.result.is_ok() {
            bio.result = self.disk.medium.geometry.check(bio);
        }
        if bio.result.is_ok() && !bio.buf.is_empty() && bio.len != bio.buf.len() as u64 {
            bio.result = Err(BioError::new(BioErrorKind::Invalid));
        }
        if bio.result.is_ok() {
            log.taken(bio)
        } else {
            u64::MAX
        }
    }

    /// Moves what has ended by now to `out` and applies its effect; at once if the disk tracks what it may lose.
    fn reap_real(&self, out: &mut BioList) {
        let disk = &*self.disk;
        let now = disk.now();
        let from = out.len();
        let mut state = self.core.state.lock();
        let State {
            pending, latency, ..
        } = &mut *state;
        while pending.front().is_some_and(|p| p.due <= now) {
            let mut done = pending
                .pop_front()
                .expect("the front was seen under the same lock");
            latency.add(now - done.begun);
            if disk.log.is_some() {
                done.finish(disk);
            }
            out.push_back(done.bio);
        }
        if out.len() > from || state.polled == Polled::Always {
            self.core.tell(&state);
        }
        drop(state);
        if disk.log.is_none() {
            for bio in out.range_mut(from..).filter(|b| b.result.is_ok()) {
                bio.result = disk.medium.execute(bio);
            }
        }
    }

    /// Sleeps and spins until `target` nanoseconds of the disk's clock, or a kick.
    fn sleep_until(&self, target: u64) {
        let waker = &self.core.waker;
        loop {
            let now = self.disk.now();
            if now >= target || waker.is_kicked() {
                return;
            }
            if target - now > SPIN {
                waker.wait(Some(Duration::from_nanos(target - now - SPIN)));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// When `min` requests, or all there are, can be reaped; none if nothing is being served or completions are held.
    fn ready_at(&self, min: u32) -> Option<u64> {
        let state = self.core.state.lock();
        let at = (min.max(1) as usize)
            .min(state.pending.len())
            .checked_sub(1)?;
        (!self.disk.held()).then(|| state.pending[at].due)
    }

    fn wait_real(&self, min: u32, timeout: Option<Duration>) {
        let deadline = timeout.map(|t| {
            let nanos = u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
            self.disk.now().saturating_add(nanos)
        });
        self.core.add_waiter(1);
        if self.disk.options.interrupts && self.is_alarmed() {
            self.core.waker.wait(timeout);
            self.core.add_waiter(-1);
            return;
        }
        match (self.ready_at(min), deadline) {
            (Some(ready), deadline) => self.sleep_until(ready.min(deadline.unwrap_or(u64::MAX))),
            (None, _) => self.core.waker.wait(timeout),
        }
        self.core.add_waiter(-1);
    }

    /// Starts the queue's thread. False if the host gives none.
    fn is_alarmed(&self) -> bool {
        self.signal_waker();
        self.alarm.get().is_some_and(Option::is_some)
    }

    fn wait_stepped(&self, timeout: Option<Duration>) {
        // Before the check, so that a submission after it wakes this thread.
        self.core.add_waiter(1);
        let ended = !self.core.state.lock().ended.is_empty() && !self.disk.held();
        if !ended && !self.disk.step_by_itself() {
            self.core.waker.wait(timeout);
        }
        self.core.add_waiter(-1);
    }

    /// Moves what steps have ended to `out`. On a disk that steps by itself, a reap that finds nothing makes a step: a thread
    /// that closes a gate or a volume reaps every queue and waits on none.
    fn reap_stepped(&self, out: &mut BioList) {
        let from = out.len();
        out.append(&mut self.core.state.lock().ended);
        if out.len() == from && self.disk.step_by_itself() {
            out.append(&mut self.core.state.lock().ended);
        }
        self.core.tell(&self.core.state.lock());
    }
}

impl DeviceQueue for SimQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let disk = &*self.disk;
        let now = if disk.is_real() { disk.now() } else { 0 };
        let mut state = self.core.state.lock();
        let taken = self.core.taken.load(Ordering::Relaxed);
        let count = ((self.core.depth - taken) as usize).min(bios.len());
        let first = disk.numbers(count);
        for (number, mut bio) in (first..).zip(bios.drain(..count)) {
            let mark = self.admit(&mut bio);
            state.counters.count(&bio);
            let served = disk.slots.serve(now, number);
            let pending = Pending {
                due: disk.slots.transfer(served, bio.buf.len()),
                begun: now,
                number,
                mark,
                bio,
            };
            state.insert(pending, disk.is_real());
        }
        let added = u32::try_from(count).expect("count is at most the depth");
        self.core.taken.fetch_add(added, Ordering::Release);
        if state.waiters > 0 && added > 0 {
            self.core.waker.kick();
        }
        self.core.tell(&state);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        if self.in_flight() == 0 || self.disk.held() {
            return 0;
        }
        let from = out.len();
        if self.disk.is_real() {
            self.reap_real(out);
        } else {
            self.reap_stepped(out);
        }
        let count = out.len() - from;
        if count > 0 {
            let reaped = u32::try_from(count).expect("count is at most the depth");
            self.core.taken.fetch_sub(reaped, Ordering::Release);
        }
        count
    }

    fn signal_waker(&self) {
        let by_thread = self.disk.is_real();
        let start = || {
            by_thread
                .then(|| alarm::start(&self.disk, &self.core))
                .flatten()
        };
        let polled = match (self.alarm.get_or_init(start), self.disk.options.clock) {
            (Some(_), _) => Polled::ByThread,
            // Who steps it kicks.
            (None, SimClock::Stepped) => Polled::No,
            (None, SimClock::Real | SimClock::Auto) => Polled::Always,
        };
        let mut state = self.core.state.lock();
        state.polled = polled;
        self.core.tell(&state);
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.disk.is_real() {
            self.wait_real(min, timeout);
        } else {
            self.wait_stepped(timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        self.core.taken.load(Ordering::Acquire)
    }
}

impl State {
    /// When the request that ends first has ended, by the real clock.
    pub(super) fn first_due(&self) -> Option<u64> {
        self.pending.front().map(|pending| pending.due)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Keeps `pending` in the order of ends. A new request seldom ends before others, and then not by much: the search starts
    /// at the end.
    #[inline]
    fn insert(&mut self, pending: Pending, by_time: bool) {
        let behind = if by_time {
            self.pending
                .iter()
                .rev()
                .take_while(|p| p.due > pending.due)
                .count()
        } else {
            0
        };
        if behind == 0 {
            self.pending.push_back(pending);
        } else {
            self.pending.insert(self.pending.len() - behind, pending);
        }
    }
}

impl Drop for SimQueue {
    /// Requests being served take effect as if they had been waited for, though nobody reaps them.
    fn drop(&mut self) {
        let mut shared = self.disk.shared.lock();
        shared.queues.retain(|q| !Arc::ptr_eq(q, &self.core));
        drop(shared);
        let depth = u64::from(self.core.depth);
        self.disk.slots.depths.fetch_sub(depth, Ordering::Relaxed);
        let mut state = self.core.state.lock();
        state.closed = true;
        self.core.changed.notify_all();
        let last = state.pending.back().map(|p| p.due);
        let mut rest = std::mem::take(&mut state.pending);
        drop(state);
        if let Some(thread) = self.alarm.take().flatten() {
            let _said = thread.join();
        }
        if let Some(due) = last.filter(|_| self.disk.is_real()) {
            let now = self.disk.now();
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(now)));
        }
        rest.iter_mut().for_each(|p| p.finish(&self.disk));
        let mut totals = (SimCounters::default(), Histogram::new());
        self.core.add_to(&mut totals);
        let mut shared = self.disk.shared.lock();
        shared.retired.0.add(&totals.0);
        shared.retired.1.merge(&totals.1);
    }
}
