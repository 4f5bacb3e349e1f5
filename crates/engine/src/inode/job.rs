//! A job: a request whose I/O has ended but which still has work to do (a conversion, a commit, a flush), with its holds on its inode and
//! on its queue.
//!
//! Input: requests that have ended. Output: [`Job`]s; workers run them, and extending ones wait with their inode until the size may move
//! over them. Invariants: a job that is dropped without a report fails, releases everything it has, and is reported. Limits: the code
//! that runs jobs is in the module `jobs`.

use super::{Fs, Handle, Inode, Owed, PageClaim};
use crate::error::Error;
use crate::turn::{Hold, Mail, Message};
use diorite_block::Epoch;
use diorite_format::Tid;
use std::ops::Range;
use std::sync::Arc;

/// One ended request, and what it owes.
#[derive(Debug)]
pub(crate) struct Job {
    /// Before the queue, so that it is dropped first: the drop of the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
    pub(crate) hold: Hold,
    /// How durable it must be before it is acknowledged.
    pub(crate) durable: Durable,
    pub(crate) data: Data,
    /// What has to be done to make the written data visible; only for writes into new space or past the end.
    pub(crate) conversion: Option<Conversion>,
    /// Its data is not on the device, or could not be mapped, or a later step failed.
    pub(crate) failed: bool,
    /// The error, if the job itself found it; an earlier one is in the request's slot.
    pub(crate) error: Option<Error>,
    /// The transaction that made its data visible.
    pub(crate) tid: Option<Tid>,
    /// The cached pages that it keeps others from.
    pub(crate) claim: Option<Box<PageClaim>>,
    /// Its queue has been told that it has ended.
    pub(crate) reported: bool,
}

/// How durable a request must be before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Nothing.
    No,
    /// The device was flushed.
    Flush,
    /// The last change of its file's map and size is committed, too.
    Map,
    /// As `Map`, and its times are committed.
    All,
}

/// The data that a durable request answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Its own: none of it was under way at `began`, and all had ended at `ended`.
    Own { began: Epoch, ended: Epoch },
    /// A sync: all data of the file that had ended at `ended`. `since` is the last failed flush that had been reported when the sync
    /// began.
    All { since: Epoch, ended: Epoch },
}

impl Data {
    /// For a write: an epoch at which none of its data was under way yet.
    pub(crate) fn began(self) -> Epoch {
        match self {
            Data::Own { began, .. } => began,
            Data::All { since, .. } => since,
        }
    }

    fn end(self) -> Epoch {
        match self {
            Data::Own { ended, .. } | Data::All { ended, .. } => ended,
        }
    }
}

/// What has to be done to make an ended write visible.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// The first block of its entry in the pending map, if it has one.
    pub(crate) entry: Option<u64>,
    pub(crate) blocks: Range<u64>,
    /// The bytes that it wrote, or should have written if it failed.
    pub(crate) bytes: Range<u64>,
    /// It is counted among the extending requests, over which the size moves in offset order.
    pub(crate) extends: bool,
    /// It is mapped as a whole or not at all.
    pub(crate) whole: bool,
    /// It extends, and the size may move over it now, after those that were returned before it by [`crate::turn::Pending::ended`].
    pub(crate) passed: bool,
    /// The block behind the file's end in which it may have left bytes that are not zeros.
    pub(crate) tail: Option<u64>,
}

impl Job {
    /// What has to be made durable before the request is acknowledged. Blocks if noted times have to be written.
    pub(crate) fn owes(&self) -> Result<Owed, Error> {
        let inode = self.inode();
        let committed = match self.durable {
            Durable::No => return Ok(Owed::nothing()),
            Durable::Flush => Owed::nothing(),
            Durable::Map => Owed::commit(inode.uncommitted_map()),
            Durable::All => {
                inode.write_noted_times()?;
                Owed::commit(inode.uncommitted_map()).and(Owed::commit(inode.uncommitted_change()))
            }
        };
        Ok(committed
            .and(Owed::commit(self.tid))
            .and(Owed::data(self.data.end())))
    }

    /// Whether the job's data is durable, when the commit and flush for all jobs of a batch ended with `made`. That flush began after the
    /// last data of each job. Of any other flush that failed, only a time is known by which it had ended, and the same is true of the
    /// job's data; so such a failure counts if it may have concerned this data.
    pub(crate) fn is_durable(&self, volume: &Fs, made: Result<(), Error>) -> Result<(), Error> {
        match self.data {
            Data::Own { began, .. } => made.and_then(|()| volume.check_flushes_since(began)),
            Data::All { since, .. } => volume.end_sync((&self.file.opened.told, since), made),
        }
    }

