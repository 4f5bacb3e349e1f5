//! Why a file system was not made, in words for people.
//!
//! Input: every module. Output: one [`Error`] per failed call. Invariant: the engine's error holds each that its own operations never
//! report, and has a variant for each of the others. Limits: no errno in here.

use diorite_block::blocking::NotRead;
use diorite_block::{BioError, BioErrorKind, BioOp, Blocking, DeviceError};
use diorite_format::error::Unfit;
use diorite_format::{Corrupt, FormatError};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// See the module. Cheap to move; the large variants are shared.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was read of the device is damaged.
    #[error(transparent)]
    Format(Arc<FormatError>),
    /// The host failed a call.
    #[error(transparent)]
    Open(Arc<DeviceError>),
    /// The device failed a request.
    #[error("{} of {len} bytes at {pos}: {}", op_name(*.op), why(device, error))]
    Device {
        /// The device, by its path on the host or its locator.
        device: Box<str>,
        /// The request.
        op: BioOp,
        /// Its position on the device.
        pos: u64,
        /// Its length.
        len: u32,
        /// The device's error. [`BioErrorKind::NoSpace`]: the host or volume that holds the device is full, as for a sparse image.
        error: BioError,
    },
    /// The host gave no memory.
    #[error("no memory for {asked} bytes")]
    NoMemory {
        /// Bytes asked for.
        asked: u64,
    },
    /// The options make no sense, or do not fit each other or the device.
    #[error("{0}")]
    Invalid(String),
    /// The files do not fit.
    #[error("the files do not fit: {}", missing(*blocks, *block_size, *inodes))]
    TooSmall {
        /// Missing blocks.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
        /// Missing inodes.
        inodes: u64,
    },
    /// A file system of this size has no room for what every one has, or for what was asked for.
    #[error("{0}")]
    NoRoom(String),
    /// The data of a file could not be read from where it comes from.
    #[error("{0}")]
    Source(String),
    /// A feature that cannot be made.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// The device may not be changed.
    #[error("{0}")]
    ReadOnly(String),
    /// The code that gives contents, or a device, panicked. That is a defect; the panic's own message says where.
    #[error("a part of diorite panicked: a defect, to be reported with the message of the panic")]
    Panicked,
}

/// What is missing, and how much: only that.
fn missing(blocks: u64, block_size: u32, inodes: u64) -> String {
    let some = |n: u64, one: &str| match n {
        1 => format!("1 {one}"),
        _ => format!("{n} {one}s"),
    };
    let of_blocks = format!("{} of {block_size} bytes", some(blocks, "block"));
    match (blocks, inodes) {
        (1, 0) => format!("{of_blocks} is missing"),
        (_, 0) => format!("{of_blocks} are missing"),
        (0, 1) => "1 inode is missing".to_owned(),
        (0, _) => format!("{inodes} inodes are missing"),
        _ => format!("{of_blocks} and {} are missing", some(inodes, "inode")),
    }
}

fn op_name(op: BioOp) -> &'static str {
    match op {
        BioOp::Read => "read",
        BioOp::Flush => "flush",
        _ => "write",
    }
}

/// The end of the message about a failed request.
fn why(device: &str, error: &BioError) -> String {
    match error.kind {
        BioErrorKind::NoSpace => {
            format!("no space is left below {device}, on the host or volume that holds it")
        }
        _ => error.to_string(),
    }
}

impl Error {
    /// What happened, in the words of the standard library.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::TooSmall { .. } | Error::NoRoom(_) => ErrorKind::StorageFull,
            Error::NoMemory { .. } => ErrorKind::OutOfMemory,
            Error::ReadOnly(_) => ErrorKind::ReadOnlyFilesystem,
            Error::NotSupported(_) => ErrorKind::Unsupported,
            Error::Invalid(_) => ErrorKind::InvalidInput,
            Error::Format(_) => ErrorKind::InvalidData,
            Error::Open(error) => error.io_kind(),
            Error::Device { error, .. } => error.io_kind(),
            Error::Source(_) | Error::Panicked => ErrorKind::Other,
        }
    }

    /// The error of a failed bio.
    pub(crate) fn of_bio(
        blocking: &Blocking,
        op: BioOp,
        pos: u64,
        len: u64,
        error: BioError,
    ) -> Error {
        Error::Device {
            device: blocking.device().name().into(),
            op,
            pos,
            len: u32::try_from(len).unwrap_or(u32::MAX),
            error,
        }
    }
}

/// Reads any range of the device, rounded out to its logical blocks. Blocks.
///
/// # Errors
/// `Invalid` if the range passes the device's end; the device's.
pub fn read_bytes(blocking: &Blocking, at: u64, len: usize) -> Result<Vec<u8>, Error> {
    blocking.read_bytes(at, len).map_err(|why| match why {
        NotRead::PastEnd { size } => Error::Invalid(format!(
            "{}: too small for a file system: {size} bytes",
            blocking.device().name()
        )),
        NotRead::Device { pos, len, error } => {
            Error::of_bio(blocking, BioOp::Read, pos, len.into(), error)
        }
        why => Error::Invalid(format!("{}: {why}", blocking.device().name())),
    })
}

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        Error::Format(Arc::new(e))
    }
}

impl From<Corrupt> for Error {
    fn from(e: Corrupt) -> Error {
        Error::Format(Arc::new(e.into()))
    }
}

impl From<Unfit> for Error {
    fn from(e: Unfit) -> Error {
        Error::Invalid(e.to_string())
    }
}

impl From<DeviceError> for Error {
    fn from(e: DeviceError) -> Error {
        Error::Open(Arc::new(e))
    }
}

/// The error becomes the source; its kind is [`Error::kind`].
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// An error that was one of this crate is that again; another one is [`Error::Open`], as the host's.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => Error::from(DeviceError::from(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_go_through_the_standard_library_and_back() {
        let through = io::Error::from(Error::NoRoom("no room for a journal".to_owned()));
        assert_eq!(through.kind(), ErrorKind::StorageFull);
        assert!(matches!(Error::from(through), Error::NoRoom(_)));
        let host = Error::from(io::Error::from(ErrorKind::NotFound));
        assert!(matches!(host, Error::Open(_)));
        assert_eq!(host.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn only_what_is_missing_is_named() {
        let said = |blocks, inodes| {
            let block_size = 1024;
            Error::TooSmall {
                blocks,
                block_size,
                inodes,
            }
            .to_string()
        };
        let begin = "the files do not fit:";
        assert_eq!(
            said(2, 1),
            format!("{begin} 2 blocks of 1024 bytes and 1 inode are missing")
        );
        assert_eq!(
            said(1, 0),
            format!("{begin} 1 block of 1024 bytes is missing")
        );
        assert_eq!(said(0, 7), format!("{begin} 7 inodes are missing"));
    }
}
