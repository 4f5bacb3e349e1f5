//! The queue room: requests in, completions out, exactly once each.
//!
//! Input: [`Request`]s from one thread, usually; bios that ended; messages of gates and workers. Output: [`Completion`]s.
//! Invariants: the only place that replies; one slot per accepted request, none allocated later; any thread of the volume
//! may drain a queue, only its owner takes completions out. Limits: the depth is fixed when the queue is opened; a full
//! queue leaves requests in the caller's list.
//!
//! # Who reaps, and blocking calls
//!
//! No request's accounting depends on its submitter coming back. Any thread of the volume may drain any queue: a foreign drain does
//! everything but hand completions out, and kicks the owner, who may be asleep waiting for the very bios that were taken in.
//! `File::quiesce`, `Volume::close`, dropping a queue and the owner of a parked request do that while they wait. So rings of queues
//! that users hold never defer task work to their submitter.
//!
//! `read_at`, `write_at` and `sync` go through a queue of their own, one request at a time. What such a request owes is done by the
//! thread that waits for it, and so is its bio, if it has one and the device can run it in the calling thread (`Device::run_here`: a
//! plain `pwrite` or `fdatasync`, outside every lock). Metadata and the log are read and written in the same way.

mod change;
mod drain;
mod file;
mod lists;
mod pool;
mod sync;

pub use file::File;
pub use lists::{Batch, Completions};
pub(crate) use pool::Pool;

use crate::complete;
use crate::dio;
use crate::disk::Condition;
use crate::error::Error;
use crate::locks::QUEUE;
pub use crate::request::MAX_REQUEST;
use crate::request::{Completion, FileId, Request};
use crate::slots::{
    Attached, BlockingWork, Fast, Inbox, Limits, QueueShared, QueueState, Service, Slots,
};
use crate::stats::Counters;
use diorite_block::sync::{Mutex, thread};
use diorite_block::{BioList, QueueOptions, Waker, forget_moved};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a caller with parked requests waits for its own device before it drains the volume's other queues again: at
/// first, and at most. The pause doubles while those drains find nothing.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The generation of the file that is attached next, to whichever queue: the id that one queue has given names no file of another. Of the
/// host's own kind, as nothing is ordered by it.
static GENERATIONS: AtomicU32 = AtomicU32::new(1);

/// The largest depth of a queue.
pub const MAX_DEPTH: u32 = 32_768;

/// A queue of asynchronous requests over one volume.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
/// use diorite::{Buf, OpenOptions, Request, Volume};
///
/// # fn main() -> Result<(), diorite::Error> {
/// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
/// let file = volume.create("/data", 0o644)?;
/// let queue = volume.queue(64)?;
/// let id = queue.attach(&file)?;
/// queue.push(Request::append(id, Buf::zeroed(4096), 7)).expect("it has room");
/// let done = queue.reap_one(None).expect("one is under way");
/// assert_eq!((done.token, done.result?), (7, 4096));
/// // Why requests did not go the fast way, each counted.
/// println!("{:?}", queue.counters());
/// # Ok(())
/// # }
/// ```
///
/// Send and Sync; meant for one thread at a time, threads that share one wait for each other's short critical sections.
/// Dropping it waits for what is in flight and discards completions that nobody reaped. It must not be used in the
/// child after a fork.
#[derive(Debug)]
pub struct Queue {
    pub(crate) shared: Arc<QueueShared>,
}

impl Queue {
    /// Opens a queue of `depth` slots on the volume.
    pub(crate) fn open(
        service: &Arc<Service>,
        depth: u32,
        work: BlockingWork,
    ) -> Result<Queue, Error> {
        let depth = depth.clamp(1, MAX_DEPTH);
        let options = QueueOptions::new(depth)?;
        let waker = options.waker.clone();
        Queue::open_with(service, depth, work, options, waker)
    }

