//! Draining a queue: what its owner does when it reaps, and what any thread of the volume may do on its behalf.
//!
//! Input: the device's ended bios and the inbox. Output: finished requests on the ready list, holds released, work for
//! workers. Invariants: nothing here waits for I/O or for another request; a foreign drain leaves the completions for
//! the owner. Limits: runs under the queue's lock.

use super::{QueueShared, QueueState, SlotState};
use crate::complete;
use crate::dio;
use crate::jobs::{Work, in_caller};
use crate::request::Completion;
use crate::threads::contained;
use crate::turn::Message;
use diorite_block::sync::{Condvar, MutexGuard};
use diorite_block::{Bio, BioError, BioErrorKind, BioList, forget_moved};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

impl QueueShared {
    /// Takes in everything that has happened, and pushes down what can go. Requests that went straight down and ended well go
    /// straight to `out`, if the owner is here; all others to the ready list. Says whether anything had happened.
    #[inline]
    pub(crate) fn drain(
        self: &Arc<Self>,
        state: &mut QueueState,
        out: Option<&mut Vec<Completion>>,
    ) -> bool {
        state.follow(&self.service, &self.volume);
        let mut reaped = std::mem::take(&mut state.reaped);
        if catch_unwind(AssertUnwindSafe(|| self.device.reap(&mut reaped))).is_err() {
            state.lost = true;
        }
        let some = !reaped.is_empty();
        if some {
            // As in submit: a list without a ring.
            let mut bios = Vec::from(reaped);
            match out {
                Some(out) => self.take_singles(state, &mut bios, out),
                None => bios.drain(..).for_each(|bio| self.take_bio(state, bio)),
            }
            reaped = BioList::from(bios);
        }
        state.reaped = reaped;
        let some = self.read_inbox(state) | some;
        self.push_down(state);
        some
    }

    /// A loop of its own, so that what it needs stays in registers.
    #[inline(never)]
    fn take_singles(
        self: &Arc<Self>,
        state: &mut QueueState,
        reaped: &mut Vec<Bio>,
        out: &mut Vec<Completion>,
    ) {
        out.reserve(reaped.len());
        let before = out.len();
        // Requests of one file mostly end together: those of the first bio's file leave its gate together. Those of others are counted, not
        // they: nothing is left to do for most.
        let Some(first) = reaped.first().map(|bio| state.slots[slot_of(bio)].file) else {
            return;
        };
        let mut of_others = 0;
        for bio in reaped.iter_mut() {
            let index = slot_of(bio);
            // What went down by the fast attempt ends inline, if it ends well: it owes nothing.
            let ended = if bio.result.is_ok() {
                state.slots.end_single(index, bio, out)
            } else {
                None
            };
            match ended {
                Some(file) if file == first => {}
                Some(file) => {
                    Self::leave(state, file, 1);
                    of_others += 1;
                }
                None => self.take_bio(state, std::mem::replace(bio, Bio::flush(0))),
            }
        }
        // Every one of them has given its memory away above.
        forget_moved(reaped);
        let ended = out.len() - before;
        Self::leave(state, first, ended - of_others);
        state.slots.note_ended(ended);
        state.counters.inline += ended as u64;
    }

    /// Counts `ended` requests of an attached file out. Mostly once per batch, so not part of its loop.
    #[inline(never)]
    fn leave(state: &mut QueueState, file: u32, ended: usize) {
        if ended > 0 {
            let file = state.files[file as usize]
                .as_mut()
                .expect("a file with requests stays attached");
            file.inode.gate.leave_many(&file.shard, ended as u64);
            file.requests -= u32::try_from(ended).expect("a queue has at most MAX_DEPTH slots");
        }
    }

    /// Takes a bio of a request of any kind. It comes as a whole: memory that is not the request's, as that of pads, goes with it.
    #[inline(never)]
    fn take_bio(self: &Arc<Self>, state: &mut QueueState, bio: Bio) {
        let index = slot_of(&bio);
        if bio.token & PAD != 0 {
            if state.slots.take_back_pad(index, bio.result) {
                complete::ended(self, state, index);
            }
            return;
        }
        if state.slots.is_single(index) {
            state.slots.generalise(index, &bio);
        }
        if state.slots.take_back(index, bio) {
            complete::ended(self, state, index);
        }
    }

    fn read_inbox(self: &Arc<Self>, state: &mut QueueState) -> bool {
        let some = !self.inbox.is_empty();
        // A message may end a request, which may release another one of this very queue.
        while !self.inbox.is_empty() {
            let mut messages = std::mem::take(&mut state.messages);
            self.inbox.take(&mut messages);
            for message in messages.drain(..) {
                self.receive(state, message);
            }
            state.messages = messages;
        }
        some
    }

