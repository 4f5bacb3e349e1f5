//! The types that variants of [`Error`](super::Error) carry.
//!
//! Input: what the code that fails has found. Output: the details of an error, and the words of its message. Invariants: none. Limits:
//! values only.

use crate::op::Op;
use diorite_format::{FsBlock, Ino};

/// The device is full below the volume: see [`Error::DeviceFull`](super::Error::DeviceFull).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of {len} bytes at {pos}: no space is left below {device}, on the host or volume that holds it; the volume itself is not full",
    op_name(*.op)
)]
pub struct DeviceFull {
    /// The device, by its path on the host or its locator.
    pub device: String,
    /// The request.
    pub op: Op,
    /// Its position in the file, or on the device for metadata.
    pub pos: u64,
    /// Its length.
    pub len: u32,
}

/// A file's map points to a block that cannot hold file data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "inode {ino}: file block {block} is mapped to block {at}, which holds {what}; the map is corrupt, run e2fsck"
)]
pub struct BadMap {
    /// The file.
    pub ino: Ino,
    /// The first file block concerned.
    pub block: u64,
    /// The block of the volume that it is mapped to.
    pub at: FsBlock,
    /// Which of the volume's own structures is there.
    pub what: &'static str,
}

/// Why something that is not damaged is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {help}")]
pub struct Refused {
    /// What was found.
    pub what: String,
    /// What to do.
    pub help: &'static str,
}

/// Which number is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misaligned {
    /// The position.
    Offset,
    /// The length.
    Length,
    /// The address of the buffer, or of one of its parts.
    Buffer,
}

impl std::fmt::Display for Misaligned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Misaligned::Offset => "the offset",
            Misaligned::Length => "the length",
            Misaligned::Buffer => "the buffer's address",
        })
    }
}

/// What a request with `nowait` would have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// The inode lock.
    InodeLock,
    /// An operation that has closed the file's gate.
    Gate,
    /// The exclusive turn: all other requests of the file would have to end.
    Exclusive,
    /// Dirty pages to be written back.
    Pages,
    /// A part of the file's map that is not in memory.
    Map,
    /// Another request's range of new space.
    Range,
    /// A bitmap to be read, or blocks to be claimed, by a worker.
    Space,
    /// A change of the inode that has to precede the first write.
    Inode,
    /// The device, which is busy.
    Device,
    /// A commit: the only free blocks were freed by a transaction that is not durable.
    Commit,
    /// A worker that changes or reads metadata.
    Metadata,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Wait::InodeLock => "the inode's lock",
            Wait::Gate => "an operation that keeps requests out of the file",
            Wait::Exclusive => "other requests of the file, to run alone",
            Wait::Pages => "dirty pages of the cache that have to be written back",
            Wait::Map => "a part of the file's map to be read",
            Wait::Range => "another write into the same new blocks",
            Wait::Space => "blocks to be claimed",
            Wait::Inode => "a change of the inode that comes before the first write",
            Wait::Device => "the device",
            Wait::Commit => "freed blocks to be usable, after the next commit",
            Wait::Metadata => "metadata to be changed",
        })
    }
}

/// What this version cannot do yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotYet {
    /// Access by name to a directory that is encrypted, or whose hash or comparison of names is not known here.
    SpecialDirectory {
        /// The directory.
        ino: Ino,
    },
}

impl std::fmt::Display for NotYet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotYet::SpecialDirectory { ino } => write!(
                f,
                "directory inode {ino}: names in a directory that is encrypted, folds case, or is hashed in a way that is not known here"
            ),
        }
    }
}

/// What messages call a request.
pub(super) fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::WriteAtomic => "atomic write",
        Op::Append => "append",
        Op::Sync | Op::DataSync | Op::SyncVolume => "flush",
        Op::Truncate => "truncation",
        Op::Fallocate(_) => "allocation",
    }
}