    /// As [`Queue::open`], kicking the waker of the queue above in a stack of devices.
    pub(crate) fn open_under(
        service: &Arc<Service>,
        options: QueueOptions,
    ) -> Result<Queue, Error> {
        let (depth, waker) = (options.depth.clamp(1, MAX_DEPTH), options.waker.clone());
        Queue::open_with(service, depth, BlockingWork::Workers, options, waker)
    }

    fn open_with(
        service: &Arc<Service>,
        depth: u32,
        blocking_work: BlockingWork,
        options: QueueOptions,
        waker: Arc<Waker>,
    ) -> Result<Queue, Error> {
        let volume = &service.fs;
        volume.check_open()?;
        let device = volume.device.open_queue(options)?;
        let state = QueueState {
            slots: Slots::new(depth),
            files: Vec::new(),
            ready: VecDeque::with_capacity(depth as usize),
            requests: Vec::new(),
            pause: SHORTEST_PAUSE,
            bios: Vec::with_capacity(depth as usize),
            reaped: BioList::with_capacity(depth as usize),
            messages: Vec::new(),
            limits: Limits::new(volume),
            now: 0,
            policy: service.policy(),
            fast: Fast::of(service.policy()),
            written: 0,
            condition: Condition::Open,
            pieces: Vec::new(),
            owed: Vec::new(),
            own_work: VecDeque::new(),
            own_bio: None,
            runs_here: blocking_work == BlockingWork::Caller,
            runs_own: false,
            lost: false,
            parked: 0,
            held: 0,
            waiters: 0,
            counters: Counters::default(),
        };
        let shared = Arc::new(QueueShared {
            service: service.clone(),
            volume: volume.clone(),
            device,
            waker,
            inbox: Inbox::new(volume.level),
            blocking_work,
            state: Mutex::at_level(&QUEUE, volume.level, state),
        });
        service.register(&shared);
        Ok(Queue { shared })
    }

    /// Makes a file known to the queue, once for many requests. The id is good in this queue only, until [`Queue::detach`]: a request
    /// with another one comes back with `Invalid`.
    ///
    /// # Errors
    /// The file belongs to another volume, or is encrypted or protected by verity (refused by name).
    pub fn attach(&self, file: &File) -> Result<FileId, Error> {
        if !Arc::ptr_eq(&file.inode().volume, &self.shared.volume) {
            return Err(Error::Invalid(
                "the file belongs to another volume than the queue".into(),
            ));
        }
        file.inode().check_data_access()?;
        let attached = Attached::new(file.open_file(), GENERATIONS.fetch_add(1, Relaxed));
        let mut state = self.shared.lock();
        let index = state
            .files
            .iter()
            .position(Option::is_none)
            .unwrap_or(state.files.len());
        if index == state.files.len() {
            state.files.push(None);
        }
        let generation = attached.generation;
        state.files[index] = Some(attached);
        Ok(FileId {
            index: u32::try_from(index).expect("fewer attached files than memory has bytes"),
            generation,
        })
    }

    /// Forgets a file. Waits until its requests in this queue have ended; their completions stay to be reaped.
    pub fn detach(&self, file: FileId) {
        let idle = |state: &QueueState| state.attached(file).is_none_or(|a| a.requests == 0);
        let mut state = drain::wait_until(&self.shared, idle);
        let detached = state
            .attached(file)
            .is_some()
            .then(|| state.files[file.index as usize].take());
        drop(state);
        drop(detached);
    }

    /// Starts one request. Else as [`Queue::submit_from`]; for many, a list costs less.
    ///
    /// # Errors
    /// The request, if the queue is full: every slot has one that was not handed back yet.
    pub fn push(&self, request: Request) -> Result<(), Request> {
        let mut one = Some(request);
        self.submit_from(&mut one);
        one.map_or(Ok(()), Err)
    }

