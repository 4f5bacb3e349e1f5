//! The queue of a window whose sectors may be parts of blocks of the device below.
//!
//! Input: bios. Output: the same bios, ended. Invariants: a request of whole blocks goes down as it is; any other becomes a job
//! that reads blocks, and rewrites them under the range lock; no lock is held while a queue below, or another queue of the window,
//! is called. Limits: a request that waits for a block of another queue is looked after by polling, since the owner of that queue
//! need not reap.

use super::Shared;
use super::blocks::{Claim, Grant, Inbox, Key};
use super::job::{Job, Next, PART_BITS, Span};
use crate::bio::{Bio, BioError, BioErrorKind, BioList, BioOp};
use crate::device::{DeviceQueue, Waker};
use crate::sync::{DEVICE_SHARED, DEVICE_SUBMIT, Mutex, thread};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a waiter for other queues sleeps, at first and at most.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// A request that was taken and has not ended.
#[derive(Debug)]
struct Flight {
    /// Of the bio's submitter.
    token: u64,
    /// Position and length, as the submitter gave them.
    pos: u64,
    len: u64,
    hold: Option<Key>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The bio is in the queue below.
    Passed,
    /// A change of whole blocks waits for its claim.
    Parked(Box<Bio>),
    Job(Box<Job>),
}

#[derive(Debug, Default)]
struct State {
    flying: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// For the queue below, which was full.
    send: BioList,
    ended: BioList,
    /// For `reap`, so that it allocates nothing.
    reaped: BioList,
    taken: u32,
    jobs: u32,
    parked: u32,
    pause: Duration,
}

impl State {
    fn put(&mut self, flight: Flight) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        self.jobs += u32::from(matches!(flight.kind, Kind::Job(_)));
        self.flying[index] = Some(flight);
        index
    }

    fn get(&mut self, index: usize) -> &mut Flight {
        self.flying[index].as_mut().expect("it has not ended")
    }

    fn take(&mut self, index: usize) -> Flight {
        self.free.push(index);
        let flight = self.flying[index].take().expect("a request ends once");
        self.jobs -= u32::from(matches!(flight.kind, Kind::Job(_)));
        flight
    }

    fn end(&mut self, mut bio: Bio, result: Result<(), BioError>) {
        bio.result = result;
        self.ended.push_back(bio);
    }
}

/// A queue as the other queues of its window see it.
pub(super) struct Inner {
    below: Box<dyn DeviceQueue>,
    shared: Arc<Shared>,
    depth: u32,
    inbox: Arc<Inbox>,
    state: Mutex<State>,
}

pub(super) struct FineQueue {
    inner: Arc<Inner>,
}

impl FineQueue {
    pub(super) fn new(
        below: Box<dyn DeviceQueue>,
        shared: Arc<Shared>,
        depth: u32,
        waker: Arc<Waker>,
    ) -> FineQueue {
        let level = shared.lock_level;
        let inbox = Inbox {
            granted: Mutex::at_level(&DEVICE_SHARED, level, Vec::new()),
            waker,
        };
        let inner = Arc::new(Inner {
            below,
            depth,
            inbox: Arc::new(inbox),
            state: Mutex::at_level(&DEVICE_SUBMIT, level, State::default()),
            shared,
        });
        inner.shared.register(&inner);
        FineQueue { inner }
    }
}

impl Inner {
    /// Takes one bio: it ends here, goes to the list for the queue below, or waits for its claim.
    fn accept(&self, state: &mut State, mut bio: Bio) {
        let is_data = matches!(bio.op, BioOp::Read | BioOp::Write);
        let mut checked = self.shared.checked().check(&bio);
        if is_data && bio.len != bio.buf.len() as u64 {
            checked = Err(BioError::new(BioErrorKind::Invalid));
        }
        if checked.is_err() || bio.op != BioOp::Flush && bio.len == 0 {
            return state.end(bio, checked);
        }
        let (pos, len) = (bio.pos, bio.len);
        let mut span = self.shared.span(&bio);
        if bio.op == BioOp::Discard {
            // A discard promises nothing, so the parts of blocks at its ends stay as they are.
            span = span.inner();
            if span.len() == 0 {
                return state.end(bio, Ok(()));
            }
        }
        let is_whole = bio.op == BioOp::Flush || span.is_aligned();
        let is_zeroing = matches!(bio.op, BioOp::WriteZeroes | BioOp::WriteZeroesUnmap);
        if !is_whole && is_zeroing && !self.shared.below.geometry().write_zeroes {
            return state.end(bio, Err(BioError::new(BioErrorKind::Unsupported)));
        }
        if bio.op != BioOp::Flush {
            (bio.pos, bio.len) = (span.start, span.len());
        }
        let mut flight = Flight {
            token: bio.token,
            pos,
            len,
            hold: None,
            kind: Kind::Passed,
        };
        let nowait = bio.flags.nowait;
        let is_change = !matches!(bio.op, BioOp::Read | BioOp::Flush);
        flight.kind = match is_whole {
            true => Kind::Parked(Box::new(bio)),
            false => Kind::Job(Box::new(Job::new(bio, span))),
        };
        let index = state.put(flight);
        if !is_change {
            self.start(state, index);
            return;
        }
        self.claim(state, index, span.claim(), nowait);
    }

