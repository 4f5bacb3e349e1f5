//! What it is: what keeps the campaign from running; what it finds is no error.

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file or program of the host.
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    /// cargo said no.
    #[error("cargo failed: {0}")]
    Cargo(String),
    /// What cargo or an earlier run wrote was not understood.
    #[error("not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// A source that is no Rust.
    #[error("{file}: {source}")]
    Syntax { file: String, source: syn::Error },
}

/// The result of everything here.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Turns an I/O error into ours.
    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Io { what, source }
    }
}
