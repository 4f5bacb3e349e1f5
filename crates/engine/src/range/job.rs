//! An operation on a range as a request: what is asked before it waits, and what a worker does with it.
//!
//! Input: a request in its slot; then, with the turn on its inode, a job. Output: a completion, by way of the deferred half that all
//! changes of a map go through. Invariants: what is refused has waited for nobody; the turn ends before a commit is waited for, and before
//! the report. Limits: one operation at a time per worker; one that has begun cannot be stopped.

use super::{bounds, fallocate, truncate};
use crate::complete::deferred::{Data, Durable, Job};
use crate::error::Error;
use crate::inode::{Handle, Inode};
use crate::op::Fallocate;
use crate::op::Op;
use crate::queue::{Hold, QueueShared, Slot};
use crate::threads::{Lead, Task, contained};
use diorite_block::Epoch;
use diorite_format::InodeFlags;
use std::ops::Range;
use std::sync::Arc;

/// May this be done to the file? Asked before the request waits for its turn, and again when it has it. Gives the bytes that it is about;
/// of a truncation, none at the new end.
pub(crate) fn check(file: &Handle, op: Op, pos: u64, len: u64) -> Result<Range<u64>, Error> {
    let inode = &file.inode;
    file.check_writable(true)?;
    inode.check_can_grow()?;
    match op {
        Op::Fallocate(mode) => {
            check_append_only(inode, mode.moves_data())?;
            bounds::of_range(inode, mode, pos, len)
        }
        _ => {
            check_append_only(inode, true)?;
            bounds::of_size(inode, pos)
        }
    }
}

/// What such a file holds stays where it is.
fn check_append_only(inode: &Inode, moves_data: bool) -> Result<(), Error> {
    if moves_data && inode.disk().flags.has(InodeFlags::APPEND) {
        let (ino, flag) = (inode.ino, "append-only");
        return Err(Error::NotPermitted { ino, flag });
    }
    Ok(())
}

/// A request that has its turn.
#[derive(Debug)]
pub(crate) struct RangeJob {
    /// Before the queue, so that it is dropped first: who drops the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<QueueShared>,
    pub(crate) slot: u32,
    pub(crate) hold: Hold,
    pub(crate) op: Op,
    pub(crate) pos: u64,
    pub(crate) len: u64,
    pub(crate) durable: Durable,
}

impl RangeJob {
    /// What a slot asks of its file.
    pub(crate) fn new(
        queue: &Arc<QueueShared>,
        index: u32,
        slot: &mut Slot,
        file: Arc<Handle>,
    ) -> RangeJob {
        let (dsync, sync) = file.makes_durable();
        let durable = if slot.flags.sync || sync {
            Durable::All
        } else if slot.flags.dsync || dsync {
            Durable::Map
        } else {
            Durable::No
        };
        RangeJob {
            file,
            queue: queue.clone(),
            slot: index,
            hold: std::mem::replace(&mut slot.hold, Hold::None),
            op: slot.op,
            pos: slot.pos,
            len: slot.range_len,
            durable,
        }
    }

    fn perform(&self) -> Result<(), Error> {
        let inode = &self.file.inode;
        debug_assert!(
            inode.pending.is_empty(),
            "what is pending is counted in flight"
        );
        let bytes = check(&self.file, self.op, self.pos, self.len)?;
        inode.settle_privileges()?;
        if self.is_done_inside(&bytes)? {
            return Ok(());
        }
        inode.settle_first_write()?;
        inode.settle_data()?;
        match self.op {
            Op::Fallocate(mode) => {
                fallocate(inode, mode, bytes)?;
                // Also where no block was whole, and only bytes were zeroed.
                if mode.moves_data() {
                    inode.touch(inode.volume.now_nanos());
                }
                Ok(())
            }
            _ => truncate::truncate(inode, bytes.end),
        }
    }
}

impl RangeJob {
    /// What is still to be done for it, behind the change.
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
        }
    }

    /// What needs no block is done to data where it is, in the inode.
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
