//! A sync of the whole volume, as a request.
//!
//! Input: requests without a file, from queues. Output: messages to their queues. Invariants: what was acknowledged before a request was
//! submitted is durable when it is; one commit serves all requests that had been submitted when it began; all that were under way together
//! are told of a failed flush. Limits: it blocks, so it runs on a worker.

use crate::delete;
use crate::error::Error;
use crate::queue::{Message, QueueShared, QueueState, SlotState};
use crate::reason::Reason;
use crate::threads::{Lead, Task, contained};
use crate::workers::Work;
use diorite_block::Epoch;
use std::sync::Arc;

/// One such request.
#[derive(Debug)]
pub(crate) struct VolumeJob {
    queue: Arc<QueueShared>,
    slot: u32,
    /// Of which failed flush the volume had been told when the request was submitted.
    since: Epoch,
}

/// Hands the request to a worker.
#[cold]
pub(crate) fn sync_volume(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) {
    state.counters.deferred[Reason::Commit as usize] += 1;
    state.slots[index].state = SlotState::Worker;
    let job = VolumeJob {
        queue: queue.clone(),
        slot: index,
        since: queue.volume.told.since(),
    };
    queue.hand_off(state, Work::SyncVolume(job));
}

impl Task for VolumeJob {
    const CLASS: &'static str = "sync";
    const BATCH: usize = usize::MAX;

    /// All are of one volume.
    fn run(jobs: &mut Vec<VolumeJob>, _: &dyn Lead) {
        let Some(oldest) = jobs.iter().min_by_key(|job| job.since) else {
            return;
        };
        let (volume, since) = (oldest.queue.volume.clone(), oldest.since);
        let error: Option<Error> = contained(|| delete::sync(&volume, since)).err();
        for VolumeJob { queue, slot, .. } in jobs.drain(..) {
            queue.inbox.post([Message::Completed(slot, error.clone())]);
            queue.waker.kick();
        }
    }

    fn refuse(self, error: &Error) {
        let message = Message::Completed(self.slot, Some(error.clone()));
        self.queue.inbox.post([message]);
        self.queue.waker.kick();
    }
}
