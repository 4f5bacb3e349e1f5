//! Submits bios to the device and takes them back, also if the device panics.
//!
//! Input: bios on the queue's list; bios that ended. Output: requests whose last bio is back, ended. Invariants: each bio that the device
//! gives back is processed once; every bio that a panicking device loses fails its request. Limits: runs under the queue's lock.

use crate::slots::{Joined, PAD, QueueShared, QueueState};
use diorite_block::{Bio, BioError, BioErrorKind, BioList};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Processes an ended bio of any kind of request. Takes the bio by value, so that memory which is not the request's (of pads) is freed.
#[inline(never)]
pub(crate) fn take_bio(queue: &Arc<QueueShared>, state: &mut QueueState, bio: Bio) {
    let index = slot_of(&bio);
    if bio.token & PAD != 0 {
        if state.slots.take_back_pad(index, bio.result) {
            super::ended(queue, state, index);
        }
        return;
    }
    if state.slots.is_single(index) {
        state.slots.generalise(index, &bio);
    }
    if state.slots.take_back(index, bio) {
        super::ended(queue, state, index);
    }
}

/// Hands bios to the device, as many as it takes; the others stay on the list.
#[inline]
pub(crate) fn push_down(queue: &Arc<QueueShared>, state: &mut QueueState) {
    if state.limits.fua_flushes {
        keep_flushing(state);
    }
    if state.bios.len() <= state.most_here && state.own_bios.is_empty() {
        let goes_down = |bio: &Bio| bio.flags.fua || Joined::has(bio);
        if !state.bios.iter().any(goes_down) {
            state.own_bios.append(&mut state.bios);
        }
    }
    if let Some(joined) = &mut state.joined {
        joined.join(&mut state.bios, state.limits.max_transfer);
    }
    if !state.bios.is_empty() {
        let mut bios = BioList::from(std::mem::take(&mut state.bios));
        let submitted = catch_unwind(AssertUnwindSafe(|| queue.device.submit(&mut bios)));
        state.bios = Vec::from(bios);
        if submitted.is_err() {
            refuse_untaken(queue, state);
        }
    }
    if state.lost {
        end_lost(queue, state);
    }
}

/// Keeps writes that the host follows by a flush for the caller, who runs them with the account of flushes.
fn keep_flushing(state: &mut QueueState) {
    let flushing = state.bios.extract_if(.., |bio| bio.flags.fua);
    state.own_bios.extend(flushing);
}

/// The device has panicked in submit. All bios that it has not taken fail, as it is not known at which of them it panicked.
#[cold]
fn refuse_untaken(queue: &Arc<QueueShared>, state: &mut QueueState) {
    state.lost = true;
    let gone = Err(BioError::new(BioErrorKind::Gone));
    if let Some(joined) = &mut state.joined {
        // None of them has failed yet.
        joined.part(&mut state.bios, &mut Vec::new());
    }
    for mut bio in std::mem::take(&mut state.bios) {
        bio.result = gone;
        take_bio(queue, state, bio);
    }
}

/// The device has panicked. Bios that it has not given back fail as soon as it has none in flight and no bio waits for room; before that
/// any of them may still come back, or be written.
#[cold]
fn end_lost(queue: &Arc<QueueShared>, state: &mut QueueState) {
    let waits = !state.bios.is_empty() || !state.own_bios.is_empty() || state.runs_own;
    if !waits && queue.device.in_flight() == 0 {
        state.lost = false;
        if let Some(joined) = &mut state.joined {
            joined.forget();
        }
        for index in 0..state.slots.count() {
            end_lost_of(queue, state, index);
        }
    }
    queue.tell_ready(state);
}

/// Ends a request some of whose bios are lost, and its buffer with them. If it was a request of the fast attempt its operation is not
/// known: it ends as a write.
fn end_lost_of(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
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
    take_bio(queue, state, lost);
}

/// The slot of the request that a bio belongs to.
#[inline(always)]
pub(crate) fn slot_of(bio: &Bio) -> u32 {
    // Every token is made from a slot's index; any other value fails the bounds check of the pool.
    bio.token as u32
}
