//! What can go wrong with a source.

use std::fmt;

/// A message for people: which source, which file in it, and why.
#[derive(Debug)]
pub enum Error {
    /// Of a source.
    Source(String),
    /// Of the engine.
    Engine(diorite::Error),
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Error {
        Error::Source(text.into())
    }

    /// The same, and where it was met, unless it begins with that.
    pub(crate) fn at(self, place: impl fmt::Display) -> Error {
        let (before, text) = (format!("{place}: "), self.to_string());
        Error::Source(match text.starts_with(&before) {
            true => text,
            false => before + &text,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Source(text) => f.write_str(text),
            Error::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<diorite::Error> for Error {
    fn from(error: diorite::Error) -> Error {
        Error::Engine(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Source(error.to_string())
    }
}

/// Puts a place before an error.
pub(crate) trait Place<T> {
    fn at(self, place: impl fmt::Display) -> Result<T, Error>;
}

impl<T, E: Into<Error>> Place<T> for Result<T, E> {
    fn at(self, place: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|error| error.into().at(place))
    }
}
