//! Conversion in the thread of a caller who would sleep: nobody is woken, nothing changes threads.
//!
//! Input: what one pass of a queue found ended and owing. Output: messages to that queue; what is left over is for a worker. Invariants: where the
//! journal does not give a handle at once, a file's map is another's, or the in-core map has not all of it, a worker does it. Limits: writes inside
//! their files that need nothing durable; as many as one handle holds; a block of metadata that the cache has lost meanwhile is read.

use crate::inode::{Durable, Job};
use crate::jobs::convert::convert_at_once;

/// Does what it may of the jobs, all of one queue; the others stay in the list.
pub(crate) fn run(jobs: &mut Vec<Job>) {
    let (mine, others): (Vec<Job>, Vec<Job>) = jobs.drain(..).partition(is_for_here);
    jobs.extend(others);
    let (mut done, left) = convert_at_once(mine);
    jobs.extend(left);
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
