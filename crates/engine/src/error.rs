//! The errors of the engine. A message says what was asked, what was found and where, and what to do about it.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `carried` | details of an error -> the types that variants of [`Error`] carry |
//! | `convert` | errors of the crates below -> [`Error`] |
//!
//! Input: every module. Output: one [`Error`] per failed request or call; frontends turn it into an errno or an exit code.
//! Invariant: damage ([`Error::Format`] with `Corrupt`, [`Error::BadMap`], [`Error::Damaged`]) has variants of its own, apart from what
//! is unsupported, refused or not built yet. Limits: no errno in here.

mod carried;
mod convert;

use crate::op::Op;
use carried::op_name;
use diorite_block::{BioError, BioErrorKind, Device, DeviceError};
use diorite_format::{FormatError, Ino};
use std::io::ErrorKind;
use std::sync::Arc;

pub use carried::{BadMap, DeviceFull, Misaligned, NotYet, Refused, Wait};

/// See the module. Cheap to move; the large variants are shared.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The volume's bytes are damaged, or use a feature that is not supported.
    #[error(transparent)]
    Format(Arc<FormatError>),
    /// An error, and where it was met: the file or structure that was being read.
    #[error("{}: {}", .0.0, .0.1)]
    At(Box<(String, Error)>),
    /// A file's map points where no file's data can be.
    #[error(transparent)]
    BadMap(Box<BadMap>),
    /// Structures that are valid one by one contradict each other.
    #[error("{0}")]
    Damaged(String),
    /// The device could not be opened or set up, or the host failed a call that has to do with no device.
    #[error(transparent)]
    Open(Arc<DeviceError>),
    /// The device failed a request.
    #[error("{} of {len} bytes at {pos}: {error}", op_name(*.op))]
    Device {
        /// The request.
        op: Op,
        /// Its position in the file, or on the device for metadata.
        pos: u64,
        /// Its length.
        len: u32,
        /// The device's error.
        error: BioError,
    },
    /// The device is full below the volume, for example a sparse image on a full host. The volume itself may have free space.
    #[error(transparent)]
    DeviceFull(Box<DeviceFull>),
    /// A number is not a multiple of what it must be.
    #[error(
        "{what} is {by} bytes past a multiple of {need}; direct I/O on this device needs multiples of {need}"
    )]
    Unaligned {
        /// Which number.
        what: Misaligned,
        /// How far it is past a multiple of `need`.
        by: u64,
        /// What it must be a multiple of.
        need: u64,
    },
    /// A request with `nowait` would have had to wait.
    #[error("the request would have to wait for {0}")]
    WouldBlock(Wait),
    /// The host gave no memory for the page cache.
    #[error("no memory for {asked} bytes of the page cache")]
    NoMemory {
        /// Bytes asked for.
        asked: u64,
    },
    /// Nothing was done, because this version cannot do it yet.
    #[error("not supported yet: {0}")]
    NotYet(NotYet),
    /// The request's arguments make no sense for this file or volume.
    #[error("{0}")]
    Invalid(String),
    /// A request names a file that is not attached to its queue.
    #[error("the request names a file that is not attached to its queue")]
    NotAttached,
    /// A new file system was not made, for a reason that no operation on a volume has: what it is to be filled with does not fit, or
    /// could not be read.
    #[error(transparent)]
    Mkfs(Box<diorite_mkfs::Error>),
    /// A file of this kind, or this device, can never do that.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// The write ends past the largest size that this file can have.
    #[error("inode {ino}: the write ends at byte {end}, past the {most} that this file can have")]
    TooBig {
        /// The file.
        ino: Ino,
        /// One past the last byte of the write.
        end: u64,
        /// The largest size of the file, in bytes.
        most: u64,
    },
    /// The file or the volume may not be changed.
    #[error("{0}")]
    ReadOnly(String),
    /// The file's own flags forbid the change.
    #[error("inode {ino} is {flag}: this is not permitted")]
    NotPermitted {
        /// The file.
        ino: Ino,
        /// Why: immutable, append-only, or one of the volume's own files.
        flag: &'static str,
    },
    /// Opening for writing is refused because of the volume's state, or access to a file's data because of what the file is.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// After an earlier error, which also aborted the journal, the volume is read-only until it is opened again.
    #[error("the volume has been read-only since an error: {0}")]
    Aborted(Box<Error>),
    /// The engine, or a device below it, panicked. That is a defect; the panic's own message says where.
    #[error("a part of diorite panicked: a defect, to be reported with the message of the panic")]
    Panicked,
    /// An atomic change is open, and the request would need a commit in the middle of it.
    #[error(
        "in the middle of an atomic change nothing is made durable, and nothing that it has freed or cut off is used again"
    )]
    InAtomic,
    /// An open atomic change made the file shorter, so the file cannot become longer before the atomic change is committed.
    #[error(
        "inode {ino} was cut within a block by the open atomic change: it can become longer when that is committed, for until then what \
was cut off may be wanted back"
    )]
    CutInAtomic {
        /// The file.
        ino: Ino,
    },
    /// An open atomic change wrote data of this file through the journal, so that data cannot be cut off or moved yet.
    #[error(
        "data of inode {ino} goes through the journal and was written by the open atomic change: it can be cut, punched or moved when \
that is committed"
    )]
    WrittenInAtomic {
        /// The file.
        ino: Ino,
    },
    /// An atomic change does not fit into one transaction.
    #[error(
        "the atomic change is too large: {changed} blocks of metadata are changed, the next change may need {needed} more, and the \
largest transaction of this journal is {most}"
    )]
    AtomicTooLarge {
        /// Blocks that the atomic change has changed.
        changed: u32,
        /// Blocks that the refused change may need.
        needed: u32,
        /// Blocks that one transaction may change.
        most: u32,
    },
    /// The volume has too few free blocks.
    #[error("no space left: {asked} blocks were asked for, {free} are free for this caller")]
    NoSpace {
        /// Blocks asked for; some callers could have used fewer.
        asked: u64,
        /// Free blocks: not claimed, not set aside, not reserved for privileged users, not kept for maps.
        free: u64,
    },
    /// The volume has no free inode.
    #[error("no inode left: all {total} inodes are in use")]
    NoInodes {
        /// Inodes of the volume.
        total: u32,
    },
    /// A directory has no room for another name; the volume may have free space.
    #[error(
        "directory inode {ino} is full: it cannot have more blocks, or its hash tree no more levels"
    )]
    DirectoryFull {
        /// The directory.
        ino: Ino,
    },
    /// The inode's own space and its attribute block have no room for another attribute; the volume may have free space.
    #[error(
        "inode {ino} has no room for the attribute: its own area and one block are all that there is"
    )]
    AttributesFull {
        /// The file.
        ino: Ino,
    },
    /// An attribute's name is longer than it can be.
    #[error("{name}: an attribute's name has at most 255 bytes")]
    AttributeName {
        /// The name asked for.
        name: String,
    },
    /// An attribute's value is longer than it can be.
    #[error("inode {ino}: a value of {len} bytes; an attribute's value has at most 65536")]
    AttributeTooBig {
        /// The file.
        ino: Ino,
        /// The value's length.
        len: usize,
    },
    /// An attribute of this name exists already.
    #[error("{name}: such an attribute exists already")]
    AttributeExists {
        /// The whole name.
        name: String,
    },
    /// There is no attribute of this name.
    #[error("{name}: no such attribute")]
    NoAttribute {
        /// The whole name.
        name: String,
    },
    /// Nothing exists at this path.
    #[error("{path}: no such file or directory")]
    NotFound {
        /// The path asked for.
        path: String,
    },
    /// An inode is not in use: it was deleted. If a name refers to it, the directory is damaged.
    #[error("inode {ino} is not in use")]
    NotInUse {
        /// The inode.
        ino: Ino,
    },
    /// The name exists already.
    #[error("{path}: exists already")]
    Exists {
        /// The path asked for.
        path: String,
    },
    /// A part of the path is not a directory.
    #[error("{path}: not a directory")]
    NotADirectory {
        /// The part that is not a directory.
        path: String,
    },
    /// The operation needs something else than a directory.
    #[error("{path}: is a directory")]
    IsADirectory {
        /// The path asked for.
        path: String,
    },
    /// The directory is not empty.
    #[error("{path}: directory not empty")]
    NotEmpty {
        /// The path asked for.
        path: String,
    },
    /// The root, or a directory named by `.` or `..`, cannot be moved or removed.
    #[error("{path}: is in use")]
    Busy {
        /// The path asked for.
        path: String,
    },
    /// A name, or a symbolic link's target, is too long.
    #[error("{path}: file name too long")]
    NameTooLong {
        /// The path asked for.
        path: String,
    },
    /// The inode's link count is at its limit: names of a file, or subdirectories of a directory.
    #[error("inode {ino} has too many links: {most} can be counted")]
    TooManyLinks {
        /// The file or directory.
        ino: Ino,
        /// The limit.
        most: u16,
    },
    /// Too many symbolic links on the way.
    #[error("{path}: too many levels of symbolic links")]
    SymlinkLoop {
        /// The path asked for.
        path: String,
    },
    /// The volume was closed.
    #[error("the volume is closed")]
    ShutDown,
}

