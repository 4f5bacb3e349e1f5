//! What it is: edits of a file that is written through the page cache and directly, by one request at a time.
//! Input: requests of a workload. Output: for each edit the size after it and what it leaves in a sector.
//! Invariants: a write begins at a sector and ends anywhere only at the end of the file; other ranges are whole sectors. Limit: an edit
//! that replaces the file makes a new one, whose contents have nothing to do with those before.

use crate::stamp::SECTOR;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// An edit. Ranges and sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// Write these bytes; the file grows if it ends before them.
    Write {
        /// The bytes.
        bytes: Range<u64>,
        /// How they are written.
        way: Way,
        /// O_DSYNC or O_SYNC.
        durable: bool,
    },
    /// Set this size.
    Truncate(u64),
    /// Make a hole of the range.
    Punch(Range<u64>),
    /// Write this many bytes to a new file through the page cache, perhaps sync that, and give it the name.
    Replace {
        /// The new file's size.
        size: u64,
        /// It is synced before it gets the name.
        synced: bool,
    },
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Through the page cache.
    Cached,
    /// From the caller's buffer to the device.
    Direct,
}

/// What an edit leaves in a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Zeros,
    /// The first bytes are of its stamp, the others zeros.
    Stamp(usize),
}

impl Edit {
    /// True if its acknowledgement promises that it is durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        match self {
            Edit::Write { durable, .. } => *durable,
            Edit::Replace { synced, .. } => *synced,
            Edit::Truncate(_) | Edit::Punch(_) => false,
        }
    }

    /// The size after the edit of a file of `size` bytes.
    pub(crate) fn size_after(&self, size: u64) -> u64 {
        match self {
            Edit::Write { bytes, .. } => size.max(bytes.end),
            Edit::Truncate(to) => *to,
            Edit::Punch(_) => size,
            Edit::Replace { size, .. } => *size,
        }
    }

    /// What it leaves in a sector of a file of `size` bytes; none if it does not change the sector.
    pub(crate) fn leaves(&self, sector: u64, size: u64) -> Option<Left> {
        let at = sector * SECTOR as u64;
        match self {
            Edit::Write { bytes, .. } if bytes.contains(&at) => Some(stamp(at, bytes.end)),
            // A gap behind the end.
            Edit::Write { bytes, .. } => (at >= size && at < bytes.start).then_some(Left::Zeros),
            Edit::Truncate(to) => (at >= *to.min(&size)).then_some(Left::Zeros),
            Edit::Punch(bytes) => bytes.contains(&at).then_some(Left::Zeros),
            Edit::Replace { size, .. } => Some(match at < *size {
                true => stamp(at, *size),
                false => Left::Zeros,
            }),
        }
    }
}

fn stamp(at: u64, end: u64) -> Left {
    let len = usize::try_from(end - at).unwrap_or(SECTOR);
    Left::Stamp(len.min(SECTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn write(bytes: Range<u64>) -> Edit {
        Edit::Write {
            bytes,
            way: Way::Cached,
            durable: false,
        }
    }

    #[test]
    fn a_write_leaves_its_stamps_and_zeros_in_the_gap_before_it() {
        let edit = write(1024..1600);
        let of = |size| [0, 1, 2, 3, 4].map(|sector| edit.leaves(sector, size));
        let stamps = [Some(Left::Stamp(512)), Some(Left::Stamp(64)), None];
        assert_eq!(of(512)[..2], [None, Some(Left::Zeros)]);
        assert_eq!(of(512)[2..], stamps);
        assert_eq!(of(4096)[..2], [None, None]);
        assert_eq!((edit.size_after(512), edit.size_after(4096)), (1600, 4096));
    }

    #[test]
    fn what_is_cut_off_is_zeros_if_the_file_grows_again() {
        let of = |edit: Edit| [0, 1, 2, 3].map(|sector| edit.leaves(sector, 1024));
        let (zeros, none) = (Some(Left::Zeros), None);
        assert_eq!(of(Edit::Truncate(512)), [none, zeros, zeros, zeros]);
        assert_eq!(of(Edit::Truncate(4096)), [none, none, zeros, zeros]);
        assert_eq!(of(Edit::Punch(0..512)), [zeros, none, none, none]);
    }
}
