//! What a device was asked to change and how that ended, in the order in which it happened.
//!
//! Input: bios on their way down and back. Output: [`Event`]s, with the data that was written. Invariants: an event stands
//! behind everything that had happened when it was noted, so what had ended before a flush was submitted stands before that
//! flush; reads leave no trace. Limits: the log lives in memory; data is shared among its copies, zeros cost nothing.

use crate::bio::{Bio, BioOp};
use std::sync::Arc;

/// The bytes of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// These.
    Bytes(Arc<[u8]>),
    /// So many zeros.
    Zeros(usize),
}

impl Data {
    /// What the bio will leave in its range; none if it changes nothing. A discarded range is taken to read as zeros.
    pub(crate) fn of(bio: &Bio) -> Option<Data> {
        match bio.op {
            BioOp::Read | BioOp::Flush => None,
            BioOp::Write => Some(Data::shared(bio)),
            BioOp::Discard | BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => Some(Data::Zeros(
                usize::try_from(bio.len).expect("the range lies inside a device in memory"),
            )),
        }
    }

    fn shared(bio: &Bio) -> Data {
        if bio.buf.parts().all(|part| part.iter().all(|b| *b == 0)) {
            return Data::Zeros(bio.buf.len());
        }
        let mut bytes = Vec::with_capacity(bio.buf.len());
        bio.buf.parts().for_each(|p| bytes.extend_from_slice(p));
        Data::Bytes(bytes.into())
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Zeros(len) => *len,
        }
    }

    /// None at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands the bytes to `put` in pieces of at most `step`, with their distance from the start.
    pub(crate) fn pieces(&self, step: usize, mut put: impl FnMut(usize, &[u8])) {
        const ZEROS: [u8; 4096] = [0; 4096];
        match self {
            Data::Bytes(bytes) => {
                for (n, piece) in bytes.chunks(step).enumerate() {
                    put(n * step, piece);
                }
            }
            Data::Zeros(len) => {
                let step = step.min(ZEROS.len());
                for at in (0..*len).step_by(step) {
                    put(at, &ZEROS[..step.min(len - at)]);
                }
            }
        }
    }
}

/// One thing that happened. `id` is the request's number in this log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write, write-zeroes or discard was handed to the device.
    Write {
        /// The request.
        id: u64,
        /// Where, in bytes.
        pos: u64,
        /// What.
        data: Data,
        /// Durable when it has ended.
        fua: bool,
    },
    /// A flush was handed to the device.
    Flush {
        /// The request.
        id: u64,
    },
    /// The request has ended well; whoever submitted it may know from here on.
    Ended {
        /// The request.
        id: u64,
    },
    /// The request has failed, or was not taken after all.
    Failed {
        /// The request.
        id: u64,
    },
    /// Somebody above wants this place remembered: a request began, or was acknowledged.
    Mark(u64),
}

impl Event {
    /// Whether a power cut behind it can leave another image than one before it.
    #[must_use]
    pub fn changes_what_survives(&self) -> bool {
        !matches!(self, Event::Mark(_) | Event::Flush { .. })
    }
}
