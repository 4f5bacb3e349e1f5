//! Which ranges of a host file have no data: asked of its file system with SEEK_DATA and SEEK_HOLE.
//!
//! Input: a target, a range of the device. Output: runs. Invariants: what a call reports as a hole was a hole when this call looked, after
//! the request began, so a write that was acknowledged before is never in a hole; bounds between runs are multiples of the logical block,
//! and a block with any data is data; bytes behind the file's end count as data, so that a read of them reports the error. Limits: a block
//! device says nothing, and some file systems say that everything is data; space that was allocated and not written may be either.

use super::target::Target;
use crate::device::{DeviceError, Run, Stored};
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::ops::Range;

/// The answers of the host to a question about a position.
trait Seeker {
    /// The first byte of data from here on; none if there is no more.
    fn data(&self, from: u64) -> Result<Option<u64>, Errno>;
    /// The first byte of a hole from here on, which the end of the file is as well.
    fn hole(&self, from: u64) -> Result<u64, Errno>;
}

impl Seeker for Target {
    fn data(&self, from: u64) -> Result<Option<u64>, Errno> {
        match seek(&self.fd, SeekFrom::Data(from)) {
            Err(Errno::NXIO) => Ok(None),
            found => found.map(Some),
        }
    }

    fn hole(&self, from: u64) -> Result<u64, Errno> {
        seek(&self.fd, SeekFrom::Hole(from))
    }
}

/// The runs of a range inside the device; see [`crate::device::Device::stored`].
pub(super) fn stored(
    target: &Target,
    range: Range<u64>,
    most: usize,
) -> Result<Vec<Run>, DeviceError> {
    let failed = |errno: Errno| {
        let what = format!("{}: cannot find out where it has data", target.name);
        DeviceError::host(what, errno.into())
    };
    // The size is taken first: what is appended later is no part of a hole.
    let size = fstat(&target.fd).map_err(failed)?.st_size;
    let end = u64::try_from(size).unwrap_or(0).saturating_sub(target.base);
    let block = u64::from(target.geometry.logical);
    // Rule L2: the last partial sector reads as zeros behind the end.
    let end = end.checked_next_multiple_of(block).unwrap_or(range.end);
    let mut runs = Runs {
        at: range.start,
        most,
        found: Vec::new(),
    };
    while runs.at < range.end && runs.has_room() {
        let next = match runs.at < end {
            true => next(target, target.base, (runs.at, range.end.min(end)), block),
            false => Ok((range.end, Stored::Data)),
        };
        match next {
            Ok((until, stored)) => runs.add(until, stored),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                runs.add(range.end, Stored::Data)
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(runs.found)
}

/// The run at `at`, a position of the device: where it ends, at most at `end`, and how it is stored.
fn next(
    host: &impl Seeker,
    base: u64,
    (at, end): (u64, u64),
    block: u64,
) -> Result<(u64, Stored), Errno> {
    let inside = |found: u64| found.saturating_sub(base);
    let here = base.saturating_add(at);
    let Some(data) = host.data(here)? else {
        return Ok((end, Stored::Hole));
    };
    let data = inside(data) / block * block;
    if data > at {
        return Ok((data.min(end), Stored::Hole));
    }
    // A hole that was made here since is data for one block, so every step moves on.
    let hole = inside(host.hole(here)?).max(at.saturating_add(1));
    let hole = hole.checked_next_multiple_of(block).unwrap_or(end);
    Ok((hole.min(end), Stored::Data))
}

/// Runs that follow one another, neighbours of one kind merged.
struct Runs {
    at: u64,
    most: usize,
    found: Vec<Run>,
}

impl Runs {
    fn has_room(&self) -> bool {
        self.found.len() < self.most
    }

    fn add(&mut self, until: u64, stored: Stored) {
        let len = until - self.at;
        self.at = until;
        match self.found.last_mut() {
            Some(last) if last.stored == stored => last.len += len,
            _ => self.found.push(Run { len, stored }),
        }
    }
}

#[cfg(test)]
mod tests;
