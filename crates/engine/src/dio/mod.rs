//! The direct-I/O room: from a request in a slot to bios on their way down.
//!
//! Input: a request, fresh or restarted. Output: bios in the queue's list, or a finished, parked or handed-off request.
//! Invariants: the order is check, admit (lock, gate), size, map, plan, issue; nothing here blocks on I/O; a request that
//! is refused has touched nothing. Limits: runs under the queue's lock.

mod admit;
mod check;
mod issue;
mod plan;

pub(crate) use check::Limits;
pub(crate) use plan::Piece;

use crate::complete;
use crate::error::Error;
use crate::map::MapView;
use crate::queue::{Hold, Op, QueueShared, QueueState, Request};
use std::sync::Arc;

/// What became of an attempt to start a request.
#[derive(Debug)]
pub(crate) enum Started {
    /// Bios are on their way; the request ends with the last of them.
    Issued,
    /// It needs no device: it has ended.
    Done,
    /// It waits on a gate's list, or a worker has it.
    Away,
}

/// Takes a new request in and starts it.
#[inline]
pub(crate) fn accept(queue: &Arc<QueueShared>, state: &mut QueueState, request: Request) {
    let file = request.file;
    let Ok(index) = state.slots.put(request) else {
        unreachable!("the caller counted the free slots")
    };
    match state.attached_mut(file) {
        Some(attached) => attached.requests += 1,
        None => {
            state.slots[index].fail(Error::Invalid(
                "the request names a file that is not attached to its queue".into(),
            ));
            complete::ready_unattached(state, index);
            return;
        }
    }
    let outcome =
        check::check(queue, state, index).and_then(|()| admit_and_issue(queue, state, index));
    settle(state, index, outcome);
}

/// Starts a request again that a gate released: it holds what it waited for.
pub(crate) fn restart(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    state.parked -= 1;
    let wanted = state.slots[index].wanted;
    state.slots[index].hold = wanted;
    let outcome =
        check::check(queue, state, index).and_then(|()| admit_and_issue(queue, state, index));
    settle(state, index, outcome);
}

/// Goes on with a request whose part of the map a worker has loaded.
pub(crate) fn mapped(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    view: &Arc<MapView>,
) {
    let outcome = issue::map_and_issue(queue, state, index, Some(view));
    settle(state, index, outcome);
}

/// Ends a request that has not reached the device.
pub(crate) fn refuse(state: &mut QueueState, index: u32, error: Error) {
    state.slots[index].done = 0;
    state.slots[index].fail(error);
    complete::inline(state, index);
}

fn admit_and_issue(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
) -> Result<Started, Error> {
    match state.slots[index].op {
        Op::Read => admit::read(queue, state, index),
        Op::Write => admit::write(queue, state, index),
        Op::Sync { .. } => Ok(issue::flush(queue, state, index)),
    }
}

#[inline]
fn settle(state: &mut QueueState, index: u32, outcome: Result<Started, Error>) {
    match outcome {
        Ok(Started::Issued | Started::Away) => {}
        Ok(Started::Done) => complete::inline(state, index),
        Err(error) => refuse(state, index, error),
    }
}

/// What a slot holds when nothing has been granted to it yet.
fn is_fresh(state: &QueueState, index: u32) -> bool {
    state.slots[index].hold == Hold::None
}
