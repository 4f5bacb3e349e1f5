//! The queue room: requests in, completions out, exactly once each.
//!
//! Input: [`Request`]s from one thread, usually; bios that ended; messages of gates and workers. Output: [`Completion`]s.
//! Invariants: the only place that replies; one slot per accepted request, none allocated later; any thread of the volume
//! may drain a queue, only its owner takes completions out. Limits: the depth is fixed when the queue is opened; a full
//! queue leaves requests in the caller's list.

mod change;
mod drain;
mod file;
mod inbox;
mod lists;
mod service;
mod slot;
mod sync;

pub(crate) use drain::PAD;
pub use file::File;
pub(crate) use inbox::Inbox;
pub use lists::{Batch, Completions};
pub(crate) use service::Service;
pub(crate) use slot::{Slot, SlotState, Slots};
pub(crate) use sync::SyncQueue;

use crate::dio::{self, Fast, Limits, Piece};
use crate::disk::Condition;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Job;
use crate::inode::{Attached, Inode};
use crate::jobs::Work;
use crate::locks::QUEUE;
use crate::policy::Policy;
pub use crate::request::MAX_REQUEST;
use crate::request::{Completion, FileId, Request};
use crate::stats::Counters;
use crate::turn::{Mail, Message};
use diorite_block::sync::{Mutex, MutexGuard, thread};
use diorite_block::{Bio, BioList, DeviceQueue, QueueOptions, Waker, forget_moved};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a caller with parked requests waits for its own device before it drains the volume's other queues again: at
/// first, and at most. The pause doubles while those drains find nothing.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Bytes of writes after which a queue tells its volume.
const WRITTEN_UNTOLD: u64 = 4 << 20;

/// The generation of the file that is attached next, to whichever queue: the id that one queue has given names no file of another. Of the
/// host's own kind, as nothing is ordered by it.
static GENERATIONS: AtomicU32 = AtomicU32::new(1);

/// The largest depth of a queue.
pub const MAX_DEPTH: u32 = 32_768;

/// A queue of asynchronous requests over one volume.
///
/// Send and Sync; meant for one thread at a time, threads that share one wait for each other's short critical sections.
/// Dropping it waits for what is in flight and discards completions that nobody reaped. It must not be used in the
/// child after a fork.
#[derive(Debug)]
pub struct Queue {
    pub(crate) shared: Arc<QueueShared>,
}

/// Who does what a request owes that blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockingWork {
    /// The volume's workers.
    Workers,
    /// The thread that waits in a blocking call: no hop.
    Caller,
}

/// What a queue is made of, shared with gates and workers that hold its requests.
pub(crate) struct QueueShared {
    pub(crate) service: Arc<Service>,
    pub(crate) volume: Arc<Fs>,
    pub(crate) device: Box<dyn DeviceQueue>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) inbox: Inbox,
    pub(crate) blocking_work: BlockingWork,
    state: Mutex<QueueState>,
}

impl std::fmt::Debug for QueueShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("volume", &self.volume.name())
            .finish_non_exhaustive()
    }
}

