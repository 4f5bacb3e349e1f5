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

impl Fetcher<'_> {
    /// Runs until the plan is done and sent, or enough was read.
    pub(super) fn run(mut self) {
        let places = self.bufs.count().min(DEPTH as usize);
        let mut reading: Vec<Option<Reading>> = (0..places).map(|_| None).collect();
        let mut free: Vec<usize> = (0..places).collect();
        let (mut todo, mut done) = (BioList::new(), BioList::new());
        // Parts that were planned and have not come back.
        let mut out = 0;
        let mut next = self.plan.next();
        loop {
            self.waker.clear();
            let mut idle = true;
            for buf in self.returned.try_iter() {
                out -= 1;
                buf.into_iter().for_each(|buf| self.bufs.put(buf));
                idle = false;
            }
            let mut sent = false;
            while let Some(part) = next.take_if(|_| out < places && !self.is_enough()) {
                let Some(buf) = self.buf_for(&part) else {
                    next = Some(part);
                    break;
                };
                out += 1;
                idle = false;
                if part.first == Zeros::Known {
                    sent |= self.send(part, Ok(buf.map(zeroed)));
                } else {
                    let slot = free.pop().expect("there are as many slots as places");
                    let mut split = Split::new(buf.expect("a part that is read has a buf"));
                    let bytes = split.take(part.read_len());
                    todo.push_back(Bio::read(part.at, bytes, slot as u64));
                    reading[slot] = Some(Reading { part, split });
                }
                next = self.plan.next();
            }
            self.queue.submit(&mut todo);
            self.queue.reap(&mut done);
            for bio in done.drain(..) {
                idle = false;
                let slot = usize::try_from(bio.token).expect("the token is a slot's number");
                let read = reading[slot].take().expect("a read ends once");
                free.push(slot);
                sent |= self.give(read, bio);
            }
            if sent {
                self.wakes.kick();
            }
            let is_reading = free.len() < places;
            if !is_reading && (next.is_none() || self.is_enough()) {
                break;
            }
            match (idle, is_reading) {
                (false, _) => {}
                (true, true) => self.queue.wait(1, Some(NAP)),
                (true, false) => self.waker.wait(Some(NAP)),
            }
        }
        drop(self.to);
        self.wakes.kick();
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
    fn give(&self, read: Reading, bio: Bio) -> bool {
        let Reading { part, mut split } = read;
        split.absorb(bio.buf);
        let mut buf = split.join();
        let bytes = bio.result.map(|()| {
            // The device ends inside the part.
            buf.zero(part.read_len()..part.byte_len());
            Some(buf)
        });
        self.send(part, bytes)
    }

    fn send(&self, part: Part, bytes: Result<Option<Buf>, BioError>) -> bool {
        // Nobody receives any more only if the other thread has ended by a panic, which the scope passes on.
        self.to.send(Fetched { part, bytes }).is_ok()
    }
}

/// A buf whose bytes are those of its last user, as zeros.
fn zeroed(mut buf: Buf) -> Buf {
    let len = buf.len();
    buf.zero(0..len);
    buf
}
