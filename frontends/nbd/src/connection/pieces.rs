//! Requests that move in pieces, because they are long or because there is no memory for all of their contents at once.
//!
//! Input: requests in slots, bufs. Output: pieces, each in a slot of its own; chunks of replies. Invariants: a write goes to the device in
//! the order in which its payload arrives, and takes memory for bytes that have begun to arrive; a read has one piece at a time, from the
//! device to the last byte sent; a request in pieces is replied to when all of them have ended, and the first error wins. Limits: a read
//! in pieces is alone on its connection, as nothing may come between its parts. If a piece fails after a reply has begun that cannot carry
//! an error, the connection ends, as the protocol demands.

use super::Connection;
use super::input::{Begun, Expect};
use super::memory::{Got, LARGEST};
use super::slots::{Contents, Slot, Work};
use super::sparse::parts;
use crate::negotiate::Hangup;
use crate::wire::{Errno, Mode};
use diorite_block::{BioOp, Buf};
use std::io;

/// The length of a piece, if there is memory for it.
pub(super) const PIECE: usize = 256 << 10;

/// A read in pieces.
#[derive(Debug)]
pub(super) struct Stream {
    slot: u32,
    /// How many requests had ended when there was no memory for its next piece.
    waits_since: Option<u64>,
}

impl Connection {
    /// Gives a slot the memory for the next bytes of its payload, which come then.
    pub(super) fn make_room(&mut self, index: u32) -> Begun {
        let slot = self.slots.get(index);
        let (len, left) = (slot.len as usize, slot.left as usize);
        let is_new = left == len;
        if !self.slots.has_free() && (!is_new || len > LARGEST) {
            return Begun::Full;
        }
        let wanted = if is_new && len <= LARGEST {
            len
        } else {
            left.min(PIECE)
        };
        let slot = match self.memory.get(wanted) {
            Got::Whole(buf) if wanted == len => {
                let slot = self.slots.get_mut(index);
                (slot.contents, slot.left) = (Contents::Here(buf), 0);
                index
            }
            Got::Whole(buf) | Got::Part(buf) if self.slots.has_free() => {
                if is_new {
                    self.count_write(len as u64);
                }
                self.cut(index, buf)
            }
            Got::Whole(buf) | Got::Part(buf) => {
                self.memory.put(buf);
                return Begun::Full;
            }
            Got::Later => return Begun::Full,
        };
        self.input.expect = Expect::Payload { slot, got: 0 };
        Begun::Yes
    }

    /// What comes behind the payload of a slot: that of the next piece, or another request.
    pub(super) fn after_payload(&self, index: u32) -> Expect {
        let more = |whole: &u32| self.slots.get(*whole).left > 0;
        match self.slots.get(index).of.filter(more) {
            Some(slot) => Expect::Room { slot },
            None => Expect::Header,
        }
    }

    /// The next piece of a request, as long as the buf.
    fn cut(&mut self, whole: u32, buf: Buf) -> u32 {
        let slot = self.slots.get_mut(whole);
        let len = slot.left.min(buf.len() as u64);
        let offset = slot.offset + slot.len - slot.left;
        slot.left -= len;
        slot.open += 1;
        let piece = Slot {
            of: Some(whole),
            contents: Contents::Here(buf),
            ..Slot::new(slot.heads, slot.work, offset, len)
        };
        self.slots.put(piece)
    }

    /// Starts a read in pieces, the first of them in `buf`.
    pub(super) fn start_stream(&mut self, mut request: Slot, buf: Buf) -> Begun {
        if self.slots.in_use() > 0 {
            self.memory.put(buf);
            return Begun::Full;
        }
        request.left = request.len;
        let slot = self.slots.put(request);
        self.stream = Some(Stream {
            slot,
            waits_since: None,
        });
        let piece = self.cut(slot, buf);
        self.move_contents(piece, BioOp::Read, false);
        Begun::Yes
    }

    /// Whether there is something to do for the read in pieces.
    pub(super) fn stream_may_go_on(&self) -> bool {
        let ready = |stream: &Stream| {
            let waits = stream.waits_since == Some(self.slots.ended());
            self.slots.get(stream.slot).open == 0 && !waits
        };
        self.stream.as_ref().is_some_and(ready)
    }

    /// Starts the next piece of the read in pieces, or ends it.
    pub(super) fn go_on_with_stream(&mut self) {
        let Some(stream) = self
            .stream
            .as_mut()
            .filter(|s| self.slots.get(s.slot).open == 0)
        else {
            return;
        };
        let (index, slot) = (stream.slot, self.slots.get(stream.slot));
        if slot.left == 0 || slot.errno.is_some() {
            self.stream = None;
            return self.end(index);
        }
        let wanted = (slot.left as usize).min(PIECE);
        match self.slots.has_free().then(|| self.memory.get(wanted)) {
            Some(Got::Whole(buf) | Got::Part(buf)) => {
                let piece = self.cut(index, buf);
                self.move_contents(piece, BioOp::Read, false);
            }
            Some(Got::Later) | None => stream.waits_since = Some(self.slots.ended()),
        }
    }

    /// Goes on with a piece of which no bio is under way.
    pub(super) fn piece_ended(&mut self, index: u32, whole: u32) {
        let piece = self.slots.get(index);
        let (work, errno) = (piece.work, piece.errno);
        if let Some(errno) = errno {
            self.slots.get_mut(whole).errno.get_or_insert(errno);
        }
        if let Work::Read { whole: in_one } = work {
            return self.piece_was_read(index, whole, (in_one, errno));
        }
        self.end(index);
        let slot = self.slots.get(whole);
        if slot.open == 0 && slot.left == 0 {
            self.settle(whole);
        }
    }

    fn piece_was_read(&mut self, index: u32, whole: u32, (in_one, errno): (bool, Option<Errno>)) {
        if self.dead {
            return self.end(index);
        }
        let (piece, slot) = (self.slots.get(index), self.slots.get(whole));
        let (heads, is_first, is_last) = (slot.heads, piece.offset == slot.offset, slot.left == 0);
        let (total, len) = (slot.len as u32, piece.len as usize);
        let in_one = in_one || heads.mode == Mode::Simple;
        match errno {
            Some(errno) if is_first || !in_one => {
                self.tally.failed += 1;
                self.output.head(|out| heads.failed(out, errno, true));
                self.end(index);
            }
            Some(_) => {
                self.tally.failed += 1;
                let why = io::Error::other("a read failed after its reply had begun");
                self.broken = Some(Hangup::Host(why));
                self.end(index);
            }
            None if in_one => {
                if is_first {
                    self.output.head(|out| match heads.mode {
                        Mode::Simple => heads.contents(out),
                        _ => heads.data(out, heads.offset, total, true),
                    });
                }
                self.output.data(index, 0, len, true);
            }
            None => {
                if let Contents::Here(buf) = &piece.contents {
                    self.parts.clear();
                    self.parts.extend(parts(&buf.as_slice()[..len]));
                }
                self.chunks(index, is_last);
            }
        }
    }
}
