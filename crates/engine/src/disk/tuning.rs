//! Values for a superblock, judged.
//!
//! Input: a superblock, and [`Tuning`]. Output: whether the format has these values. Invariant: nothing is changed. Limit: features are
//! judged by those who see the volume.

use crate::error::Error;
use diorite_format::Superblock;
use diorite_format::superblock::Tuning;

/// The most reserved blocks are the volume's divided by this.
const RESERVED_PART: u64 = 2;

/// Judges the values.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_tuning(sb: &Superblock, tuning: &Tuning) -> Result<(), Error> {
    let invalid = |what: String| Err(Error::Invalid(what));
    let most = sb.geometry().blocks_count() / RESERVED_PART;
    match tuning.reserved_blocks {
        Some(blocks) if blocks > most => {
            return invalid(format!("{blocks} reserved blocks: at most {most}"));
        }
        _ => {}
    }
    match tuning.errors_behavior {
        None | Some(1..=3) => {}
        Some(n) => return invalid(format!("behaviour {n} after errors is unknown")),
    }
    match tuning.hash_version {
        None | Some(0..=2) => Ok(()),
        Some(n) => invalid(format!("the hash {n} is unknown")),
    }
}
