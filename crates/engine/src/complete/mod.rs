//! The complete room: what happens between a request's last bio and its place on the ready list.
//!
//! Input: ended requests from the queue's drain. Output: requests on the ready list, or work for a worker. Invariants:
//! inline completion blocks on nothing; a request gives back what it holds of its inode before it is ready; reads owe
//! nothing and are always inline. Limits: runs under the queue's lock, but for the deferred half.

pub(crate) mod deferred;

use self::deferred::Job;
use crate::error::Error;
use crate::ioend::{CachedPages, Facts, Reason, Verdict, decide};
use crate::queue::{Hold, Op, QueueShared, QueueState, SlotBuf, SlotState};
use crate::workers::Work;
use std::sync::Arc;

/// All bios of the request are back: decide, and complete it or hand it off.
#[inline]
pub(crate) fn ended(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    let slot = &mut state.slots[index];
    let failed = slot.gather.finish();
    slot.state = SlotState::Active;
    if let Some(error) = failed {
        let error = Error::Device {
            op: slot.op,
            pos: slot.pos,
            len: slot.len,
            error,
        };
        slot.fail(error);
    }
    match slot.op {
        Op::Read | Op::Sync { .. } => inline(state, index),
        Op::Write => {
            let facts = Facts {
                failed: failed.is_some(),
                owes_flush: slot.owes_flush,
                cached: CachedPages::None,
            };
            match decide(queue.volume.policy().completion, facts) {
                Verdict::Inline => inline(state, index),
                Verdict::Deferred(reason) => defer(queue, state, index, reason),
            }
        }
    }
}

/// Completes where it was reaped. Blocks on nothing.
#[inline]
pub(crate) fn inline(state: &mut QueueState, index: u32) {
    state.counters.inline += 1;
    zero_past_end(state, index);
    release(state, index);
    ready(state, index);
}

#[cold]
fn defer(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32, reason: Reason) {
    state.counters.deferred[reason as usize] += 1;
    let slot = &mut state.slots[index];
    slot.state = SlotState::Worker;
    let flush = slot.owes_flush && slot.error.is_none();
    let hold = std::mem::replace(&mut slot.hold, Hold::None);
    let file = state.file_of(index).handle();
    queue.hand_off(
        state,
        Work::Complete(Job {
            queue: queue.clone(),
            slot: index,
            file,
            hold,
            flush,
        }),
    );
}

/// Bytes between the end of the file and the end of its last sector are not the file's: the caller sees zeros.
#[inline]
fn zero_past_end(state: &mut QueueState, index: u32) {
    let slot = &mut state.slots[index];
    let (from, to) = (slot.done as usize, slot.zero_to as usize);
    if from < to && slot.op == Op::Read {
        if let SlotBuf::Parts(_) = &slot.buf {
            if let SlotBuf::Parts(split) = std::mem::take(&mut slot.buf) {
                slot.buf = SlotBuf::Whole(split.join());
            }
        }
        if let SlotBuf::Whole(buf) = &mut slot.buf {
            buf.zero(from..to);
        }
    }
}

/// Gives back what the request holds of its inode.
#[inline]
fn release(state: &mut QueueState, index: u32) {
    let hold = std::mem::replace(&mut state.slots[index].hold, Hold::None);
    let file = state.file_of(index);
    match hold {
        Hold::None => {}
        Hold::InFlight => file.inode.gate.leave(&file.shard),
        Hold::Turn => file.inode.gate.end_turn(),
    }
}

/// Puts a finished request on the ready list.
#[inline]
pub(crate) fn ready(state: &mut QueueState, index: u32) {
    let slot = &mut state.slots[index];
    let file = slot.file as usize;
    if slot.error.is_some() {
        state.counters.failed += 1;
    }
    if let Some(attached) = &mut state.files[file] {
        attached.requests -= 1;
    }
    ready_unattached(state, index);
}

/// The same for a request whose file was never found.
#[inline]
pub(crate) fn ready_unattached(state: &mut QueueState, index: u32) {
    state.slots[index].state = SlotState::Ready;
    state.ready.push_back(index);
}