/// What the queue's lock guards.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) slots: Slots,
    pub(crate) files: Vec<Option<Attached>>,
    /// Finished requests, in the order in which they ended.
    pub(crate) ready: VecDeque<u32>,
    /// Requests being taken in, when that is only a part of a batch.
    pub(crate) requests: Vec<Request>,
    /// How long the next wait of an owner with parked requests lasts at most.
    pub(crate) pause: Duration,
    /// Bios on their way to the device; what it does not take yet stays here.
    pub(crate) bios: Vec<Bio>,
    /// Bios that came back, while they are looked at.
    pub(crate) reaped: BioList,
    pub(crate) messages: Vec<Message>,
    pub(crate) limits: Limits,
    /// The time of the batch in hand, in nanoseconds since 1970; 0 until a write asks for it.
    pub(crate) now: u64,
    /// The policy of the batch in hand, and what it lets the fast attempt do.
    pub(crate) policy: Policy,
    pub(crate) fast: Fast,
    /// Bytes of writes that the volume has not been told of: that is not worth a shared counter per batch.
    pub(crate) written: u64,
    /// The volume's condition, as the batch in hand has found it.
    condition: Condition,
    /// The pieces of the request being planned.
    pub(crate) pieces: Vec<Piece>,
    /// Completions of this pass that workers will be given together.
    pub(crate) owed: Vec<Job>,
    /// What the caller of a blocking call has to do itself.
    pub(crate) own_work: VecDeque<Work>,
    /// Of such a caller: its only bio, which it runs in its own thread.
    own_bio: Option<Bio>,
    /// The device can do that.
    runs_here: bool,
    /// The caller is at that bio.
    runs_own: bool,
    /// The device has panicked: of what it was given something may never come back.
    lost: bool,
    /// Requests on gates' lists.
    pub(crate) parked: u32,
    /// Requests that wait for the size to move over others.
    pub(crate) held: u32,
    /// Threads asleep, or about to be, that something in use may wake: who takes requests out tells them when nothing is left.
    waiters: u32,
    pub(crate) counters: Counters,
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
        let mut state = self.shared.state.lock();
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
        let mut state = self.shared.wait_until(idle);
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
        let mut state = self.shared.state.lock();
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
            self.shared.push_down(&mut state);
            self.shared.hand_over(&mut state);
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
        let mut state = self.shared.state.lock();
        loop {
            self.shared.drain(&mut state, None);
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let over = left.is_some_and(|l| l.is_zero());
            if !state.owed.is_empty() && state.ready.is_empty() && !over {
                state = self.shared.run_owed(state);
            }
            self.shared.hand_over(&mut state);
            let first = state.ready.pop_front();
            if first.is_none() && over && state.depends() && !helped {
                (state, helped) = (self.shared.help_others(state), true);
                continue;
            }
            if first.is_some() || state.slots.used() == 0 || over {
                let one = first.map(|index| state.slots.take(index));
                self.shared.pass_on(&state);
                return one;
            }
            state = self.shared.wait(state, 1, left);
        }
    }

    fn reap_into(&self, out: &mut Vec<Completion>, min: usize, timeout: Option<Duration>) -> usize {
        let before = out.len();
        let deadline = deadline(timeout);
        let mut helped = false;
        // Before the look, as every waiter does: a kick left standing would keep a poll loop awake for nothing.
        self.shared.waker.clear();
        let mut state = self.shared.state.lock();
        loop {
            self.shared.drain(&mut state, Some(out));
            state.hand_out(out);
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let over = left.is_some_and(|l| l.is_zero());
            if !state.owed.is_empty() && out.len() - before < min && !over {
                state = self.shared.run_owed(state);
                state.hand_out(out);
            }
            self.shared.hand_over(&mut state);
            let got = out.len() - before;
            if got >= min || state.slots.used() == 0 || over {
                if got == 0 && state.depends() && !helped {
                    (state, helped) = (self.shared.help_others(state), true);
                    continue;
                }
                if state.waiters > 0 {
                    self.shared.pass_on(&state);
                }
                return got;
            }
            state = self.shared.wait(state, min - got, left);
        }
    }

    /// As [`Queue::reap`] with `min` 0, for the queue of a device that stands on this volume. The waker is that of the queue on top, and
    /// its owner's alone to clear: any thread of the volume above may come here, and a kick that it took away would leave the owner
    /// asleep. Whoever looks from above waits for none of the queues down here: what this queue's requests wait for is drained as well.
    pub(crate) fn reap_below(&self, out: &mut Vec<Completion>) {
        let mut state = self.shared.state.lock();
        for helped in [false, true] {
            self.shared.drain(&mut state, Some(out));
            state.hand_out(out);
            self.shared.hand_over(&mut state);
            if helped || !state.depends() {
                return;
            }
            state = self.shared.help_others(state);
        }
    }

    /// Requests accepted and not yet handed back.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.state.lock().slots.used()
    }

    /// Slots that could take a request now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.shared.state.lock().slots.free()
    }

    /// Blocks until about `min` requests may have finished, or the time is over; does meanwhile what may unblock them.
    /// May return early for no reason.
    pub fn wait(&self, min: usize, timeout: Option<Duration>) {
        let timeout = timeout.filter(|timeout| deadline(Some(*timeout)).is_some());
        let mut state = self.shared.state.lock();
        if !state.ready.is_empty() {
            return;
        }
        // With nothing in use it waits for a submission: it is not woken because nothing is in use.
        let counted = u32::from(state.slots.used() > 0);
        state.waiters += counted;
        self.shared.sleep(state, min, timeout);
        let mut state = self.shared.state.lock();
        state.waiters -= counted;
        let others = state.waiters > 0;
        drop(state);
        // What woke this thread may be consumed, and its caller need not reap: the others are told of what has ended.
        if others {
            self.shared.drain_foreign();
        }
    }

    /// Slots in all.
    #[must_use]
    pub fn depth(&self) -> usize {
        let state = self.shared.state.lock();
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
        self.shared.state.lock().counters.clone()
    }
}