    /// Takes requests from the front of `batch` and starts them; says how many. What does not fit stays in the list.
    /// A request that fails a check is accepted and comes back with its error. Does not block on I/O, nor, for requests with
    /// `nowait`, on anything else.
    pub fn submit(&self, batch: &mut VecDeque<Request>) -> usize {
        self.submit_from(batch)
    }

    /// As [`Queue::submit`], from any of the lists of [`Batch`]: `Vec`, `VecDeque`, `Option`. A list that is taken whole keeps its room,
    /// and nothing is allocated; of a `Vec` that is not, the rest moves to the front.
    pub fn submit_from(&self, batch: &mut impl Batch) -> usize {
        let mut state = self.shared.lock();
        state.follow(&self.shared.service, &self.shared.volume);
        state.now = 0;
        let accepted = batch.count().min(state.slots.free());
        let mut requests = batch.lend(accepted, &mut state.requests);
        if state.condition == Condition::Closed {
            let each = requests.drain(..);
            each.for_each(|request| dio::shut_down(&mut state, request));
            self.shared.tell_ready(&state);
        } else {
            dio::accept(&self.shared, &mut state, &mut requests);
            forget_moved(&mut requests);
            complete::push_down(&self.shared, &mut state);
            drain::hand_over(&self.shared, &mut state);
        }
        batch.take_back(requests, &mut state.requests);
        accepted
    }

    /// Moves finished requests to the end of `out`, at least `min` of them unless `timeout` passes first or fewer are under way; says how
    /// many. `min` 0 never blocks. While it waits it does what may unblock its requests, and maps what they wrote. `out` is a `Vec` or a
    /// `VecDeque`; it is made longer for as many as there are, so one that is used again is not allocated again.
    pub fn reap(&self, out: &mut impl Completions, min: usize, timeout: Option<Duration>) -> usize {
        out.fill(|list| self.reap_into(list, min, timeout))
    }

    /// Takes one finished request, waiting for it until `timeout` passes: none then, nor if none is under way. For many, [`Queue::reap`]
    /// costs less.
    pub fn reap_one(&self, timeout: Option<Duration>) -> Option<Completion> {
        let deadline = deadline(timeout);
        let mut helped = false;
        self.shared.waker.clear();
        let mut state = self.shared.lock();
        loop {
            drain::drain(&self.shared, &mut state, None);
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let over = left.is_some_and(|l| l.is_zero());
            if !state.owed.is_empty() && state.ready.is_empty() && !over {
                state = drain::run_owed(&self.shared, state);
            }
            drain::hand_over(&self.shared, &mut state);
            let first = state.ready.pop_front();
            if first.is_none() && over && state.depends() && !helped {
                (state, helped) = (drain::help_others(&self.shared, state), true);
                continue;
            }
            if first.is_some() || state.slots.used() == 0 || over {
                let one = first.map(|index| state.slots.take(index));
                drain::pass_on(&self.shared, &state);
                return one;
            }
            state = drain::wait(&self.shared, state, 1, left);
        }
    }

    fn reap_into(&self, out: &mut Vec<Completion>, min: usize, timeout: Option<Duration>) -> usize {
        let before = out.len();
        let deadline = deadline(timeout);
        let mut helped = false;
        // Before the look, as every waiter does: a kick left standing would keep a poll loop awake for nothing.
        self.shared.waker.clear();
        let mut state = self.shared.lock();
        loop {
            drain::drain(&self.shared, &mut state, Some(out));
            state.hand_out(out);
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let over = left.is_some_and(|l| l.is_zero());
            if !state.owed.is_empty() && out.len() - before < min && !over {
                state = drain::run_owed(&self.shared, state);
                state.hand_out(out);
            }
            drain::hand_over(&self.shared, &mut state);
            let got = out.len() - before;
            if got >= min || state.slots.used() == 0 || over {
                if got == 0 && state.depends() && !helped {
                    (state, helped) = (drain::help_others(&self.shared, state), true);
                    continue;
                }
                if state.waiters > 0 {
                    drain::pass_on(&self.shared, &state);
                }
                return got;
            }
            state = drain::wait(&self.shared, state, min - got, left);
        }
    }

