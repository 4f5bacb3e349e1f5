//! Requests of files whose data goes through the journal (data=journal): served through the metadata cache, on a worker.
//!
//! Input: an admitted request with its buffer; a write has the exclusive turn. Output: the buffer back to its queue, filled or written.
//! Invariants: blocks that are not checkpointed yet are read from the cache, never from their places on disk; data, map and size
//! of a part are in one transaction. Limits: this is no direct I/O; it exists so that such files can be used, and is counted
//! `fallback-buffered`.

use crate::error::Error;
use crate::inode::Handle;
use crate::op::Op;
use crate::range::zero_out;
use crate::threads::{Lead, Task, contained};
use crate::turn::{Mail, Message};
use diorite_block::Buf;
use std::ops::Range;
use std::sync::Arc;

/// One read or write of such a file.
#[derive(Debug)]
pub(crate) struct JournalledJob {
    /// Before the queue, so that it is dropped first: the drop of the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
    pub(crate) op: Op,
    pub(crate) pos: u64,
    /// Bytes to move.
    pub(crate) len: u32,
    pub(crate) buf: Buf,
}

impl JournalledJob {
    fn serve(&mut self) -> Result<(), Error> {
        let inode = &self.file.inode;
        match self.op {
            Op::Read => inode.read_journalled(self.pos, self.len as usize, &mut self.buf),
            _ => {
                let from = self.file.claims_from();
                let write = || inode.write_journalled(self.pos, self.len, &self.buf, from);
                loop {
                    match write() {
                        Err(Error::NoSpace { .. }) if zero_out(inode, self.blocks())? => {}
                        done => return done,
                    }
                }
            }
        }
    }
}

impl JournalledJob {
    fn blocks(&self) -> Range<u64> {
        let size = u64::from(self.file.inode.volume.block_size());
        let end = self.pos + u64::from(self.len);
        self.pos / size..end.div_ceil(size)
    }
}

impl Task for JournalledJob {
    const CLASS: &'static str = "buffered";
    const BATCH: usize = 1;

    fn run(batch: &mut Vec<JournalledJob>, _: &dyn Lead) {
        for mut job in batch.drain(..) {
            let error = contained(|| job.serve()).err();
            let message = Message::Served(job.slot, job.buf, error);
            job.queue.post(message);
        }
    }

    fn refuse(self, error: &Error) {
        let message = Message::Served(self.slot, self.buf, Some(error.clone()));
        self.queue.post(message);
    }
}
