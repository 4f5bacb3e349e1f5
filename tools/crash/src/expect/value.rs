//! What it is: what a sector may hold.
//! Input: an action and a sector of its file. Output: a [`Value`], and whether some bytes are it.
//! Invariant: bytes behind the end that the file began with are zeros until somebody writes them.

use crate::history::{Action, Start, What};
use crate::stamp::{Held, OF_APPEND, SECTOR, Stamp, held};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// What was there at the beginning, be it zeros.
    Start,
    /// The stamp of the write with this number.
    Write(u32),
    /// The stamp of the append with this number: this sector of it, or if nobody knows where it went any.
    Append(u32, Option<u64>),
}

impl Value {
    /// What the action leaves in this sector, if it may have written there.
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

    /// Is this what the sector, or the part of it that lies inside the file, holds?
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

/// What a sector turns out to hold, in words.
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
