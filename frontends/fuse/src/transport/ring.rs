//! Requests and replies through io_uring.
//!
//! The kernel has a queue of requests for each processor. A ring has places in the queue of one processor: the kernel puts requests into
//! their memory; with the reply a place is free for the next. All replies that a thread has, and the requests behind them, are one system
//! call. A request that may block is lent to another thread with its place, as others may wait in places of the same ring; the kernel takes
//! the reply from any ring, and the place belongs to that one from then on, until it is given back.
//!
//! Input: a descriptor of `/dev/fuse` whose mount has settled [`OVER_IO_URING`](crate::wire::can::OVER_IO_URING), a processor. Output:
//! requests. Invariants: the memory is there as long as the kernel knows its address: if the kernel has not said that it is done with it,
//! it is never freed. Limits: FORGET and INTERRUPT come through `/dev/fuse` all the same; Linux 6.14, and the fuse module's parameter
//! `enable_uring`. Source: the kernel's uapi header `linux/fuse.h` (BSD-2-Clause), its documentation of FUSE over io_uring.

use super::nearby::{Crowd, Judge, Where};
use super::place::Place;
use super::{Channel, Incoming, Reply};
use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// With more processors the places would take too much memory: each processor must have some.
pub const MOST_PROCESSORS: u16 = 64;

/// Places of one ring.
pub const MOST_PLACES: u16 = 16;

/// How long a thread looks for the next request before it sleeps.
const LOOK: Duration = Duration::from_micros(100);
/// After so many looks in vain there are none, until requests follow each other closely again.
const IN_VAIN: u32 = 8;

/// FUSE_IO_URING_CMD_REGISTER
const REGISTER: u32 = 1;
/// FUSE_IO_URING_CMD_COMMIT_AND_FETCH
const COMMIT_AND_FETCH: u32 = 2;

type Uring = IoUring<Entry128, cqueue::Entry>;

/// Rings that were made ahead.
static STOCK: OnceLock<Mutex<Vec<Uring>>> = OnceLock::new();

/// A ring that takes FUSE's commands only. It is started by the thread that uses it.
fn make() -> Option<Uring> {
    let mut builder = Uring::builder();
    builder
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag();
    let ring: Uring = builder.build(u32::from(MOST_PLACES)).ok()?;
    let mut only = [Restriction::sqe_op(opcode::UringCmd80::CODE)];
    ring.submitter().register_restrictions(&mut only).ok()?;
    Some(ring)
}

/// Makes rings ahead for a mount that `threads` serve, and none later: for a process that is about to give up the right to make them. Some
/// of them are for requests that may block. Once they are in use others wait.
pub fn stock_rings(threads: u16) {
    let processors = processors().filter(|n| *n <= MOST_PROCESSORS).unwrap_or(0);
    let count = usize::from(processors * (each(threads, processors.max(1)) + SPARE));
    STOCK.get_or_init(|| Mutex::new(std::iter::from_fn(make).take(count).collect()));
}

/// One of them; a new one, if none were made ahead.
fn stocked() -> Option<Uring> {
    match STOCK.get() {
        Some(stock) => stock.lock().ok()?.pop(),
        None => make(),
    }
}

/// Rings of a processor beside those that a mount begins with.
const SPARE: u16 = 8;

/// How many rings of each processor a mount begins with: two at least, so that one that blocks does not hold up the others.
pub(crate) fn each(threads: u16, processors: u16) -> u16 {
    threads.div_ceil(processors).max(2)
}

/// A place, and what its ring knows of it.
pub struct Slot {
    place: Arc<Place>,
    /// The processor whose queue it is in.
    queue: u16,
    /// The ring that it belongs to. Others have it for a time.
    home: Arc<Home>,
    /// What has the place's payload. None: the thread has it, with a request.
    request: Option<Incoming>,
    /// The kernel knows the place's addresses, and has not said that it is done with them.
    is_known: bool,
    /// What the kernel counts the request by that has no reply yet.
    commit: Option<u64>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_known {
            std::mem::forget(self.place.clone());
        }
    }
}

/// Where places go back to their ring: only while its thread is awake and waits for nobody, so that no request waits there.
#[derive(Debug, Default)]
struct Home(Mutex<Returned>);

#[derive(Debug, Default)]
struct Returned {
    is_awake: bool,
    slots: Vec<Slot>,
}

impl Home {
    fn state(&self) -> std::sync::MutexGuard<'_, Returned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place back, with its request, unless the thread sleeps, or waits for others.
    fn offer(&self, slot: &mut Option<Slot>) {
        let mut state = self.state();
        if state.is_awake {
            state.slots.extend(slot.take());
        }
    }

