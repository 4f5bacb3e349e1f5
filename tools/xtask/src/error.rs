//! What it is: every way in which making an image can fail.
//! Input: failures of the tools, of the host's files, of their answers. Output: one message.
//! Each variant says which tool or path it was, because the reader did not type the command.
//! Limit: errors are final; nothing is retried.

use std::path::{Path, PathBuf};

/// Why an image or its manifest could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No recipe has this name.
    #[error("no recipe is named {0:?} (see `cargo xtask images --list`)")]
    NoRecipe(String),
    /// A program could not be started.
    #[error("{program} could not be started: {source} (Debian has it in {package})")]
    Start {
        /// The program.
        program: String,
        /// The Debian package that holds it.
        package: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A program ended with a failure, or complained where it should be silent.
    #[error("{command} failed ({status}): {output}")]
    Tool {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it printed.
        output: String,
    },
    /// A file of the host could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A tool's answer was not understood.
    #[error("{what} was not understood: {text:?}")]
    Answer {
        /// Whose answer.
        what: &'static str,
        /// The text in question.
        text: String,
    },
    /// The manifest is not one of ours.
    #[error("{}: line {line}: {why}", path.display())]
    Manifest {
        /// The manifest's path.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Turns an I/O error into ours, naming the path.
pub(crate) fn at<E: Into<std::io::Error>>(path: &Path) -> impl FnOnce(E) -> Error + '_ {
    move |source| Error::Io {
        path: path.to_path_buf(),
        source: source.into(),
    }
}