    /// Notes that it fails, unless it has failed already.
    pub(crate) fn fail(&mut self, error: &Error) {
        if !self.failed {
            self.failed = true;
            self.error = Some(error.clone());
        }
    }

    /// Releases its entry in the pending map, with the claims that were not mapped, and its hold on the gate.
    pub(crate) fn let_go(&mut self) {
        let inode = &self.file.inode;
        if self.failed && self.conversion.as_ref().is_some_and(|c| c.tail.is_some()) {
            inode.forget_tail();
        }
        if let Some(entry) = self.conversion.as_mut().and_then(|c| c.entry.take()) {
            // If a panic has aborted the journal, some of the claims may be mapped already. Then none is given back; no space is taken
            // any more.
            let panicked = matches!(self.error, Some(Error::Panicked));
            let unused = self.failed && !(panicked && inode.volume.check_sound().is_err());
            let share = inode.pending.release(entry, |claimed| {
                let claimed = claimed.iter().filter(|_| unused);
                claimed.for_each(|claim| inode.give_back(claim.run));
            });
            inode.node_reserve.end(share);
        }
        self.claim = None;
        match std::mem::replace(&mut self.hold, Hold::None) {
            Hold::None => {}
            Hold::InFlight => inode.gate.leave(&self.file.shard),
            Hold::Exclusive => inode.gate.end_turn(),
        }
    }

    /// Tells the queue that the job waits for the size. The queue counts it and wakes its owner, who then drains the queues of the
    /// requests before it. Called under the lock that keeps others from ending this wait, so that this message comes before `Completed`.
    pub(crate) fn tell_held(&self) {
        self.queue.post(Message::Held(self.slot));
    }

    pub(crate) fn report(mut self) -> Message {
        self.reported = true;
        Message::Completed(self.slot, self.error.take())
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.file.inode
    }

    pub(crate) fn start(&self) -> u64 {
        self.conversion.as_ref().map_or(0, |c| c.bytes.start)
    }

    pub(crate) fn blocks(&self) -> Range<u64> {
        self.conversion.as_ref().map_or(0..0, |c| c.blocks.clone())
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        let blocks = self.blocks();
        blocks.start < range.end && range.start < blocks.end
    }

    /// Is it counted among the extending requests?
    pub(crate) fn extends(&self) -> bool {
        self.conversion.as_ref().is_some_and(|c| c.extends)
    }

    /// The first byte of its place among the extending requests, if it has one.
    pub(crate) fn place(&self) -> Option<u64> {
        let conversion = self.conversion.as_ref().filter(|c| c.extends);
        conversion.map(|c| c.bytes.start)
    }

    /// Has it its turn in the order of the size?
    pub(crate) fn has_passed(&self) -> bool {
        self.conversion.as_ref().is_some_and(|c| c.passed)
    }

    /// As [`Job::place`]; the job has no place any more afterwards. The pending map has to be told.
    pub(crate) fn take_place(&mut self) -> Option<u64> {
        let conversion = self.conversion.as_mut()?;
        let extends = std::mem::take(&mut conversion.extends);
        extends.then_some(conversion.bytes.start)
    }

    /// Notes that it has its turn in the order of the size.
    pub(crate) fn pass(mut self) -> Job {
        if let Some(conversion) = &mut self.conversion {
            conversion.passed = true;
        }
        self
    }

    /// Ends its place among the extending requests, if it has one, with nothing written. Returns the jobs that may be published now.
    pub(crate) fn give_place_up(&mut self) -> Vec<Job> {
        match self.take_place() {
            Some(pos) => self.inode().pending.failed(pos),
            None => Vec::new(),
        }
    }
}

/// A job that is dropped without a report (in a panic, or because no thread could run it) fails and releases all that it has. The jobs
/// that waited behind it for the size are in nobody's hands then, so they fail with it.
impl Drop for Job {
    fn drop(&mut self) {
        if self.reported {
            return;
        }
        self.fail(&Error::Panicked);
        let why = self.error.clone().unwrap_or(Error::Panicked);
        let mut behind = self.give_place_up();
        behind.iter_mut().for_each(|job| job.fail(&why));
        self.let_go();
        let message = Message::Completed(self.slot, self.error.take());
        self.queue.post(message);
    }
}
