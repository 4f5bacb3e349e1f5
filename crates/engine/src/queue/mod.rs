//! The queue module: requests in, completions out, exactly once each.
//!
//! Input: [`Request`]s, usually from one thread; ended bios; messages of gates and workers. Output: [`Completion`]s. Invariants: this is
//! the only place that replies; each accepted request has a slot, and all slots are allocated when the queue is opened; any thread of the
//! volume may drain a queue, only its owner takes completions out. Limits: the depth is fixed when the queue is opened; a full queue
//! leaves requests in the caller's list.
//!
//! # Who reaps, and blocking calls
//!
//! The accounting of a request does not depend on its submitter coming back to reap. Any thread of the volume may drain any queue: a
//! foreign drain does everything except handing completions out, and kicks the owner, who may sleep waiting for the very bios that the
//! drain took in. `File::quiesce`, `Volume::close`, the drop of a queue, and the owner of a parked request drain other queues while they
//! wait. For the same reason the io_uring rings of users' queues never defer task work to their submitter.
//!
//! `read_at`, `write_at` and `sync` go through a queue for blocking calls, one request at a time. The thread that waits for such a request
//! also runs its deferred work; if the request is one bio and the device can run it in the calling thread (`Device::run_here`: a
//! plain `pwrite` or `fdatasync`), that thread runs the bio too, without holding a lock, and if the device is memory some more: a queue
//! would have to hand them to other threads. Metadata and the log are read and written in the same way.

mod cached_file;
mod cached_space;
mod cached_step;
mod cached_write;
mod change;
mod drain;
mod file;
mod flusher;
mod lists;
mod page_io;
mod pool;
mod read_ahead;
mod std_io;
mod sync;

pub use file::File;
pub use lists::{Batch, Completions};
pub(crate) use pool::Pool;

use crate::complete;
use crate::dio;
use crate::disk::Condition;
use crate::error::Error;
use crate::inode::Handle;
use crate::locks::QUEUE;
use crate::policy::Policy;
pub use crate::request::MAX_REQUEST;
use crate::request::{Completion, FileId, Request};
use crate::slots::{
    Attached, BlockingWork, Fast, Inbox, Limits, QueueShared, QueueState, Service, Slots,
};
use crate::stats::Counters;
use diorite_block::sync::{Mutex, thread};
use diorite_block::{
    BioList, DeviceQueue, PolledQueue, PolledStats, PolledWaits, PolledWay, QueueOptions, Waker,
    forget_moved,
};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The pause, at first and at most, for which a caller with parked requests waits for its own device before it drains the volume's other
/// queues again. The pause doubles while those drains find nothing.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// So many bios of a blocking call are copied one after the other where the device is memory: a write into a new block, and zeros on both
/// sides of it. Of more of them several threads may copy at once.
const MOST_IN_MEMORY: usize = 3;

/// The generation for the next attached file, counted over all queues: so an id of one queue names no file of another. An atomic of std,
/// not of `diorite_block::sync`, as nothing is ordered by it.
static GENERATIONS: AtomicU32 = AtomicU32::new(1);

/// The largest depth of a queue, in requests.
pub const MAX_DEPTH: u32 = 32_768;

/// A queue of asynchronous requests to the files of one volume.
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
/// Send and Sync; meant for one thread at a time; threads that share a queue wait for each other's short critical sections. Dropping it
/// waits for what is in flight and discards completions that nobody has reaped. It must not be used in the child after a fork.
#[derive(Debug)]
pub struct Queue {
    pub(crate) shared: Arc<QueueShared>,
    /// How its waits have ended, if they look before they sleep.
    polled: Option<Arc<PolledStats>>,
}

impl Queue {
    /// Opens a queue of `depth` slots on the volume.
    pub(crate) fn open(
        service: &Arc<Service>,
        depth: u32,
        work: BlockingWork,
    ) -> Result<Queue, Error> {
        let depth = depth.clamp(1, MAX_DEPTH);
        let options = match work {
            // Its caller waits in it, and asks for no descriptor.
            BlockingWork::Caller => QueueOptions::waited_on(depth),
            BlockingWork::Workers => QueueOptions::new(depth)?,
        };
        let waker = options.waker.clone();
        Queue::open_with(service, depth, (work, None), options, waker)
    }

    /// As [`Queue::open`], but a wait looks for completions for up to `longest` before it sleeps.
    pub(crate) fn open_polled(
        service: &Arc<Service>,
        depth: u32,
        longest: Duration,
    ) -> Result<Queue, Error> {
        let depth = depth.clamp(1, MAX_DEPTH);
        let options = QueueOptions::new(depth)?;
        let waker = options.waker.clone();
        let work = BlockingWork::Workers;
        Queue::open_with(service, depth, (work, Some(longest)), options, waker)
    }

