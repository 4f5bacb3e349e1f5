//! What can go wrong, in the words of people: what was asked, what was found, where, what to do.
//!
//! Input: every room. Output: one [`Error`] per failed request or call; frontends turn it into an errno or an exit code.
//! Invariant: damage ([`Error::Format`] with `Corrupt`, [`Error::BadMap`]) is never mixed with what is only unsupported,
//! refused or not yet built. Limits: no errno in here.

use crate::op::Op;
use diorite_block::{BioError, BioErrorKind, Device, DeviceError};
use diorite_format::error::Unfit;
use diorite_format::{FormatError, FsBlock, Ino};
use std::sync::Arc;

/// See the module. Cheap to move; the large variants are shared.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The volume's bytes are damaged, or use a feature that is not served.
    #[error(transparent)]
    Format(Arc<FormatError>),
    /// The error was found on the way to this place: which file or structure was being read, and what was found.
    #[error("{}: {}", .0.0, .0.1)]
    At(Box<(String, Error)>),
    /// A file's map points where no file's data can be.
    #[error(transparent)]
    BadMap(Box<BadMap>),
    /// Structures that are sound one by one do not fit together.
    #[error("{0}")]
    Damaged(String),
    /// The device could not be opened or set up.
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
    /// The device is full below us: a sparse image on a full host, say. The volume itself may have space.
    #[error(transparent)]
    DeviceFull(Box<DeviceFull>),
    /// A number is not a multiple of what it must be.
    #[error(
        "{what} is {by} bytes past a multiple of {need}; direct I/O on this device needs multiples of {need}"
    )]
    Unaligned {
        /// Which of the three.
        what: Misaligned,
        /// By how much.
        by: u64,
        /// What it must be a multiple of.
        need: u64,
    },
    /// The request asked not to wait, and would have to.
    #[error("the request would have to wait for {0}")]
    WouldBlock(Wait),
    /// Nothing was done, because this version cannot do it yet.
    #[error("not supported yet: {0}")]
    NotYet(NotYet),
    /// The request makes no sense here.
    #[error("{0}")]
    Invalid(String),
    /// Files of this kind, or this device, can never do that.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// Past the largest size a file of this kind can have.
    #[error("inode {ino}: the write ends at byte {end}, past the {most} that this file can have")]
    TooBig {
        /// The file.
        ino: Ino,
        /// One past the last byte asked.
        end: u64,
        /// The limit.
        most: u64,
    },
    /// The file or the volume may not be changed.
    #[error("{0}")]
    ReadOnly(String),
    /// The file's own flags forbid it.
    #[error("inode {ino} is {flag}: this is not permitted")]
    NotPermitted {
        /// The file.
        ino: Ino,
        /// immutable, append-only, one of the volume's own.
        flag: &'static str,
    },
    /// Opening for writing is refused because of the volume's state, or a file's data because of what it is.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// The journal was aborted by an earlier error: the volume is read-only until it is opened again.
    #[error("the volume is read-only since its journal was aborted: {0}")]
    Aborted(Box<Error>),
    /// The engine panicked, which is a defect of it, or what it stands on did: the panic's own message says where.
    #[error("a part of diorite panicked: a defect, to be reported with the message of the panic")]
    Panicked,
    /// A group of changes is open, and this would need a commit in the middle of it.
    #[error(
        "in the middle of a group of changes nothing is made durable, and nothing that it has freed or cut off is used again"
    )]
    InGroup,
    /// A file became shorter in a group of changes that is open, and would become longer again.
    #[error(
        "inode {ino} was cut within a block by the open group of changes: it can become longer when that is committed, for until then what was cut \
off may be wanted back"
    )]
    CutInGroup {
        /// The file.
        ino: Ino,
    },
    /// Data of a file went through the journal in a group of changes that is open, and would be cut off or moved.
    #[error(
        "data of inode {ino} goes through the journal and was written by the open group of changes: it can be cut, punched or moved when that is \
committed"
    )]
    WrittenInGroup {
        /// The file.
        ino: Ino,
    },
    /// A group of changes is larger than a transaction can be.
    #[error(
        "the group of changes is too large: {changed} blocks of metadata are changed, the next change may need {needed} more, and the largest transaction \
of this journal is {most}"
    )]
    GroupTooLarge {
        /// Blocks that it has changed.
        changed: u32,
        /// Blocks that the change may need which was refused.
        needed: u32,
        /// Blocks that one transaction may change.
        most: u32,
    },
    /// The volume has too few free blocks.
    #[error("no space left: {asked} blocks were asked for, {free} are free for this caller")]
    NoSpace {
        /// Blocks asked for, of which fewer would have done where that is said.
        asked: u64,
        /// Free ones: not claimed, not set aside, not kept for the privileged.
        free: u64,
    },
    /// The volume has no free inode.
    #[error("no inode left: all {total} are in use")]
    NoInodes {
        /// Inodes of the volume.
        total: u32,
    },
    /// A directory has no room for another name, though the volume may have.
    #[error(
        "directory inode {ino} is full: it cannot have more blocks, or its hash tree no more levels"
    )]
    DirectoryFull {
        /// The directory.
        ino: Ino,
    },
    /// The inode's area and its block of attributes have no room for another, though the volume may have.
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
    /// There is such an attribute.
    #[error("{name}: such an attribute exists already")]
    AttributeExists {
        /// The whole name.
        name: String,
    },
    /// There is no such attribute.
    #[error("{name}: no such attribute")]
    NoAttribute {
        /// The whole name.
        name: String,
    },
    /// A path leads nowhere.
    #[error("{path}: no such file or directory")]
    NotFound {
        /// The path asked for.
        path: String,
    },
    /// An inode is not in use: it was deleted, or, where a name stands for it, the directory is damaged.
    #[error("inode {ino} is not in use")]
    NotInUse {
        /// The inode.
        ino: Ino,
    },
    /// Something of that name is there already.
    #[error("{path}: exists already")]
    Exists {
        /// The path asked for.
        path: String,
    },
    /// A path goes through something that is not a directory.
    #[error("{path}: not a directory")]
    NotADirectory {
        /// The part that is none.
        path: String,
    },
    /// A file was expected and a directory found.
    #[error("{path}: is a directory")]
    IsADirectory {
        /// The path asked for.
        path: String,
    },
    /// A directory that has to be empty is not.
    #[error("{path}: directory not empty")]
    NotEmpty {
        /// The path asked for.
        path: String,
    },
    /// The root, or a directory by the name of itself or its parent, cannot be moved or removed.
    #[error("{path}: is in use")]
    Busy {
        /// The path asked for.
        path: String,
    },
    /// A name, or a symbolic link's target, is longer than it can be.
    #[error("{path}: file name too long")]
    NameTooLong {
        /// The path asked for.
        path: String,
    },
    /// An inode has as many names, or a directory as many subdirectories, as can be counted.
    #[error("inode {ino} has too many links: {most} can be counted")]
    TooManyLinks {
        /// The file or directory.
        ino: Ino,
        /// How many.
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

/// The device is full below us.
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

/// A file's map points where no file's data can be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "inode {ino}: file block {block} is mapped to block {at}, which holds {what}; the map is corrupt, run e2fsck"
)]
pub struct BadMap {
    /// The file.
    pub ino: Ino,
    /// The first file block concerned.
    pub block: u64,
    /// Where it is mapped to.
    pub at: FsBlock,
    /// What is there by the volume's geometry.
    pub what: &'static str,
}

