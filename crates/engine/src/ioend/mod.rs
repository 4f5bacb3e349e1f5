//! The ioend module: from the ended bios of a request to the decision about its completion.
//!
//! Input: results of ended bios. Output: whether the request completes inline or on a worker. Invariants: a request ends once, after its
//! last bio; its first error is kept; the decision starts as inline and is only demoted. Limits: runs under the queue's lock, so nothing
//! here needs an atomic.

mod decide;
mod gather;

pub(crate) use decide::{CachedPages, Facts, Verdict, decide};
pub(crate) use gather::Gather;