    /// As [`Queue::reap`] with `min` 0, for the queue of a device that stands on this volume. The waker is that of the queue on top, and
    /// its owner's alone to clear: any thread of the volume above may come here, and a kick that it took away would leave the owner
    /// asleep. Whoever looks from above waits for none of the queues down here: what this queue's requests wait for is drained as well.
    pub(crate) fn reap_below(&self, out: &mut Vec<Completion>) {
        let mut state = self.shared.lock();
        for helped in [false, true] {
            drain::drain(&self.shared, &mut state, Some(out));
            state.hand_out(out);
            drain::hand_over(&self.shared, &mut state);
            if helped || !state.depends() {
                return;
            }
            state = drain::help_others(&self.shared, state);
        }
    }

    /// Requests accepted and not yet handed back.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.lock().slots.used()
    }

    /// Slots that could take a request now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.shared.lock().slots.free()
    }

    /// Blocks until about `min` requests may have finished, or the time is over; does meanwhile what may unblock them.
    /// May return early for no reason.
    pub fn wait(&self, min: usize, timeout: Option<Duration>) {
        let timeout = timeout.filter(|timeout| deadline(Some(*timeout)).is_some());
        let mut state = self.shared.lock();
        if !state.ready.is_empty() {
            return;
        }
        // With nothing in use it waits for a submission: it is not woken because nothing is in use.
        let counted = u32::from(state.slots.used() > 0);
        state.waiters += counted;
        drain::sleep(&self.shared, state, min, timeout);
        let mut state = self.shared.lock();
        state.waiters -= counted;
        let others = state.waiters > 0;
        drop(state);
        // What woke this thread may be consumed, and its caller need not reap: the others are told of what has ended.
        if others {
            drain::drain_foreign(&self.shared);
        }
    }

    /// Slots in all.
    #[must_use]
    pub fn depth(&self) -> usize {
        let state = self.shared.lock();
        state.slots.used() + state.slots.free()
    }

    /// A descriptor that becomes readable when [`Queue::reap`] may have something to do: for poll loops. Reading it is
    /// the queue's business.
    ///
    /// Where a volume has several queues, a request may wait for one of another queue: for the turn on its file, or, an append, for the
    /// size to move. While the owner of that queue stays away, nothing makes this descriptor readable: poll with a timeout of some
    /// milliseconds while anything is in use, and reap after it too.
    #[must_use]
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        // Whoever polls sees every signal, also one made after its kick was consumed: each reap empties the descriptor.
        self.shared.waker.kernel_signals();
        self.shared.waker.watch();
        self.signal_waker();
        self.shared.waker.as_fd()
    }

    /// Tells who waits, or will, to come and reap.
    pub(crate) fn kick(&self) {
        self.shared.waker.kick();
    }

    /// As [`Queue::eventfd`], for a queue whose waker belongs to the queue above it.
    pub(crate) fn signal_waker(&self) {
        self.shared.device.signal_waker();
    }

    /// What this queue has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters.clone()
    }
}

/// When a timeout ends. One past what the clock can say never does.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut state = drain::wait_until(&self.shared, |state| {
            state.slots.used() == state.ready.len()
        });
        state.ready.clear();
        let files = std::mem::take(&mut state.files);
        let counters = std::mem::take(&mut state.counters);
        self.shared.volume.note_written(state.written);
        drop(state);
        drop(files);
        self.shared.service.retire(&self.shared, &counters);
        // A worker that has just reported, or a foreign drain, may still hold the queue for an instant. Who drops a queue,
        // a volume and opens the image again must not find it held by its own past.
        while Arc::strong_count(&self.shared) > 1 {
            thread::yield_now();
        }
    }
}
