//! What can go wrong with a source.
//!
//! Input: errors of the host and of the engine, texts about sources. Output: a message for people, with its place; for programs the kind,
//! and the error that it began with. Invariants: a message begins with a place only once. Limits: none.

use std::fmt;
use std::io;

/// Which source, which file in it, and why. [`Error::kind`] tells programs what to do; [`Error::engine`] has numbers, such as how many
/// blocks were missing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The contents of a source make no sense, or a rule forbids what was asked for.
    Source(String),
    /// Of the engine.
    Engine(diorite::Error),
    /// Of the host.
    Io(io::Error),
    /// An error, and where it was met: a source, or a path in it or in the image.
    At {
        /// Where.
        place: String,
        /// What.
        error: Box<Error>,
    },
}

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Error {
        Error::Source(text.into())
    }

    /// The same, and where it was met.
    pub(crate) fn at(self, place: impl fmt::Display) -> Error {
        Error::At {
            place: place.to_string(),
            error: Box::new(self),
        }
    }

    /// The error without its places.
    #[must_use]
    pub fn root(&self) -> &Error {
        match self {
            Error::At { error, .. } => error.root(),
            root => root,
        }
    }

    /// The innermost place: mostly the path that it is about.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        match self {
            Error::At { place, error } => error.place().or(Some(place)),
            _ => None,
        }
    }

    /// The engine's error, without its places: `NoSpace` and `NoInodes`, and `TooSmall` in `Mkfs`, say how much was missing.
    #[must_use]
    pub fn engine(&self) -> Option<&diorite::Error> {
        match self.root() {
            Error::Engine(error) => Some(error.root()),
            _ => None,
        }
    }

    /// What happened, in the words of the standard library. `InvalidData`: a source whose contents make no sense.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self.root() {
            Error::Engine(error) => error.kind(),
            Error::Io(error) => error.kind(),
            Error::Source(_) | Error::At { .. } => io::ErrorKind::InvalidData,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Source(text) => f.write_str(text),
            Error::Engine(error) => error.fmt(f),
            Error::Io(error) => error.fmt(f),
            Error::At { place, error } => {
                let text = error.to_string();
                match text.strip_prefix(&**place) {
                    Some(rest) if rest.starts_with(": ") => f.write_str(&text),
                    _ => write!(f, "{place}: {text}"),
                }
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Source(_) => None,
            Error::Engine(error) => Some(error),
            Error::Io(error) => Some(error),
            Error::At { error, .. } => Some(error),
        }
    }
}

impl From<diorite::Error> for Error {
    fn from(error: diorite::Error) -> Error {
        Error::Engine(error)
    }
}

impl From<diorite::mkfs::Error> for Error {
    fn from(error: diorite::mkfs::Error) -> Error {
        Error::Engine(error.into())
    }
}

/// An error of the engine that went through `std::io` is one of the engine again.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.downcast::<diorite::Error>() {
            Ok(error) => Error::Engine(error),
            Err(error) => Error::Io(error),
        }
    }
}

/// The error becomes the source.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
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