    fn receive(self: &Arc<Self>, state: &mut QueueState, message: Message) {
        match message {
            Message::Restart(index) => dio::restart(self, state, index),
            Message::Mapped(index, view) => dio::mapped(self, state, index, &view),
            Message::Unmapped(index, error) => dio::refuse(self, state, index, error.into()),
            Message::Prepared(index, view) => dio::mapped(self, state, index, &view),
            Message::Unprepared(index, error) => dio::refuse(self, state, index, error.into()),
            Message::Served(index, buf, error) => dio::served(self, state, index, (buf, error)),
            Message::Held(index) => {
                debug_assert_eq!(state.slots[index].state, SlotState::Worker);
                state.slots[index].held = true;
                state.held += 1;
                state.counters.held_for_size += 1;
            }
            Message::Completed(index, error) => {
                let slot = &mut state.slots[index];
                if let Some(error) = error {
                    slot.fail(error.into());
                }
                state.held -= u32::from(std::mem::take(&mut slot.held));
                complete::ready(state, index);
            }
        }
    }

    /// Hands bios to the device, as many as it takes.
    #[inline]
    pub(crate) fn push_down(self: &Arc<Self>, state: &mut QueueState) {
        let only = state
            .bios
            .first()
            .filter(|bio| state.bios.len() == 1 && !bio.flags.fua);
        if state.runs_here && only.is_some() && state.own_bio.is_none() {
            state.own_bio = state.bios.pop();
        }
        if !state.bios.is_empty() {
            let mut bios = BioList::from(std::mem::take(&mut state.bios));
            let submitted = catch_unwind(AssertUnwindSafe(|| self.device.submit(&mut bios)));
            state.bios = Vec::from(bios);
            if submitted.is_err() {
                self.refuse_untaken(state);
            }
        }
        if state.lost {
            self.end_lost(state);
        }
    }

    /// The device has panicked as it took bios. What it has not taken fails: which bio it panicked at is not known.
    #[cold]
    fn refuse_untaken(self: &Arc<Self>, state: &mut QueueState) {
        state.lost = true;
        let gone = Err(BioError::new(BioErrorKind::Gone));
        for mut bio in std::mem::take(&mut state.bios) {
            bio.result = gone;
            self.take_bio(state, bio);
        }
    }

    /// The device has panicked. What it has not given back fails once it has nothing any more, and nothing waits for it to have room;
    /// before, any of that may still come back, or be written.
    #[cold]
    fn end_lost(self: &Arc<Self>, state: &mut QueueState) {
        let waits = !state.bios.is_empty() || state.own_bio.is_some() || state.runs_own;
        if !waits && self.device.in_flight() == 0 {
            state.lost = false;
            for index in 0..state.slots.count() {
                self.end_lost_of(state, index);
            }
        }
        self.tell_ready(state);
    }

    /// Ends a request whose bios, if some are missing, are lost, and its memory with them. What a single bio was is not known: it ends as
    /// a write.
    fn end_lost_of(self: &Arc<Self>, state: &mut QueueState, index: u32) {
        let bios = state.slots.with_device(index);
        if bios == 0 {
            return;
        }
        let mut lost = Bio::flush(u64::from(index));
        lost.result = Err(BioError::new(BioErrorKind::Gone));
        state.slots.forget_split(index);
        (1..bios).for_each(|_| {
            state.slots.take_back_pad(index, lost.result);
        });
        self.take_bio(state, lost);
    }

    /// Hands what ended requests owe to the workers.
    #[inline]
    pub(crate) fn hand_over(&self, state: &mut QueueState) {
        if !state.owed.is_empty() {
            self.service.workers.push_all(&mut state.owed);
        }
    }

