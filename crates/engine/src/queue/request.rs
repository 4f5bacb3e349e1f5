//! What callers hand to a queue and get back.
//!
//! Input: a caller's wish. Output: [`Request`]s on their way in, [`Completion`]s on their way out. Invariant: every
//! accepted request comes back exactly once, with its buffer. Limits: one request is at most 1 GiB.

use crate::error::Error;
use diorite_block::Buf;

/// The largest request, in bytes.
pub const MAX_REQUEST: usize = 1 << 30;

/// A file as a queue knows it: see [`super::Queue::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer from the file.
    Read,
    /// Write the buffer into the file.
    Write,
    /// Write the buffer at the end of the file, behind every append before; the completion says where.
    Append,
    /// Make durable what was acknowledged before (fsync).
    Sync,
    /// The same without what no reader of the data needs (fdatasync).
    DataSync,
}

/// How to do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags {
    /// Fail with [`Error::WouldBlock`] rather than wait for a lock, metadata, another request.
    pub nowait: bool,
    /// Acknowledge a write only when its data, and what is needed to read it back, is durable.
    pub dsync: bool,
    /// As `dsync`, with the times too.
    pub sync: bool,
}

/// One request of a file.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Which file.
    pub file: FileId,
    /// Where, in bytes.
    pub pos: u64,
    /// With what; empty for [`Op::Sync`].
    pub buf: Buf,
    /// The caller's own mark; it comes back with the completion.
    pub token: u64,
    /// How.
    pub flags: RequestFlags,
}

impl Request {
    /// Reads into `buf` from byte `pos`.
    #[must_use]
    pub fn read(file: FileId, pos: u64, buf: Buf, token: u64) -> Request {
        Request {
            op: Op::Read,
            file,
            pos,
            buf,
            token,
            flags: RequestFlags::default(),
        }
    }

    /// Writes `buf` at byte `pos`.
    #[must_use]
    pub fn write(file: FileId, pos: u64, buf: Buf, token: u64) -> Request {
        Request {
            op: Op::Write,
            file,
            pos,
            buf,
            token,
            flags: RequestFlags::default(),
        }
    }

    /// Writes `buf` at the end of the file.
    #[must_use]
    pub fn append(file: FileId, buf: Buf, token: u64) -> Request {
        Request {
            op: Op::Append,
            ..Request::write(file, 0, buf, token)
        }
    }

    /// Makes acknowledged writes durable.
    #[must_use]
    pub fn sync(file: FileId, data_only: bool, token: u64) -> Request {
        let op = if data_only { Op::DataSync } else { Op::Sync };
        Request {
            op,
            file,
            pos: 0,
            buf: Buf::empty(),
            token,
            flags: RequestFlags::default(),
        }
    }

    /// The same, with these flags.
    #[must_use]
    pub fn with_flags(self, flags: RequestFlags) -> Request {
        Request { flags, ..self }
    }
}

/// A finished request.
#[derive(Debug)]
pub struct Completion {
    /// The caller's mark.
    pub token: u64,
    /// What was asked.
    pub op: Op,
    /// Where it was asked; where it went, for an append.
    pub pos: u64,
    /// The request's buffer.
    pub buf: Buf,
    /// Bytes done (fewer than asked only for a read that meets the end of the file), or why not.
    pub result: Result<usize, Error>,
}
