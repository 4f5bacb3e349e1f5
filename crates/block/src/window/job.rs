//! One request that does not begin and end at blocks of the device below: what is read there, what is written, what comes back.
//!
//! Input: a bio, and its place in the device below. Output: bios for whole blocks, first reads, then changes; at the end the bio.
//! Invariants: of a block that the request covers in part, the rest is written as it was read; the bio comes back with its buffer,
//! whatever failed; a change is submitted only if all reads succeeded. Limits: the data is copied; memory for it is taken when the
//! request begins.

use super::blocks::Claim;
use crate::bio::{Bio, BioError, BioErrorKind, BioFlags, BioList, BioOp};
use crate::buf::Buf;

/// Bytes of the device below, and the size of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) block: u64,
}

impl Span {
    pub(super) fn is_aligned(&self) -> bool {
        (self.start | self.end) & (self.block - 1) == 0
    }

    /// The whole blocks inside; perhaps none.
    pub(super) fn inner(&self) -> Span {
        let start = self.start.next_multiple_of(self.block);
        Span {
            start,
            end: (self.end & !(self.block - 1)).max(start),
            ..*self
        }
    }

    fn outer(&self) -> Span {
        Span {
            start: self.start & !(self.block - 1),
            end: self.end.next_multiple_of(self.block),
            ..*self
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// What a change of these bytes claims.
    pub(super) fn claim(&self) -> Claim {
        let outer = self.outer();
        Claim {
            blocks: outer.start / self.block..outer.end / self.block,
            head: self.start != outer.start,
            tail: self.end != outer.end,
        }
    }
}

/// The parts of a job's bios: in the low bits of their tokens.
const HEAD: u64 = 0;
const TAIL: u64 = 1;
const INNER: u64 = 2;
/// The bits of a token that name the part.
pub(super) const PART_BITS: u32 = 2;

/// A request under way.
#[derive(Debug)]
pub(super) struct Job {
    bio: Bio,
    span: Span,
    /// The first block, or, for a read, all blocks.
    head: Buf,
    /// The last block, if it is another one.
    tail: Buf,
    is_changing: bool,
    in_flight: u32,
    result: Result<(), BioError>,
}

/// What comes after a bio of a job has ended.
#[derive(Debug)]
pub(super) enum Next {
    /// Others are still in flight.
    Wait,
    /// These are to be submitted.
    Send(BioList),
    /// The request has ended.
    Ended(Bio),
}

impl Job {
    pub(super) fn new(bio: Bio, span: Span) -> Job {
        Job {
            bio,
            span,
            head: Buf::empty(),
            tail: Buf::empty(),
            is_changing: false,
            in_flight: 0,
            result: Ok(()),
        }
    }

    /// The first bios: reads. `token` has zeros where the part is named.
    pub(super) fn begin(&mut self, token: u64) -> Next {
        let (span, outer) = (self.span, self.span.outer());
        let (head, tail) = match self.bio.op {
            BioOp::Read => (outer.len(), 0),
            _ if outer.len() == span.block => (span.block, 0),
            _ => {
                let claim = span.claim();
                let of = |ragged| if ragged { span.block } else { 0 };
                (of(claim.head), of(claim.tail))
            }
        };
        let mut reads = BioList::new();
        let places = [
            (HEAD, outer.start, head),
            (TAIL, outer.end - tail.min(outer.len()), tail),
        ];
        for (part, pos, len) in places.into_iter().filter(|(_, _, len)| *len > 0) {
            let buf = usize::try_from(len).ok().and_then(Buf::try_zeroed);
            let Some(buf) = buf else {
                self.result = Err(BioError::new(BioErrorKind::Io));
                return self.end();
            };
            reads.push_back(self.down(Bio::read(pos, buf, token | part), false));
        }
        self.send(reads)
    }

    /// Takes a bio back that has ended.
    pub(super) fn take_back(&mut self, done: Bio, token: u64) -> Next {
        self.in_flight -= 1;
        self.result = self.result.and(done.result);
        if !self.is_changing {
            match done.token - token {
                TAIL => self.tail = done.buf,
                _ => self.head = done.buf,
            }
        }
        if self.in_flight > 0 {
            return Next::Wait;
        }
        if self.is_changing || self.result.is_err() {
            return self.end();
        }
        if self.bio.op == BioOp::Read {
            let skip = (self.span.start - self.span.outer().start) as usize;
            let (from, to) = (&self.head, &mut self.bio.buf);
            copy(from, skip, to, 0, self.span.len() as usize);
            return self.end();
        }
        self.is_changing = true;
        match self.bio.op {
            BioOp::Write => self.write(token),
            _ => self.write_zeroes(token),
        }
    }

    /// One write of all blocks: the ends as they were read, with the data in them.
    fn write(&mut self, token: u64) -> Next {
        let (span, outer, inner) = (self.span, self.span.outer(), self.span.inner());
        let (mut head, mut tail) = (
            std::mem::take(&mut self.head),
            std::mem::take(&mut self.tail),
        );
        let data = &self.bio.buf;
        let len = data.len();
        let in_head = match head.is_empty() {
            true => 0,
            false => ((outer.start + span.block).min(span.end) - span.start) as usize,
        };
        let in_tail = match tail.is_empty() {
            true => 0,
            false => (span.end - inner.end) as usize,
        };
        copy(
            data,
            0,
            &mut head,
            (span.start - outer.start) as usize,
            in_head,
        );
        copy(data, len - in_tail, &mut tail, 0, in_tail);
        let Some(mut middle) = Buf::try_zeroed(len - in_head - in_tail) else {
            self.result = Err(BioError::new(BioErrorKind::Io));
            return self.end();
        };
        let in_middle = middle.len();
        copy(data, in_head, &mut middle, 0, in_middle);
        let all = Buf::from_parts(vec![head, middle, tail]);
        let write = self.down(Bio::write(outer.start, all, token | HEAD), true);
        self.send(BioList::from([write]))
    }

    /// The ends are written with zeros in them, and the blocks between them are zeroed by the device.
    fn write_zeroes(&mut self, token: u64) -> Next {
        let (span, outer, inner) = (self.span, self.span.outer(), self.span.inner());
        let mut changes = BioList::new();
        let mut head = std::mem::take(&mut self.head);
        if !head.is_empty() {
            let from = (span.start - outer.start) as usize;
            let to = (span.end - outer.start).min(span.block) as usize;
            head.zero(from..to);
            changes.push_back(self.down(Bio::write(outer.start, head, token | HEAD), true));
        }
        let mut tail = std::mem::take(&mut self.tail);
        if !tail.is_empty() {
            tail.zero(0..(span.end - inner.end) as usize);
            changes.push_back(self.down(Bio::write(inner.end, tail, token | TAIL), true));
        }
        if inner.len() > 0 {
            let range = Bio::range(self.bio.op, inner.start, inner.len(), token | INNER);
            changes.push_back(self.down(range, true));
        }
        self.send(changes)
    }

    /// A bio of this job, with the request's flags; FUA is for changes.
    fn down(&self, bio: Bio, is_change: bool) -> Bio {
        let BioFlags { fua, nowait, .. } = self.bio.flags;
        Bio {
            flags: BioFlags {
                fua: fua && is_change,
                nowait,
                ..BioFlags::default()
            },
            ..bio
        }
    }

    /// The bio of a job that has not begun.
    pub(super) fn into_bio(self) -> Bio {
        self.bio
    }

    fn send(&mut self, bios: BioList) -> Next {
        self.in_flight = bios.len() as u32;
        Next::Send(bios)
    }

    fn end(&mut self) -> Next {
        let empty = Bio::flush(0);
        let mut bio = std::mem::replace(&mut self.bio, empty);
        bio.result = self.result;
        Next::Ended(bio)
    }
}

/// Copies `len` bytes between bufs of any parts.
fn copy(from: &Buf, at: usize, to: &mut Buf, to_at: usize, len: usize) {
    let (mut skip, mut done) = (at, 0);
    for part in from.parts() {
        let first = skip.min(part.len());
        skip -= first;
        let n = (part.len() - first).min(len - done);
        to.copy_in(to_at + done, &part[first..first + n]);
        done += n;
    }
}