    /// Starts a change if its claim can be held; else it waits, unless it may not.
    fn claim(&self, state: &mut State, index: usize, claim: Claim, nowait: bool) {
        let mut blocks = self.shared.blocks.lock();
        match blocks.take(claim) {
            Ok(key) => {
                drop(blocks);
                state.get(index).hold = Some(key);
                let ended = self.start(state, index);
                self.release(state, Vec::from_iter(ended));
            }
            Err(_) if nowait => {
                drop(blocks);
                let bio = state.take(index).bio_that_waits();
                state.end(bio, Err(BioError::new(BioErrorKind::WouldBlock)));
            }
            Err(claim) => {
                blocks.wait(claim, self.inbox.clone(), index);
                drop(blocks);
                state.parked += 1;
            }
        }
    }

    /// Starts a request that may begin: its first bios go to the list for the queue below. Returns its claim if it has ended already.
    fn start(&self, state: &mut State, index: usize) -> Option<Key> {
        let token = (index as u64) << PART_BITS;
        let flight = state.get(index);
        let next = match std::mem::replace(&mut flight.kind, Kind::Passed) {
            Kind::Parked(mut bio) => {
                bio.token = token;
                state.send.push_back(*bio);
                return None;
            }
            Kind::Job(mut job) => {
                if flight.hold.is_some() {
                    self.shared.rewrites.fetch_add(1, Ordering::Relaxed);
                }
                let next = job.begin(token);
                flight.kind = Kind::Job(job);
                next
            }
            Kind::Passed => unreachable!("a request starts once"),
        };
        self.go_on(state, index, next)
    }

    /// Takes a bio of the queue below. Returns the claim that has ended with it.
    fn take_back(&self, state: &mut State, mut bio: Bio) -> Option<Key> {
        let index = usize::try_from(bio.token >> PART_BITS).expect("the token has an index");
        let next = match &mut state.get(index).kind {
            Kind::Job(job) => job.take_back(bio, (index as u64) << PART_BITS),
            Kind::Passed | Kind::Parked(_) => {
                let flight = state.take(index);
                (bio.token, bio.pos, bio.len) = (flight.token, flight.pos, flight.len);
                state.ended.push_back(bio);
                return flight.hold;
            }
        };
        self.go_on(state, index, next)
    }

    /// Does what comes next for a job. Returns its claim, if it has ended.
    fn go_on(&self, state: &mut State, index: usize, next: Next) -> Option<Key> {
        match next {
            Next::Wait => None,
            Next::Send(mut bios) => {
                state.send.append(&mut bios);
                None
            }
            Next::Ended(mut bio) => {
                let flight = state.take(index);
                (bio.token, bio.pos, bio.len) = (flight.token, flight.pos, flight.len);
                state.ended.push_back(bio);
                flight.hold
            }
        }
    }

    /// Ends claims, and tells the queues whose requests may begin because of that.
    fn release(&self, state: &mut State, mut keys: Vec<Key>) {
        let mut grants: Vec<Grant> = Vec::new();
        while !keys.is_empty() {
            let mut blocks = self.shared.blocks.lock();
            for key in keys.drain(..) {
                blocks.release(key, &mut grants);
            }
            drop(blocks);
            for (inbox, index, key) in grants.drain(..) {
                if Arc::ptr_eq(&inbox, &self.inbox) {
                    keys.extend(self.grant(state, index, key));
                } else {
                    inbox.granted.lock().push((index, key));
                    inbox.waker.kick();
                }
            }
        }
    }

