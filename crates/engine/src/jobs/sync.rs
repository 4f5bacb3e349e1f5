//! A sync of the whole volume, for requests without a file.
//!
//! Input: jobs of such requests. Output: messages to their queues. Invariants: when a request ends, everything is durable that was
//! acknowledged before it was submitted; one commit serves all requests that had been submitted when it began; if a flush has failed, all
//! syncs that were under way together fail. Limits: it blocks, so it runs on a worker.

use crate::delete;
use crate::error::Error;
use crate::inode::Fs;
use crate::threads::{Lead, Task, contained};
use crate::turn::{Mail, Message};
use diorite_block::Epoch;
use std::sync::Arc;

/// One request for a sync of the volume.
#[derive(Debug)]
pub(crate) struct VolumeJob {
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) fs: Arc<Fs>,
    pub(crate) slot: u32,
    /// The last failed flush that the volume had been told of when the request was submitted.
    pub(crate) since: Epoch,
}

impl Task for VolumeJob {
    const CLASS: &'static str = "sync";
    const BATCH: usize = usize::MAX;

    /// Serves all jobs with one sync. All are of one volume.
    fn run(jobs: &mut Vec<VolumeJob>, _: &dyn Lead) {
        let Some(oldest) = jobs.iter().min_by_key(|job| job.since) else {
            return;
        };
        let (fs, since) = (oldest.fs.clone(), oldest.since);
        let error: Option<Error> = contained(|| delete::sync(&fs, since)).err();
        for VolumeJob { queue, slot, .. } in jobs.drain(..) {
            queue.post(Message::Completed(slot, error.clone()));
        }
    }

    fn refuse(self, error: &Error) {
        let message = Message::Completed(self.slot, Some(error.clone()));
        self.queue.post(message);
    }
}
