//! Why a measurement did not come about: a sentence, and whether the caller or the machine is to blame.
//!
//! Input: errors of every layer below. Output: [`Failure`]s for the command's exit code. Invariant: a failure names what
//! was being done. Limits: none.

use std::fmt;

/// What sort of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The command line asks for something that cannot be.
    Usage,
    /// A device, file system or tool failed.
    Failed,
    /// This machine cannot do it (no root, no such tool); an experiment may go on without it.
    Unavailable,
    /// Who read standard output has gone: not an error.
    NobodyReads,
    /// Interrupted by a signal.
    Interrupted,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
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

    /// A host error, with what was being done.
    pub(super) fn host(doing: impl fmt::Display, error: impl fmt::Display) -> Failure {
        Failure::failed(format!("{doing}: {error}"))
    }
}

impl From<diorite_block::DeviceError> for Failure {
    fn from(error: diorite_block::DeviceError) -> Failure {
        Failure::failed(error.to_string())
    }
}
