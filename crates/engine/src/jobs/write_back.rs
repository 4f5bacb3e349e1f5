//! Write-back of dirty pages for a direct request that needs its range, or its file, on the device.
//!
//! Input: a request that holds nothing of its inode. Output: a message to its queue, after which it starts again. Invariants: what was
//! dirty when the job began is on the device and mapped when it ends, or has failed. Limits: the writes are requests of a queue of their
//! own; so this class waits for the classes prepare and complete.

use crate::error::Error;
use crate::inode::Handle;
use crate::threads::{Lead, Task, contained};
use crate::turn::{Mail, Message};
use std::ops::Range;
use std::sync::Arc;

/// One request, and the blocks of its file that it needs on the device.
#[derive(Debug)]
pub(crate) struct WriteBackJob {
    /// Before the queue, so that it is dropped first: the drop of the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
    pub(crate) blocks: Range<u64>,
    /// It is a sync, which reports all failures of write-back of which its open file was not told.
    pub(crate) is_sync: bool,
}

impl WriteBackJob {
    fn write_back(&self) -> Result<(), Error> {
        let inode = &self.file.inode;
        let inodes = std::slice::from_ref(inode);
        let written = inode.volume.write_back(inodes, self.blocks.clone());
        match self.is_sync {
            true => self.file.tell_page_failure().and(written),
            false => written,
        }
    }
}

impl Task for WriteBackJob {
    const CLASS: &'static str = "write-back";
    const BATCH: usize = 1;

    fn run(batch: &mut Vec<WriteBackJob>, _: &dyn Lead) {
        for job in batch.drain(..) {
            let error = contained(|| job.write_back()).err();
            job.queue.post(Message::WrittenBack(job.slot, error));
        }
    }

    fn refuse(self, error: &Error) {
        let message = Message::WrittenBack(self.slot, Some(error.clone()));
        self.queue.post(message);
    }
}
