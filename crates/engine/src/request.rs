//! Requests and completions: what callers hand to a queue and get back.
//!
//! Input: what a caller asks for. Output: [`Request`]s on their way in, [`Completion`]s on their way out. Invariant: every
//! accepted request comes back exactly once, with its buffer. Limits: one request is at most 1 GiB.

use crate::error::Error;
use crate::op::{Fallocate, Op};
use diorite_block::Buf;

/// The largest request, in bytes.
pub const MAX_REQUEST: usize = 1 << 30;

/// A file that is attached to a queue: see [`crate::Queue::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl FileId {
    /// Stands for no file: for requests of a whole volume, and for those whose file is filled in later.
    pub(crate) const NONE: FileId = FileId {
        index: u32::MAX,
        generation: 0,
    };

    /// The id as a number, for callers in other languages.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The id that [`FileId::to_bits`] made a number of. Any other number is an id that no queue knows.
    #[must_use]
    pub const fn from_bits(bits: u64) -> FileId {
        FileId {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// How a request is to be executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestFlags {
    /// Fail with [`Error::WouldBlock`] instead of waiting for a lock, for metadata or for another request. A sync begins without waiting,
    /// so this does not affect it.
    pub nowait: bool,
    /// Acknowledge a change only when it, and what is needed to read it back, is durable.
    pub dsync: bool,
    /// As `dsync`, and the inode's times are durable, too.
    pub sync: bool,
}

impl RequestFlags {
    /// No flag: the request waits for what it needs, and its end promises nothing about a power cut.
    #[must_use]
    pub const fn none() -> RequestFlags {
        RequestFlags {
            nowait: false,
            dsync: false,
            sync: false,
        }
    }
}

diorite_block::setters!(const RequestFlags {
    nowait: bool,
    dsync: bool,
    sync: bool,
});

/// One request of a file: see [`crate::Queue`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
/// use diorite::{Buf, OpenOptions, Request, RequestFlags, Volume};
///
/// # fn main() -> Result<(), diorite::Error> {
/// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
/// let file = volume.create("/data", 0o644)?;
/// let queue = volume.queue(8)?;
/// let id = queue.attach(&file)?;
/// // When this has ended the data is durable, and so is what is needed to read it back.
/// let durable = RequestFlags::none().dsync(true);
/// let request = Request::append(id, Buf::zeroed(4096), 7).with_flags(durable);
/// queue.push(request).expect("the queue has room");
/// let done = queue.reap_one(None).expect("one request is in use");
/// assert_eq!((done.token, done.pos, done.result?), (7, 0, 4096));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// The file.
    pub file: FileId,
    /// The position in bytes; the new size for [`Op::Truncate`].
    pub pos: u64,
    /// The buffer; empty for all but reads, writes and appends.
    pub buf: Buf,
    /// The number of bytes for [`Op::Fallocate`]. Reads and writes take it from the buffer; the exception is [`Request::write_last`].
    pub len: u64,
    /// A value of the caller's choice, which comes back with the completion.
    pub token: u64,
    /// How to execute it.
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

    /// Writes the first `len` bytes of `buf` at byte `pos` as the last bytes of the file: the file ends behind them, even inside a logical
    /// block of the device. The buffer extends to the end of that block; its bytes behind the first `len` become zeros. Refused if the
    /// file would not become longer. A `len` of 0 stands for the whole buffer, as in [`Request::write`].
    #[must_use]
    pub fn write_last(file: FileId, pos: u64, buf: Buf, len: u64, token: u64) -> Request {
        Request {
            len,
            ..Request::write(file, pos, buf, token)
        }
    }

    /// The same write as an untorn one, as `RWF_ATOMIC` of pwritev2(2): readers, and whoever opens the volume after a power cut, find all
    /// of it or nothing of it. Its length is a power of two, its position is a multiple of the length, and the length is in the bounds of
    /// [`crate::Volume::atomic_limits`]; any other is `Invalid`. It never goes through the page cache.
    ///
    /// If the device has atomic writes, and the range is one written extent with a place on the device that is a multiple of the length,
    /// the data is written there, by one request of the device. A file or block device of the host promises that only for power cuts: a
    /// reader beside such a write may see a part of it. Otherwise the data is written to new blocks; when it is there, one
    /// transaction maps them in the place of the old ones. So it works in holes, in preallocated blocks and past the end too, where the
    /// size is a part of the transaction. It is not durable by itself: see [`RequestFlags::dsync`].
    ///
    /// Of two atomic writes of overlapping ranges one is on top. A plain write under way in the same range at the same time may be lost
    /// as if it had ended before the atomic one.
    ///
    /// Only a write of a whole buffer at a position can be atomic: any other request fails with `Invalid`.
    #[must_use]
    pub fn atomic(self) -> Request {
        let whole = matches!(self.op, Op::Write | Op::WriteAtomic) && self.len == 0;
        Request {
            op: Op::WriteAtomic,
            len: if whole { 0 } else { u64::MAX },
            ..self
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

    /// Makes durable all that was acknowledged before it is submitted, of all files and names of the volume: see [`crate::Volume::sync`].
    /// The request belongs to no file. Requests of this kind that are submitted together share a commit.
    #[must_use]
    pub fn sync_volume(token: u64) -> Request {
        Request::without_data(Op::SyncVolume, FileId::NONE, 0, token)
    }

    /// Makes the file `size` bytes long: see [`crate::File::truncate`]. It waits for all requests of the file that were submitted before
    /// it, and later ones wait for it.
    #[must_use]
    pub fn truncate(file: FileId, size: u64, token: u64) -> Request {
        Request::without_data(Op::Truncate, file, size, token)
    }

    /// Changes what `len` bytes at `pos` are mapped to: see [`crate::File::fallocate`]. Waits, and is waited for, as a truncation.
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

    /// A completion of this request with an error, for a request that never began.
    pub(crate) fn failed(self, error: Error) -> Completion {
        Completion {
            token: self.token,
            op: self.op,
            pos: self.pos,
            buf: self.buf,
            result: Err(error),
        }
    }

    /// The request with other flags.
    #[must_use]
    pub fn with_flags(self, flags: RequestFlags) -> Request {
        Request { flags, ..self }
    }
}

/// A finished request.
#[derive(Debug)]
#[must_use = "a failed write or sync is reported here alone"]
pub struct Completion {
    /// The token of the request.
    pub token: u64,
    /// The operation of the request.
    pub op: Op,
    /// The position of the request; for an append, the position at which the data was written.
    pub pos: u64,
    /// The request's buffer.
    pub buf: Buf,
    /// Bytes done, or the error. Fewer bytes than asked only for a read that meets the end of the file.
    pub result: Result<usize, Error>,
}
