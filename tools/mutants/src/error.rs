//! What it is: the errors that stop a campaign; surviving mutants are not errors.

/// The errors. See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file or program of the host failed.
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    /// cargo failed.
    #[error("cargo failed: {0}")]
    Cargo(String),
    /// The output of cargo or of an earlier run could not be parsed.
    #[error("not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// A source is not valid Rust.
    #[error("{file}: {source}")]
    Syntax { file: String, source: syn::Error },
}

/// The result of the functions of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Converts an I/O error and adds what failed.
    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Io { what, source }
    }
}
