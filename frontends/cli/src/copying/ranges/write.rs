//! Writes parts to the second device, with holes where there are only zeros.
//!
//! Input: parts with their bytes. Output: writes, ranges of zeros; how much of each; the first failure. Invariants: each byte of a part is
//! written once, or left alone if it is zero and so is the device; a device that cannot zero ranges gets zeros as data; after a failure
//! nothing more is begun. Limits: zeros are looked for in aligned pieces of the size that was asked for.

use super::plan::{Part, Zeros};
use super::{Failure, Side, Stage};
use diorite_block::{Bio, BioError, BioErrorKind, BioList, BioOp, Buf, Device, Shared, Split};
use diorite_image::are_zeros;
use std::collections::VecDeque;

/// How many zeros are written from one memory.
const ZEROS: usize = 1 << 20;

/// What becomes of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// The device was made for this and is zeros already: nothing.
    Skip,
    /// Holes, if the device can have them.
    Unmap,
    /// They are written, and take space.
    Fill,
}

/// How much was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// Bytes of data.
    pub(crate) data: u64,
    /// Bytes that are zeros by a request for a range.
    pub(crate) zeroed: u64,
}

/// A part with requests in flight.
struct Active {
    part: Part,
    split: Option<Split>,
    left: usize,
}

/// See the module.
pub(crate) struct Write {
    gaps: Gaps,
    /// The size of the pieces that are searched for zeros; 0 to search none.
    piece: u64,
    /// The device takes requests for ranges of zeros.
    ranges: bool,
    zeros: Option<Shared>,
    active: Vec<Option<Active>>,
    free: Vec<usize>,
    ready: VecDeque<(Part, Option<Buf>)>,
    failure: Option<Failure>,
    written: Written,
}

impl Write {
    /// For a device whose requests are multiples of `unit`. Zeros are looked for in pieces of `piece` bytes, if that is not 0.
    pub(crate) fn new(device: &dyn Device, gaps: Gaps, piece: u64, unit: u64) -> Write {
        let geometry = device.geometry();
        let piece = piece.checked_next_multiple_of(unit).unwrap_or(unit);
        Write {
            gaps,
            piece,
            ranges: match gaps {
                Gaps::Fill => geometry.write_zeroes,
                Gaps::Skip | Gaps::Unmap => geometry.write_zeroes || geometry.discard,
            },
            zeros: None,
            active: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            failure: None,
            written: Written::default(),
        }
    }

    /// How much was written.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn end(self) -> Result<Written, Failure> {
        self.failure.map_or(Ok(self.written), Err)
    }

    fn fail(&mut self, side: Side, doing: &'static str, at: u64, error: BioError) {
        let failure = Failure::Request {
            side,
            doing,
            at,
            error,
        };
        self.failure.get_or_insert(failure);
    }

    /// Adds the requests that make a range zeros; returns their number.
    fn zero(&mut self, at: u64, len: u64, slot: usize, todo: &mut BioList) -> usize {
        if self.gaps == Gaps::Skip {
            return 0;
        }
        if self.ranges {
            let op = match self.gaps {
                Gaps::Fill => BioOp::WriteZeroes,
                Gaps::Skip | Gaps::Unmap => BioOp::WriteZeroesUnmap,
            };
            todo.push_back(Bio::range(op, at, len, slot as u64));
            return 1;
        }
        self.write_zeros(at, len, slot, todo)
    }

    fn write_zeros(&mut self, at: u64, len: u64, slot: usize, todo: &mut BioList) -> usize {
        if self.zeros.is_none() {
            self.zeros = Shared::try_zeroed(ZEROS);
        }
        let Some(zeros) = &self.zeros else {
            self.fail(
                Side::Second,
                "write zeros",
                at,
                BioError::new(BioErrorKind::NoSpace),
            );
            return 0;
        };
        let end = at + len;
        let starts = (at..end).step_by(ZEROS);
        let before = todo.len();
        todo.extend(starts.map(|start| {
            let len = (end - start).min(ZEROS as u64) as usize;
            Bio::write(start, zeros.lend(0..len), slot as u64)
        }));
        todo.len() - before
    }

    /// Adds the requests for a part's bytes: what is zeros becomes holes.
    fn write(
        &mut self,
        part: Part,
        split: &mut Split,
        bytes: &[Piece],
        slot: usize,
        todo: &mut BioList,
    ) -> usize {
        let (mut at, mut count) = (part.at, 0);
        for piece in bytes {
            let len = piece.len;
            let taken = split.take(len);
            if piece.is_zero {
                split.absorb(taken);
                count += self.zero(at, len as u64, slot, todo);
            } else {
                todo.push_back(Bio::write(at, taken, slot as u64));
                count += 1;
            }
            at += len as u64;
        }
        count
    }

    fn slot(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() - 1
        })
    }

    fn begin(&mut self, part: Part, buf: Option<Buf>, todo: &mut BioList) {
        let slot = self.slot();
        let (split, left) = match buf {
            Some(buf) if part.first == Zeros::Unknown => {
                let pieces = pieces(&buf.as_slice()[..part.byte_len()], part.at, self.piece);
                let mut split = Split::new(buf);
                let left = self.write(part, &mut split, &pieces, slot, todo);
                (Some(split), left)
            }
            buf => (
                buf.map(Split::new),
                self.zero(part.at, part.len, slot, todo),
            ),
        };
        let active = Active { part, split, left };
        match left {
            0 => self.close(active, slot),
            _ => self.active[slot] = Some(active),
        }
    }

    fn close(&mut self, active: Active, slot: usize) {
        self.free.push(slot);
        let buf = active.split.map(Split::join);
        self.ready.push_back((active.part, buf));
    }
}

