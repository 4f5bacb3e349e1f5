//! What it is: the errors of making an image.
//! Input: failures of tools and of the host's files, and output of tools that cannot be parsed. Output: one message.
//! Each variant names the tool or the path, because the user did not type the command.
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
    /// A program failed, or printed a complaint where it must print none.
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
    /// A tool's output could not be parsed.
    #[error("{what} was not understood: {text:?}")]
    Answer {
        /// The tool.
        what: &'static str,
        /// The text in question.
        text: String,
    },
    /// The manifest is not in this format.
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

/// The result of the functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Converts an I/O error and adds the path.
pub(crate) fn at<E: Into<std::io::Error>>(path: &Path) -> impl FnOnce(E) -> Error + '_ {
    move |source| Error::Io {
        path: path.to_path_buf(),
        source: source.into(),
    }
}
