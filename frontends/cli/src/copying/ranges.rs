//! Reads ranges of one device and hands them to a second device: to be written there, or to be compared with what is there.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `plan` | how both devices store their bytes -> parts, in order |
//! | `bufs` | a length -> a buf of a fixed pool |
//! | `fetch` | parts -> their bytes, read by a thread of its own |
//! | `write` | bytes, ranges of zeros -> writes |
//! | `equal` | bytes, and those of the other device -> the first difference |
//!
//! Input: two devices, a plan, a [`Stage`] for the second device. Output: what the stage found; the first failure. Invariants: each device
//! has a queue, and a thread that waits for it alone, so reads and writes overlap; each part in flight has a place, and its bytes a buf of
//! the pool, so memory is bounded whatever the devices say; after a failure, or an interrupt, everything in flight is waited for. Limits:
//! those of the pool.

mod bufs;
mod equal;
mod fetch;
mod plan;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use bufs::{Bufs, LARGE};
pub(crate) use equal::{Equal, Found};
pub(crate) use plan::{Part, Plan, Zeros};
pub(crate) use write::{Gaps, Write, Written};

use diorite_block::{
    Bio, BioError, BioList, Buf, Device, DeviceError, DeviceQueue, QueueOptions, Waker,
};
use fetch::{Fetched, Fetcher};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::Duration;

/// Bios that a queue takes at once.
const DEPTH: u32 = 512;
/// How long a thread sleeps at most before it looks whether it was interrupted.
const NAP: Duration = Duration::from_millis(100);

/// Which device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one that is read.
    First,
    /// The other one.
    Second,
}

/// Why a run did not do everything.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A request failed.
    Request {
        side: Side,
        /// What was done there, as in "cannot read".
        doing: &'static str,
        at: u64,
        error: BioError,
    },
    /// A queue could not be opened.
    Queue(Side, DeviceError),
    /// A signal arrived.
    Interrupted,
}

impl Failure {
    /// The side that it is about; none for an interrupt.
    pub(crate) fn side(&self) -> Option<Side> {
        match self {
            Failure::Request { side, .. } | Failure::Queue(side, _) => Some(*side),
            Failure::Interrupted => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Request {
                doing, at, error, ..
            } => write!(f, "cannot {doing} at byte {at}: {error}"),
            Failure::Queue(_, error) => write!(f, "cannot open a queue: {error}"),
            Failure::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// What becomes of parts at the second device. `todo` is where bios for it go; each ends in [`Stage::ended`].
pub(crate) trait Stage {
    /// Takes a part: with its bytes in a buf that may be longer, or without if they are known to be zeros; or why it could not be read.
    fn take(&mut self, part: Part, bytes: Result<Option<Buf>, BioError>, todo: &mut BioList);
    /// Takes an ended bio.
    fn ended(&mut self, bio: Bio, todo: &mut BioList);
    /// A part that is finished, with its buf.
    fn finished(&mut self) -> Option<(Part, Option<Buf>)>;
    /// Whether later parts are of no interest.
    fn is_enough(&self) -> bool;
    /// Whether bios that were not submitted are of no interest either.
    fn gives_up(&self) -> bool;
}

/// Runs a plan: see the module. `step` is called with the ends of finished parts.
///
/// # Errors
/// A queue cannot be opened; interrupted. What else fails is the stage's to tell.
pub(crate) fn run(
    (first, second): (&Arc<dyn Device>, &Arc<dyn Device>),
    plan: Plan,
    bufs: Bufs,
    stage: &mut impl Stage,
    (stop, step): (&AtomicBool, &mut dyn FnMut(u64)),
) -> Result<(), Failure> {
    let opened = |side, device: &Arc<dyn Device>| {
        let options = QueueOptions::new(DEPTH).map_err(|e| Failure::Queue(side, e))?;
        let waker = options.waker.clone();
        let queue = device.open_queue(options);
        Ok((queue.map_err(|e| Failure::Queue(side, e))?, waker))
    };
    let (reads, reader) = opened(Side::First, first)?;
    let (queue, waker) = opened(Side::Second, second)?;
    let enough = AtomicBool::new(false);
    let (to, parts) = channel();
    let (back, returned) = channel();
    let mut second = Second {
        queue,
        waker: waker.clone(),
        reader: reader.clone(),
        parts,
        back,
        todo: BioList::new(),
        done: BioList::new(),
        in_flight: 0,
        open: true,
    };
    std::thread::scope(|scope| {
        let fetcher = Fetcher {
            queue: reads,
            waker: reader.clone(),
            bufs,
            plan,
            to,
            wakes: waker,
            returned,
            enough: &enough,
        };
        let started = Builder::new().spawn_scoped(scope, move || fetcher.run());
        let missing = |e| DeviceError::host("cannot start a thread that reads", e);
        started.map_err(|e| Failure::Queue(Side::First, missing(e)))?;
        // Whatever ends this closure, the reader is told to end.
        let _ends = Ends(&enough, &reader);
        let mut interrupted = false;
        while !second.is_done() {
            interrupted |= stop.load(Ordering::Relaxed);
            if interrupted || stage.is_enough() {
                enough.store(true, Ordering::Relaxed);
            }
            second.turn(stage, interrupted, step);
        }
        match interrupted {
            true => Err(Failure::Interrupted),
            false => Ok(()),
        }
    })
}

/// The second device, and the caller's thread.
struct Second {
    queue: Box<dyn DeviceQueue>,
    waker: Arc<Waker>,
    reader: Arc<Waker>,
    parts: Receiver<Fetched>,
    back: Sender<Option<Buf>>,
    todo: BioList,
    done: BioList,
    in_flight: usize,
    /// The reader may send more.
    open: bool,
}

impl Second {
    fn is_done(&self) -> bool {
        !self.open && self.in_flight == 0 && self.todo.is_empty()
    }

    /// Does what can be done now; if that is nothing, sleeps until there may be something.
    fn turn(&mut self, stage: &mut impl Stage, interrupted: bool, step: &mut dyn FnMut(u64)) {
        self.waker.clear();
        let mut idle = !self.receive(stage);
        if interrupted || stage.gives_up() {
            self.todo.clear();
        }
        let before = self.todo.len();
        self.queue.submit(&mut self.todo);
        self.in_flight += before - self.todo.len();
        self.in_flight -= self.queue.reap(&mut self.done);
        idle &= self.done.is_empty();
        for bio in self.done.drain(..) {
            stage.ended(bio, &mut self.todo);
        }
        while let Some((part, buf)) = stage.finished() {
            step(part.at + part.len);
            // A reader that has ended needs none back.
            let _ = self.back.send(buf);
            idle = false;
        }
        match (idle, self.in_flight) {
            (false, _) => self.reader.kick(),
            (true, 0) => self.waker.wait(Some(NAP)),
            (true, _) => self.queue.wait(1, Some(NAP)),
        }
    }

    /// Takes the parts that the reader has sent; whether there was anything.
    fn receive(&mut self, stage: &mut impl Stage) -> bool {
        let mut some = false;
        while self.open {
            match self.parts.try_recv() {
                Ok(Fetched { part, bytes }) => stage.take(part, bytes, &mut self.todo),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.open = false,
            }
            some = true;
        }
        some
    }
}

/// Tells the reader to end when dropped.
struct Ends<'a>(&'a AtomicBool, &'a Waker);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.kick();
    }
}
