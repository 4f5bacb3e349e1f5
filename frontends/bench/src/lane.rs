//! The interface between the driver and what it measures: a target, and a lane into it for each thread.
//!
//! Input: requests from the driver. Output: the same requests, ended. Invariant: the driver is generic over the lane and does
//! the same work for each, so that two rows differ only by their lanes. Limits: at most the job's depth in flight; a lane
//! belongs to one thread.

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

/// The end of a request: its slot, its buf, and the message of its error.
pub(super) struct Ended {
    pub(super) slot: u32,
    pub(super) buf: Buf,
    pub(super) error: Option<String>,
}

/// One thread's access to a target.
pub(super) trait Lane {
    /// Adds a request to the batch.
    fn push(&mut self, io: Io, buf: Buf);

    /// Submits the batch. Requests that do not fit are submitted with the next one.
    fn submit(&mut self);

    /// Takes ended requests, at least `min` of them unless fewer are in flight.
    fn reap(&mut self, min: usize, ended: &mut Vec<Ended>);

    /// What the lane has counted: completions by reason, and the like.
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// Something that takes requests.
pub(super) trait Target: Sync {
    /// A thread's access to it.
    type Lane: Lane;

    /// Opens a lane for the job.
    fn lane(&self, job: &Job) -> Result<Self::Lane, Failure>;

    /// Bytes of the region that requests go to.
    fn len(&self) -> u64;
}
