//! The thread that reads the first device.
//!
//! Input: a plan, bufs that come back. Output: parts with their bytes, in the order in which they were read. Invariants: a part is planned
//! only when there is a place and, if bytes will be needed, a buf for it; when told to end, it waits for its reads and sends them, so what
//! was planned before the end has all been sent. Limits: none of its own.

use super::bufs::Bufs;
use super::plan::{Part, Plan, Zeros};
use super::{DEPTH, NAP};
use diorite_block::{Bio, BioError, BioList, Buf, DeviceQueue, Split, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// A part with its bytes: see [`super::Stage::take`].
pub(super) struct Fetched {
    pub(super) part: Part,
    pub(super) bytes: Result<Option<Buf>, BioError>,
}

/// See the module.
pub(super) struct Fetcher<'a> {
    pub(super) queue: Box<dyn DeviceQueue>,
    pub(super) waker: Arc<Waker>,
    pub(super) bufs: Bufs,
    pub(super) plan: Plan,
    pub(super) to: Sender<Fetched>,
    /// The waker of the thread that parts are sent to.
    pub(super) wakes: Arc<Waker>,
    pub(super) returned: Receiver<Option<Buf>>,
    pub(super) enough: &'a AtomicBool,
}

/// A read in flight: its part, and the rest of its buf.
struct Reading {
    part: Part,
    split: Split,
}

/// What the thread has in hand.
struct Hands {
    /// The part that is next.
    next: Option<Part>,
    reading: Vec<Option<Reading>>,
    free: Vec<usize>,
    todo: BioList,
    done: BioList,
    /// Parts that were planned and have not come back.
    out: usize,
}

impl Fetcher<'_> {
    /// Runs until the plan is done and sent, or enough was read.
    pub(super) fn run(mut self) {
        let places = self.bufs.count().min(DEPTH as usize);
        let mut hands = Hands {
            next: self.plan.next(),
            reading: (0..places).map(|_| None).collect(),
            free: (0..places).collect(),
            todo: BioList::new(),
            done: BioList::new(),
            out: 0,
        };
        loop {
            self.waker.clear();
            let returned = self.take_back(&mut hands);
            let begun = self.begin(&mut hands);
            let ended = self.reap(&mut hands);
            if begun || ended {
                self.wakes.kick();
            }
            let is_reading = hands.free.len() < places;
            if !is_reading && (hands.next.is_none() || self.is_enough()) {
                break;
            }
            match (returned || begun || ended, is_reading) {
                (true, _) => {}
                (false, true) => self.queue.wait(1, Some(NAP)),
                (false, false) => self.waker.wait(Some(NAP)),
            }
        }
        drop(self.to);
        self.wakes.kick();
    }

    /// Takes back the bufs and places of finished parts.
    fn take_back(&self, hands: &mut Hands) -> bool {
        let before = hands.out;
        for buf in self.returned.try_iter() {
            hands.out -= 1;
            buf.into_iter().for_each(|buf| self.bufs.put(buf));
        }
        hands.out < before
    }

    /// Begins parts while there are places and bufs.
    fn begin(&mut self, hands: &mut Hands) -> bool {
        let (before, places) = (hands.out, hands.reading.len());
        while hands.out < places && !self.is_enough() {
            let Some(part) = hands.next else { break };
            let Some(buf) = self.buf_for(&part) else {
                break;
            };
            hands.out += 1;
            match part.first {
                Zeros::Known => self.send(part, Ok(buf.map(zeroed))),
                Zeros::Unknown => {
                    let slot = hands.free.pop().expect("there are as many slots as places");
                    let mut split = Split::new(buf.expect("a part that is read has a buf"));
                    let bytes = split.take(part.read_len());
                    hands.todo.push_back(Bio::read(part.at, bytes, slot as u64));
                    hands.reading[slot] = Some(Reading { part, split });
                }
            }
            hands.next = self.plan.next();
        }
        hands.out > before
    }

    /// Submits reads, and sends those that ended.
    fn reap(&self, hands: &mut Hands) -> bool {
        self.queue.submit(&mut hands.todo);
        self.queue.reap(&mut hands.done);
        let some = !hands.done.is_empty();
        for bio in hands.done.drain(..) {
            let slot = usize::try_from(bio.token).expect("the token is a slot's number");
            let read = hands.reading[slot].take().expect("a read ends once");
            hands.free.push(slot);
            self.give(read, bio);
        }
        some
    }

    fn is_enough(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// The buf for a part: none if all are in use, an inner none if it needs none.
    fn buf_for(&self, part: &Part) -> Option<Option<Buf>> {
        match part.needs_bytes() {
            true => self.bufs.get(part.byte_len()).map(Some),
            false => Some(None),
        }
    }

    /// Sends an ended read.
    fn give(&self, read: Reading, bio: Bio) {
        let Reading { part, mut split } = read;
        split.absorb(bio.buf);
        let mut buf = split.join();
        let bytes = bio.result.map(|()| {
            // The device ends inside the part.
            buf.zero(part.read_len()..part.byte_len());
            Some(buf)
        });
        self.send(part, bytes);
    }

    fn send(&self, part: Part, bytes: Result<Option<Buf>, BioError>) {
        // Nobody receives any more only if the other thread has ended by a panic, which the scope passes on.
        let _ = self.to.send(Fetched { part, bytes });
    }
}

/// A buf whose bytes are those of its last user, as zeros.
fn zeroed(mut buf: Buf) -> Buf {
    let len = buf.len();
    buf.zero(0..len);
    buf
}
