//! The log of a device's changes and their ends, in the order in which they happened.
//!
//! Input: bios on submit and at their end. Output: [`Event`]s, with the written data. Invariants: an event comes after
//! everything that had happened when it was recorded, so a write that had ended before a flush was submitted comes before that
//! flush; reads leave no trace. Limits: the log is in memory; copies share the data, zeros cost nothing.

use crate::bio::{Bio, BioOp};
use std::sync::Arc;

/// The bytes of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// This many zeros.
    Zeros(usize),
}

impl Data {
    /// The data that the bio leaves in its range; none if it changes nothing. A discarded range counts as zeros.
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

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Passes the bytes to `put` in pieces of at most `step`, with their offsets.
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

/// An event. `id` is the request's number in this log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write, write-zeroes or discard was handed to the device.
    Write {
        /// The request.
        id: u64,
        /// Position in bytes.
        pos: u64,
        /// The data.
        data: Data,
        /// With FUA: durable when it has ended.
        fua: bool,
    },
    /// A flush was handed to the device.
    Flush {
        /// The request.
        id: u64,
    },
    /// The request has succeeded; its submitter may know it from here on.
    Ended {
        /// The request.
        id: u64,
    },
    /// The request has failed, or was not taken after all.
    Failed {
        /// The request.
        id: u64,
    },
    /// A mark of the layer above: a request began, or was acknowledged.
    Mark(u64),
}

impl Event {
    /// Whether a power cut after it can leave another image than one before it.
    #[must_use]
    pub fn changes_what_survives(&self) -> bool {
        !matches!(self, Event::Mark(_) | Event::Flush { .. })
    }
}