    fn take(&self) -> Option<Slot> {
        self.state().slots.pop()
    }

    /// The thread is about to sleep. False: there is something for it.
    fn may_sleep(&self) -> bool {
        let mut state = self.state();
        state.is_awake = !state.slots.is_empty();
        !state.is_awake
    }

    fn wakes(&self) {
        self.state().is_awake = true;
    }

    /// The thread has ended: what it did not take back is nobody's.
    fn ends(&self) {
        let mut state = self.state();
        state.is_awake = false;
        let left = std::mem::take(&mut state.slots);
        // A place knows its home, which would keep it for ever.
        drop((state, left));
    }
}

/// See the module.
pub struct Ring {
    ring: Uring,
    channel: Channel,
    processor: u16,
    slots: Vec<Option<Slot>>,
    /// The place whose request the thread has.
    at: usize,
    home: Arc<Home>,
    /// No place comes back until the thread receives the next request.
    is_closed: bool,
    crowd: Arc<Crowd>,
    /// None: of a thread that has places of other rings only.
    judge: Option<Judge>,
    /// The processors that the thread may use.
    anywhere: Option<CpuSet>,
    in_vain: u32,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("processor", &self.processor)
            .finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.home.ends();
    }
}

/// How many processors the host may have: each must have a place. None if the host does not say.
#[must_use]
pub fn processors() -> Option<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    // "0-3", or "0"; gaps count.
    let last = text.trim().rsplit(['-', ',']).next()?;
    last.parse::<u16>().ok()?.checked_add(1)
}

impl Ring {
    /// A ring with so many places for requests of one processor, and the memory of the first. None if the host has no io_uring, or no
    /// memory.
    #[must_use]
    pub fn new(
        channel: &Channel,
        processor: u16,
        places: u16,
        crowd: &Arc<Crowd>,
    ) -> Option<(Ring, Incoming)> {
        let ring = stocked()?;
        let mut ring = Ring::over(ring, channel, processor, crowd);
        for _ in 0..places.clamp(1, MOST_PLACES) {
            let (place, request) = Place::try_new()?;
            ring.slots.push(Some(Slot {
                place,
                queue: processor,
                home: ring.home.clone(),
                request: Some(request),
                is_known: false,
                commit: None,
            }));
        }
        let request = ring.slots[0].as_mut()?.request.take()?;
        Some((ring, request))
    }

    fn over(ring: Uring, channel: &Channel, processor: u16, crowd: &Arc<Crowd>) -> Ring {
        Ring {
            ring,
            channel: channel.clone(),
            processor,
            slots: Vec::new(),
            at: 0,
            home: Arc::default(),
            is_closed: false,
            crowd: crowd.clone(),
            judge: None,
            anywhere: None,
            in_vain: 0,
        }
    }

    /// What counts the requests of the mount's rings.
    pub(crate) fn crowd(&self) -> &Arc<Crowd> {
        &self.crowd
    }

    /// A ring with one place of its own, for requests of the same processor.
    pub(super) fn another(&self) -> Option<(Ring, Incoming)> {
        let (mut ring, request) = Ring::new(&self.channel, self.processor, 1, &self.crowd)?;
        ring.anywhere = self.anywhere;
        Some((ring, request))
    }

    /// A ring without a place, for a thread that gets one of another ring: see [`Ring::lend`].
    pub(super) fn without_places(&self) -> Option<Ring> {
        let mut ring = Ring::over(stocked()?, &self.channel, self.processor, &self.crowd);
        ring.anywhere = self.anywhere;
        ring.slots.push(None);
        Some(ring)
    }

    /// Whether requests may be here that wait for the one that the thread has. If not, none comes back to this ring until the thread
    /// receives the next one: it may wait for others, and they for that one.
    pub(super) fn has_others(&mut self) -> bool {
        if self.slots.iter().flatten().count() > 1 {
            return true;
        }
        // The places of a ring with one are lent to nobody.
        self.is_closed = self.slots.len() > 1 && self.home.may_sleep();
        self.slots.len() > 1 && !self.is_closed
    }

    /// Gives the place of the request that was received away, with that request, which has no reply. `request` has no memory then.
    pub(super) fn lend(&mut self, request: &mut Incoming) -> Option<Slot> {
        let mut slot = self.slots[self.at].take()?;
        slot.request = Some(std::mem::replace(request, Incoming::without_memory()));
        Some(slot)
    }

    /// Takes a place with a request. False: there is no room.
    pub(super) fn adopt(&mut self, mut slot: Slot, request: &mut Incoming) -> bool {
        let Some(at) = self.slots.iter().position(Option::is_none) else {
            return false;
        };
        if let Some(of_slot) = slot.request.take() {
            self.put_back(std::mem::replace(request, of_slot));
        }
        self.at = at;
        self.slots[at] = Some(slot);
        true
    }

