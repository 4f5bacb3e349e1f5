//! Draining a queue: what its owner does when it reaps, and what any thread of the volume may do on its behalf.
//!
//! Input: the device's ended bios and the inbox. Output: finished requests on the ready list, holds released, work for
//! workers. Invariants: nothing here waits for I/O or for another request; a foreign drain leaves the completions for
//! the owner. Limits: runs under the queue's lock.

use super::{LONGEST_PAUSE, SHORTEST_PAUSE};
use crate::complete;
use crate::dio;
use crate::jobs::in_caller;
use crate::request::Completion;
use crate::slots::{QueueShared, QueueState, SlotState};
use crate::threads::contained;
use crate::turn::Message;
use diorite_block::sync::{Condvar, MutexGuard};
use diorite_block::{Bio, BioError, BioErrorKind, BioList, forget_moved};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Takes in everything that has happened, and pushes down what can go. Requests that went straight down and ended well go
/// straight to `out`, if the owner is here; all others to the ready list. Says whether anything had happened.
#[inline]
pub(crate) fn drain(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    out: Option<&mut Vec<Completion>>,
) -> bool {
    state.follow(&queue.service, &queue.volume);
    let mut reaped = std::mem::take(&mut state.reaped);
    if catch_unwind(AssertUnwindSafe(|| queue.device.reap(&mut reaped))).is_err() {
        state.lost = true;
    }
    let some = !reaped.is_empty();
    if some {
        // As in submit: a list without a ring.
        let mut bios = Vec::from(reaped);
        match out {
            Some(out) => take_singles(queue, state, &mut bios, out),
            None => bios
                .drain(..)
                .for_each(|bio| complete::take_bio(queue, state, bio)),
        }
        reaped = BioList::from(bios);
    }
    state.reaped = reaped;
    let some = read_inbox(queue, state) | some;
    complete::push_down(queue, state);
    some
}

/// A loop of its own, so that what it needs stays in registers.
#[inline(never)]
fn take_singles(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    reaped: &mut Vec<Bio>,
    out: &mut Vec<Completion>,
) {
    out.reserve(reaped.len());
    let before = out.len();
    // Requests of one file mostly end together: those of the first bio's file leave its gate together. Those of others are counted, not
    // they: nothing is left to do for most.
    let Some(first) = reaped
        .first()
        .map(|bio| state.slots[complete::slot_of(bio)].file)
    else {
        return;
    };
    let mut of_others = 0;
    for bio in reaped.iter_mut() {
        let index = complete::slot_of(bio);
        // What went down by the fast attempt ends inline, if it ends well: it owes nothing.
        let ended = if bio.result.is_ok() {
            state.slots.end_single(index, bio, out)
        } else {
            None
        };
        match ended {
            Some(file) if file == first => {}
            Some(file) => {
                leave(state, file, 1);
                of_others += 1;
            }
            None => complete::take_bio(queue, state, std::mem::replace(bio, Bio::flush(0))),
        }
    }
    // Every one of them has given its memory away above.
    forget_moved(reaped);
    let ended = out.len() - before;
    leave(state, first, ended - of_others);
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

fn read_inbox(queue: &Arc<QueueShared>, state: &mut QueueState) -> bool {
    let some = !queue.inbox.is_empty();
    // A message may end a request, which may release another one of this very queue.
    while !queue.inbox.is_empty() {
        let mut messages = std::mem::take(&mut state.messages);
        queue.inbox.take(&mut messages);
        for message in messages.drain(..) {
            receive(queue, state, message);
        }
        state.messages = messages;
    }
    some
}

fn receive(queue: &Arc<QueueShared>, state: &mut QueueState, message: Message) {
    match message {
        Message::Restart(index) => dio::restart(queue, state, index),
        Message::Mapped(index, view) => dio::mapped(queue, state, index, &view),
        Message::Unmapped(index, error) => dio::refuse(queue, state, index, error.into()),
        Message::Prepared(index, view) => dio::mapped(queue, state, index, &view),
        Message::Unprepared(index, error) => dio::refuse(queue, state, index, error.into()),
        Message::Served(index, buf, error) => dio::served(queue, state, index, (buf, error)),
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

/// Hands what ended requests owe to the workers.
#[inline]
pub(crate) fn hand_over(queue: &QueueShared, state: &mut QueueState) {
    if !state.owed.is_empty() {
        queue.service.workers.push_all(&mut state.owed);
    }
}

/// Does what ended requests owe, as far as that need not wait for others: whoever calls would sleep else. The rest goes to the
/// workers. What has come from the device meanwhile stays there, or the workers would be woken for it if these are enough for the
/// caller.
#[cold]
pub(super) fn run_owed<'a>(
    queue: &'a Arc<QueueShared>,
    mut state: MutexGuard<'_, QueueState>,
) -> MutexGuard<'a, QueueState> {
    let mut owed = std::mem::take(&mut state.owed);
    drop(state);
    in_caller::run(&mut owed);
    let mut state = queue.lock();
    state.owed.append(&mut owed);
    hand_over(queue, &mut state);
    read_inbox(queue, &mut state);
    complete::push_down(queue, &mut state);
    state
}

/// Runs the caller's only bio in its own thread. Blocks, without the lock; who drains this queue meanwhile finds a bio in flight.
fn run_own_bio(queue: &Arc<QueueShared>, bio: Bio) {
    let mut lost = Bio::flush(bio.token);
    (lost.op, lost.pos, lost.len, lost.flags) = (bio.op, bio.pos, bio.len, bio.flags);
    let ran = contained(|| Ok(queue.volume.device.run_here(bio)));
    let mut state = queue.lock();
    state.runs_own = false;
    // With a panic goes the bio, and the request's memory with it.
    let ran = ran.unwrap_or_else(|_| {
        state.slots.forget_split(complete::slot_of(&lost));
        lost.result = Err(BioError::new(BioErrorKind::Gone));
        Ok(lost)
    });
    match ran {
        Ok(bio) => complete::take_bio(queue, &mut state, bio),
        Err(bio) => {
            state.runs_here = false;
            state.bios.push(bio);
            complete::push_down(queue, &mut state);
        }
    }
}

/// Blocks until something may have happened, for a thread that takes completions out: gives the lock away, and comes back with it and
/// without a kick, which stood for what the caller is going to see.
pub(super) fn wait<'a>(
    queue: &'a Arc<QueueShared>,
    mut state: MutexGuard<'_, QueueState>,
    min: usize,
    timeout: Option<Duration>,
) -> MutexGuard<'a, QueueState> {
    state.waiters += 1;
    sleep(queue, state, min, timeout);
    queue.waker.clear();
    let mut state = queue.lock();
    state.waiters -= 1;
    state
}

