//! A sync of the whole volume, as a request.
//!
//! Input: requests without a file, from queues. Output: messages to their queues. Invariants: what was acknowledged before a request was
//! submitted is durable when it is; one commit serves all requests that had been submitted when it began; all that were under way together
//! are told of a failed flush. Limits: it blocks, so it runs on a worker.

use crate::jobs::{VolumeJob, Work};
use crate::reason::Reason;
use crate::slots::{QueueShared, QueueState, SlotState};
use std::sync::Arc;

/// Hands the request to a worker.
#[cold]
pub(crate) fn sync_volume(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    state.counters.deferred[Reason::Commit as usize] += 1;
    state.slots[index].state = SlotState::Worker;
    let job = VolumeJob {
        fs: queue.volume.clone(),
        queue: queue.clone(),
        slot: index,
        since: queue.volume.told.since(),
    };
    queue.hand_off(state, Work::SyncVolume(job));
}