/// Every completion carries an error, so errors stay small.
const _: () = assert!(size_of::<Error>() <= 32);

impl Error {
    /// What happened, in the words of the standard library: as of the errno that the kernel has for it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.root() {
            Error::NoSpace { .. } | Error::NoInodes { .. } | Error::DeviceFull(_) => {
                ErrorKind::StorageFull
            }
            Error::Mkfs(why) => why.kind(),
            Error::NoMemory { .. } => ErrorKind::OutOfMemory,
            Error::WouldBlock(_) => ErrorKind::WouldBlock,
            Error::TooBig { .. } => ErrorKind::FileTooLarge,
            Error::ReadOnly(_) | Error::Aborted(_) => ErrorKind::ReadOnlyFilesystem,
            Error::NotPermitted { .. } => ErrorKind::PermissionDenied,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::Exists { .. } => ErrorKind::AlreadyExists,
            Error::NotADirectory { .. } => ErrorKind::NotADirectory,
            Error::IsADirectory { .. } => ErrorKind::IsADirectory,
            Error::NotEmpty { .. } => ErrorKind::DirectoryNotEmpty,
            Error::Busy { .. } => ErrorKind::ResourceBusy,
            Error::NotSupported(_) | Error::NotYet(_) => ErrorKind::Unsupported,
            Error::Invalid(_) | Error::Unaligned { .. } | Error::NotAttached => {
                ErrorKind::InvalidInput
            }
            Error::Format(_) | Error::BadMap(_) | Error::Damaged(_) => ErrorKind::InvalidData,
            Error::Open(error) => error.io_kind(),
            Error::Device { error, .. } => error.io_kind(),
            _ => ErrorKind::Other,
        }
    }

    /// Builds [`Error::Refused`].
    pub(crate) fn refused(what: impl Into<String>, help: &'static str) -> Error {
        Error::Refused(Box::new(Refused {
            what: what.into(),
            help,
        }))
    }

    /// The error of a failed bio: [`Error::DeviceFull`] if the device has no space, else [`Error::Device`].
    pub(crate) fn of_bio(
        device: &dyn Device,
        op: Op,
        pos: u64,
        len: u32,
        error: BioError,
    ) -> Error {
        Error::of_failed(|| device.name(), op, pos, len, error)
    }

    /// As [`Error::of_bio`]; `device` gives the device's name.
    fn of_failed(
        device: impl FnOnce() -> String,
        op: Op,
        pos: u64,
        len: u32,
        error: BioError,
    ) -> Error {
        if error.kind != BioErrorKind::NoSpace {
            return Error::Device {
                op,
                pos,
                len,
                error,
            };
        }
        Error::DeviceFull(Box::new(DeviceFull {
            device: device(),
            op,
            pos,
            len,
        }))
    }

    /// The error of a failed flush.
    pub(crate) fn of_flush(device: &dyn Device, error: BioError) -> Error {
        Error::of_bio(device, Op::Sync, 0, 0, error)
    }

    /// Is this the error of a failed flush?
    pub(crate) fn is_of_flush(&self) -> bool {
        let op = match self.root() {
            Error::Device { op, .. } => *op,
            Error::DeviceFull(full) => full.op,
            _ => return false,
        };
        matches!(op, Op::Sync | Op::DataSync | Op::SyncVolume)
    }

    /// The error of a failed write of `len` bytes at `pos`.
    pub(crate) fn of_write(device: &dyn Device, pos: u64, len: u32, error: BioError) -> Error {
        Error::of_bio(device, Op::Write, pos, len, error)
    }

    /// Adds the place at which the error was met.
    #[must_use]
    pub fn at(self, context: impl Into<String>) -> Error {
        Error::At(Box::new((context.into(), self)))
    }

    /// The error without the places that [`Error::at`] added.
    #[must_use]
    pub fn root(&self) -> &Error {
        match self {
            Error::At(inner) => inner.1.root(),
            other => other,
        }
    }

    /// Does the error say that the volume is damaged?
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        match self.root() {
            Error::Format(e) => matches!(**e, FormatError::Corrupt(_)),
            Error::BadMap(_) | Error::Damaged(_) => true,
            _ => false,
        }
    }
}