/// Blocks until something may have happened. Gives the lock away, and leaves a kick standing.
pub(super) fn sleep(
    queue: &Arc<QueueShared>,
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
        run_own_bio(queue, bio);
        return;
    }
    let depends = state.depends();
    let pause = state.pause;
    drop(state);
    if depends {
        // What this caller waits for may sit in a queue whose owner does not come back.
        let progress = drain_others(queue);
        queue.lock().pause = if progress {
            SHORTEST_PAUSE
        } else {
            (2 * pause).min(LONGEST_PAUSE)
        };
        if progress {
            return;
        }
        timeout = Some(timeout.map_or(pause, |t| t.min(pause)));
    }
    if queue.waker.is_kicked() {
        return;
    }
    queue
        .device
        .wait(u32::try_from(min).unwrap_or(u32::MAX), timeout);
}

/// Drains the volume's other queues, whose owners may not come back: for a thread that has found nothing, while requests here may wait
/// for theirs, and that does not wait itself. It looks once more.
#[cold]
pub(super) fn help_others<'a>(
    queue: &'a Arc<QueueShared>,
    state: MutexGuard<'_, QueueState>,
) -> MutexGuard<'a, QueueState> {
    drop(state);
    drain_others(queue);
    queue.lock()
}

/// Whoever is done with taking completions out tells the threads that sleep, as the kick that it has consumed may have been theirs: of
/// what has ended, and that nothing is in use any more.
pub(super) fn pass_on(queue: &QueueShared, state: &QueueState) {
    let none_left = state.waiters > 0 && state.slots.used() == 0;
    if none_left || !state.ready.is_empty() {
        queue.waker.kick();
    }
}

/// Drains on behalf of the owner: accounting and hand-off only, the completions stay here. Says whether anything had
/// happened.
pub(crate) fn drain_foreign(queue: &Arc<QueueShared>) -> bool {
    let mut state = queue.lock();
    let of_owner = |state: &QueueState| {
        let own_bio = state.own_bio.is_some();
        (state.ready.len(), state.own_work.len(), own_bio)
    };
    let before = of_owner(&state);
    let progress = drain(queue, &mut state, None);
    hand_over(queue, &mut state);
    // The owner may be asleep waiting for the very bios that were taken in here, or has to do what follows itself.
    if of_owner(&state) != before {
        drop(state);
        queue.waker.kick();
    }
    progress
}

/// Drains until `done`, waiting in between; gives the lock, so that it stays so. What else has ended is told to the owner at once, by a
/// kick that stands until the owner has looked: it is not cleared here, and this thread sleeps on something else meanwhile.
pub(super) fn wait_until(
    queue: &Arc<QueueShared>,
    mut done: impl FnMut(&QueueState) -> bool,
) -> MutexGuard<'_, QueueState> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let mut state = queue.lock();
        let before = state.ready.len();
        drain(queue, &mut state, None);
        hand_over(queue, &mut state);
        if done(&state) {
            pass_on(queue, &state);
            return state;
        }
        if state.ready.len() > before {
            queue.waker.kick();
        }
        let told = queue.waker.is_kicked();
        sleep(queue, state, 1, Some(LONGEST_PAUSE));
        if told {
            drop(Condvar::new().wait_timeout(queue.lock(), pause));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

/// Drains queues on behalf of their owners; says whether that made progress.
pub(super) fn drain_each<'a>(queues: impl Iterator<Item = &'a Arc<QueueShared>>) -> bool {
    queues.fold(false, |progress, queue| drain_foreign(queue) | progress)
}

/// Drains every queue of the volume but one.
fn drain_others(mine: &Arc<QueueShared>) -> bool {
    let queues = mine.service.open_queues();
    drain_each(queues.iter().filter(|queue| !Arc::ptr_eq(queue, mine)))
}
