//! Requests become bios, or jobs aside.
//!
//! Input: headers, complete payloads. Output: bios in the connection's list. Invariants: nothing is taken for a request that is
//! refused or that has no room yet; a write that has to be durable carries FUA if the device has it, and is otherwise followed by
//! a flush that begins after it (rule D1). Limits: at most [`FILLS`] writes of zeros of one request are under way, and [`ASKING`]
//! questions.

use super::Connection;
use super::accept::{Rules, accept};
use super::input::{Begun, Expect};
use super::memory::Got;
use super::slots::{Contents, Fill, Slot, Work};
use crate::negotiate::Hangup;
use crate::wire::{Command, Errno, Header, Heads, request_flag as flag};
use diorite_block::{Bio, BioOp, Split};
use std::sync::atomic::Ordering;

/// Writes of zeros of one request under way.
const FILLS: u32 = 4;

/// Questions how a range is stored under way: the others wait.
const ASKING: u32 = 4;

/// The most extents in one answer.
const MOST_RUNS: usize = 1024;

impl Connection {
    /// Acts on a header.
    pub(super) fn begin(&mut self, header: &Header) -> Result<Begun, Hangup> {
        if header.command == Command::Disconnect {
            self.closing = true;
            return Ok(Begun::Yes);
        }
        if header.payload > u64::from(u32::MAX) {
            return Err(Hangup::Refused(
                "a payload of more than 4 GiB was announced",
            ));
        }
        if !self.can_start() {
            return Ok(Begun::Full);
        }
        let rules = Rules {
            geometry: &self.geometry,
            mode: self.session.mode,
            meta: self.session.meta,
        };
        let accepted = match self.control.draining.load(Ordering::Acquire) {
            true => Err(Errno::Shutdown),
            false => accept(rules, header),
        };
        Ok(match accepted {
            Err(errno) => {
                self.tally.refused += 1;
                self.refuse(header, errno)
            }
            Ok(None) => {
                let heads = self.heads(header);
                self.output.head(|out| heads.done(out));
                Begun::Yes
            }
            Ok(Some(work)) => self.start(header, work),
        })
    }

    fn heads(&self, header: &Header) -> Heads {
        Heads {
            mode: self.session.mode,
            cookie: header.cookie,
            offset: header.offset,
        }
    }

    /// Refuses a request, after its payload if it has one.
    fn refuse(&mut self, header: &Header, errno: Errno) -> Begun {
        let heads = self.heads(header);
        if header.payload > 0 {
            let left = header.payload;
            self.input.expect = Expect::Skip { left, heads, errno };
        } else {
            let chunked = matches!(header.command, Command::Read | Command::BlockStatus);
            self.output.head(|out| heads.failed(out, errno, chunked));
        }
        Begun::Yes
    }

    fn start(&mut self, header: &Header, work: Work) -> Begun {
        if work == Work::Status && self.slots.asking() >= ASKING {
            return Begun::Full;
        }
        let mut slot = Slot {
            sync: header.has(flag::FUA) && self.geometry.volatile_cache,
            ..Slot::new(self.heads(header), work, header.offset, header.len)
        };
        if let Work::Read { .. } = work {
            return self.start_read(slot);
        }
        if work == Work::Write {
            slot.left = slot.len;
        }
        let index = self.slots.put(slot);
        match work {
            Work::Read { .. } => unreachable!("it was started above"),
            // Also one without bytes: it is complete at once, and the next look at the input finds that.
            Work::Write => self.input.expect = Expect::Room { slot: index },
            Work::Flush => self.start_flush(index),
            Work::Trim => self.start_trim(index),
            Work::Zero { keep, fast } => self.start_zero(index, keep, fast),
            Work::Status => self.ask(index, header.has(flag::REQ_ONE)),
        }
        Begun::Yes
    }

    fn start_read(&mut self, mut slot: Slot) -> Begun {
        slot.sync = false;
        let len = slot.len;
        let begun = match (len > 0).then(|| self.memory.get(len as usize)) {
            Some(Got::Later) => Begun::Full,
            Some(Got::Part(buf)) => self.start_stream(slot, buf),
            Some(Got::Whole(buf)) => {
                slot.contents = Contents::Here(buf);
                self.move_contents_of(slot)
            }
            None => self.move_contents_of(slot),
        };
        if begun == Begun::Yes {
            self.tally.reads += 1;
            self.tally.read_bytes += len;
        }
        begun
    }

    fn move_contents_of(&mut self, read: Slot) -> Begun {
        let index = self.slots.put(read);
        self.move_contents(index, BioOp::Read, false);
        Begun::Yes
    }

    pub(super) fn count_write(&mut self, len: u64) {
        self.tally.writes += 1;
        self.tally.written_bytes += len;
    }