    /// As [`Queue::open`], for the queue of a loop device: it kicks the waker of the queue above, which is in `options`.
    pub(crate) fn open_under(
        service: &Arc<Service>,
        options: QueueOptions,
    ) -> Result<Queue, Error> {
        // Its requests are marked by no owner, so no ring is polled for them.
        let options = options.polled(None);
        let (depth, waker) = (options.depth.clamp(1, MAX_DEPTH), options.waker.clone());
        Queue::open_with(
            service,
            depth,
            (BlockingWork::Workers, None),
            options,
            waker,
        )
    }

    fn open_with(
        service: &Arc<Service>,
        depth: u32,
        (blocking_work, longest): (BlockingWork, Option<Duration>),
        options: QueueOptions,
        waker: Arc<Waker>,
    ) -> Result<Queue, Error> {
        let volume = &service.fs;
        volume.check_open()?;
        let below = &*volume.device;
        let (device, polled): (Box<dyn DeviceQueue>, _) = match longest {
            None => (below.open_queue(options)?, None),
            Some(longest) => {
                let queue = PolledQueue::open(below, options, volume.level, longest)?;
                let stats = queue.stats();
                (Box::new(queue), Some(stats))
            }
        };
        let way = polled.as_ref().map(|stats| stats.waits().way);
        let policy_word = service.policy_word();
        let policy = Policy::unpack(policy_word);
        let most_here = match blocking_work {
            BlockingWork::Caller if volume.device.is_memory() => MOST_IN_MEMORY,
            BlockingWork::Caller => 1,
            _ => 0,
        };
        let state = QueueState {
            slots: Slots::new(depth),
            files: Vec::new(),
            first_free: 0,
            ready: VecDeque::with_capacity(depth as usize),
            requests: Vec::new(),
            pause: SHORTEST_PAUSE,
            bios: Vec::with_capacity(depth as usize),
            joined: None,
            reaped: BioList::with_capacity(depth as usize),
            messages: Vec::new(),
            limits: match blocking_work {
                BlockingWork::Caller => Limits::of_caller(volume),
                BlockingWork::Workers => Limits::new(volume),
            },
            now: 0,
            policy,
            policy_word,
            fast: Fast::of(policy),
            written: 0,
            condition: Condition::Open,
            pieces: Vec::new(),
            owed: Vec::new(),
            own_work: VecDeque::new(),
            own_bios: Vec::new(),
            most_here,
            polls: way == Some(PolledWay::Device),
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
        Ok(Queue { shared, polled })
    }

    /// Makes a file known to the queue, once for many requests. The id is valid in this queue only, until [`Queue::detach`]: a request
    /// with an id that is not valid is accepted and fails with `NotAttached`.
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
        self.attach_handle(Handle::new(file.open_file()))
    }

    /// As [`Queue::attach`], for a handle that is not a caller's.
    fn attach_handle(&self, handle: Handle) -> Result<FileId, Error> {
        let attached = Attached::new(handle, GENERATIONS.fetch_add(1, Relaxed));
        let mut state = self.shared.lock();
        let from = state.first_free;
        let free = state.files[from..].iter().position(Option::is_none);
        let index = free.map_or(state.files.len(), |n| from + n);
        if index == state.files.len() {
            state.files.push(None);
        }
        state.first_free = index + 1;
        let generation = attached.generation;
        state.files[index] = Some(attached);
        Ok(FileId {
            index: u32::try_from(index).expect("fewer attached files than memory has bytes"),
            generation,
        })
    }

    /// Detaches a file; an unknown id is ignored. Blocks until the file's requests in this queue have ended; their completions can still
    /// be reaped.
    pub fn detach(&self, file: FileId) {
        let idle = |state: &QueueState| state.attached(file).is_none_or(|a| a.requests == 0);
        let mut state = drain::wait_until(&self.shared, idle);
        let index = file.index as usize;
        let detached = match state.attached(file).is_some() {
            true => state.files[index].take(),
            false => None,
        };
        if detached.is_some() {
            state.first_free = state.first_free.min(index);
        }
        drop(state);
        drop(detached);
    }

    /// Starts one request; blocks as [`Queue::submit`]. For many requests a list costs less.
    ///
    /// # Errors
    /// The request, if the queue is full: all slots hold requests that were not reaped yet.
    pub fn push(&self, request: Request) -> Result<(), Request> {
        let mut one = Some(request);
        self.submit_from(&mut one);
        one.map_or(Ok(()), Err)
    }

    /// Takes requests from the front of `batch` and starts them; returns how many. Requests for which there is no slot stay in the list.
    /// A request that fails a check is accepted, and its completion has the error. Does not block on I/O. It may wait for the queue's
    /// lock, and for requests without `nowait` for inode locks.
    pub fn submit(&self, batch: &mut VecDeque<Request>) -> usize {
        self.submit_from(batch)
    }

    /// As [`Queue::submit`], from any of the lists of [`Batch`]: `Vec`, `VecDeque`, `Option`. A list that is taken whole keeps its
    /// memory, and nothing is allocated. If a `Vec` is taken in part, its rest moves to the front.
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

