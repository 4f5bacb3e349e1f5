//! Replies to the socket, many with one call.
//!
//! Input: heads, and ranges of the contents of requests. Output: bytes to the socket, in that order. Invariants: contents are
//! sent from the memory that the device filled, which is given back when the last byte of it is sent; a send that is cut short
//! goes on where it stopped. Limits: [`SLICES`] pieces per call; above [`FULL`] bytes of heads nothing is read from the client.

use super::Connection;
use super::slots::{Contents, Slots};
use crate::negotiate::Hangup;
use crate::transport::Moved;
use rustix::io::IoSlice;
use std::collections::VecDeque;

const SLICES: usize = 128;
const FULL: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
enum Piece {
    /// The next bytes of `heads`.
    Head(usize),
    /// A part of a request's contents; `last`: the request ends with it.
    Data {
        slot: u32,
        start: usize,
        end: usize,
        last: bool,
    },
}

impl Piece {
    fn len(self) -> usize {
        match self {
            Piece::Head(len) => len,
            Piece::Data { start, end, .. } => end - start,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    heads: Vec<u8>,
    /// Bytes of `heads` that belong to pieces that are gone.
    passed: usize,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    sent: usize,
}

impl Output {
    pub(super) fn new() -> Output {
        Output {
            heads: Vec::new(),
            passed: 0,
            pieces: VecDeque::new(),
            sent: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether the client has to take replies first.
    pub(super) fn is_full(&self) -> bool {
        self.heads.len() - self.passed > FULL
    }

    /// Adds the bytes that `write` appends.
    #[inline]
    pub(super) fn head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.heads.len();
        write(&mut self.heads);
        let len = self.heads.len() - before;
        match self.pieces.back_mut() {
            Some(Piece::Head(last)) => *last += len,
            _ => self.pieces.push_back(Piece::Head(len)),
        }
    }

    /// Adds bytes `start` to `end` of the contents of a request.
    #[inline]
    pub(super) fn data(&mut self, slot: u32, start: usize, end: usize, last: bool) {
        self.pieces.push_back(Piece::Data {
            slot,
            start,
            end,
            last,
        });
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Output::new();
    }

    /// The next pieces as slices; returns how many slices and bytes.
    fn slices<'a>(&'a self, slots: &'a Slots, out: &mut [IoSlice<'a>]) -> (usize, usize) {
        let (mut count, mut total) = (0, 0);
        let (mut head, mut skip) = (self.passed, self.sent);
        for (piece, slice) in self.pieces.iter().zip(out) {
            let bytes = match *piece {
                Piece::Head(len) => {
                    head += len;
                    &self.heads[head - len..head]
                }
                Piece::Data {
                    slot, start, end, ..
                } => match &slots.get(slot).contents {
                    Contents::Here(buf) => &buf.as_slice()[start..end],
                    _ => unreachable!("contents are here while they are sent"),
                },
            };
            *slice = IoSlice::new(&bytes[skip..]);
            total += bytes.len() - skip;
            skip = 0;
            count += 1;
        }
        (count, total)
    }

    /// Notes that `n` bytes are sent. Calls `ended` with each request whose contents are all sent.
    fn consume(&mut self, mut n: usize, mut ended: impl FnMut(u32)) {
        n += self.sent;
        while let Some(piece) = self.pieces.front() {
            let len = piece.len();
            if n < len {
                break;
            }
            n -= len;
            match *piece {
                Piece::Head(len) => self.passed += len,
                Piece::Data { slot, last, .. } if last => ended(slot),
                Piece::Data { .. } => {}
            }
            self.pieces.pop_front();
        }
        self.sent = n;
        if self.pieces.is_empty() {
            self.heads.clear();
            self.passed = 0;
        } else if self.passed > FULL {
            self.heads.drain(..self.passed);
            self.passed = 0;
        }
    }
}

impl Connection {
    /// Sends what the socket takes.
    pub(super) fn send(&mut self) -> Result<(), Hangup> {
        if self.writable && self.transport.wants_write() {
            self.transport.push()?;
            self.writable = !self.transport.wants_write();
        }
        while self.writable && !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (count, total) = self.output.slices(&self.slots, &mut slices);
            let Moved::Bytes(n) = self.transport.send(&slices[..count])? else {
                self.writable = false;
                break;
            };
            self.writable = n == total && !self.transport.wants_write();
            let (slots, memory) = (&mut self.slots, &mut self.memory);
            self.output.consume(n, |slot| {
                if let Contents::Here(buf) = slots.take(slot).contents {
                    memory.put(buf);
                }
            });
        }
        Ok(())
    }
}
