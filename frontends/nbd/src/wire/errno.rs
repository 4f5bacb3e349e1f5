//! The error numbers of the protocol, and which of them each error of a device becomes.
//!
//! Input: errors of bios. Output: numbers. Invariant: only numbers that the protocol defines are sent. Limits: none.

use diorite_block::{BioError, BioErrorKind};

/// An error as the protocol numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only.
    Perm = 1,
    /// The device failed.
    Io = 5,
    /// No memory.
    NoMem = 12,
    /// The request makes no sense.
    Inval = 22,
    /// No space, or a write past the end.
    NoSpc = 28,
    /// A read that may not be divided is too long.
    Overflow = 75,
    /// Not supported, or not fast.
    NotSup = 95,
    /// The server ends.
    Shutdown = 108,
}

impl Errno {
    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl From<BioError> for Errno {
    fn from(error: BioError) -> Errno {
        match error.kind {
            BioErrorKind::NoSpace => Errno::NoSpc,
            BioErrorKind::Invalid => Errno::Inval,
            BioErrorKind::Unsupported => Errno::NotSup,
            BioErrorKind::ReadOnly => Errno::Perm,
            BioErrorKind::Gone => Errno::Shutdown,
            // `Io`, and what the protocol has no number for. A bio without `nowait` that would block is a failure of the device.
            _ => Errno::Io,
        }
    }
}
