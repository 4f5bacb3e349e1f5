//! What it is: the errors that stop a round. What a judge finds is a finding, not an error.
//! Input: failures of tools, of the host, and of the engine in places where it must not fail. Output: one message.
//! Limit: errors are final; nothing retries.

use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A tool of e2fsprogs, or the kernel, failed.
    #[error(transparent)]
    Tool(#[from] xtask::error::Error),
    /// The engine failed although the device below works.
    #[error("diorite: {0}")]
    Engine(#[from] diorite::Error),
    /// The simulated disk failed.
    #[error(transparent)]
    Device(#[from] diorite_block::DeviceError),
    /// A file of the host could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A writer's notes, or a kept state, could not be read.
    #[error("{what} was not understood: {source}")]
    Notes {
        /// What it was.
        what: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

/// The result of the functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Converts an I/O error and adds the path.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    move |source| Error::Io {
        path: path.to_path_buf(),
        source,
    }
}

/// Converts an error of serde_json and adds what was read.
pub(crate) fn notes(what: &'static str) -> impl FnOnce(serde_json::Error) -> Error {
    move |source| Error::Notes { what, source }
}
