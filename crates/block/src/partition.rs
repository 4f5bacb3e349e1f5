//! Partition tables: MBR with logical partitions, and GPT.
//!
//! Input: a way to read the disk. Output: where a partition lies. Invariant: hostile tables are errors, in bounded time
//! and memory. Limits: read only.

use crate::device::{DeviceError, DeviceErrorKind};
use rustix::fd::OwnedFd;

/// Where to read the table from: a range of an open file.
pub(crate) struct Source<'a> {
    _fd: &'a OwnedFd,
}

impl<'a> Source<'a> {
    /// The range of `fd` from `base` on.
    pub(crate) fn new(fd: &'a OwnedFd, _base: u64, _size: u64) -> Source<'a> {
        Source { _fd: fd }
    }
}

/// A partition, in bytes from the source's start.
pub(crate) struct Part {
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// Finds partition `number`, counted from 1.
pub(crate) fn find(
    _source: Source<'_>,
    _sector: u32,
    number: u32,
    name: &str,
) -> Result<Part, DeviceError> {
    Err(DeviceError::new(
        DeviceErrorKind::Unsupported,
        format!("{name}: partition {number}: not yet"),
    ))
}
