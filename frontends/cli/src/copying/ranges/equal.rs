//! Compares parts with those of the second device.
//!
//! Input: parts with their bytes. Output: the first byte that differs, or the first failure before it. Invariant: parts end in any order,
//! but none in front of a difference is left out, so the one that is reported is the first. Limits: none of its own.

use super::bufs::Bufs;
use super::plan::{Part, Zeros};
use super::{Failure, Side, Stage};
use diorite_block::{Bio, BioError, BioList, Buf, Split};
use diorite_image::are_zeros;
use std::collections::VecDeque;

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Everything is the same.
    Same,
    /// The first byte that differs, from 0.
    Differs(u64),
}

/// A part whose other bytes are being read.
struct Active {
    part: Part,
    bytes: Buf,
    split: Split,
}

/// See the module.
pub(crate) struct Equal {
    bufs: Bufs,
    active: Vec<Option<Active>>,
    free: Vec<usize>,
    ready: VecDeque<(Part, Option<Buf>)>,
    /// The first difference so far.
    least: Option<u64>,
    /// The first failure so far, and where the part begins that met it.
    failure: Option<(u64, Failure)>,
}

impl Equal {
    /// With bufs of its own: as many as those of the first device.
    pub(crate) fn new(bufs: Bufs) -> Equal {
        Equal {
            bufs,
            active: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            least: None,
            failure: None,
        }
    }

    /// The result.
    ///
    /// # Errors
    /// A request failed, and nothing in front of it differs.
    pub(crate) fn end(self) -> Result<Found, Failure> {
        match (self.failure, self.least) {
            (Some((at, failure)), least) if least.is_none_or(|least| at < least) => Err(failure),
            (_, Some(least)) => Ok(Found::Differs(least)),
            (_, None) => Ok(Found::Same),
        }
    }

    fn fail(&mut self, side: Side, at: u64, error: BioError) {
        if self.failure.as_ref().is_none_or(|(first, _)| at < *first) {
            let doing = "read";
            let failure = Failure::Request {
                side,
                doing,
                at,
                error,
            };
            self.failure = Some((at, failure));
        }
    }

    fn differs(&mut self, at: u64) {
        self.least = Some(self.least.map_or(at, |least| least.min(at)));
    }
}

impl Stage for Equal {
    fn take(&mut self, part: Part, bytes: Result<Option<Buf>, BioError>, todo: &mut BioList) {
        let bytes = match bytes {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return self.ready.push_back((part, None)),
            Err(error) => return self.fail(Side::First, part.at, error),
        };
        if part.second == Zeros::Known {
            let ours = &bytes.as_slice()[..part.byte_len()];
            if let Some(at) = first_of(ours) {
                self.differs(part.at + at);
            }
            return self.ready.push_back((part, Some(bytes)));
        }
        let buf = self.bufs.get(part.byte_len());
        let mut split =
            Split::new(buf.expect("each part that is out has a buf of each of two like pools"));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        });
        let theirs = split.take(part.second_len());
        todo.push_back(Bio::read(part.at, theirs, slot as u64));
        self.active[slot] = Some(Active { part, bytes, split });
    }

    fn ended(&mut self, bio: Bio, _todo: &mut BioList) {
        let slot = usize::try_from(bio.token).expect("the token is a slot's number");
        let Active {
            part,
            bytes,
            mut split,
        } = self.active[slot].take().expect("a read ends once");
        self.free.push(slot);
        split.absorb(bio.buf);
        let mut theirs = split.join();
        match bio.result {
            Ok(()) => {
                // The device ends inside the part.
                theirs.zero(part.second_len()..part.byte_len());
                let len = part.byte_len();
                let (a, b) = (&bytes.as_slice()[..len], &theirs.as_slice()[..len]);
                if a != b {
                    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                    self.differs(part.at + same as u64);
                }
            }
            Err(error) => self.fail(Side::Second, part.at, error),
        }
        self.bufs.put(theirs);
        self.ready.push_back((part, Some(bytes)));
    }

    fn finished(&mut self) -> Option<(Part, Option<Buf>)> {
        self.ready.pop_front()
    }

    fn is_enough(&self) -> bool {
        self.least.is_some() || self.failure.is_some()
    }

    fn gives_up(&self) -> bool {
        false
    }
}

/// The first byte that is not zero.
fn first_of(bytes: &[u8]) -> Option<u64> {
    if are_zeros(bytes) {
        return None;
    }
    bytes.iter().position(|byte| *byte != 0).map(|at| at as u64)
}
