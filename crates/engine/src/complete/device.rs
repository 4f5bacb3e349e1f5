//! Bios to the device and back: what it takes, what it gives back, what it has lost.
//!
//! Input: bios on the queue's list; bios that ended. Output: requests whose last bio is back, ended. Invariants: a bio that the device has
//! given back is looked at once; a device that panics loses nothing that is not told. Limits: runs under the queue's lock.

use crate::slots::{PAD, QueueShared, QueueState};
use diorite_block::{Bio, BioError, BioErrorKind, BioList};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Takes a bio of a request of any kind. It comes as a whole: memory that is not the request's, as that of pads, goes with it.
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

/// Hands bios to the device, as many as it takes.
#[inline]
pub(crate) fn push_down(queue: &Arc<QueueShared>, state: &mut QueueState) {
    let only = state
        .bios
        .first()
        .filter(|bio| state.bios.len() == 1 && !bio.flags.fua);
    if state.runs_here && only.is_some() && state.own_bio.is_none() {
        state.own_bio = state.bios.pop();
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

/// The device has panicked as it took bios. What it has not taken fails: which bio it panicked at is not known.
#[cold]
fn refuse_untaken(queue: &Arc<QueueShared>, state: &mut QueueState) {
    state.lost = true;
    let gone = Err(BioError::new(BioErrorKind::Gone));
    for mut bio in std::mem::take(&mut state.bios) {
        bio.result = gone;
        take_bio(queue, state, bio);
    }
}

/// The device has panicked. What it has not given back fails once it has nothing any more, and nothing waits for it to have room;
/// before, any of that may still come back, or be written.
#[cold]
fn end_lost(queue: &Arc<QueueShared>, state: &mut QueueState) {
    let waits = !state.bios.is_empty() || state.own_bio.is_some() || state.runs_own;
    if !waits && queue.device.in_flight() == 0 {
        state.lost = false;
        for index in 0..state.slots.count() {
            end_lost_of(queue, state, index);
        }
    }
    queue.tell_ready(state);
}

/// Ends a request whose bios, if some are missing, are lost, and its memory with them. What a single bio was is not known: it ends as
/// a write.
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

/// The slot that a bio belongs to.
#[inline(always)]
pub(crate) fn slot_of(bio: &Bio) -> u32 {
    // Every token is made from an index; a stranger's would not pass the pool's bounds.
    bio.token as u32
}
