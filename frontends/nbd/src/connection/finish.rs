//! Ended bios and answers become replies.
//!
//! Input: bios that the device has ended, answers from aside. Output: replies in the output; memory back. Invariants: a request
//! is replied to once, after all of its bios have ended; the first error wins; contents are sent only if all of them were read.
//! Limits: none.

use super::Connection;
use super::input::Expect;
use super::slots::{Contents, Work};
use super::sparse::{Part, is_zero, parts};
use crate::aside::Answer;
use crate::wire::{Errno, Mode, block_status};
use diorite_block::{Bio, BioErrorKind, BioOp, Run, Stored};

impl Connection {
    /// Takes a bio that has ended.
    pub(super) fn bio_ended(&mut self, bio: Bio) {
        let index = u32::try_from(bio.token).expect("the token is a slot's number");
        let slot = self.slots.get_mut(index);
        slot.open -= 1;
        let unsupported = |e: &diorite_block::BioError| e.kind == BioErrorKind::Unsupported;
        let cannot = bio.result.as_ref().is_err_and(unsupported);
        match (bio.op, bio.result) {
            (_, Ok(())) => {}
            (BioOp::Discard, Err(_)) if cannot => {}
            (BioOp::WriteZeroes | BioOp::WriteZeroesUnmap, Err(_)) if cannot => {
                let fast = matches!(slot.work, Work::Zero { fast: true, .. });
                return self.write_zeros(index, fast);
            }
            (_, Err(error)) => {
                slot.errno.get_or_insert(Errno::from(error));
            }
        }
        match &mut slot.contents {
            Contents::Cut(split) => split.absorb(bio.buf),
            contents @ Contents::Away => *contents = Contents::Here(bio.buf),
            // What it carried, if anything, was lent.
            Contents::None | Contents::Here(_) => {}
        }
        if slot.fill.is_some() && !self.dead {
            self.fill_on(index);
        }
        if self.slots.get(index).open == 0 {
            self.settle(index);
        }
    }

    /// Goes on with a request of which no bio is under way: a flush if it has to be durable, then the reply.
    pub(super) fn settle(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        match std::mem::take(&mut slot.contents) {
            Contents::Cut(split) => slot.contents = Contents::Here(split.join()),
            other => slot.contents = other,
        }
        if slot.sync && slot.errno.is_none() && !self.dead {
            slot.sync = false;
            self.slots.give_aside(index);
            let export = &self.session.export;
            return export.aside.flush(&self.told, &self.inbox, index);
        }
        self.reply(index);
    }

    /// Takes an answer from aside.
    pub(super) fn answered(&mut self, index: u32, answer: Answer) {
        let slot = self.slots.back_from_aside(index);
        match answer {
            Answer::Flushed(Ok(())) => {}
            Answer::Flushed(Err(error)) | Answer::Stored(Err(error)) => {
                slot.errno.get_or_insert(Errno::from(error));
            }
            Answer::Stored(Ok(mut runs)) => {
                let heads = slot.heads;
                if runs.is_empty() {
                    // Every answer has an extent. That it is data is always true.
                    let (len, stored) = (slot.len, Stored::Data);
                    runs.push(Run { len, stored });
                }
                if !self.dead {
                    self.output.head(|out| block_status(out, &heads, &runs));
                }
                self.slots.take(index);
                return;
            }
        }
        self.reply(index);
    }

    fn reply(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let (heads, work) = (slot.heads, slot.work);
        if let Some(whole) = slot.of {
            return self.piece_ended(index, whole);
        }
        if let Some(errno) = slot.errno {
            self.tally.failed += 1;
            self.output
                .head(|out| heads.failed(out, errno, work.is_chunked()));
        } else if let Work::Read { whole } = work {
            return self.reply_with_contents(index, whole);
        } else {
            self.output.head(|out| heads.done(out));
        }
        self.end(index);
    }

    pub(super) fn end(&mut self, index: u32) {
        if let Contents::Here(buf) = self.slots.take(index).contents {
            self.memory.put(buf);
        }
    }

    fn reply_with_contents(&mut self, index: u32, whole: bool) {
        let slot = self.slots.get(index);
        let (heads, len) = (slot.heads, slot.len as usize);
        let Contents::Here(buf) = &slot.contents else {
            // No bytes were asked for.
            self.output.head(|out| match heads.mode {
                Mode::Simple => heads.contents(out),
                Mode::Structured | Mode::Extended => heads.end(out),
            });
            return self.end(index);
        };
        if self.dead {
            return self.end(index);
        }
        if heads.mode == Mode::Simple {
            self.output.head(|out| heads.contents(out));
            self.output.data(index, 0, len, true);
            return;
        }
        let bytes = &buf.as_slice()[..len];
        self.parts.clear();
        match whole {
            true => self.parts.push(Part {
                range: 0..len,
                zero: is_zero(bytes),
            }),
            false => self.parts.extend(parts(bytes)),
        }
        self.chunks(index, true);
    }

    /// Sends the parts of the contents of a slot as chunks. `is_end`: the last of them is the last one of the reply.
    pub(super) fn chunks(&mut self, index: u32, is_end: bool) {
        let slot = self.slots.get(index);
        let (heads, at_first) = (slot.heads, slot.offset);
        let contents = self.parts.iter().rposition(|part| !part.zero);
        let last = self.parts.len() - 1;
        for (at, part) in self.parts.iter().enumerate() {
            let (start, end) = (part.range.start, part.range.end);
            let offset = at_first + start as u64;
            let len = u32::try_from(end - start).expect("a payload is at most 32 MiB");
            let done = is_end && at == last;
            match part.zero {
                true => self.output.head(|out| heads.hole(out, offset, len, done)),
                false => {
                    self.output.head(|out| heads.data(out, offset, len, done));
                    self.output.data(index, start, end, Some(at) == contents);
                }
            }
        }
        if contents.is_none() {
            self.end(index);
        }
    }

    /// Takes back what neither the device nor a thread aside has: half payloads, replies that nobody reads, and requests of which all
    /// pieces have ended.
    pub(super) fn take_back_unstarted(&mut self) {
        self.output.clear();
        self.input.expect = Expect::Header;
        self.stream = None;
        for index in self.slots.idle() {
            self.end(index);
        }
    }
}
