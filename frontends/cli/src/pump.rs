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
pub(crate) use plan::{Part, Plan};
pub(crate) use write::{Gaps, Write, Written};

use diorite_block::{Bio, BioError, BioList, Buf, Device, DeviceError, QueueOptions, Waker};
use fetch::{Fetched, Fetcher};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
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
    std::thread::scope(|scope| {
        let fetcher = Fetcher {
            queue: reads,
            waker: reader.clone(),
            bufs,
            plan,
            to,
            wakes: waker.clone(),
            returned,
            enough: &enough,
        };
        scope.spawn(move || fetcher.run());
        // Whatever ends this closure, the reader is told to end.
        let _ends = Ends(&enough, &reader);
        let (mut todo, mut done, mut in_flight, mut open) =
            (BioList::new(), BioList::new(), 0, true);
        let mut interrupted = false;
        while open || in_flight > 0 || !todo.is_empty() {
            waker.clear();
            let mut idle = true;
            while open {
                match parts.try_recv() {
                    Ok(Fetched { part, bytes }) => stage.take(part, bytes, &mut todo),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => open = false,
                }
                idle = false;
            }
            interrupted |= stop.load(Ordering::Relaxed);
            if interrupted || stage.gives_up() {
                todo.clear();
            }
            let before = todo.len();
            queue.submit(&mut todo);
            in_flight += before - todo.len();
            in_flight -= queue.reap(&mut done);
            idle &= done.is_empty();
            for bio in done.drain(..) {
                stage.ended(bio, &mut todo);
            }
            while let Some((part, buf)) = stage.finished() {
                step(part.at + part.len);
                // A reader that has ended needs none back.
                let _ = back.send(buf);
                idle = false;
            }
            if interrupted || stage.is_enough() {
                enough.store(true, Ordering::Relaxed);
            }
            if !idle {
                reader.kick();
            } else if in_flight > 0 {
                queue.wait(1, Some(NAP));
            } else {
                waker.wait(Some(NAP));
            }
        }
        match interrupted {
            true => Err(Failure::Interrupted),
            false => Ok(()),
        }
    })
}

/// Tells the reader to end when dropped.
struct Ends<'a>(&'a AtomicBool, &'a Waker);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.kick();
    }
}
