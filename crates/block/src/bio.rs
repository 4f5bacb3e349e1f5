//! One request to a device: operation, position, memory, and result.
//!
//! Input: code that plans I/O fills a bio and puts it on a [`BioList`]. Output: the same bio, ended, on the list of the reaper.
//! Invariant: a bio has exactly one owner at a time, so its buffer cannot be touched while the device has it. Limits: positions
//! and lengths are bytes, multiples of the device's logical block; at most 2 GiB of data.

use crate::buf::Buf;
use std::collections::VecDeque;
use std::fmt;

/// Bios in the order in which they will be submitted, or in which they ended.
pub type BioList = VecDeque<Bio>;

/// Empties a list whose members have been moved out bitwise, without visiting them again. The list keeps its capacity. Memory
/// that a member still owns is leaked.
#[inline]
pub fn forget_moved<T>(list: &mut Vec<T>) {
    // SAFETY: no length is shorter than zero, and members that are not dropped are only leaked.
    unsafe { list.set_len(0) };
}

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BioOp {
    /// Fill the buf from `pos`.
    Read,
    /// Write the buf to `pos`.
    Write,
    /// Make durable all writes that ended before the flush began.
    Flush,
    /// The range's contents are no longer needed; what it then reads as is undefined.
    Discard,
    /// The range reads as zeros; its space stays allocated.
    WriteZeroes,
    /// The range reads as zeros; its space may be given back.
    WriteZeroesUnmap,
}

/// Modifiers of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BioFlags {
    /// Durable when it ends (forced unit access).
    pub fua: bool,
    /// Fail with [`BioErrorKind::WouldBlock`] rather than block.
    pub nowait: bool,
    /// After a power cut all of the write is there, or nothing: only for a device that has [`crate::Device::atomic_writes`], and within
    /// their bounds.
    pub atomic: bool,
    /// A read or write whose end owes nothing more (rule C12): if the queue polls its device, this one may be polled for.
    pub polled: bool,
}

impl BioFlags {
    /// No flag.
    #[must_use]
    pub const fn none() -> BioFlags {
        BioFlags {
            fua: false,
            nowait: false,
            atomic: false,
            polled: false,
        }
    }
}

crate::setters!(const BioFlags {
    fua: bool,
    nowait: bool,
    atomic: bool,
    polled: bool,
});

/// What went wrong, in terms of block devices. errno appears only in frontends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BioErrorKind {
    /// The device failed the request.
    Io,
    /// The storage below the device is full: a sparse image on a full host.
    NoSpace,
    /// The request would have blocked, and the caller asked not to block.
    WouldBlock,
    /// Wrong alignment or bounds, or an operation that the device never accepts.
    Invalid,
    /// The device does not support the operation: turn the feature off.
    Unsupported,
    /// The device is read-only.
    ReadOnly,
    /// The device is gone.
    Gone,
}

/// A failed bio's error: its kind, and the host's errno if there is one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BioError {
    /// What went wrong.
    pub kind: BioErrorKind,
    /// The host's errno; 0 if diorite made the error.
    pub os: u16,
}

impl BioError {
    /// An error without a host errno.
    #[must_use]
    pub const fn new(kind: BioErrorKind) -> BioError {
        BioError { kind, os: 0 }
    }

    /// The kind that a host errno maps to.
    #[must_use]
    pub fn from_errno(errno: i32) -> BioError {
        let kind = match errno {
            libc::ENOSPC | libc::EDQUOT => BioErrorKind::NoSpace,
            libc::EAGAIN => BioErrorKind::WouldBlock,
            libc::EINVAL | libc::EFAULT | libc::EFBIG => BioErrorKind::Invalid,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => BioErrorKind::Unsupported,
            libc::EROFS | libc::EBADF | libc::EPERM | libc::EACCES => BioErrorKind::ReadOnly,
            libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN => BioErrorKind::Gone,
            _ => BioErrorKind::Io,
        };
        BioError {
            kind,
            os: u16::try_from(errno).unwrap_or(0),
        }
    }

    /// What happened, in the words of the standard library: those of the host's errno if there is one.
    #[must_use]
    pub fn io_kind(&self) -> std::io::ErrorKind {
        use std::io::ErrorKind;
        match self.kind {
            BioErrorKind::NoSpace => ErrorKind::StorageFull,
            BioErrorKind::WouldBlock => ErrorKind::WouldBlock,
            BioErrorKind::Invalid => ErrorKind::InvalidInput,
            BioErrorKind::Unsupported => ErrorKind::Unsupported,
            BioErrorKind::ReadOnly => ErrorKind::ReadOnlyFilesystem,
            BioErrorKind::Io | BioErrorKind::Gone if self.os != 0 => {
                std::io::Error::from_raw_os_error(self.os.into()).kind()
            }
            BioErrorKind::Io | BioErrorKind::Gone => ErrorKind::Other,
        }
    }
}

impl fmt::Debug for BioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.kind {
            BioErrorKind::Io => "input/output error",
            BioErrorKind::NoSpace => "no space left below the device",
            BioErrorKind::WouldBlock => "the request would block",
            BioErrorKind::Invalid => "invalid request",
            BioErrorKind::Unsupported => "operation not supported by the device",
            BioErrorKind::ReadOnly => "the device is read-only",
            BioErrorKind::Gone => "the device is gone",
        };
        f.write_str(text)?;
        if self.os != 0 {
            write!(
                f,
                " ({})",
                std::io::Error::from_raw_os_error(i32::from(self.os))
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for BioError {}

/// One request to a device.
#[derive(Debug)]
pub struct Bio {
    /// The memory to fill or to write; empty for flush, discard and write-zeroes.
    pub buf: Buf,
    /// Position in bytes from the device's start.
    pub pos: u64,
    /// Length in bytes; the buf's length if there is a buf.
    pub len: u64,
    /// A value of the submitter's; devices carry it and never read it.
    pub token: u64,
    /// What to do.
    pub op: BioOp,
    /// How to do it.
    pub flags: BioFlags,
    /// The result. Meaningless until the bio is reaped.
    pub result: Result<(), BioError>,
}

impl Bio {
    /// Reads `buf.len()` bytes at `pos`.
    #[must_use]
    pub fn read(pos: u64, buf: Buf, token: u64) -> Bio {
        Bio::data(BioOp::Read, pos, buf, token)
    }

    /// Writes `buf` to `pos`.
    #[must_use]
    pub fn write(pos: u64, buf: Buf, token: u64) -> Bio {
        Bio::data(BioOp::Write, pos, buf, token)
    }

    /// A flush of everything that ended before it.
    #[must_use]
    pub fn flush(token: u64) -> Bio {
        Bio::range(BioOp::Flush, 0, 0, token)
    }

    /// A request for a range without data: discard or write-zeroes.
    #[must_use]
    pub fn range(op: BioOp, pos: u64, len: u64, token: u64) -> Bio {
        Bio::new(op, (pos, len), Buf::empty(), token)
    }

    fn data(op: BioOp, pos: u64, buf: Buf, token: u64) -> Bio {
        Bio::new(op, (pos, buf.len() as u64), buf, token)
    }

    #[inline]
    fn new(op: BioOp, (pos, len): (u64, u64), buf: Buf, token: u64) -> Bio {
        Bio {
            buf,
            pos,
            len,
            token,
            op,
            flags: BioFlags::none(),
            result: Ok(()),
        }
    }

    /// The position after the last byte; none if it overflows.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.pos.checked_add(self.len)
    }
}
