//! Loads a part of a file's map for a request that found it missing in memory.
//!
//! Input: an attached file and a range. Output: a message to its queue, with the view or the error. Invariants: those of the map. Limits:
//! one range at a time per worker.

use crate::error::Error;
use crate::inode::Handle;
use crate::threads::{Lead, Task, contained};
use crate::turn::{Mail, Message};
use std::ops::Range;
use std::sync::Arc;

/// A part of a map to load, and the request that needs it.
#[derive(Debug)]
pub(crate) struct LoadJob {
    /// Before the queue, so that it is dropped first: the drop of the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
    pub(crate) blocks: Range<u64>,
}

impl Task for LoadJob {
    const CLASS: &'static str = "submit";
    const BATCH: usize = 1;

    fn run(batch: &mut Vec<LoadJob>, _: &dyn Lead) {
        for job in batch.drain(..) {
            let message = match contained(|| job.file.inode.load_map(job.blocks)) {
                Ok(view) => Message::Mapped(job.slot, view),
                Err(error) => Message::Unmapped(job.slot, error),
            };
            job.queue.post(message);
        }
    }

    fn refuse(self, error: &Error) {
        self.queue.post(Message::Unmapped(self.slot, error.clone()));
    }
}
