//! A sync of the whole volume, as a request of a queue.
//!
//! Input: requests without a file. Output: jobs for a worker of class `sync`. Invariants: when the request ends, everything is durable
//! that was acknowledged before it was submitted. Limits: how such jobs share a commit is in the module `jobs`.

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