/// Why something is refused although it is not damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {help}")]
pub struct Refused {
    /// What was found.
    pub what: String,
    /// What to do.
    pub help: &'static str,
}

/// Which of the three numbers is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What a request would have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The inode's lock.
    InodeLock,
    /// An operation that has closed the inode's gate.
    Gate,
    /// The exclusive turn.
    Turn,
    /// A part of the file's map that is not in memory.
    Map,
    /// Another request's range of new space.
    Range,
    /// A bitmap to be read, or blocks to be claimed.
    Space,
    /// A change of the inode that comes before the first write.
    Inode,
    /// The device below.
    Device,
    /// A commit: blocks were freed that may be used only after it.
    Commit,
    /// A change of metadata that moves no data.
    Metadata,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Wait::InodeLock => "the inode's lock",
            Wait::Gate => "an operation that keeps requests out of the file",
            Wait::Turn => "other requests of the file, to run alone",
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

/// What cannot be done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// Names in a directory that is encrypted, or hashed or compared in a way that is not known here.
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

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Append => "append",
        Op::Sync | Op::DataSync | Op::SyncVolume => "flush",
        Op::Truncate => "truncation",
        Op::Fallocate(_) => "allocation",
    }
}

/// Errors travel in every completion: they stay small.
const _: () = assert!(size_of::<Error>() <= 32);

impl Error {
    /// A refusal.
    pub(crate) fn refused(what: impl Into<String>, help: &'static str) -> Error {
        Error::Refused(Box::new(Refused {
            what: what.into(),
            help,
        }))
    }

    /// A request that the device failed.
    pub(crate) fn of_bio(
        device: &dyn Device,
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
        let device = device.name();
        Error::DeviceFull(Box::new(DeviceFull {
            device,
            op,
            pos,
            len,
        }))
    }

    /// A flush that failed.
    pub(crate) fn of_flush(device: &dyn Device, error: BioError) -> Error {
        Error::of_bio(device, Op::Sync, 0, 0, error)
    }

    /// Is it a flush that failed?
    pub(crate) fn is_of_flush(&self) -> bool {
        let op = match self.root() {
            Error::Device { op, .. } => *op,
            Error::DeviceFull(full) => full.op,
            _ => return false,
        };
        matches!(op, Op::Sync | Op::DataSync | Op::SyncVolume)
    }

    /// A write of `len` bytes at `pos` that failed.
    pub(crate) fn of_write(device: &dyn Device, pos: u64, len: u32, error: BioError) -> Error {
        Error::of_bio(device, Op::Write, pos, len, error)
    }

    /// The same error, with what was being looked at.
    #[must_use]
    pub fn at(self, context: impl Into<String>) -> Error {
        Error::At(Box::new((context.into(), self)))
    }

    /// The error without the places it was passed through.
    #[must_use]
    pub fn root(&self) -> &Error {
        match self {
            Error::At(inner) => inner.1.root(),
            other => other,
        }
    }

    /// The volume is damaged.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        match self.root() {
            Error::Format(e) => matches!(**e, FormatError::Corrupt(_)),
            Error::BadMap(_) | Error::Damaged(_) => true,
            _ => false,
        }
    }
}

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        Error::Format(Arc::new(e))
    }
}

impl From<diorite_format::Corrupt> for Error {
    fn from(e: diorite_format::Corrupt) -> Error {
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
