//! Conversion in the thread of a caller who would sleep otherwise: no worker is woken, and no data changes threads.
//!
//! Input: the jobs that one pass of a queue has found. Output: messages to that queue, and to those whose jobs were held behind them; the
//! jobs that are left for a worker. Invariants: a worker does it if the journal does not give a handle at once, the file's map is not
//! free, or the in-core map lacks a part of the range; what one thread may publish of a file is done by one thread, in the file's order.
//! Limits: only writes that need not be durable and leave nothing behind the end if they fail; jobs of other queues are done only as long
//! as there are own ones; a block of metadata that the cache has lost since is read.

use super::complete::{is_same, report_all};
use super::convert::{convert_at_once, in_order, published};
use crate::inode::{Conversion, Durable, Job};

/// Converts those of the jobs that need not wait; the others stay in the list. All are of one queue.
pub(crate) fn run(jobs: &mut Vec<Job>) {
    let mut mine: Vec<Job> = match jobs.iter().all(is_for_here) {
        true => std::mem::take(jobs),
        false => jobs.extract_if(.., |job| is_for_here(job)).collect(),
    };
    let Some(queue) = mine.first().map(|job| job.queue.clone()) else {
        return;
    };
    let ended: Vec<Job> = match mine.iter().all(Job::extends) {
        true => std::mem::take(&mut mine),
        false => mine.extract_if(.., |job| job.extends()).collect(),
    };
    take_if_all_for_here(in_order(ended), &mut mine, jobs);
    let mut done = Vec::new();
    // One handle after the other: if the rest went to a worker, it would write what this thread writes for the next requests.
    while mine.iter().any(|job| is_same(&job.queue, &queue)) {
        let (mut now, left) = convert_at_once(mine);
        mine = left;
        if now.is_empty() {
            break;
        }
        for job in &mut now {
            take_if_all_for_here(published(job), &mut mine, jobs);
        }
        append(&mut done, now);
    }
    append(jobs, mine);
    done.iter_mut().for_each(Job::let_go);
    report_all(done);
}

/// May it be converted here, as far as only its kind matters?
fn is_for_here(job: &Job) -> bool {
    let leaves_nothing = |c: &Conversion| c.tail.is_none();
    !job.failed && job.durable == Durable::No && job.conversion.as_ref().is_some_and(leaves_nothing)
}

/// Takes jobs of one file that may be published, if all of them may be converted here: a worker that converts one of them converts them
/// all, so that they stay in order.
fn take_if_all_for_here(free: Vec<Job>, mine: &mut Vec<Job>, others: &mut Vec<Job>) {
    match free.iter().all(is_for_here) {
        true => append(mine, free),
        false => append(others, free),
    }
}

/// Jobs are large, so a list is taken as it is if there is nothing in front of it.
fn append(list: &mut Vec<Job>, more: Vec<Job>) {
    match list.is_empty() {
        true => *list = more,
        false => list.extend(more),
    }
}
