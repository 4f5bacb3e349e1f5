//! The state of a queue: its slots, its attached files, its bios, under one lock.
//!
//! Input: none of its own. Output: [`QueueShared`], [`QueueState`]. Invariants: what the lock guards is changed by its holder only.
//! Limits: data only; the modules above work on it: `dio`, `complete`, `queue`.

use super::plan::Piece;
use super::{Attached, Fast, Inbox, Joined, Limits, Service, Slots};
use crate::disk::Condition;
use crate::inode::{Fs, Handle, Job};
use crate::jobs::Work;
use crate::policy::Policy;
use crate::request::{Completion, FileId, Request};
use crate::stats::Counters;
use crate::turn::{Mail, Message};
use diorite_block::sync::{Mutex, MutexGuard};
use diorite_block::{Bio, BioList, DeviceQueue, Waker};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// After so many bytes of writes a queue adds them to its volume's count.
const WRITTEN_UNTOLD: u64 = 4 << 20;

/// A flag in a bio's token, above the 32 bits of its slot: the bio writes padding zeros, and its memory is not the request's.
pub(crate) const PAD: u64 = 0x1_0000_0000;

/// Who runs the deferred work of a queue's requests, which may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockingWork {
    /// The volume's workers.
    Workers,
    /// The thread that waits in a blocking call, without a hop to a worker.
    Caller,
}

/// A queue, shared with gates and workers that have its requests.
pub(crate) struct QueueShared {
    pub(crate) service: Arc<Service>,
    pub(crate) volume: Arc<Fs>,
    pub(crate) device: Box<dyn DeviceQueue>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) inbox: Inbox,
    pub(crate) blocking_work: BlockingWork,
    pub(crate) state: Mutex<QueueState>,
}

impl std::fmt::Debug for QueueShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("volume", &self.volume.name())
            .finish_non_exhaustive()
    }
}

/// The part of a queue that its lock guards.
#[derive(Debug)]
pub(crate) struct QueueState {
    pub(crate) slots: Slots,
    pub(crate) files: Vec<Option<Attached>>,
    /// No place before it is free, so that attaching many files does not look at all of them each time.
    pub(crate) first_free: usize,
    /// Finished requests, in the order in which they ended.
    pub(crate) ready: VecDeque<u32>,
    /// Memory for the requests being submitted, if they are only a part of the caller's list.
    pub(crate) requests: Vec<Request>,
    /// How long an owner with parked requests waits at most before it drains other queues again; it doubles up to a limit.
    pub(crate) pause: Duration,
    /// Bios on their way to the device; those that it has no room for stay here.
    pub(crate) bios: Vec<Bio>,
    /// Neighbours among them go down together: of a queue of the page cache, whose files are many and small.
    pub(crate) joined: Option<Box<Joined>>,
    /// Memory for bios that the device gave back, while they are processed.
    pub(crate) reaped: BioList,
    pub(crate) messages: Vec<Message>,
    pub(crate) limits: Limits,
    /// The time of the current batch, in nanoseconds since 1970; 0 until a write of the batch needs it.
    pub(crate) now: u64,
    /// The policy of the current batch, and what it lets the fast attempt do.
    pub(crate) policy: Policy,
    /// The policy in the form in which the volume has it: comparing that takes one instruction of a batch, unpacking it takes 60.
    pub(crate) policy_word: u32,
    pub(crate) fast: Fast,
    /// Bytes of writes not yet added to the volume's count, as a shared counter per batch would cost too much.
    pub(crate) written: u64,
    /// The volume's condition at the start of the current batch.
    pub(crate) condition: Condition,
    /// Memory for the pieces of the request being planned.
    pub(crate) pieces: Vec<Piece>,
    /// Jobs of requests that ended in this pass; workers get them together.
    pub(crate) owed: Vec<Job>,
    /// Deferred work that the caller of a blocking call has to do itself.
    pub(crate) own_work: VecDeque<Work>,
    /// The bios of a blocking call that the caller runs in its own thread: a few, and those that the host follows by a flush.
    pub(crate) own_bios: Vec<Bio>,
    /// So many bios of a blocking call run in the calling thread, if there are no more. 0: the device cannot do that, or the queue is not
    /// one for blocking calls.
    pub(crate) most_here: usize,
    /// The device is polled for the bios of the fast attempt (rule C12).
    pub(crate) polls: bool,
    /// The caller is running one of `own_bios`.
    pub(crate) runs_own: bool,
    /// The device has panicked: some of the bios that it was given may never come back.
    pub(crate) lost: bool,
    /// How many requests are parked, on lists of gates and pending maps.
    pub(crate) parked: u32,
    /// How many requests have ended and wait for the size to move.
    pub(crate) held: u32,
    /// Threads that sleep, or are about to, and that a request in use may wake. The thread that reaps the last request kicks them.
    pub(crate) waiters: u32,
    pub(crate) counters: Counters,
}

impl QueueState {
    /// Takes the volume's current policy and condition for the next batch.
    #[inline]
    pub(crate) fn follow(&mut self, service: &Service, volume: &Fs) {
        let (word, condition) = (service.policy_word(), volume.condition());
        if self.written >= WRITTEN_UNTOLD {
            volume.note_written(std::mem::take(&mut self.written));
        }
        if word != self.policy_word || condition != self.condition {
            self.take_policy(word, condition);
        }
    }

    #[cold]
    fn take_policy(&mut self, word: u32, condition: Condition) {
        (self.policy_word, self.condition) = (word, condition);
        self.policy = Policy::unpack(word);
        self.fast = Fast::of(self.policy);
        if condition != Condition::Open {
            self.fast = self.fast.for_reading();
        }
    }

    /// Moves the finished requests to the owner's list.
    #[inline]
    pub(crate) fn hand_out(&mut self, out: &mut Vec<Completion>) {
        while let Some(index) = self.ready.pop_front() {
            out.push(self.slots.take(index));
        }
    }

    /// Notes a write of the file's data at the time of the batch, for mtime and ctime; cheap but for the first call per batch and file.
    #[inline]
    pub(crate) fn touch(now: &mut u64, file: &Handle) {
        if *now == 0 {
            *now = file.inode.volume.now_nanos();
        }
        file.inode.touch_from(&file.shard, *now);
    }

    /// Are there requests that may wait for requests of other queues?
    #[inline]
    pub(crate) fn depends(&self) -> bool {
        self.parked > 0 || self.held > 0
    }

    /// The attached file with this id; None if the id is not valid.
    pub(crate) fn attached(&self, file: FileId) -> Option<&Attached> {
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

    /// The attached file of the request in this slot.
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
    /// Are there requests that have not finished?
    pub(crate) fn busy(&self) -> bool {
        let state = self.state.lock();
        state.slots.used() != state.ready.len()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Gives blocking work to a worker, or to the caller of a blocking call, as this queue wants it.
    pub(crate) fn hand_off(&self, state: &mut QueueState, work: Work) {
        match self.blocking_work {
            crate::slots::BlockingWork::Caller => state.own_work.push_back(work),
            crate::slots::BlockingWork::Workers => self.service.workers.push(work),
        }
    }

    /// Kicks the owner if requests have finished without a kick, as those that need no device do. The owner may poll the descriptor; in a
    /// stack it may sleep, as the thread that submits need not be the one that waits, or as it goes to sleep right after a drain that has
    /// sent these requests down.
    #[inline]
    pub(crate) fn tell_ready(&self, state: &QueueState) {
        if !state.ready.is_empty() {
            self.waker.kick();
        }
    }
}