    /// Starts a write whose payload is complete, or a piece of one. Pieces are followed by one flush, if the write has to be durable.
    pub(super) fn start_write(&mut self, index: u32) {
        let slot = self.slots.get(index);
        if slot.of.is_none() {
            self.count_write(slot.len);
        }
        let slot = self.slots.get_mut(index);
        let fua = slot.sync && self.geometry.fua;
        slot.sync &= !fua;
        self.move_contents(index, BioOp::Write, fua);
    }

    /// Makes the bios of a read or write: one, unless the device takes less at once.
    pub(super) fn move_contents(&mut self, index: u32, op: BioOp, fua: bool) {
        let slot = self.slots.get_mut(index);
        let (offset, len) = (slot.offset, slot.len as usize);
        let Contents::Here(buf) = std::mem::replace(&mut slot.contents, Contents::Away) else {
            // No bytes at all.
            slot.contents = Contents::None;
            return self.settle(index);
        };
        let most = self.geometry.max_transfer as usize / self.geometry.logical as usize
            * self.geometry.logical as usize;
        let mut push = |at: usize, buf| {
            let pos = offset + at as u64;
            let token = u64::from(index);
            let mut bio = match op {
                BioOp::Write => Bio::write(pos, buf, token),
                _ => Bio::read(pos, buf, token),
            };
            bio.flags.fua = fua;
            self.todo.push_back(bio);
        };
        if buf.len() == len && len <= most {
            slot.open = 1;
            return push(0, buf);
        }
        let mut split = Split::new(buf);
        let mut at = 0;
        while at < len {
            let now = most.clamp(1, len - at);
            push(at, split.take(now));
            slot.open += 1;
            at += now;
        }
        slot.contents = Contents::Cut(split);
    }

    fn start_flush(&mut self, index: u32) {
        self.tally.flushes += 1;
        self.slots.get_mut(index).sync = self.geometry.volatile_cache && !self.geometry.read_only;
        self.settle(index);
    }

    fn start_trim(&mut self, index: u32) {
        self.tally.trims += 1;
        // Without discard it is a hint without effect: a client that does not ask first expects no error.
        if self.geometry.discard && self.slots.get(index).len > 0 {
            self.push_range(index, BioOp::Discard);
        } else {
            self.settle(index);
        }
    }

    fn start_zero(&mut self, index: u32, keep: bool, fast: bool) {
        self.tally.zeroes += 1;
        if self.slots.get(index).len == 0 {
            self.settle(index);
        } else if fast && keep && self.session.export.is_block_device() {
            // The host would write zeros where the device cannot do it otherwise.
            self.slots.get_mut(index).errno = Some(Errno::NotSup);
            self.settle(index);
        } else if self.geometry.write_zeroes || (!keep && self.geometry.discard) {
            let op = if keep {
                BioOp::WriteZeroes
            } else {
                BioOp::WriteZeroesUnmap
            };
            self.push_range(index, op);
        } else {
            self.write_zeros(index, fast);
        }
    }

    fn push_range(&mut self, index: u32, op: BioOp) {
        let slot = self.slots.get_mut(index);
        slot.open = 1;
        let bio = Bio::range(op, slot.offset, slot.len, u64::from(index));
        self.todo.push_back(bio);
    }

    /// Writes zeros, on a device that cannot do that by itself; or says that this would not be fast.
    pub(super) fn write_zeros(&mut self, index: u32, fast: bool) {
        let slot = self.slots.get_mut(index);
        if fast || self.session.export.zeros().is_none() {
            let errno = if fast { Errno::NotSup } else { Errno::NoMem };
            slot.errno.get_or_insert(errno);
            return self.settle(index);
        }
        slot.fill = Some(Fill {
            next: slot.offset,
            end: slot.offset + slot.len,
        });
        for _ in 0..FILLS {
            self.fill_on(index);
        }
    }

    /// Writes the next piece of zeros, if there is one and nothing has failed.
    pub(super) fn fill_on(&mut self, index: u32) {
        let most = u64::from(self.geometry.max_transfer) & !u64::from(self.geometry.logical - 1);
        let (slot, zeros) = (self.slots.get_mut(index), self.session.export.zeros());
        let (Some(fill), Some(zeros), None) = (&mut slot.fill, zeros, slot.errno) else {
            return;
        };
        let len = (fill.end - fill.next).min(zeros.len() as u64).min(most);
        if len > 0 {
            let bio = Bio::write(fill.next, zeros.lend(0..len as usize), u64::from(index));
            fill.next += len;
            slot.open += 1;
            self.todo.push_back(bio);
        }
    }

    fn ask(&mut self, index: u32, one: bool) {
        self.tally.statuses += 1;
        let slot = self.slots.get(index);
        let (range, most) = (
            slot.offset..slot.offset + slot.len,
            if one { 1 } else { MOST_RUNS },
        );
        self.slots.give_aside(index);
        let export = &self.session.export;
        export.aside.stored(range, most, &self.inbox, index);
    }
}
