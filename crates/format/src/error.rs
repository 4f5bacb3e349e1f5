//! What can be wrong with bytes: corrupt (one variant per check) or made with a feature that we do not take. And with
//! a value that shall become bytes: unfit.
//! Input: a parser's or a writer's finding. Output: a message for people: what was checked, what was found, where.
//! Invariant: the kinds are never mixed: damage is `Corrupt`, a newer or rarer format is `Unsupported`, a caller's value
//! that the format cannot hold is `Unfit`.
//! Limit: nothing here says what to do about damage; the engine adds the path and decides.

mod corrupt;

use thiserror::Error;

pub use corrupt::Corrupt;

/// Why bytes were not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The bytes break a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The bytes use a part of the format that is not served.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// Result of every parser of this crate.
pub type Result<T> = core::result::Result<T, FormatError>;

/// Features in the way of an access. The message names them all as `dumpe2fs` does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unsupported feature: {feature}{}; {help}", if *.read_only_would_do { " (reading would work: open it read-only)" } else { "" })]
pub struct Unsupported {
    /// The names, joined by a space.
    pub feature: String,
    /// Whether the same volume could be opened for reading.
    pub read_only_would_do: bool,
    /// What a person can do about the first of them.
    pub help: &'static str,
}

/// Why a value was not put on disk: it is the caller's, so nothing on the volume is wrong, and nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unfit {
    /// Larger than what its field stores on this volume.
    #[error("{what} is {found}; this volume stores at most {max}")]
    Value {
        /// Which.
        what: &'static str,
        /// The value.
        found: u64,
        /// The largest that fits.
        max: u64,
    },
    /// Breaks a rule of the structure that it belongs to.
    #[error("{what}: {why}")]
    Rule {
        /// Of what.
        what: &'static str,
        /// Which rule.
        why: &'static str,
    },
    /// The bytes to write into are too few.
    #[error("{what} needs {need} bytes, got {have}")]
    Short {
        /// What was to be written.
        what: &'static str,
        /// Its size.
        need: u64,
        /// The size of the slice.
        have: u64,
    },
}

/// `Err(corrupt)` in one word, for the parsers' early returns.
pub(crate) fn bad<T>(corrupt: Corrupt) -> Result<T> {
    Err(FormatError::Corrupt(corrupt))
}

/// Refuses a slice shorter than `need` bytes.
pub(crate) fn want(what: &'static str, bytes: &[u8], need: usize) -> Result<()> {
    if bytes.len() < need {
        return bad(Corrupt::Short {
            what,
            need: crate::num::wide(need),
            have: crate::num::wide(bytes.len()),
        });
    }
    Ok(())
}

/// A value in a field of at most `max`, or why not.
pub(crate) fn fit(what: &'static str, found: u64, max: u64) -> core::result::Result<(), Unfit> {
    if found > max {
        return Err(Unfit::Value { what, found, max });
    }
    Ok(())
}

/// The first `need` bytes to write into, or why not.
pub(crate) fn room<'a>(
    what: &'static str,
    bytes: &'a mut [u8],
    need: usize,
) -> core::result::Result<&'a mut [u8], Unfit> {
    let have = crate::num::wide(bytes.len());
    bytes.get_mut(..need).ok_or(Unfit::Short {
        what,
        need: crate::num::wide(need),
        have,
    })
}
