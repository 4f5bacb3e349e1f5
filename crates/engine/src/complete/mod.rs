//! The complete module: from the last ended bio of a request to the ready list.
//!
//! Input: requests whose bios have ended, from the queue's drain. Output: requests on the ready list, or a job for a worker. Invariants:
//! inline completion blocks on nothing; a request gives back its hold on the inode before it is ready; reads owe nothing and are always
//! inline. Limits: runs under the queue's lock; the deferred half, without that lock, is in the module `jobs`.

mod device;
mod volume;

pub(crate) use device::{push_down, slot_of, take_bio};

pub(crate) use self::volume::sync_volume;
use crate::error::{Error, Wait};
use crate::inode::Conversion;
use crate::inode::{Data, Durable, Job};
use crate::ioend::{Facts, Verdict, decide};
use crate::jobs::Work;
use crate::op::Op;
use crate::reason::Reason;
use crate::slots::{BlockingWork, QueueShared, QueueState, SlotState};
use crate::turn::Hold;
use diorite_block::{BioError, BioErrorKind, Device};
use std::sync::Arc;

/// All bios of the request are back: completes it inline, or defers it.
#[inline]
pub(crate) fn ended(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    let slot = &mut state.slots[index];
    let policy = slot.policy;
    let failed = slot.gather.finish();
    if let Some(error) = failed {
        note_failure(state, &*queue.volume.device, index, error);
    }
    let slot = &mut state.slots[index];
    if slot.op.writes() {
        debug_assert!(
            slot.entry.is_some() || !(slot.owes_map || slot.extends),
            "what has to be mapped, and what moves the size, is in the pending map"
        );
        let facts = Facts {
            failed: failed.is_some(),
            owes_flush: slot.owes_flush,
            owes_commit: slot.owes_commit,
            owes_map: slot.entry.is_some(),
            cached: slot.cached,
        };
        if let Verdict::Deferred(reason) = decide(policy.completion, facts) {
            return defer(queue, state, index, reason);
        }
    }
    inline(state, index);
}

#[cold]
fn note_failure(state: &mut QueueState, device: &dyn Device, index: u32, error: BioError) {
    let slot = &mut state.slots[index];
    // Rule G10: if a request with `nowait` would have to wait for the device, that is no I/O error.
    let error = match error.kind {
        BioErrorKind::WouldBlock => Error::WouldBlock(Wait::Device),
        _ => Error::of_bio(device, slot.op, slot.pos, slot.len, error),
    };
    slot.fail(error.into());
}

/// Completes the request in the thread that reaped it. Blocks on nothing.
#[inline]
pub(crate) fn inline(state: &mut QueueState, index: u32) {
    state.counters.inline += 1;
    let slot = &mut state.slots[index];
    slot.claim = None;
    let hold = std::mem::replace(&mut slot.hold, Hold::None);
    let file = state.files[slot.file as usize]
        .as_mut()
        .expect("a file with requests stays attached");
    match hold {
        Hold::InFlight => file.inode.gate.leave(&file.shard),
        Hold::Exclusive => file.inode.gate.end_turn(),
        Hold::None => {}
    }
    ready(state, index);
}

/// Makes a job of what the request owes, for a thread that may block.
#[cold]
pub(crate) fn defer(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32, reason: Reason) {
    state.counters.deferred[reason as usize] += 1;
    let bits = state.limits.block_bits;
    let slot = &mut state.slots[index];
    slot.state = SlotState::Worker;
    let durable = match (slot.owes_commit, slot.op) {
        (true, Op::Sync) => Durable::All,
        (true, _) if slot.flags.sync => Durable::All,
        (true, _) => Durable::Map,
        (false, _) if slot.owes_flush => Durable::Flush,
        (false, _) => Durable::No,
    };
    let entry = slot.entry.take();
    let conversion = (entry.is_some() || slot.extends).then(|| Conversion {
        entry,
        blocks: slot.pos >> bits..slot.end().div_ceil(1 << bits),
        bytes: slot.pos..slot.end(),
        extends: std::mem::take(&mut slot.extends),
        whole: slot.op == Op::WriteAtomic,
        passed: false,
        tail: slot.tail,
    });
    let failed = slot.error.is_some() || slot.begins_again;
    let hold = std::mem::replace(&mut slot.hold, Hold::None);
    let claim = slot.claim.take();
    // Taken here because the request's last bio is back.
    let ended = queue.volume.data_epoch();
    let began = slot.began.unwrap_or(ended);
    let data = match slot.op {
        Op::Sync | Op::DataSync => Data::All {
            since: began,
            ended,
        },
        _ => Data::Own { began, ended },
    };
    let file = state.file_of(index).handle();
    let job = Job {
        queue: queue.clone(),
        slot: index,
        file,
        hold,
        durable,
        data,
        conversion,
        failed,
        error: None,
        tid: None,
        claim,
        reported: false,
    };
    // Under a policy that defers every write each job is handed over alone, as in the implementations that the policy models. Other jobs
    // are collected, to share handles and commits.
    if reason == Reason::Policy || queue.blocking_work == BlockingWork::Caller {
        queue.hand_off(state, Work::Complete(job));
    } else {
        state.owed.push(job);
    }
}

/// Puts a finished request on the ready list.
#[inline]
pub(crate) fn ready(state: &mut QueueState, index: u32) {
    let slot = &mut state.slots[index];
    slot.state = SlotState::Ready;
    // There is no attached file if the request is one of the volume.
    if let Some(Some(attached)) = state.files.get_mut(slot.file as usize) {
        attached.requests -= 1;
    }
    // A read that was filled behind the file's end is always in parts, as only `issue_planned` sends such reads down, and it splits each.
    if slot.in_parts | slot.error.is_some() {
        tidy(state, index);
    }
    state.ready.push_back(index);
}

/// What only some requests need before they are reaped: joins the buffer, zeroes it between the end of the file and the end of its last
/// sector (a write has zeros there already), and counts failures.
#[cold]
fn tidy(state: &mut QueueState, index: u32) {
    state.slots.join(index);
    let slot = &mut state.slots[index];
    if slot.error.is_none() && slot.op == Op::Read {
        slot.buf.zero(slot.done as usize..slot.moved as usize);
    }
    state.counters.failed += u64::from(slot.error.is_some());
}

/// Ends a request that was refused before it was counted on any file: its file is not attached, or the volume is closed.
#[cold]
pub(crate) fn rejected(state: &mut QueueState, index: u32, error: Error) {
    let slot = &mut state.slots[index];
    slot.fail(error.into());
    slot.state = SlotState::Ready;
    state.counters.failed += 1;
    state.ready.push_back(index);
}
