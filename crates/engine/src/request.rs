//! What callers hand to a queue and get back.
//!
//! Input: a caller's wish. Output: [`Request`]s on their way in, [`Completion`]s on their way out. Invariant: every
//! accepted request comes back exactly once, with its buffer. Limits: one request is at most 1 GiB.

use crate::error::Error;
use crate::op::{Fallocate, Op};
use diorite_block::Buf;

/// The largest request, in bytes.
pub const MAX_REQUEST: usize = 1 << 30;

/// A file as a queue knows it: see [`crate::Queue::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl FileId {
    /// No file: of a request that has yet to be told which.
    pub(crate) const NONE: FileId = FileId {
        index: u32::MAX,
        generation: 0,
    };
}

/// How to do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags {
    /// Fail with [`Error::WouldBlock`] rather than wait for a lock, metadata, another request. A sync waits for nothing before it has
    /// begun.
    pub nowait: bool,
    /// Acknowledge a change only when it, and what is needed to read it back, is durable.
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
    /// With what; empty for all but reads and writes.
    pub buf: Buf,
    /// How many bytes, for [`Op::Fallocate`]. For reads and writes the buffer says that; but see [`Request::write_last`].
    pub len: u64,
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
            buf,
            ..Request::without_data(Op::Read, file, pos, token)
        }
    }

    /// Writes `buf` at byte `pos`.
    #[must_use]
    pub fn write(file: FileId, pos: u64, buf: Buf, token: u64) -> Request {
        Request {
            buf,
            ..Request::without_data(Op::Write, file, pos, token)
        }
    }

    /// Writes the first `len` bytes of `buf` at byte `pos`: the last ones of a file, which ends there afterwards, also inside a logical
    /// block of the device. The buffer ends with that block; what it has behind those bytes becomes zeros. Refused if the file
    /// does not become longer by it.
    #[must_use]
    pub fn write_last(file: FileId, pos: u64, buf: Buf, len: u64, token: u64) -> Request {
        Request {
            len,
            ..Request::write(file, pos, buf, token)
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
        Request::without_data(op, file, 0, token)
    }

    /// Makes durable all that was acknowledged before it is submitted, of all files and names of the volume: [`crate::Volume::sync`]. It
    /// has no file, and those that are submitted together share a commit.
    #[must_use]
    pub fn sync_volume(token: u64) -> Request {
        Request::without_data(Op::SyncVolume, FileId::NONE, 0, token)
    }

    /// Makes the file `size` bytes long: see [`crate::File::truncate`]. Requests of the file that were submitted before end first, those
    /// submitted behind it wait.
    #[must_use]
    pub fn truncate(file: FileId, size: u64, token: u64) -> Request {
        Request::without_data(Op::Truncate, file, size, token)
    }

    /// Changes what `len` bytes at `pos` are mapped to: see [`crate::File::fallocate`]. In order with others as a truncation.
    #[must_use]
    pub fn fallocate(file: FileId, mode: Fallocate, pos: u64, len: u64, token: u64) -> Request {
        Request {
            len,
            ..Request::without_data(Op::Fallocate(mode), file, pos, token)
        }
    }

    fn without_data(op: Op, file: FileId, pos: u64, token: u64) -> Request {
        Request {
            op,
            file,
            pos,
            buf: Buf::empty(),
            len: 0,
            token,
            flags: RequestFlags::default(),
        }
    }

    /// The request, ended before it began.
    pub(crate) fn failed(self, error: Error) -> Completion {
        Completion {
            token: self.token,
            op: self.op,
            pos: self.pos,
            buf: self.buf,
            result: Err(error),
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
