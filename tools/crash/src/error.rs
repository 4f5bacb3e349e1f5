//! What it is: what keeps a round from running at all; what a judge finds is no error but a finding.
//! Input: failures of tools, of the host, of the engine where nothing may fail. Output: one message.
//! Limit: errors are final.

use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A tool of e2fsprogs, or the kernel.
    #[error(transparent)]
    Tool(#[from] xtask::error::Error),
    /// The engine, where the device below is well.
    #[error("diorite: {0}")]
    Engine(#[from] diorite::Error),
    /// The simulated disk.
    #[error(transparent)]
    Device(#[from] diorite_block::DeviceError),
    /// A file of the host.
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

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Turns an I/O error into ours, naming the path.
pub(crate) fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    move |source| Error::Io {
        path: path.to_path_buf(),
        source,
    }
}

/// Turns an error of serde_json into ours, naming what was read.
pub(crate) fn notes(what: &'static str) -> impl FnOnce(serde_json::Error) -> Error {
    move |source| Error::Notes { what, source }
}
