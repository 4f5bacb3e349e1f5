//! Why a measurement failed: a message, and whether the command line or the machine is the cause.
//!
//! Input: errors of every layer below. Output: [`Failure`]s for the command's exit code. Invariant: a failure names the failed
//! operation. Limits: none.

use std::fmt;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The command line asks for something impossible.
    Usage,
    /// A device, file system or tool failed.
    Failed,
    /// This machine cannot do it (no root, no such tool); an experiment may go on without it.
    Unavailable,
    /// The reader of standard output has closed it: not an error.
    NobodyReads,
    /// Interrupted by a signal.
    Interrupted,
}

/// See the module.
#[derive(Debug)]
pub struct Failure {
    /// Whether the command line or the machine is the cause.
    pub kind: FailureKind,
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub(super) fn new(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure {
            kind,
            what: what.into(),
        }
    }

    pub(super) fn usage(what: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Usage, what)
    }

    pub(super) fn failed(what: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Failed, what)
    }

    pub(super) fn unavailable(what: impl Into<String>) -> Failure {
        Failure::new(FailureKind::Unavailable, what)
    }

    pub(super) fn interrupted() -> Failure {
        Failure::new(FailureKind::Interrupted, "interrupted")
    }

    /// An error of the host, with a description of the failed operation.
    pub(super) fn host(doing: impl fmt::Display, error: impl fmt::Display) -> Failure {
        Failure::failed(format!("{doing}: {error}"))
    }
}

impl From<diorite_block::DeviceError> for Failure {
    fn from(error: diorite_block::DeviceError) -> Failure {
        Failure::failed(error.to_string())
    }
}