    /// Moves completions to the end of `out`, a `Vec` or a `VecDeque`; returns how many. Blocks until at least `min` were moved,
    /// `timeout` has passed (None: no limit), or no request is in use any more; with `min` 0 it never blocks. While it waits it converts
    /// extents that its requests have written, and drains the volume's other queues if its requests may wait for requests there. `out`
    /// grows as needed: if it is used again, nothing is allocated.
    pub fn reap(&self, out: &mut impl Completions, min: usize, timeout: Option<Duration>) -> usize {
        out.fill(|list| self.reap_into(list, min, timeout))
    }

    /// Takes one completion. Blocks until there is one, `timeout` has passed (None: no limit), or no request is in use; returns None in
    /// the last two cases. For many completions [`Queue::reap`] costs less.
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
        // Cleared before the look at the queue, as by every waiter: a kick that is not cleared would keep a poll loop awake for nothing.
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

    /// As [`Queue::reap`] with `min` 0, for a loop device on this volume. It does not clear the waker, which is that of the top queue and
    /// may be cleared by its owner only: this may be called by any thread of the volume above, and without the kick the owner would go on
    /// sleeping. As the caller waits for none of the queues of this volume, the queues that these requests wait for are drained here.
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

    /// Requests that were accepted and not reaped yet.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.lock().slots.used()
    }

    /// Slots without a request: so many requests can be submitted now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.shared.lock().slots.free()
    }

    /// Blocks until about `min` completions may be there to reap, or `timeout` has passed (None: no limit). Meanwhile it does what its
    /// requests wait for, as [`Queue::reap`]. May return early without a reason.
    pub fn wait(&self, min: usize, timeout: Option<Duration>) {
        let timeout = timeout.filter(|timeout| deadline(Some(*timeout)).is_some());
        let mut state = self.shared.lock();
        if !state.ready.is_empty() {
            return;
        }
        // If no request is in use this waits for a submission; then it must not be woken because none is in use.
        let counted = u32::from(state.slots.used() > 0);
        state.waiters += counted;
        drain::sleep(&self.shared, state, min, timeout);
        let mut state = self.shared.lock();
        state.waiters -= counted;
        let others = state.waiters > 0;
        drop(state);
        // This thread may have consumed a kick that was meant for others, and its caller need not reap: so it tells the others what has
        // ended.
        if others {
            drain::drain_foreign(&self.shared);
        }
    }

    /// The number of slots.
    #[must_use]
    pub fn depth(&self) -> usize {
        let state = self.shared.lock();
        state.slots.used() + state.slots.free()
    }

    /// A descriptor for poll loops. It becomes readable when [`Queue::reap`] may have something to do. Do not read from it: the queue
    /// does.
    ///
    /// In a volume with several queues a request may wait for a request of another queue: for the exclusive turn on its file, or, an
    /// append, for the size to move. While the owner of that queue does not reap, nothing makes this descriptor readable. So poll with a
    /// timeout of some milliseconds while any request is in use, and reap after a timeout too.
    #[must_use]
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        // From now on every kick signals the descriptor, and every reap empties it, even of a signal that came after its kick was
        // consumed.
        self.shared.waker.kernel_signals();
        self.shared.waker.watch();
        self.signal_waker();
        self.shared.waker.as_fd()
    }

    /// Was the host short of descriptors when it was opened? Another one would be faster now.
    pub(crate) fn is_makeshift(&self) -> bool {
        self.shared.waker.is_makeshift()
    }

    /// Wakes the thread that waits for this queue, or the next that will.
    pub(crate) fn kick(&self) {
        self.shared.waker.kick();
    }

    /// Makes the device signal this queue's waker as [`Queue::eventfd`] needs it; for a queue whose waker belongs to the queue above it.
    pub(crate) fn signal_waker(&self) {
        self.shared.device.signal_waker();
    }

    /// The host gets memory back that bufs of requests were made over: what a ring has registered of it, it lets go. Memory of later
    /// requests may be registered again. Does not block on I/O.
    pub fn forget_memory(&self) {
        self.shared.device.forget_memory();
    }

    /// How the waits of [`Queue::reap`] for the device have ended, of a queue of [`crate::Volume::polled_queue`], which way it polls, and
    /// why the device is not polled if it is not; zeros for other queues.
    #[must_use]
    pub fn polled_waits(&self) -> PolledWaits {
        self.polled
            .as_ref()
            .map_or_else(PolledWaits::default, |stats| stats.waits())
    }

    /// The counters of this queue since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters.clone()
    }
}

/// When a timeout ends. None, which is never, for no timeout and for one beyond what the clock can represent.
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
        // A worker that has just posted its answer, or a foreign drain, may still hold the queue for an instant. A caller that drops
        // queue and volume and opens the image again must not find it in use because of that.
        while Arc::strong_count(&self.shared) > 1 {
            thread::yield_now();
        }
    }
}
