//! Partition tables: MBR with its logical partitions, and GPT: where their partitions lie, and new tables.
//!
//! Input: a range of an open file or of a device; partitions to be made (`layout`). Output: where a partition lies in it; the bytes of a
//! table. Invariant: a hostile table gives an error or a partition inside the range, with bounded time and memory, no panic, no overflow.
//! Limits: [`gpt::MAX_ARRAY`] bytes of GPT entries, [`mbr::MAX_LOGICAL`] logical partitions; a new MBR has primary partitions only.
//!
//! The existing crates (gptman, mbrman) trust their input: they allocate for an entry count of 2^32, follow a chain of extended
//! boot records for ever, and assert the entry size. So this module does it, from the UEFI specification, chapter 5.

mod gpt;
mod kind;
mod layout;
mod mbr;

pub use kind::PartitionKind;
pub use layout::{DiskSize, Layout, NewPartition, NewTable, PartSize};

use crate::blocking::Blocking;
use crate::buf::Buf;
use crate::device::{DeviceError, DeviceErrorKind};
use crate::file::host;
use crate::size::Rounded;
use rustix::fd::OwnedFd;
use std::fmt;

/// The most partitions that an error message names.
const SHOWN: usize = 16;

/// Where to read the table from: a range of an open file, or a device.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    from: From<'a>,
    base: u64,
    size: u64,
    /// What reads must be aligned to.
    align: u64,
}

#[derive(Clone, Copy)]
enum From<'a> {
    Host(&'a OwnedFd),
    Device(&'a Blocking),
}

impl From<'_> {
    /// The bytes at `pos`, or fewer if a file ends before.
    fn read(self, pos: u64, len: usize) -> Result<(Buf, usize), String> {
        match self {
            From::Host(fd) => host::read_at(fd, pos, len).map_err(|e| e.to_string()),
            From::Device(device) => match device.read(pos, Buf::zeroed(len)) {
                Ok(buf) => Ok((buf, len)),
                Err(e) => Err(e.to_string()),
            },
        }
    }
}

impl<'a> Source<'a> {
    /// `size` bytes of `fd` from `base` on, read in multiples of `align`.
    pub(crate) fn new(fd: &'a OwnedFd, base: u64, size: u64, align: u32) -> Source<'a> {
        Source {
            from: From::Host(fd),
            base,
            size,
            align: align.into(),
        }
    }

    /// `size` bytes of a device from `base` on. Whole blocks that hold them lie inside the device.
    pub(crate) fn of_device(device: &'a Blocking, base: u64, size: u64) -> Source<'a> {
        Source {
            from: From::Device(device),
            base,
            size,
            align: device.device().geometry().logical.into(),
        }
    }

    /// `len` bytes at `pos`, if they lie inside the range.
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
        match self.from.read(first, window) {
            Ok((buf, got)) if got >= skip + len => Ok(buf.as_slice()[skip..skip + len].to_vec()),
            Ok(_) => Err(outside()),
            Err(e) => Err(Wrong(format!("it cannot be read at {pos}: {e}"))),
        }
    }
}

/// The two kinds of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// The GUID partition table.
    Gpt,
    /// The master boot record.
    Mbr,
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableKind::Gpt => "GPT",
            TableKind::Mbr => "MBR",
        })
    }
}

/// The defect of a table.
struct Wrong(String);

/// A partition, in bytes from the start of what has the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1, as `?part=` counts.
    pub number: u32,
    /// Its stated type.
    pub kind: PartitionKind,
    /// The first byte.
    pub start: u64,
    /// The length in bytes.
    pub size: u64,
}

impl Partition {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.size)
    }

    /// Whether they have bytes in common. An extended partition has those of its logical ones, and of no other.
    fn clashes(&self, other: &Partition) -> bool {
        let holds = |a: &Partition, b: &Partition| {
            a.kind.is_extended()
                && a.start <= b.start
                && b.end() <= a.end()
                && b.number > mbr::COUNT as u32
        };
        let overlap = self.start < other.end() && other.start < self.end();
        overlap && !holds(self, other) && !holds(other, self)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.number, self.kind, Rounded(self.size))
    }
}

/// A valid table. Its text is `GPT has 1 (EFI System, 100 MiB), 2 (Linux filesystem, 7.9 GiB)`.
#[derive(Clone, Debug)]
pub struct PartitionTable {
    /// Which of the two it is.
    pub kind: TableKind,
    /// The partitions in the order of their numbers.
    pub parts: Vec<Partition>,
    /// What is wrong with the table itself, and does not keep it from being used.
    pub notes: Vec<String>,
}

