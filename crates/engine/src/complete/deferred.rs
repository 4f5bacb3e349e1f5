//! The deferred half of completion: what a request owes that may block.
//!
//! Input: ended requests from a worker's list, or from the thread of a blocking call. Output: messages to their queues.
//! Invariants: what makes a write visible comes first, then its hold is given back, then durability, then the report
//! (rule C8); one commit or flush serves every request that had ended when it began (rule C4). Limits: a failed commit or flush fails
//! every request that waited for it.

use super::convert::{Conversion, convert};
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Handle;
use crate::inode::Owed;
use crate::queue::{Hold, Message, QueueShared};
use crate::threads::{Lead, Task, contained};
use diorite_block::Epoch;
use diorite_format::Tid;
use std::sync::Arc;

/// One ended request that owes something.
#[derive(Debug)]
pub(crate) struct Job {
    /// Before the queue, so that it is dropped first: who drops the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<QueueShared>,
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
    pub(super) fn began(self) -> Epoch {
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

impl Task for Job {
    const CLASS: &'static str = "complete";
    const BATCH: usize = usize::MAX;

    /// Does what the jobs owe, and reports. All are of one volume.
    fn run(jobs: &mut Vec<Job>, lead: &dyn Lead) {
        let Some(volume) = jobs.first().map(|j| j.queue.volume.clone()) else {
            return;
        };
        let (converting, mut done): (Vec<Job>, Vec<Job>) =
            jobs.drain(..).partition(|j| j.conversion.is_some());
        if !converting.is_empty() {
            done.extend(convert(converting));
        }
        done.iter_mut().for_each(Job::let_go);
        if done.iter().any(|j| j.durable != Durable::No) {
            lead.give();
            let made = contained(|| {
                make_durable(&volume, &mut done);
                Ok(())
            });
            settle(&mut done, made);
        }
        let mut done = done.into_iter().peekable();
        while let Some(job) = done.next() {
            let (queue, mut messages) = (job.queue.clone(), vec![job.report()]);
            while let Some(next) = done.next_if(|n| Arc::ptr_eq(&n.queue, &queue)) {
                messages.push(next.report());
            }
            queue.inbox.post(messages);
            queue.waker.kick();
        }
    }

    fn refuse(mut self, error: &Error) {
        self.fail(error);
    }
}

/// One commit and one flush at most for all that need them: see [`crate::inode::durable`].
fn make_durable(volume: &Fs, jobs: &mut [Job]) {
    let mut owed = Owed::nothing();
    for job in jobs.iter_mut().filter(|j| !j.failed) {
        match job.owes() {
            Ok(more) => owed = owed.and(more),
            Err(error) => job.fail(&error),
        }
    }
    let made = volume.make_durable(owed);
    let waiting = |job: &&mut Job| !job.failed && job.durable != Durable::No;
    for job in jobs.iter_mut().filter(waiting) {
        if let Err(error) = job.is_durable(volume, made.clone()) {
            job.fail(&error);
        }
    }
}

/// A panic fails all that waited.
fn settle(jobs: &mut [Job], result: Result<(), Error>) {
    if let Err(error) = result {
        let concerned = jobs.iter_mut().filter(|j| j.durable != Durable::No);
        concerned.for_each(|job| job.fail(&error));
    }
}

impl Job {
    /// What has to be durable before it is acknowledged. Blocks where times have to be written.
    fn owes(&self) -> Result<Owed, Error> {
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
    fn is_durable(&self, volume: &Fs, made: Result<(), Error>) -> Result<(), Error> {
        match self.data {
            Data::Own { began, .. } => made.and_then(|()| volume.check_flushes_since(began)),
            Data::All { since, .. } => volume.end_sync((&self.file.told, since), made),
        }
    }

    /// Fails it, unless it has failed already.
    pub(super) fn fail(&mut self, error: &Error) {
        if !self.failed {
            self.failed = true;
            self.error = Some(error.clone());
        }
    }

    /// Gives back its range, what of its claims is not mapped, and its hold.
    pub(super) fn let_go(&mut self) {
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
            inode.aside.end(share);
        }
        match std::mem::replace(&mut self.hold, Hold::None) {
            Hold::None => {}
            Hold::InFlight => inode.gate.leave(&self.file.shard),
            Hold::Turn => inode.gate.end_turn(),
        }
    }

    /// Its queue counts that it waits for the size, and wakes its owner, who then drains the queues of those that come before. Called under
    /// the lock that keeps others from ending the wait: the message comes before the one that it is completed.
    pub(super) fn tell_held(&self) {
        self.queue.inbox.post([Message::Held(self.slot)]);
        self.queue.waker.kick();
    }

    pub(super) fn report(mut self) -> Message {
        self.reported = true;
        Message::Completed(self.slot, self.error.take())
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
        self.queue.inbox.post([message]);
        self.queue.waker.kick();
    }
}
