//! Draining a queue: what its owner does when it reaps, and what any thread of the volume may do on its behalf.
//!
//! Input: the device's ended bios and the inbox. Output: finished requests on the ready list, in-flight counts released, jobs for
//! workers. Invariants: no drain waits for I/O or for another request; a foreign drain leaves the completions for the owner. Limits: a
//! drain holds the queue's lock; functions that sleep release it first.

use super::{LONGEST_PAUSE, SHORTEST_PAUSE};
use crate::complete;
use crate::dio;
use crate::jobs::in_caller;
use crate::request::Completion;
use crate::slots::{QueueShared, QueueState, SlotState};
use crate::threads::contained;
use crate::turn::Message;
use diorite_block::sync::{Condvar, MutexGuard};
use diorite_block::{Bio, BioError, BioErrorKind, BioList, Buf, forget_moved};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Takes in ended bios and the inbox, and sends down bios for which the device has room. With `out` (the caller is the owner), requests of
/// the fast attempt that ended well go straight there; all others go to the ready list. Returns whether there was anything to take in.
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
        // A Vec is iterated with fewer instructions than a ring, as in submit.
        let mut bios = Vec::from(reaped);
        if let Some(joined) = &mut state.joined {
            joined.part(&mut bios, &mut state.bios);
        }
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

/// Completes bios that are a whole request each. A function of its own, so that what its loop needs stays in registers.
#[inline(never)]
fn take_singles(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    reaped: &mut Vec<Bio>,
    out: &mut Vec<Completion>,
) {
    out.reserve(reaped.len());
    let before = out.len();
    // Requests of one file mostly end together: those of the first bio's file leave its gate in one step. So the loop counts only
    // requests of other files, of which there are mostly none.
    let Some(first) = reaped
        .first()
        .map(|bio| state.slots[complete::slot_of(bio)].file)
    else {
        return;
    };
    let mut of_others = 0;
    for bio in reaped.iter_mut() {
        let index = complete::slot_of(bio);
        // A request of the fast attempt that ended well owes nothing, so it is completed here.
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
    // Each bio was moved out of, or has given its buffer away, in the loop above.
    forget_moved(reaped);
    let ended = out.len() - before;
    leave(state, first, ended - of_others);
    state.slots.note_ended(ended);
    state.counters.inline += ended as u64;
}

/// Takes `ended` requests of an attached file out of its in-flight count. Called mostly once per batch, so it stays out of the loop.
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
    // A message may end a request, and that may release another request of this very queue.
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
        Message::WrittenBack(index, error) => dio::written_back(queue, state, index, error),
        Message::Mapped(index, view) => dio::mapped(queue, state, index, &view),
        Message::Unmapped(index, error) => dio::refuse(queue, state, index, error.into()),
        Message::Prepared(index, view) => dio::mapped(queue, state, index, &view),
        Message::Unprepared(index, error) => dio::refuse(queue, state, index, error.into()),
        Message::NeedsTurn(index) => dio::begin_alone(queue, state, index),
        Message::Served(index, buf, error) => dio::served(queue, state, index, (buf, error)),
        Message::Held(index) => {
            debug_assert_eq!(state.slots[index].state, SlotState::Worker);
            state.slots[index].held = true;
            state.held += 1;
            state.counters.held_for_size += 1;
        }
        Message::Completed(index, error) => {
            let slot = &mut state.slots[index];
            state.held -= u32::from(std::mem::take(&mut slot.held));
            match error {
                None if slot.begins_again => dio::start_again(queue, state, index),
                error => {
                    error.into_iter().for_each(|e| slot.fail(e.into()));
                    complete::ready(state, index);
                }
            }
        }
    }
}

/// Hands the jobs of ended requests to the workers.
#[inline]
pub(crate) fn hand_over(queue: &QueueShared, state: &mut QueueState) {
    if !state.owed.is_empty() {
        queue.service.workers.push_all(&mut state.owed);
    }
}

/// Runs the jobs of ended requests in the calling thread, which would sleep otherwise, as far as they need not wait for others; the rest
/// goes to the workers. The device is not reaped afterwards: if the completions of these jobs are enough for the caller, jobs of
/// further bios would only wake the workers.
#[cold]
pub(super) fn run_owed<'a>(
    queue: &'a Arc<QueueShared>,
    mut state: MutexGuard<'_, QueueState>,
) -> MutexGuard<'a, QueueState> {
    let mut owed = std::mem::take(&mut state.owed);
    drop(state);
    in_caller::run(&mut owed);
    let mut state = queue.lock();
    if state.owed.is_empty() {
        state.owed = owed;
    } else {
        state.owed.append(&mut owed);
    }
    hand_over(queue, &mut state);
    read_inbox(queue, &mut state);
    complete::push_down(queue, &mut state);
    state
}

