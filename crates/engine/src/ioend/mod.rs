//! The ioend room: from the ended bios of a request to the one decision about its completion.
//!
//! Input: bios that a device queue has ended. Output: an ended request, and whether it completes inline or on a worker.
//! Invariants: a request ends once, after its last bio; the first error sticks; the decision starts at inline and is
//! only ever demoted. Limits: runs under the queue's lock, so nothing here needs an atomic.

mod decide;
mod gather;

pub(crate) use decide::{CachedPages, Facts, Verdict, decide};
pub(crate) use gather::Gather;
