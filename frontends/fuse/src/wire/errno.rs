//! The error number of each error of the engine.
//!
//! Input: errors. Output: numbers. Invariant: the numbers are those that the kernel's ext4 reports in the same case. Limits: what cannot be
//! told by a number is lost to the caller; the session's statistics count errors of devices.

use diorite::Error;
use diorite_block::BioErrorKind;
use rustix::io::Errno;

/// The number of an error.
#[must_use]
pub fn number(error: &Error) -> Errno {
    match error {
        Error::At(inner) => number(&inner.1),
        Error::Device { error, .. } => match error.kind {
            BioErrorKind::NoSpace => Errno::NOSPC,
            BioErrorKind::ReadOnly => Errno::ROFS,
            _ => Errno::IO,
        },
        Error::DeviceFull(_) | Error::NoSpace { .. } | Error::NoInodes { .. } => Errno::NOSPC,
        Error::DirectoryFull { .. } | Error::AttributesFull { .. } => Errno::NOSPC,
        Error::Unaligned { .. } | Error::Invalid(_) => Errno::INVAL,
        Error::WouldBlock(_) => Errno::AGAIN,
        Error::NoMemory { .. } => Errno::NOMEM,
        Error::NotYet(_) | Error::NotSupported(_) => Errno::OPNOTSUPP,
        Error::TooBig { .. } => Errno::FBIG,
        Error::ReadOnly(_) | Error::Aborted(_) => Errno::ROFS,
        Error::NotPermitted { .. } => Errno::PERM,
        Error::Refused(_) => Errno::OPNOTSUPP,
        Error::AttributeName { .. } => Errno::RANGE,
        Error::AttributeTooBig { .. } => Errno::TOOBIG,
        Error::AttributeExists { .. } | Error::Exists { .. } => Errno::EXIST,
        Error::NoAttribute { .. } => Errno::NODATA,
        Error::NotFound { .. } => Errno::NOENT,
        Error::NotInUse { .. } => Errno::STALE,
        Error::NotADirectory { .. } => Errno::NOTDIR,
        Error::IsADirectory { .. } => Errno::ISDIR,
        Error::NotEmpty { .. } => Errno::NOTEMPTY,
        Error::Busy { .. } => Errno::BUSY,
        Error::NameTooLong { .. } => Errno::NAMETOOLONG,
        Error::TooManyLinks { .. } => Errno::MLINK,
        _ => Errno::IO,
    }
}
