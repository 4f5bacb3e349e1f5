//! An ended request that owes something: the request, what it has of its inode, what is still to be done for it.
//!
//! Input: requests that have ended. Output: [`Job`], which workers carry out, and which waits with its inode for the size to move over others.
//! Invariants: one that is dropped unreported has failed, lets go of all that it has, and is reported. Limits: what carries it out is in the
//! room `jobs`.

use super::{Fs, Handle, Inode, Owed};
use crate::error::Error;
use crate::turn::{Hold, Mail, Message};
use diorite_block::Epoch;
use diorite_format::Tid;
use std::ops::Range;
use std::sync::Arc;

/// One ended request that owes something.
#[derive(Debug)]
pub(crate) struct Job {
    /// Before the queue, so that it is dropped first: who drops the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
    pub(crate) hold: Hold,
    /// What it needs before it is acknowledged.
    pub(crate) durable: Durable,
    pub(crate) data: Data,
    /// What it wrote is not seen yet.
    pub(crate) conversion: Option<Conversion>,
    /// Its data is not on the device, or could not be mapped.
    pub(crate) failed: bool,
    /// Why, if that was found out here.
    pub(crate) error: Option<Error>,
    /// The transaction that made it visible.
    pub(crate) tid: Option<Tid>,
    /// Its queue was told that it is over.
    pub(crate) reported: bool,
}

/// What a request needs before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Nothing.
    No,
    /// A flush of the device.
    Flush,
    /// What changed its file's map and size is committed.
    Map,
    /// The same, and its times.
    All,
}

/// Which data it answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Its own, of which nothing was under way at `began`, and all had ended at `ended`.
    Own { began: Epoch, ended: Epoch },
    /// All that had ended then, which a flush may have lost since somebody was told of the last one that did: a sync.
    All { since: Epoch, ended: Epoch },
}

impl Data {
    /// Of a write: nothing of it was under way then.
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

/// What an ended write still has to do to be seen.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// Its first block in the pending map, if it got there.
    pub(crate) entry: Option<u64>,
    pub(crate) blocks: Range<u64>,
    /// The bytes that it wrote, or would have.
    pub(crate) bytes: Range<u64>,
    /// It is counted in the order in which the size moves.
    pub(crate) extends: bool,
    /// The block behind the file's end in which it may have left bytes.
    pub(crate) tail: Option<u64>,
}

impl Job {
    /// What has to be durable before it is acknowledged. Blocks where times have to be written.
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

    /// Is what it answers for durable, where the commit and the flush for all went so? The flush began behind the last data of all of them.
    /// Of one that failed it is only known that it ended before that was seen, as of its own data: so it counts if that may have been
    /// there.
    pub(crate) fn is_durable(&self, volume: &Fs, made: Result<(), Error>) -> Result<(), Error> {
        match self.data {
            Data::Own { began, .. } => made.and_then(|()| volume.check_flushes_since(began)),
            Data::All { since, .. } => volume.end_sync((&self.file.told, since), made),
        }
    }

    /// Fails it, unless it has failed already.
    pub(crate) fn fail(&mut self, error: &Error) {
        if !self.failed {
            self.failed = true;
            self.error = Some(error.clone());
        }
    }

    /// Gives back its range, what of its claims is not mapped, and its hold.
    pub(crate) fn let_go(&mut self) {
        let inode = &self.file.inode;
        if self.failed && self.conversion.as_ref().is_some_and(|c| c.tail.is_some()) {
            inode.forget_tail();
        }
        if let Some(entry) = self.conversion.as_mut().and_then(|c| c.entry.take()) {
            // Some of what a panic left behind may be mapped already, if it has aborted the journal. Nobody takes space any more then.
            let panicked = matches!(self.error, Some(Error::Panicked));
            let unused = self.failed && !(panicked && inode.volume.check_sound().is_err());
            let share = inode.pending.release(entry, |claimed| {
                let claimed = claimed.iter().filter(|_| unused);
                claimed.for_each(|claim| inode.give_back(claim.run));
            });
            inode.node_reserve.end(share);
        }
        match std::mem::replace(&mut self.hold, Hold::None) {
            Hold::None => {}
            Hold::InFlight => inode.gate.leave(&self.file.shard),
            Hold::Turn => inode.gate.end_turn(),
        }
    }

    /// Its queue counts that it waits for the size, and wakes its owner, who then drains the queues of those that come before. Called under
    /// the lock that keeps others from ending the wait: the message comes before the one that it is completed.
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

    /// It has a place in the order in which the size moves.
    pub(crate) fn extends(&self) -> bool {
        self.conversion.as_ref().is_some_and(|c| c.extends)
    }

    /// The first byte of that place.
    pub(crate) fn place(&self) -> Option<u64> {
        let conversion = self.conversion.as_ref().filter(|c| c.extends);
        conversion.map(|c| c.bytes.start)
    }

    /// The first byte of its place in the order in which the size moves, if it has one; it ends with this.
    pub(crate) fn take_place(&mut self) -> Option<u64> {
        let conversion = self.conversion.as_mut()?;
        let extends = std::mem::take(&mut conversion.extends);
        extends.then_some(conversion.bytes.start)
    }

    /// Ends its place in that order, if it has one, with nothing written. Gives the jobs that may be published now.
    pub(crate) fn give_place_up(&mut self) -> Vec<Job> {
        match self.take_place() {
            Some(pos) => self.inode().pending.ended(pos, None, Job::tell_held),
            None => Vec::new(),
        }
    }
}

/// A job that is dropped unreported - in a panic, or as nobody can do it - has failed. It lets go of all that it has; those behind it in the
/// order of the size, which nobody else has, fail with it.
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
