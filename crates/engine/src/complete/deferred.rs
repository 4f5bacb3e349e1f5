//! The deferred half of completion: what a request owes that may block.
//!
//! Input: ended requests from a worker's list, or from the thread of a blocking call. Output: messages to their queues.
//! Invariants: what makes a write visible comes first, then its hold is given back, then durability, then the report
//! (rule C8); one flush serves every request that had ended when it began (rule C4). Limits: a failed flush fails every
//! request that waited for it.

use crate::error::Error;
use crate::inode::Handle;
use crate::queue::{Hold, Message, QueueShared};
use crate::workers::Task;
use diorite_block::BioError;
use std::sync::Arc;

/// One ended request that owes something.
#[derive(Debug)]
pub(crate) struct Job {
    /// Before the queue, so that it is dropped first: who drops the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<QueueShared>,
    pub(crate) slot: u32,
    pub(crate) hold: Hold,
    /// A flush is owed.
    pub(crate) flush: bool,
}

impl Task for Job {
    const CLASS: &'static str = "complete";
    const BATCH: usize = usize::MAX;

    /// Does what the jobs owe, and reports. All are of one volume.
    fn run(jobs: &mut Vec<Job>) {
        for job in jobs.iter() {
            match job.hold {
                Hold::None => {}
                Hold::InFlight => job.file.inode.gate.leave(&job.file.shard),
                Hold::Turn => job.file.inode.gate.end_turn(),
            }
        }
        let flushed = match jobs.iter().find(|j| j.flush) {
            Some(job) => job.queue.volume.blocking.flush(),
            None => Ok(()),
        };
        let mut jobs = jobs.drain(..).peekable();
        while let Some(job) = jobs.next() {
            let mut messages = vec![job.report(flushed)];
            while let Some(next) = jobs.next_if(|n| Arc::ptr_eq(&n.queue, &job.queue)) {
                messages.push(next.report(flushed));
            }
            job.queue.inbox.post(messages);
            job.queue.waker.kick();
        }
    }
}

impl Job {
    fn report(&self, flushed: Result<(), BioError>) -> Message {
        let failed = if self.flush { flushed.err() } else { None };
        Message::Completed(self.slot, failed.map(Error::of_flush))
    }
}
