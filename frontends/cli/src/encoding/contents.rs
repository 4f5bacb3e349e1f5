//! The bytes of a device in order: as pieces, or as a stream.
//!
//! Input: a device that is open. Output: pieces of data and of zeros, which together are all of it; a stream of the same bytes. Invariants:
//! what the device calls holes is not read; the block map and the progress see each byte once, in order; after an interrupt or an error
//! there is no more. Limits: pieces of data have at most 1 MiB, and are read one after the other.

use super::needed::Needed;
use crate::copying::ranges::{LARGE, Plan, Zeros};
use crate::images::device::Opened;
use diorite_block::{Blocking, Buf};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

/// What watches.
pub(crate) struct Hooks<'a> {
    pub(crate) stop: &'a AtomicBool,
    /// Is told of bytes that are done.
    pub(crate) step: &'a dyn Fn(u64),
}

/// A piece of a device.
pub(super) enum Piece {
    /// The first bytes of the buf.
    Data(Buf, usize),
    Zeros(u64),
}

/// See the module.
pub(super) struct Contents<'a> {
    blocking: Blocking,
    plan: Plan,
    /// The bytes that there are: those of the last sector behind them do not count.
    size: u64,
    hooks: &'a Hooks<'a>,
    map: Option<&'a mut Needed>,
    /// The piece that is handed out as a stream, and how much of it was.
    now: Option<(Piece, u64)>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(
        opened: &Opened,
        hooks: &'a Hooks<'a>,
        map: Option<&'a mut Needed>,
    ) -> Contents<'a> {
        let geometry = opened.device.geometry();
        let unit = u64::from(geometry.logical);
        Contents {
            blocking: Blocking::new(opened.device.clone()),
            plan: Plan::of(&opened.device, 0..geometry.size, unit, false),
            size: opened.size,
            hooks,
            map,
            now: None,
        }
    }

    /// The next piece; None at the end.
    pub(super) fn piece(&mut self) -> io::Result<Option<Piece>> {
        if self.hooks.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        let Some(part) = self.plan.next().filter(|part| part.at < self.size) else {
            return Ok(None);
        };
        let len = part.len.min(self.size - part.at);
        let piece = match part.first {
            Zeros::Known => Piece::Zeros(len),
            Zeros::Unknown => {
                debug_assert!(part.len <= LARGE as u64);
                let buf = Buf::zeroed(part.len as usize);
                let read = self.blocking.read(part.at, buf);
                let failed = |e| io::Error::other(format!("cannot read at byte {}: {e}", part.at));
                Piece::Data(read.map_err(failed)?, len as usize)
            }
        };
        if let Some(map) = &mut self.map {
            match &piece {
                Piece::Data(buf, len) => map.data(&buf.as_slice()[..*len]),
                Piece::Zeros(len) => map.zeros(part.at, *len),
            }
        }
        (self.hooks.step)(part.at + len);
        Ok(Some(piece))
    }
}

impl Read for Contents<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        if self.now.is_none() {
            self.now = self.piece()?.map(|piece| (piece, 0));
        }
        let Some((piece, at)) = &mut self.now else {
            return Ok(0);
        };
        let len = match piece {
            Piece::Data(_, len) => *len as u64,
            Piece::Zeros(len) => *len,
        };
        let count = out
            .len()
            .min(usize::try_from(len - *at).unwrap_or(usize::MAX));
        match piece {
            Piece::Data(buf, _) => {
                let from = *at as usize;
                out[..count].copy_from_slice(&buf.as_slice()[from..from + count]);
            }
            Piece::Zeros(_) => out[..count].fill(0),
        }
        *at += count as u64;
        if *at == len {
            self.now = None;
        }
        Ok(count)
    }
}
