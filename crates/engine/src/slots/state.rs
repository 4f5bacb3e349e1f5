//! What a queue is made of: its slots, its files, its bios, under one lock.
//!
//! Input: none of its own. Output: [`QueueShared`], [`QueueState`]. Invariants: what the lock guards is changed by its holder only. Limits:
//! what is done with it is in the rooms above: `dio`, `complete`, `queue`.

use super::plan::Piece;
use super::{Attached, Fast, Inbox, Limits, Service, Slots};
use crate::disk::Condition;
use crate::inode::{Fs, Inode, Job};
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

/// Bytes of writes after which a queue tells its volume.
const WRITTEN_UNTOLD: u64 = 4 << 20;

/// In a bio's token, above the 32 bits of its slot: it carries zeros, not a part of the request's memory.
pub(crate) const PAD: u64 = 0x1_0000_0000;

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
    pub(crate) state: Mutex<QueueState>,
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
    pub(crate) condition: Condition,
    /// The pieces of the request being planned.
    pub(crate) pieces: Vec<Piece>,
    /// Completions of this pass that workers will be given together.
    pub(crate) owed: Vec<Job>,
    /// What the caller of a blocking call has to do itself.
    pub(crate) own_work: VecDeque<Work>,
    /// Of such a caller: its only bio, which it runs in its own thread.
    pub(crate) own_bio: Option<Bio>,
    /// The device can do that.
    pub(crate) runs_here: bool,
    /// The caller is at that bio.
    pub(crate) runs_own: bool,
    /// The device has panicked: of what it was given something may never come back.
    pub(crate) lost: bool,
    /// Requests on gates' lists.
    pub(crate) parked: u32,
    /// Requests that wait for the size to move over others.
    pub(crate) held: u32,
    /// Threads asleep, or about to be, that something in use may wake: who takes requests out tells them when nothing is left.
    pub(crate) waiters: u32,
    pub(crate) counters: Counters,
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
    pub(crate) fn hand_out(&mut self, out: &mut Vec<Completion>) {
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

    /// The attached file of this id, if it is.
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

    /// Gives blocking work to whoever does it for this queue.
    pub(crate) fn hand_off(&self, state: &mut QueueState, work: Work) {
        match self.blocking_work {
            crate::slots::BlockingWork::Caller => state.own_work.push_back(work),
            crate::slots::BlockingWork::Workers => self.service.workers.push(work),
        }
    }

    /// Tells the owner of requests that ended without a kick, as those do that need no device: it may poll the descriptor; in a stack it
    /// may be asleep, as who submits need not be who waits, or goes to sleep right after a drain that has sent them down.
    #[inline]
    pub(crate) fn tell_ready(&self, state: &QueueState) {
        if !state.ready.is_empty() {
            self.waker.kick();
        }
    }
}
