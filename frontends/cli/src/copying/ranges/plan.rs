//! Divides a device, or the common space of two, into parts: ranges known to be zeros, and ranges to be read.
//!
//! Input: how the devices store their bytes. Output: parts, in order, that cover the range without a gap. Invariants: bounds are multiples
//! of the unit, so that each device can be asked for the part; a unit with any byte that may be data is data; whatever a device answers,
//! each step moves on; a device that fails to answer has data there, and the read tells. Limits: parts that are read have at most
//! [`super::bufs::LARGE`] bytes, others at most [`SPAN`].

use super::bufs::LARGE;
use diorite_block::Device;
use diorite_block::device::{Run, Stored};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The longest range of zeros in one part: progress is shown between two, and an interrupt is seen.
const SPAN: u64 = 256 << 20;
/// How many runs a device is asked for at once.
const RUNS: usize = 1024;

/// Whether bytes of a device have to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// They are zeros, as its device says or as they are behind its end.
    Known,
    /// They may be anything.
    Unknown,
}

/// A range to deal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// What is known of the first device.
    pub(crate) first: Zeros,
    /// What is known of the second device.
    pub(crate) second: Zeros,
    /// How many bytes of it the two devices have.
    has: (u64, u64),
}

impl Part {
    /// Whether the part comes with a buf: bytes of one of the two are read.
    pub(super) fn needs_bytes(&self) -> bool {
        self.first == Zeros::Unknown || self.second == Zeros::Unknown
    }

    /// The length of a part that comes with a buf.
    pub(super) fn byte_len(&self) -> usize {
        usize::try_from(self.len).expect("a part that is read is short")
    }

    /// How many bytes of the first device there are to read.
    pub(super) fn read_len(&self) -> usize {
        usize::try_from(self.has.0).expect("a part that is read is short")
    }

    /// How many bytes of the second device there are to read.
    pub(super) fn second_len(&self) -> usize {
        usize::try_from(self.has.1).expect("a part that is read is short")
    }
}

/// What a plan knows of one device.
struct Known {
    device: Option<Arc<dyn Device>>,
    /// Behind its end everything is zeros.
    size: u64,
    runs: VecDeque<Run>,
    /// Where the first of the runs begins.
    at: u64,
    /// The last answer in units. The runs that it was made of are gone.
    last: (Range<u64>, Zeros),
}

impl Known {
    fn new(device: Option<&Arc<dyn Device>>) -> Known {
        Known {
            size: device.map_or(0, |d| d.geometry().size),
            device: device.cloned(),
            runs: VecDeque::new(),
            at: 0,
            last: (0..0, Zeros::Unknown),
        }
    }

    /// What is known from `at` on, and up to where, at most `end`.
    fn next(&mut self, at: u64, end: u64) -> (u64, Zeros) {
        let Some(device) = self.device.clone() else {
            return (end, Zeros::Known);
        };
        if at >= self.size {
            return (end, Zeros::Known);
        }
        loop {
            let Some(run) = self.runs.front().copied() else {
                self.at = at;
                let some = device.stored(at..self.size, RUNS).unwrap_or_default();
                self.runs.extend(some.into_iter().filter(|run| run.len > 0));
                if self.runs.is_empty() {
                    return (self.size.min(end), Zeros::Unknown);
                }
                continue;
            };
            let until = self.at.saturating_add(run.len);
            if until > at {
                let zeros = match run.stored {
                    Stored::Data => Zeros::Unknown,
                    Stored::Zero | Stored::Hole => Zeros::Known,
                };
                return (until.min(self.size).min(end), zeros);
            }
            self.at = until;
            self.runs.pop_front();
        }
    }

    /// The same in units: a unit with any byte of data is data.
    fn units(&mut self, at: u64, end: u64, unit: u64) -> (u64, Zeros) {
        if !self.last.0.contains(&at) {
            let (until, zeros) = self.next_units(at, end, unit);
            self.last = (at..until, zeros);
        }
        (self.last.0.end, self.last.1)
    }

    fn next_units(&mut self, at: u64, end: u64, unit: u64) -> (u64, Zeros) {
        let (mut until, zeros) = self.next(at, end);
        if zeros == Zeros::Unknown {
            return (until.next_multiple_of(unit).min(end), zeros);
        }
        while until < end {
            let (next, zeros) = self.next(until, end);
            if zeros == Zeros::Unknown {
                let whole = until / unit * unit;
                return match whole > at {
                    true => (whole, Zeros::Known),
                    false => (at.saturating_add(unit).min(end), Zeros::Unknown),
                };
            }
            until = next;
            if until - at >= SPAN && until.is_multiple_of(unit) {
                break;
            }
        }
        (until, Zeros::Known)
    }
}

/// See the module. The iterator skips parts for which nothing has to be done.
pub(crate) struct Plan {
    first: Known,
    second: Known,
    at: u64,
    end: u64,
    unit: u64,
    /// Parts that are zeros on both sides are left out.
    skips: bool,
}

impl Plan {
    /// All parts of a range of `device`, whatever is on the other device, which is to be asked in multiples of `unit`. With `skips` zeros
    /// are left out.
    pub(crate) fn of(device: &Arc<dyn Device>, range: Range<u64>, unit: u64, skips: bool) -> Plan {
        Plan {
            first: Known::new(Some(device)),
            second: Known::new(None),
            at: range.start,
            end: range.end,
            unit,
            skips,
        }
    }

    /// The parts of two devices that may differ, up to the end of `range`.
    pub(crate) fn of_both(
        first: &Arc<dyn Device>,
        second: &Arc<dyn Device>,
        range: Range<u64>,
        unit: u64,
    ) -> Plan {
        Plan {
            second: Known::new(Some(second)),
            ..Plan::of(first, range, unit, true)
        }
    }
}

impl Iterator for Plan {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        while self.at < self.end {
            let (a, first) = self.first.units(self.at, self.end, self.unit);
            let (b, second) = self.second.units(self.at, self.end, self.unit);
            let at = self.at;
            let read = first == Zeros::Unknown || second == Zeros::Unknown;
            let most = if read { LARGE as u64 } else { SPAN };
            let mut until = a.min(b);
            if read || !self.skips {
                until = until.min(at.saturating_add(most));
            }
            self.at = until;
            if read || !self.skips {
                let inside = |size: u64| size.clamp(at, until) - at;
                return Some(Part {
                    at,
                    len: until - at,
                    first,
                    second,
                    has: (inside(self.first.size), inside(self.second.size)),
                });
            }
        }
        None
    }
}