/// Runs a bio of a blocking call in its own thread. Blocks, without the queue's lock; a foreign drain meanwhile sees a bio in flight.
fn run_own_bio(queue: &Arc<QueueShared>, bio: Bio) {
    let mut lost = Bio::flush(bio.token);
    (lost.op, lost.pos, lost.len, lost.flags) = (bio.op, bio.pos, bio.len, bio.flags);
    let ran = contained(|| {
        Ok(match bio.flags.fua {
            true => Ok(queue.volume.blocking.write_and_flush(bio)),
            false => queue.volume.device.run_here(bio),
        })
    });
    let mut state = queue.lock();
    state.runs_own = false;
    // A panic loses the bio, and the request's buffer with it. What has not run yet does not run.
    let ran = ran.unwrap_or_else(|_| {
        lost.result = Err(BioError::new(BioErrorKind::Gone));
        for mut bio in std::mem::take(&mut state.own_bios) {
            (bio.buf, bio.result) = (Buf::empty(), lost.result);
            complete::take_bio(queue, &mut state, bio);
        }
        state.slots.forget_split(complete::slot_of(&lost));
        Ok(lost)
    });
    match ran {
        Ok(bio) => complete::take_bio(queue, &mut state, bio),
        Err(bio) => {
            state.most_here = 0;
            state.bios.push(bio);
            complete::push_down(queue, &mut state);
        }
    }
}

/// Blocks until something may have happened; for a thread that takes completions out. Releases the lock, and takes it again. Clears the
/// waker's kick: the caller looks at everything that the kick may have announced.
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

/// Blocks until something may have happened. Releases the lock, and does not clear the waker's kick.
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
    if let Some(bio) = state.own_bios.pop() {
        state.runs_own = true;
        drop(state);
        run_own_bio(queue, bio);
        return;
    }
    let depends = state.depends();
    let pause = state.pause;
    drop(state);
    if depends {
        // What this caller waits for may be in a queue whose owner does not come back to reap.
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

/// Drains the volume's other queues, whose owners may not come back to reap. For a thread that does not wait, has found nothing, and whose
/// requests may wait for requests there; it looks at its own queue once more afterwards.
#[cold]
pub(super) fn help_others<'a>(
    queue: &'a Arc<QueueShared>,
    state: MutexGuard<'_, QueueState>,
) -> MutexGuard<'a, QueueState> {
    drop(state);
    drain_others(queue);
    queue.lock()
}

/// Kicks the other threads that sleep on this queue, if there are completions left or no request is in use any more. A thread that stops
/// taking completions out calls this, as the kick that it has cleared may have been meant for the others.
pub(super) fn pass_on(queue: &QueueShared, state: &QueueState) {
    let none_left = state.waiters > 0 && state.slots.used() == 0;
    if none_left || !state.ready.is_empty() {
        queue.waker.kick();
    }
}

/// Drains a queue on behalf of its owner: accounting and hand-off of jobs only, the completions stay in the queue. Returns whether there
/// was anything to take in.
pub(crate) fn drain_foreign(queue: &Arc<QueueShared>) -> bool {
    let mut state = queue.lock();
    let of_owner = |state: &QueueState| {
        let own_bios = state.own_bios.len();
        (state.ready.len(), state.own_work.len(), own_bios)
    };
    let before = of_owner(&state);
    let progress = drain(queue, &mut state, None);
    hand_over(queue, &mut state);
    // The owner may sleep waiting for the very bios that were taken in here, or may have to run the work that follows itself.
    if of_owner(&state) != before {
        drop(state);
        queue.waker.kick();
    }
    progress
}

/// Drains until `done` holds, waiting in between; returns with the lock, so that it still holds. Other requests that ended are announced
/// to the owner by a kick at once. This function does not clear that kick, so it lasts until the owner has looked; meanwhile this thread
/// sleeps on a condition variable of its own.
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

/// Drains queues on behalf of their owners; returns whether any of them had anything to take in.
pub(super) fn drain_each<'a>(queues: impl Iterator<Item = &'a Arc<QueueShared>>) -> bool {
    queues.fold(false, |progress, queue| drain_foreign(queue) | progress)
}

/// Drains every queue of the volume but `mine`.
fn drain_others(mine: &Arc<QueueShared>) -> bool {
    let queues = mine.service.open_queues();
    drain_each(queues.iter().filter(|queue| !Arc::ptr_eq(queue, mine)))
}