    /// Starts a request whose claim is held now.
    fn grant(&self, state: &mut State, index: usize, key: Key) -> Option<Key> {
        state.parked -= 1;
        state.pause = SHORTEST_PAUSE;
        state.get(index).hold = Some(key);
        self.start(state, index)
    }

    /// Everything that can be done now: takes what has ended below, and submits what comes after it. Any thread may do it. Returns
    /// whether bios have ended.
    fn pump(&self) -> bool {
        let mut state = self.state.lock();
        let mut reaped = std::mem::take(&mut state.reaped);
        drop(state);
        self.below.reap(&mut reaped);
        let mut state = self.state.lock();
        let mut keys = Vec::new();
        for bio in reaped.drain(..) {
            keys.extend(self.take_back(&mut state, bio));
        }
        state.reaped = reaped;
        let granted = std::mem::take(&mut *self.inbox.granted.lock());
        for (index, key) in granted {
            keys.extend(self.grant(&mut state, index, key));
        }
        self.release(&mut state, keys);
        let ended = !state.ended.is_empty();
        drop(state);
        self.send();
        ended
    }

    /// Submits what waits for the queue below.
    fn send(&self) {
        let mut list = std::mem::take(&mut self.state.lock().send);
        if list.is_empty() {
            return;
        }
        self.below.submit(&mut list);
        if !list.is_empty() {
            let mut state = self.state.lock();
            list.append(&mut state.send);
            state.send = list;
        }
    }

    /// Does the work of the window's other queues: requests of this one wait for blocks, and their owners may not come back.
    fn help_others(&self) {
        for other in self.shared.queues() {
            if !std::ptr::eq(&*other, self) && other.pump() {
                other.inbox.waker.kick();
            }
        }
    }
}

impl Flight {
    /// The bio of a request that has not started, as it was submitted.
    fn bio_that_waits(self) -> Bio {
        let mut bio = match self.kind {
            Kind::Parked(bio) => *bio,
            Kind::Job(job) => job.into_bio(),
            Kind::Passed => unreachable!("it has not started"),
        };
        (bio.token, bio.pos, bio.len) = (self.token, self.pos, self.len);
        bio
    }
}

impl DeviceQueue for FineQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        Some(&*self.inner.below)
    }

    fn submit(&self, bios: &mut BioList) {
        let mut state = self.inner.state.lock();
        let room = (self.inner.depth - state.taken) as usize;
        let now = room.min(bios.len());
        state.taken += now as u32;
        for bio in bios.drain(..now) {
            self.inner.accept(&mut state, bio);
        }
        let ended = !state.ended.is_empty();
        drop(state);
        self.inner.send();
        if ended {
            self.inner.inbox.waker.kick();
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        self.inner.pump();
        let mut state = self.inner.state.lock();
        if state.parked > 0 {
            drop(state);
            self.inner.help_others();
            self.inner.pump();
            state = self.inner.state.lock();
        }
        let ended = state.ended.len();
        out.append(&mut state.ended);
        state.taken -= ended as u32;
        ended
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        let mut state = self.inner.state.lock();
        if !state.ended.is_empty() {
            return;
        }
        let mut timeout = timeout;
        if state.parked > 0 {
            let pause = state.pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            state.pause = pause * 2;
            timeout = Some(timeout.map_or(pause, |t| t.min(pause)));
        }
        // A job has several bios, one after the other.
        let min = if state.jobs > 0 { 1 } else { min };
        drop(state);
        self.inner.below.wait(min, timeout);
    }

    fn in_flight(&self) -> u32 {
        self.inner.state.lock().taken
    }
}

impl Drop for FineQueue {
    /// Jobs are done to their ends, though nobody reaps them. Another queue of the window may be helping for a moment.
    fn drop(&mut self) {
        let mut ended = BioList::new();
        while self.in_flight() > 0 {
            if self.reap(&mut ended) == 0 {
                // Not on the waker: other queues may share it, and its kicks are for them.
                std::thread::sleep(Duration::from_micros(200));
            }
            ended.clear();
        }
        while Arc::strong_count(&self.inner) > 1 {
            thread::yield_now();
        }
    }
}

/// The bytes of the device below that a bio of a window is about.
impl Shared {
    fn span(&self, bio: &Bio) -> Span {
        let start = bio.pos.wrapping_add(self.offset);
        Span {
            start,
            end: start.wrapping_add(bio.len),
            block: self.block,
        }
    }
}
