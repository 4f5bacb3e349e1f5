//! Partition tables: MBR with its logical partitions, and GPT. Reading only.
//!
//! Input: a range of an open file. Output: where a partition lies in it. Invariant: a hostile table is an error or a
//! partition inside the range - bounded time and memory, no panic, no overflow. Limits: [`gpt::MAX_ARRAY`] bytes of GPT
//! entries, [`mbr::MAX_LOGICAL`] logical partitions.
//!
//! The crates for this (gptman, mbrman) trust their input - an entry count of 2^32 is allocated, a chain of extended boot
//! records followed for ever, a wrong entry size asserted - so it is done here, from the UEFI specification, chapter 5.

mod gpt;
mod mbr;

use crate::device::{DeviceError, DeviceErrorKind};
use crate::file::host;
use rustix::fd::OwnedFd;
use std::fmt::Write as _;

/// Partitions that an error message names at most.
const SHOWN: usize = 16;

/// Where to read the table from: a range of an open file.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    fd: &'a OwnedFd,
    base: u64,
    size: u64,
    /// What the file's reads must be aligned to.
    align: u64,
}

impl<'a> Source<'a> {
    /// `size` bytes of `fd` from `base` on, read in multiples of `align`.
    pub(crate) fn new(fd: &'a OwnedFd, base: u64, size: u64, align: u32) -> Source<'a> {
        Source {
            fd,
            base,
            size,
            align: align.into(),
        }
    }

    /// `len` bytes at `pos`, if they lie inside.
    fn read(&self, pos: u64, len: usize) -> Result<Vec<u8>, Wrong> {
        let outside = || Wrong(format!("it reaches beyond the end ({len} bytes at {pos})"));
        let end = pos.checked_add(len as u64).ok_or_else(outside)?;
        if end > self.size {
            return Err(outside());
        }
        let (start, end) = (self.base + pos, self.base + end);
        let first = start / self.align * self.align;
        let window = (end - first).next_multiple_of(self.align) as usize;
        let skip = (start - first) as usize;
        match host::read_at(self.fd, first, window) {
            Ok((buf, got)) if got >= skip + len => Ok(buf.as_slice()[skip..skip + len].to_vec()),
            Ok(_) => Err(outside()),
            Err(e) => Err(Wrong(format!("it cannot be read at {pos}: {e}"))),
        }
    }
}

/// What is wrong with a table.
struct Wrong(String);

/// A partition, in bytes from the source's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// A table that could be read.
struct Table {
    kind: &'static str,
    parts: Vec<Part>,
}

/// Finds partition `number`, counted from 1, of the table whose addresses count in `sector`.
///
/// # Errors
/// There is no table, it is broken, or it has no such partition: the message says which, and what there is.
pub(crate) fn find(
    source: Source<'_>,
    sector: u32,
    number: u32,
    name: &str,
) -> Result<Part, DeviceError> {
    let table = read(source, sector).map_err(|Wrong(why)| {
        DeviceError::new(
            DeviceErrorKind::NotFound,
            format!("{name}: part={number}: {why}"),
        )
    })?;
    let found = table.parts.iter().find(|p| p.number == number);
    found.copied().ok_or_else(|| {
        DeviceError::new(
            DeviceErrorKind::NotFound,
            format!("{name} has no partition {number}; {}", describe(&table)),
        )
    })
}

fn describe(table: &Table) -> String {
    let mut text = format!("its {} has", table.kind);
    for part in table.parts.iter().take(SHOWN) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            " {} ({} bytes at {}),",
            part.number, part.size, part.start
        );
    }
    match table.parts.len() {
        0 => text.push_str(" none"),
        n if n > SHOWN => {
            let _ = write!(text, " and {} more", n - SHOWN);
        }
        _ => {
            text.pop();
        }
    }
    text
}

fn read(source: Source<'_>, sector: u32) -> Result<Table, Wrong> {
    let first = source.read(0, 512)?;
    let protective = mbr::is_protective(&first);
    // An image may come from a disk with other sectors than the ones it lies on.
    for size in [sector, 512, 4096] {
        match gpt::read(&source, size) {
            gpt::Found::Table(parts) => return Ok(Table { kind: "GPT", parts }),
            gpt::Found::Broken(why) => return Err(Wrong(format!("its GPT is broken: {why}"))),
            gpt::Found::None => {}
        }
    }
    if protective {
        return Err(Wrong(
            "its MBR announces a GPT, and there is none".to_owned(),
        ));
    }
    match mbr::read(&source, &first, sector)? {
        Some(parts) => Ok(Table { kind: "MBR", parts }),
        None => Err(Wrong(
            "it has no partition table (neither MBR nor GPT)".to_owned(),
        )),
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests;
