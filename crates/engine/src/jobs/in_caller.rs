//! Conversion in the thread of a caller who would sleep otherwise: no worker is woken, and no data changes threads.
//!
//! Input: the jobs that one pass of a queue has found. Output: messages to that queue; the jobs that are left for a worker. Invariants: a
//! worker does it if the journal does not give a handle at once, the file's map is locked, or the in-core map lacks a part of the range.
//! Limits: only writes inside the size that need not be durable; a block of metadata that the cache has lost since is read.

use crate::inode::{Durable, Job};
use crate::jobs::convert::convert_at_once;

/// Converts those of the jobs that need not wait; the others stay in the list. All are of one queue.
pub(crate) fn run(jobs: &mut Vec<Job>) {
    let (mut mine, others): (Vec<Job>, Vec<Job>) = jobs.drain(..).partition(is_for_here);
    jobs.extend(others);
    let mut done = Vec::new();
    // One handle after the other: if the rest went to a worker, it would write what this thread writes for the next requests.
    while !mine.is_empty() {
        let (now, left) = convert_at_once(mine);
        mine = left;
        if now.is_empty() {
            break;
        }
        done.extend(now);
    }
    jobs.extend(mine);
    let Some(queue) = done.first().map(|j| j.queue.clone()) else {
        return;
    };
    done.iter_mut().for_each(Job::let_go);
    let messages: Vec<_> = done.into_iter().map(Job::report).collect();
    queue.post_all(messages);
}

fn is_for_here(job: &Job) -> bool {
    let inside = |c: &crate::inode::Conversion| !c.extends;
    !job.failed && job.durable == Durable::No && job.conversion.as_ref().is_some_and(inside)
}