impl PartitionTable {
    /// What is wrong with it on a disk of `size` bytes, as `sfdisk --verify` says it: [`PartitionTable::notes`], partitions that overlap,
    /// and those that end behind the disk.
    #[must_use]
    pub fn oddities(&self, size: u64) -> Vec<String> {
        let mut all = self.notes.clone();
        let beyond = self.parts.iter().filter(|part| part.end() > size);
        all.extend(beyond.map(|part| format!("partition {} ends behind the disk", part.number)));
        for (n, part) in self.parts.iter().enumerate() {
            let clash = self.parts[n + 1..].iter().find(|other| part.clashes(other));
            all.extend(
                clash.map(|other| {
                    format!("partitions {} and {} overlap", part.number, other.number)
                }),
            );
        }
        all
    }
}

impl fmt::Display for PartitionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: Vec<String> = self
            .parts
            .iter()
            .take(SHOWN)
            .map(ToString::to_string)
            .collect();
        match self.parts.len() {
            0 => shown.push("none".to_owned()),
            n if n > SHOWN => shown.push(format!("and {} more", n - SHOWN)),
            _ => {}
        }
        write!(f, "{} has {}", self.kind, shown.join(", "))
    }
}

/// Finds partition `number`, counted from 1, in a table whose addresses count sectors of `sector` bytes.
///
/// # Errors
/// There is no table, it is broken, or it has no such partition: the message says which, and lists the partitions. It is for writing, and
/// the partition overlaps another one, which that would destroy.
pub(crate) fn find(
    source: Source<'_>,
    sector: u32,
    number: u32,
    (name, read_only): (&str, bool),
) -> Result<Partition, DeviceError> {
    let missing = |why: String| DeviceError::new(DeviceErrorKind::NotFound, why);
    let table = match read(source, sector) {
        Ok(Some(table)) => table,
        Ok(None) => {
            let what = "it has no partition table (neither MBR nor GPT)";
            return Err(missing(format!("{name}: part={number}: {what}")));
        }
        Err(Wrong(why)) => return Err(missing(format!("{name}: part={number}: {why}"))),
    };
    let found = table.parts.iter().find(|p| p.number == number);
    let none = || missing(format!("{name} has no partition {number}; its {table}"));
    let found = *found.ok_or_else(none)?;
    let other = table
        .parts
        .iter()
        .find(|p| !read_only && p.number != number && p.clashes(&found));
    match other {
        Some(other) => {
            let (other, start, size) = (other.number, found.start, found.size);
            let what = format!(
                "{name}: partition {number} overlaps partition {other}; for writing, '?offset={start}&size={size}' opens it all the same"
            );
            Err(DeviceError::new(DeviceErrorKind::Locator, what))
        }
        None => Ok(found),
    }
}

/// The table, if there is a valid one.
pub(crate) fn list(source: Source<'_>, sector: u32) -> Option<PartitionTable> {
    read(source, sector).ok().flatten()
}

fn read(source: Source<'_>, sector: u32) -> Result<Option<PartitionTable>, Wrong> {
    let first = source.read(0, 512)?;
    let protective = mbr::is_protective(&first);
    let of_mbr = match protective {
        true => None,
        false => mbr::read(&source, &first, sector),
    };
    // A GPT that a later MBR has replaced may still be there; sfdisk and the kernel do not look at it, either.
    if let Some((parts, notes)) = of_mbr {
        return Ok(Some(PartitionTable {
            kind: TableKind::Mbr,
            parts,
            notes,
        }));
    }
    // The image may come from a disk with another sector size than the device that it is on now.
    for size in [sector, 512, 4096] {
        match gpt::read(&source, size) {
            gpt::Found::Table(parts, mut notes) => {
                if mbr::is_hybrid(&first) {
                    notes.push(
                        "its MBR has partitions of its own, which are not those of the GPT"
                            .to_owned(),
                    );
                }
                return Ok(Some(PartitionTable {
                    kind: TableKind::Gpt,
                    parts,
                    notes,
                }));
            }
            gpt::Found::Broken(why) => return Err(Wrong(format!("its GPT is broken: {why}"))),
            gpt::Found::None => {}
        }
    }
    match protective {
        true => Err(Wrong(
            "its MBR announces a GPT, and there is none".to_owned(),
        )),
        false => Ok(None),
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
