//! Errors: bytes that are corrupt (one variant per check) or use an unsupported feature, and values that the format cannot
//! store.
//! Input: a finding of a parser or writer. Output: a message: what was checked, what was found, where. Invariant: the kinds are
//! never mixed: damage is `Corrupt`, a newer or rarer format is `Unsupported`, a caller's value that the format cannot store is
//! `Unfit`. Limit: the engine adds the path and decides what to do about damage.

mod corrupt;

use thiserror::Error;

pub use corrupt::Corrupt;

/// Why bytes were not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes break a rule of the format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The bytes use an unsupported part of the format.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// Result of every parser of this crate.
pub type Result<T> = core::result::Result<T, FormatError>;

/// Features that prevent an access. The message names them all as `dumpe2fs` does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unsupported feature: {feature}{}; {help}", if *.read_only_would_do { " (reading would work: open it read-only)" } else { "" })]
pub struct Unsupported {
    /// The names, joined by a space.
    pub feature: String,
    /// Whether the volume can be opened for reading.
    pub read_only_would_do: bool,
    /// What the user can do about the first of them.
    pub help: &'static str,
}

/// Why a value was not written: the caller's value is at fault, the volume is not damaged, and nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The value is larger than its field on this volume.
    #[error("{what} is {found}; this volume stores at most {max}")]
    Value {
        /// The field.
        what: &'static str,
        /// The value.
        found: u64,
        /// The largest that fits.
        max: u64,
    },
    /// The value breaks a rule of its structure.
    #[error("{what}: {why}")]
    Rule {
        /// The structure.
        what: &'static str,
        /// The rule.
        why: &'static str,
    },
    /// The slice to write into is too short.
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

/// `Err(corrupt)`, for the parsers' early returns.
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

/// Returns the value if it is at most `max`.
pub(crate) fn fit(what: &'static str, found: u64, max: u64) -> core::result::Result<(), Unfit> {
    if found > max {
        return Err(Unfit::Value { what, found, max });
    }
    Ok(())
}

/// Returns the first `need` bytes of a slice to write into.
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
