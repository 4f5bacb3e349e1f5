//! A range operation (truncate, fallocate) as a request: what a worker does with it.
//!
//! Input: a job with the exclusive turn on its inode. Output: a completion, through the deferred half of completion like every
//! change of a map. Invariants: the arguments are checked again, as the file may have changed while the request waited; the turn
//! ends before a commit is waited for, and before the report. Limits: a worker runs one operation at a time; once begun it is not stopped.

use crate::attr::{clear_privileges, prepare_first_write};
use crate::error::Error;
use crate::inode::Handle;
use crate::inode::{Data, Durable, Job, PageClaim};
use crate::op::Fallocate;
use crate::op::Op;
use crate::range::{check, fallocate, truncate};
use crate::threads::{Lead, Task, contained};
use crate::turn::{Hold, Mail};
use diorite_block::Epoch;
use std::ops::Range;
use std::sync::Arc;

/// A range operation that has the exclusive turn.
#[derive(Debug)]
pub(crate) struct RangeJob {
    /// Before the queue, so that it is dropped first: the drop of the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
    pub(crate) hold: Hold,
    pub(crate) op: Op,
    pub(crate) pos: u64,
    pub(crate) len: u64,
    pub(crate) durable: Durable,
    /// The file's pages, if it may have any.
    pub(crate) claim: Option<Box<PageClaim>>,
}

impl RangeJob {
    fn perform(&self) -> Result<(), Error> {
        let inode = &self.file.inode;
        debug_assert!(
            inode.pending.is_empty(),
            "what is pending is counted in flight"
        );
        let bytes = check(&self.file, self.op, self.pos, self.len)?;
        inode.let_go_of_swapped();
        clear_privileges(inode)?;
        if self.is_done_inside(&bytes)? {
            return Ok(());
        }
        prepare_first_write(inode)?;
        inode.checkpoint_data()?;
        match self.op {
            Op::Fallocate(mode) => {
                fallocate(inode, mode, bytes)?;
                // As the kernel's ext4: also if nothing was left to be done.
                inode.touch(inode.volume.now_nanos());
                Ok(())
            }
            _ => truncate(inode, bytes.end),
        }
    }
}

impl RangeJob {
    /// The job for the deferred half of completion, after the change.
    fn ended(self, began: Epoch, error: Option<Error>) -> Job {
        let ended = self.file.inode.volume.data_epoch();
        Job {
            file: self.file,
            queue: self.queue,
            slot: self.slot,
            hold: self.hold,
            durable: self.durable,
            data: Data::Own { began, ended },
            conversion: None,
            failed: error.is_some(),
            error,
            tid: None,
            reported: false,
            claim: self.claim,
        }
    }

    /// Does the operation on inline data, in the inode, if that is possible. False: it needs blocks.
    fn is_done_inside(&self, bytes: &Range<u64>) -> Result<bool, Error> {
        match self.op {
            Op::Truncate => self.file.inode.resize_inside(bytes.end),
            Op::Fallocate(Fallocate::PunchHole) => self.file.inode.zero_inside(bytes.clone()),
            _ => Ok(false),
        }
    }
}

impl Task for RangeJob {
    const CLASS: &'static str = "range";
    const BATCH: usize = 1;

    fn run(batch: &mut Vec<RangeJob>, lead: &dyn Lead) {
        for job in batch.drain(..) {
            let began = job.file.inode.volume.data_epoch();
            let error = contained(|| job.perform()).err();
            let ended = job.ended(began, error);
            Job::run(&mut vec![ended], lead);
        }
    }

    fn refuse(self, error: &Error) {
        let began = self.file.inode.volume.data_epoch();
        self.ended(began, Some(error.clone())).refuse(error);
    }
}
