//! Bytes of the socket become headers and payloads.
//!
//! Input: the socket. Output: calls of `begin` with headers, payloads in the memory of their requests. Invariants: one receive
//! may carry many requests; a payload that has not arrived yet is received directly into the memory that the device will read; a long one
//! gets no memory before it begins to arrive (rule M7); the payload of a refused request is skipped, and the refusal follows it. Limits: a
//! fixed receive buffer.

use super::Connection;
use super::pieces::PIECE;
use super::slots::Contents;
use crate::negotiate::Hangup;
use crate::transport::Moved;
use crate::wire::{Errno, Header, Heads};

/// The receive buffer.
const ROOM: usize = 256 << 10;

/// From this length on, the rest of a payload is received where it belongs; shorter ones come with what follows them, and are copied.
const DIRECT: usize = 16 << 10;

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expect {
    Header,
    /// A write's payload, or the rest of it, for which there is no memory yet.
    Room {
        slot: u32,
    },
    /// The rest of the payload of a write, or a piece of one, of which `got` bytes are there.
    Payload {
        slot: u32,
        got: usize,
    },
    /// A payload that nobody wants, then the refusal.
    Skip {
        left: u64,
        heads: Heads,
        errno: Errno,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// What is not parsed yet.
    start: usize,
    end: usize,
    pub(super) expect: Expect,
    /// Bytes received so far.
    received: u64,
    /// The next header cannot be acted on now.
    waiting: Option<Waiting>,
}

/// What a header waits for.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// That the client takes replies. Otherwise slots or memory.
    replies: bool,
    /// How many requests had ended when it began to wait.
    since: u64,
}

/// What became of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It was acted on.
    Yes,
    /// There is no room for it now.
    Full,
}

impl Input {
    pub(super) fn new() -> Input {
        Input {
            bytes: vec![0; ROOM],
            start: 0,
            end: 0,
            expect: Expect::Header,
            received: 0,
            waiting: None,
        }
    }

    /// Whether a request waits for slots or memory.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Makes room at the end.
    fn tidy(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

impl Connection {
    /// Whether a request can be started, if there is memory for it.
    pub(super) fn can_start(&self) -> bool {
        self.slots.has_free() && !self.output.is_full() && self.stream.is_none()
    }

    /// Whether a request waits, and something has changed since it was looked at.
    pub(super) fn may_go_on(&self) -> bool {
        let changed = |w: Waiting| w.replies || w.since != self.slots.ended();
        self.can_start() && self.input.waiting.is_some_and(changed)
    }

    /// Receives what is there, and starts what is complete.
    pub(super) fn take_input(&mut self) -> Result<(), Hangup> {
        if self.may_go_on() {
            self.parse()?;
        }
        if self.readable && self.may_receive() {
            self.receive()?;
            self.geometry = self.session.export.geometry();
            self.parse()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Hangup> {
        self.input.tidy();
        let input = &mut self.input;
        let (mut direct, mut wanted): (&mut [u8], usize) = (&mut [], 0);
        if let Expect::Payload { slot, got } = input.expect {
            let slot = self.slots.get_mut(slot);
            let len = slot.len as usize;
            if let (Contents::Here(buf), true) = (&mut slot.contents, len - got >= DIRECT) {
                direct = &mut buf.as_mut_slice()[got..len];
                wanted = len - got;
            }
        }
        let room = &mut input.bytes[input.end..];
        let asked = wanted + room.len();
        let moved = match wanted {
            0 => self.transport.recv(room, &mut []),
            _ => self.transport.recv(direct, room),
        };
        let Moved::Bytes(n) = moved? else {
            self.readable = false;
            return Ok(());
        };
        self.readable = n == asked || !self.transport.short_is_empty();
        input.received += n as u64;
        let placed = n.min(wanted);
        if let Expect::Payload { got, .. } = &mut input.expect {
            *got += placed;
        }
        input.end += n - placed;
        Ok(())
    }

    /// Acts on everything that is complete.
    fn parse(&mut self) -> Result<(), Hangup> {
        self.input.waiting = None;
        loop {
            let more = match self.input.expect {
                Expect::Header => self.parse_header()?,
                Expect::Room { slot } => self.parse_room(slot),
                Expect::Payload { slot, got } => self.parse_payload(slot, got),
                Expect::Skip { left, heads, errno } => self.parse_skipped(left, heads, errno),
            };
            if !more || self.closing {
                return Ok(());
            }
        }
    }

    fn parse_header(&mut self) -> Result<bool, Hangup> {
        let len = self.framing.header_len();
        if self.input.rest().len() < len {
            return Ok(false);
        }
        let header = Header::parse(self.framing, self.input.rest())?;
        match self.begin(&header)? {
            Begun::Full => {
                self.input.waiting = Some(Waiting {
                    replies: self.output.is_full(),
                    since: self.slots.ended(),
                });
                Ok(false)
            }
            Begun::Yes => {
                self.input.start += len;
                Ok(true)
            }
        }
    }

    fn parse_room(&mut self, index: u32) -> bool {
        let slot = self.slots.get(index);
        if slot.len > PIECE as u64 && self.input.rest().is_empty() {
            return false;
        }
        if slot.len == 0 {
            self.input.expect = Expect::Payload {
                slot: index,
                got: 0,
            };
            return true;
        }
        let has_room = self.make_room(index) == Begun::Yes;
        if !has_room {
            self.input.waiting = Some(Waiting {
                replies: false,
                since: self.slots.ended(),
            });
        }
        has_room
    }

    fn parse_payload(&mut self, index: u32, got: usize) -> bool {
        let slot = self.slots.get_mut(index);
        let len = slot.len as usize;
        let now = (len - got).min(self.input.end - self.input.start);
        if let Contents::Here(buf) = &mut slot.contents {
            let bytes = &self.input.bytes[self.input.start..self.input.start + now];
            buf.as_mut_slice()[got..got + now].copy_from_slice(bytes);
        }
        self.input.start += now;
        if got + now < len {
            self.input.expect = Expect::Payload {
                slot: index,
                got: got + now,
            };
            return false;
        }
        self.input.expect = self.after_payload(index);
        self.start_write(index);
        true
    }

    fn parse_skipped(&mut self, left: u64, heads: Heads, errno: Errno) -> bool {
        let there = self.input.end - self.input.start;
        let now = usize::try_from(left).map_or(there, |left| left.min(there));
        self.input.start += now;
        let left = left - now as u64;
        if left > 0 {
            self.input.expect = Expect::Skip { left, heads, errno };
            return false;
        }
        self.input.expect = Expect::Header;
        self.output.head(|out| heads.failed(out, errno, false));
        true
    }
}