impl Stage for Write {
    fn take(&mut self, part: Part, bytes: Result<Option<Buf>, BioError>, todo: &mut BioList) {
        match bytes {
            Ok(_) if self.failure.is_some() => {}
            Ok(buf) => self.begin(part, buf, todo),
            Err(error) => self.fail(Side::First, "read", part.at, error),
        }
    }

    fn ended(&mut self, bio: Bio, todo: &mut BioList) {
        let slot = usize::try_from(bio.token).expect("the token is a slot's number");
        let is_range = matches!(bio.op, BioOp::WriteZeroes | BioOp::WriteZeroesUnmap);
        let unsupported = |e: BioError| e.kind == BioErrorKind::Unsupported;
        let mut more = 0;
        match bio.result {
            Ok(()) if is_range => self.written.zeroed += bio.len,
            Ok(()) => self.written.data += bio.len,
            Err(error) if is_range && unsupported(error) => {
                self.ranges = false;
                more = self.write_zeros(bio.pos, bio.len, slot, todo);
            }
            Err(error) => {
                let doing = if is_range { "write zeros" } else { "write" };
                self.fail(Side::Second, doing, bio.pos, error);
            }
        }
        let mut active = self.active[slot]
            .take()
            .expect("a part has requests until it is closed");
        if !bio.buf.is_lent() && !is_range {
            let split = active
                .split
                .as_mut()
                .expect("a part that is written has its bytes");
            split.absorb(bio.buf);
        }
        active.left = active.left + more - 1;
        match active.left {
            0 => self.close(active, slot),
            _ => self.active[slot] = Some(active),
        }
    }

    fn finished(&mut self) -> Option<(Part, Option<Buf>)> {
        self.ready.pop_front()
    }

    fn is_enough(&self) -> bool {
        self.failure.is_some()
    }

    fn gives_up(&self) -> bool {
        self.failure.is_some()
    }
}

/// Neighbouring bytes that are all to be written, or all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    len: usize,
    is_zero: bool,
}

/// Divides the bytes at `at` of the device, at multiples of `piece`.
fn pieces(bytes: &[u8], at: u64, piece: u64) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    let mut rest = bytes;
    let mut here = at;
    while !rest.is_empty() {
        let left = match piece {
            0 => rest.len() as u64,
            _ => piece - here % piece,
        };
        let len = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
        let (head, tail) = rest.split_at(len);
        let is_zero = piece > 0 && are_zeros(head);
        match found.last_mut() {
            Some(last) if last.is_zero == is_zero => last.len += len,
            _ => found.push(Piece { len, is_zero }),
        }
        here += len as u64;
        rest = tail;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_found_in_aligned_pieces() {
        let mut bytes = vec![0u8; 16 << 10];
        bytes[9000] = 1;
        let seen = |at, piece| -> Vec<(usize, bool)> {
            let found = pieces(&bytes, at, piece);
            found.iter().map(|p| (p.len, p.is_zero)).collect()
        };
        assert_eq!(seen(0, 0), [(16 << 10, false)]);
        assert_eq!(seen(0, 4096), [(8192, true), (4096, false), (4096, true)]);
        assert_eq!(seen(512, 4096), [(7680, true), (4096, false), (4608, true)]);
        assert_eq!(seen(0, 1 << 40), [(16 << 10, false)]);
        assert!(pieces(&[], 0, 4096).is_empty());
    }
}
