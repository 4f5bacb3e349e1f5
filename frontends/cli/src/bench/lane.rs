//! What a load drives: a target that many threads open, and each thread's lane into it.
//!
//! Input: requests from the driver. Output: the same requests, ended. Invariant: the driver is compiled once per kind of
//! lane, and does the same for each, so that what differs between two rows is the lanes. Limits: at most the job's depth in
//! flight; a lane belongs to one thread.

use super::failure::Failure;
use super::job::Job;
use diorite_block::Buf;

/// One request, as the generator draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Io {
    pub(super) write: bool,
    /// Bytes from the start of the target's region.
    pub(super) pos: u64,
    /// The driver's slot.
    pub(super) slot: u32,
}

/// How a request ended: its slot, its memory, and the sentence of its error.
pub(super) struct Ended {
    pub(super) slot: u32,
    pub(super) buf: Buf,
    pub(super) error: Option<String>,
}

/// One thread's way into a target.
pub(super) trait Lane {
    /// Adds a request to the batch.
    fn push(&mut self, io: Io, buf: Buf);

    /// Starts the batch. What does not fit stays and goes with the next one.
    fn submit(&mut self);

    /// Takes ended requests, at least `min` of them unless fewer are in flight.
    fn reap(&mut self, min: usize, ended: &mut Vec<Ended>);

    /// What the lane has counted: completions by reason, and the like.
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Something that requests go to.
pub(super) trait Target: Sync {
    /// A thread's way into it.
    type Lane: Lane;

    /// Opens a lane for the job.
    fn lane(&self, job: &Job) -> Result<Self::Lane, Failure>;

    /// Bytes of the region that requests go to.
    fn len(&self) -> u64;
}