/// When a timeout ends. One past what the clock can say never does.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut state = self
            .shared
            .wait_until(|state| state.slots.used() == state.ready.len());
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

impl QueueState {
    /// Takes the volume's policy and condition for the next batch.
    #[inline]
    pub(crate) fn follow(&mut self, service: &Service, volume: &Fs) {
        let (policy, condition) = (service.policy(), volume.condition());
        if self.written >= WRITTEN_UNTOLD {
            volume.note_written(std::mem::take(&mut self.written));
        }
        if policy != self.policy || condition != self.condition {
            (self.policy, self.condition) = (policy, condition);
            self.fast = Fast::of(policy);
            if condition != Condition::Open {
                self.fast = self.fast.for_reading();
            }
        }
    }

    /// Moves finished requests to the owner's list.
    #[inline]
    fn hand_out(&mut self, out: &mut Vec<Completion>) {
        while let Some(index) = self.ready.pop_front() {
            out.push(self.slots.take(index));
        }
    }

    /// Notes that the file's data was written: once per batch and file there is something to do.
    #[inline]
    pub(crate) fn touch(now: &mut u64, inode: &Arc<Inode>) {
        if *now == 0 {
            *now = inode.volume.now_nanos();
        }
        inode.touch(*now);
    }

    /// Are there requests that may wait for those of other queues?
    #[inline]
    pub(crate) fn depends(&self) -> bool {
        self.parked > 0 || self.held > 0
    }

    fn attached(&self, file: FileId) -> Option<&Attached> {
        self.files
            .get(file.index as usize)?
            .as_ref()
            .filter(|a| a.generation == file.generation)
    }

    pub(crate) fn attached_mut(&mut self, file: FileId) -> Option<&mut Attached> {
        self.files
            .get_mut(file.index as usize)?
            .as_mut()
            .filter(|a| a.generation == file.generation)
    }

    /// The attached file of a slot that holds a request of it.
    pub(crate) fn file_of(&self, slot: u32) -> &Attached {
        let index = self.slots[slot].file as usize;
        self.files[index]
            .as_ref()
            .expect("a file stays attached while a request of it is in a slot")
    }
}

impl Mail for QueueShared {
    fn post(&self, message: Message) {
        self.inbox.post([message]);
        self.waker.kick();
    }

    fn post_all(&self, messages: Vec<Message>) {
        self.inbox.post(messages);
        self.waker.kick();
    }
}

impl QueueShared {
    /// Are there requests whose completion is not ready?
    pub(crate) fn busy(&self) -> bool {
        let state = self.state.lock();
        state.slots.used() != state.ready.len()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }
}
