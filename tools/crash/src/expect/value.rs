//! What it is: the values that a sector may hold.
//! Input: an action and a sector of its file. Output: a [`Value`], and whether given bytes are that value.
//! Invariant: bytes after the end that the file began with are zeros until a write changes them.

use crate::history::{Action, Start, What};
use crate::stamp::{Held, OF_APPEND, SECTOR, Stamp, held};

/// A value of a sector. See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// What the sector held at the beginning: a stamp or zeros.
    Start,
    /// The stamp of the write with this number.
    Write(u32),
    /// The stamp of the append with this number: this sector of it, or any sector if the append's position is not known.
    Append(u32, Option<u64>),
}

impl Value {
    /// What the action leaves in this sector; none if it does not write there.
    pub(super) fn of(number: u32, action: &Action, sector: u64) -> Option<Value> {
        match (&action.what, action.sectors()) {
            (What::Append { .. }, None) => Some(Value::Append(number, None)),
            (What::Append { .. }, Some(sectors)) if sectors.contains(&sector) => {
                Some(Value::Append(number, Some(sector - sectors.start)))
            }
            (What::Write { .. }, Some(sectors)) if sectors.contains(&sector) => {
                Some(Value::Write(number))
            }
            _ => None,
        }
    }

    /// True if the sector, or the part of it that is inside the file, holds this value.
    pub(super) fn is(self, file: u32, start: &Start, sector: u64, bytes: &[u8]) -> bool {
        let mut expected = [0; SECTOR];
        let stamp = |sector, write| Stamp {
            file,
            sector,
            write,
        };
        match self {
            Value::Start if start.has_data(sector) => {
                let inside = start.size - sector * SECTOR as u64;
                let inside = usize::try_from(inside).map_or(SECTOR, |n| n.min(SECTOR));
                stamp(sector, 0).fill(&mut expected[..inside]);
            }
            Value::Start => {}
            Value::Write(write) => stamp(sector, write).fill(&mut expected),
            Value::Append(write, Some(nth)) => stamp(nth | OF_APPEND, write).fill(&mut expected),
            Value::Append(number, None) => {
                return matches!(held(bytes), Held::Stamp(s)
                    if s.file == file && s.write == number && s.sector & OF_APPEND != 0);
            }
        }
        expected[..bytes.len()] == *bytes
    }
}

/// What a sector holds, in words.
pub(super) fn tell(file: u32, sector: u64, bytes: &[u8]) -> String {
    match held(bytes) {
        Held::Stamp(s) if s.file == file && s.sector & OF_APPEND != 0 => {
            let nth = s.sector & !OF_APPEND;
            format!("sector {nth} of append {}", s.write)
        }
        Held::Stamp(s) if (s.file, s.sector) == (file, sector) => format!("write {}", s.write),
        Held::Stamp(s) => format!(
            "a sector of somebody else: file {}, sector {}, write {}",
            s.file, s.sector, s.write
        ),
        Held::Zeros => "zeros".into(),
        Held::Stale => "STALE bytes, which were never written to any file".into(),
        Held::Other => "bytes that nobody wrote, or half a write".into(),
    }
}