    /// Does what ended requests owe, as far as that need not wait for others: whoever calls would sleep else. The rest goes to the
    /// workers. What has come from the device meanwhile stays there, or the workers would be woken for it if these are enough for the
    /// caller.
    #[cold]
    pub(super) fn run_owed<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'_, QueueState>,
    ) -> MutexGuard<'a, QueueState> {
        let mut owed = std::mem::take(&mut state.owed);
        drop(state);
        in_caller::run(&mut owed);
        let mut state = self.state.lock();
        state.owed.append(&mut owed);
        self.hand_over(&mut state);
        self.read_inbox(&mut state);
        self.push_down(&mut state);
        state
    }

    /// Runs the caller's only bio in its own thread. Blocks, without the lock; who drains this queue meanwhile finds a bio in flight.
    fn run_own_bio(self: &Arc<Self>, bio: Bio) {
        let mut lost = Bio::flush(bio.token);
        (lost.op, lost.pos, lost.len, lost.flags) = (bio.op, bio.pos, bio.len, bio.flags);
        let ran = contained(|| Ok(self.volume.device.run_here(bio)));
        let mut state = self.state.lock();
        state.runs_own = false;
        // With a panic goes the bio, and the request's memory with it.
        let ran = ran.unwrap_or_else(|_| {
            state.slots.forget_split(slot_of(&lost));
            lost.result = Err(BioError::new(BioErrorKind::Gone));
            Ok(lost)
        });
        match ran {
            Ok(bio) => self.take_bio(&mut state, bio),
            Err(bio) => {
                state.runs_here = false;
                state.bios.push(bio);
                self.push_down(&mut state);
            }
        }
    }

    /// Blocks until something may have happened, for a thread that takes completions out: gives the lock away, and comes back with it and
    /// without a kick, which stood for what the caller is going to see.
    pub(super) fn wait<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'_, QueueState>,
        min: usize,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, QueueState> {
        state.waiters += 1;
        self.sleep(state, min, timeout);
        self.waker.clear();
        let mut state = self.state.lock();
        state.waiters -= 1;
        state
    }

    /// Blocks until something may have happened. Gives the lock away, and leaves a kick standing.
    pub(super) fn sleep(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, QueueState>,
        min: usize,
        mut timeout: Option<Duration>,
    ) {
        if let Some(work) = state.own_work.pop_front() {
            drop(state);
            work.run();
            return;
        }
        if let Some(bio) = state.own_bio.take() {
            state.runs_own = true;
            drop(state);
            self.run_own_bio(bio);
            return;
        }
        let depends = state.depends();
        let pause = state.pause;
        drop(state);
        if depends {
            // What this caller waits for may sit in a queue whose owner does not come back.
            let progress = self.service.drain_others(self);
            self.state.lock().pause = if progress {
                super::SHORTEST_PAUSE
            } else {
                (2 * pause).min(super::LONGEST_PAUSE)
            };
            if progress {
                return;
            }
            timeout = Some(timeout.map_or(pause, |t| t.min(pause)));
        }
        if self.waker.is_kicked() {
            return;
        }
        self.device
            .wait(u32::try_from(min).unwrap_or(u32::MAX), timeout);
    }

    /// Drains the volume's other queues, whose owners may not come back: for a thread that has found nothing, while requests here may wait
    /// for theirs, and that does not wait itself. It looks once more.
    #[cold]
    pub(super) fn help_others<'a>(
        self: &'a Arc<Self>,
        state: MutexGuard<'_, QueueState>,
    ) -> MutexGuard<'a, QueueState> {
        drop(state);
        self.service.drain_others(self);
        self.state.lock()
    }

    /// Whoever is done with taking completions out tells the threads that sleep, as the kick that it has consumed may have been theirs: of
    /// what has ended, and that nothing is in use any more.
    pub(super) fn pass_on(&self, state: &QueueState) {
        let none_left = state.waiters > 0 && state.slots.used() == 0;
        if none_left || !state.ready.is_empty() {
            self.waker.kick();
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

    /// Drains on behalf of the owner: accounting and hand-off only, the completions stay here. Says whether anything had
    /// happened.
    pub(crate) fn drain_foreign(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let of_owner = |state: &QueueState| {
            let own_bio = state.own_bio.is_some();
            (state.ready.len(), state.own_work.len(), own_bio)
        };
        let before = of_owner(&state);
        let progress = self.drain(&mut state, None);
        self.hand_over(&mut state);
        // The owner may be asleep waiting for the very bios that were taken in here, or has to do what follows itself.
        if of_owner(&state) != before {
            drop(state);
            self.waker.kick();
        }
        progress
    }

    /// Drains until `done`, waiting in between; gives the lock, so that it stays so. What else has ended is told to the owner at once, by a
    /// kick that stands until the owner has looked: it is not cleared here, and this thread sleeps on something else meanwhile.
    pub(super) fn wait_until(
        self: &Arc<Self>,
        mut done: impl FnMut(&QueueState) -> bool,
    ) -> MutexGuard<'_, QueueState> {
        let mut pause = super::SHORTEST_PAUSE;
        loop {
            let mut state = self.state.lock();
            let before = state.ready.len();
            self.drain(&mut state, None);
            self.hand_over(&mut state);
            if done(&state) {
                self.pass_on(&state);
                return state;
            }
            if state.ready.len() > before {
                self.waker.kick();
            }
            let told = self.waker.is_kicked();
            self.sleep(state, 1, Some(super::LONGEST_PAUSE));
            if told {
                drop(Condvar::new().wait_timeout(self.state.lock(), pause));
                pause = (2 * pause).min(super::LONGEST_PAUSE);
            }
        }
    }

    /// Gives blocking work to whoever does it for this queue.
    pub(crate) fn hand_off(&self, state: &mut QueueState, work: Work) {
        match self.blocking_work {
            super::BlockingWork::Caller => state.own_work.push_back(work),
            super::BlockingWork::Workers => self.service.workers.push(work),
        }
    }
}

/// In a bio's token, above the 32 bits of its slot: it carries zeros, not a part of the request's memory.
pub(crate) const PAD: u64 = 0x1_0000_0000;

/// The slot that a bio belongs to.
#[inline(always)]
fn slot_of(bio: &Bio) -> u32 {
    // Every token is made from an index; a stranger's would not pass the pool's bounds.
    bio.token as u32
}