    /// The payload of the place whose request the thread has had.
    fn put_back(&mut self, request: Incoming) {
        if let Some(Some(slot)) = self.slots.get_mut(self.at) {
            slot.request.get_or_insert(request);
        }
    }

    /// Takes its places, by the thread that will use it. Does not wait.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn start(&mut self) -> Result<(), Errno> {
        // A thread that a ring's thread has started has that one's processors only.
        let mine = || sched_getaffinity(None).ok();
        self.anywhere = self.anywhere.or_else(mine);
        let usable = self.anywhere.map_or(1, |set| set.count() as usize);
        let enabled = self.ring.submitter().register_enable_rings();
        enabled.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let all: Vec<usize> = (0..self.slots.len())
            .filter(|at| self.slots[*at].is_some())
            .collect();
        if all.is_empty() {
            self.run_on(Where::Any);
            return Ok(());
        }
        let judge = Judge::new(self.processor, usable);
        self.run_on(judge.is_now());
        self.judge = Some(judge);
        for at in all {
            self.push(REGISTER, at, 0);
        }
        self.enter(0)?;
        self.home.wakes();
        // Requests come with the first wait: the kernel puts them into places only then.
        let mut taken = Ok(());
        for refused in self.ring.completion() {
            // The kernel has the addresses of the others.
            let at = usize::try_from(refused.user_data()).unwrap_or(usize::MAX);
            if let Some(Some(slot)) = self.slots.get_mut(at) {
                slot.is_known = false;
            }
            taken = taken.and(Err(Errno::from_raw_os_error(-refused.result())));
        }
        taken
    }

    /// The thread runs there from now on.
    fn run_on(&self, place: Where) {
        let mut own = CpuSet::new();
        own.set(usize::from(self.processor));
        let set = match place {
            Where::Own => own,
            Where::Any => self.anywhere.unwrap_or(own),
        };
        // A processor that is not there, or not for this process, sends no requests; only speed is lost otherwise.
        let _ = sched_setaffinity(None, &set);
    }

    fn push(&mut self, operation: u32, at: usize, commit: u64) {
        let Some(slot) = &mut self.slots[at] else {
            return;
        };
        slot.is_known = true;
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit.to_ne_bytes());
        command[16..18].copy_from_slice(&slot.queue.to_ne_bytes());
        let fd = types::Fd(self.channel.fd.as_raw_fd());
        let (parts, count) = slot.place.parts();
        let mut entry = opcode::UringCmd80::new(fd, operation)
            .cmd(command)
            .addr(Some(parts))
            .build()
            .user_data(at as u64);
        /// Where `io_uring_sqe` has `len`, the number of parts.
        const LEN: usize = 24;
        // SAFETY: an entry is an `io_uring_sqe` of 128 bytes, whose field `len` is the u32 at this offset (uapi linux/io_uring.h).
        unsafe {
            (&raw mut entry)
                .cast::<u8>()
                .add(LEN)
                .cast::<u32>()
                .write(count)
        };
        // SAFETY: the descriptor and the parts live as long as self, and beyond if the kernel may use them: see `Slot`'s drop.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has room for an entry of each place, and there is one at most");
    }

    fn enter(&self, wait_for: usize) -> Result<(), Errno> {
        loop {
            self.crowd.called(self.processor);
            match self.ring.submitter().submit_and_wait(wait_for) {
                Ok(_) => return Ok(()),
                Err(e) => match Errno::from_io_error(&e) {
                    Some(Errno::INTR | Errno::AGAIN) => {}
                    error => return Err(error.unwrap_or(Errno::IO)),
                },
            }
        }
    }

    /// Sends the replies, and waits until a request has come, or a place has come back.
    fn wait(&mut self) -> Result<(), Errno> {
        let is_alone = self
            .judge
            .as_ref()
            .is_some_and(|judge| judge.is_now() == Where::Any);
        if !is_alone || !self.channel.looks() {
            return self.sleep();
        }
        if self.in_vain < IN_VAIN {
            self.enter(0)?;
            if self.look()? {
                self.in_vain = 0;
                self.channel.came_soon();
                return Ok(());
            }
            self.in_vain += 1;
            self.channel.rest();
        }
        let began = Instant::now();
        self.sleep()?;
        if began.elapsed() < LOOK {
            self.in_vain = 0;
        }
        Ok(())
    }

    /// Looks for a request for a moment.
    fn look(&mut self) -> Result<bool, Errno> {
        let until = Instant::now() + LOOK;
        loop {
            if self.ring.submission().taskrun() {
                self.enter(0)?;
            }
            if !self.ring.completion().is_empty() {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&mut self) -> Result<(), Errno> {
        if !self.home.may_sleep() {
            return self.enter(0);
        }
        let woken = self.enter(1);
        self.home.wakes();
        woken
    }

    /// As [`super::Line::receive`].
    pub(super) fn receive(&mut self, request: &mut Incoming) -> Result<bool, Errno> {
        if std::mem::take(&mut self.is_closed) {
            self.home.wakes();
        }
        let done = loop {
            if let Some(done) = self.ring.completion().next() {
                break done;
            }
            if let Some(slot) = self.home.take() {
                match self.adopt(slot, request) {
                    true => return Ok(true),
                    false => return Err(Errno::IO),
                }
            }
            self.wait()?;
        };
        let count = self.crowd.came(self.processor);
        let judge = self.judge.as_mut();
        let moves = judge.and_then(|judge| judge.came(&self.crowd, count));
        if let Some(place) = moves {
            self.run_on(place);
        }
        let next = usize::try_from(done.user_data()).unwrap_or(usize::MAX);
        let slot = self.slots.get_mut(next).and_then(Option::as_mut);
        let slot = slot.ok_or(Errno::IO)?;
        match done.result() {
            0 => {}
            gone => {
                slot.is_known = false;
                return match Errno::from_raw_os_error(-gone) {
                    Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV => Ok(false),
                    error => Err(error),
                };
            }
        }
        if let Some(of_next) = slot.request.take() {
            self.put_back(std::mem::replace(request, of_next));
        }
        self.at = next;
        let slot = self.slots[next].as_mut().ok_or(Errno::IO)?;
        Place::restore(&mut slot.place, request);
        // SAFETY: the kernel has completed the command: it does not touch the place until the next one.
        slot.commit = Some(unsafe { slot.place.came(request) }?);
        Ok(true)
    }

    /// As [`super::Line::reply`].
    pub(super) fn reply(&mut self, unique: u64, request: &mut Incoming, reply: Reply<'_>) {
        let Some(slot) = &mut self.slots[self.at] else {
            return;
        };
        let Some(commit) = slot.commit.take() else {
            return;
        };
        // SAFETY: the kernel does not touch the place before the next command, which is sent later.
        unsafe { slot.place.answer(unique, request, reply) };
        self.push(COMMIT_AND_FETCH, self.at, commit);
    }

    /// Gives the place of the request that was received back to its ring, if the thread there is awake. Call by who has borrowed it. True:
    /// it has none now.
    pub(super) fn give_back(&mut self, request: &mut Incoming) -> bool {
        let home = match &self.slots[self.at] {
            Some(slot) => slot.home.clone(),
            None => return true,
        };
        let mut slot = self.lend(request);
        home.offer(&mut slot);
        match slot {
            None => true,
            // The place that it has left is free.
            Some(slot) => !self.adopt(slot, request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring that the kernel does not know. None: the host has no io_uring.
    fn ring(places: u16) -> Option<(Ring, Incoming)> {
        let null = std::fs::File::open("/dev/null").expect("every host has it");
        let channel = Channel::new(null.into(), false);
        let made = Ring::new(&channel, 0, places, &Arc::new(Crowd::new(1)));
        if made.is_none() {
            xtask::skip::skipped("there is no io_uring");
        }
        made
    }

    /// The defect: a thread that had lent all places but one waited for others, which gave their requests back to it meanwhile.
    #[test]
    fn nothing_comes_back_to_a_thread_that_waits_for_others() {
        let Some((mut ring, mut request)) = ring(3) else {
            return;
        };
        ring.home.wakes();
        let mut first = ring.lend(&mut request);
        assert!(first.is_some() && ring.has_others());
        ring.at = 1;
        let mut second = ring.lend(&mut request);
        ring.home.offer(&mut first);
        assert!(first.is_none(), "two are left, and may be busy soon");
        ring.at = 2;
        assert!(ring.has_others(), "one has come back");
        first = ring.home.take();
        assert!(first.is_some() && !ring.has_others());
        ring.home.offer(&mut first);
        ring.home.offer(&mut second);
        assert!(first.is_some() && second.is_some());
    }

    #[test]
    fn places_that_came_back_end_with_the_ring() {
        let Some((mut ring, mut request)) = ring(2) else {
            return;
        };
        ring.home.wakes();
        let (mut lent, home) = (ring.lend(&mut request), Arc::downgrade(&ring.home));
        let place = lent.as_ref().map(|slot| Arc::downgrade(&slot.place));
        ring.home.offer(&mut lent);
        drop((ring, request));
        assert_eq!(home.strong_count(), 0);
        assert_eq!(place.map(|place| place.strong_count()), Some(0));
    }
}
