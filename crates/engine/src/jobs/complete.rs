//! The deferred half of completion: work that a request owes and that may block.
//!
//! Input: jobs of ended requests, from a worker's list or from the thread of a blocking call. Output: messages to their queues.
//! Invariants: the order is: make the write visible, give back its hold, make it durable, report (rule C8); one commit or flush serves
//! every request that had ended when it began (rule C4). Limits: a failed commit or flush fails every request that waited for it.

use super::convert::convert;
use crate::error::Error;
use crate::inode::{Durable, Fs, Job, Owed};
use crate::threads::{Lead, Task, contained};
use crate::turn::Mail;
use std::sync::Arc;

impl Task for Job {
    const CLASS: &'static str = "complete";
    const BATCH: usize = usize::MAX;

    /// Does what the jobs owe, and reports them. All are of one volume.
    fn run(jobs: &mut Vec<Job>, lead: &dyn Lead) {
        let Some(volume) = jobs.first().map(|j| j.file.inode.volume.clone()) else {
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
            fail_unless(&mut done, made);
        }
        report_all(done);
    }

    fn refuse(mut self, error: &Error) {
        self.fail(error);
    }
}

/// Tells the queues that the jobs are over.
pub(super) fn report_all(done: Vec<Job>) {
    let mut done = done.into_iter().peekable();
    while let Some(job) = done.next() {
        let mut messages = Vec::with_capacity(1 + done.len());
        let queue = job.queue.clone();
        messages.push(job.report());
        while let Some(next) = done.next_if(|n| is_same(&n.queue, &queue)) {
            messages.push(next.report());
        }
        queue.post_all(messages);
    }
}

/// Are these the same queue?
pub(super) fn is_same(one: &Arc<dyn Mail>, other: &Arc<dyn Mail>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// Makes all jobs durable that need it, with at most one commit and one flush: see [`Owed`].
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

/// If making them durable panicked, fails all jobs that needed it.
fn fail_unless(jobs: &mut [Job], result: Result<(), Error>) {
    if let Err(error) = result {
        let concerned = jobs.iter_mut().filter(|j| j.durable != Durable::No);
        concerned.for_each(|job| job.fail(&error));
    }
}
