//! Writes a new file system onto its device.
//!
//! Input: contents by position, and ranges that must read as zeros. Output: a device with them. Invariants: pieces that follow each other
//! leave in one request; nothing is durable before [`Out::flush`]. Limit: blocks.

use crate::error::Error;
use crate::op::Op;
use diorite_block::device::Stored;
use diorite_block::{Bio, BioList, BioOp, Blocking, Buf};
use std::ops::Range;

/// Bytes of one request, at most: so few that the allocator hands out the same memory again.
const MOST: usize = 64 << 10;
/// Bytes of zeros in one request, at most.
const MOST_ZEROS: usize = 1 << 20;
/// Requests that are collected before they are sent.
const BATCH: usize = 16;
/// Runs of a device's map that are asked for at once.
const RUNS: usize = 256;

/// Zeroed memory.
fn memory(len: usize) -> Result<Buf, Error> {
    let asked = len as u64;
    Buf::try_zeroed(len).ok_or(Error::NoMemory { asked })
}

pub(crate) struct Out<'b> {
    blocking: &'b Blocking,
    /// Bytes that follow each other, and where they begin.
    piece: (u64, Vec<u8>),
    bios: BioList,
    written: u64,
}

impl<'b> Out<'b> {
    pub(crate) fn new(blocking: &'b Blocking) -> Out<'b> {
        Out {
            blocking,
            piece: (0, Vec::new()),
            bios: BioList::new(),
            written: 0,
        }
    }

    /// Bytes given to [`Out::put`].
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes `bytes` at `pos`: whole logical blocks of the device.
    pub(crate) fn put(&mut self, pos: u64, bytes: &[u8]) -> Result<(), Error> {
        self.written += bytes.len() as u64;
        let end = self.piece.0 + self.piece.1.len() as u64;
        if pos != end || self.piece.1.len() + bytes.len() > MOST {
            self.end_piece()?;
            self.piece.0 = pos;
        }
        self.piece.1.extend_from_slice(bytes);
        Ok(())
    }

    fn end_piece(&mut self) -> Result<(), Error> {
        let (pos, bytes) = &mut self.piece;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut buf = memory(bytes.len())?;
        buf.copy_in(0, bytes);
        bytes.clear();
        let bio = Bio::write(*pos, buf, 0);
        self.add(bio)
    }

    fn add(&mut self, bio: Bio) -> Result<(), Error> {
        self.bios.push_back(bio);
        match self.bios.len() < BATCH {
            true => Ok(()),
            false => self.run(),
        }
    }

    fn run(&mut self) -> Result<(), Error> {
        let bios = std::mem::take(&mut self.bios);
        for bio in self.blocking.run_all(bios) {
            bio.result.map_err(|error| Error::Device {
                op: Op::Write,
                pos: bio.pos,
                len: bio.len.min(u32::MAX.into()) as u32,
                error,
            })?;
        }
        Ok(())
    }

    /// Makes a range read as zeros. What has no space on the device stays as it is.
    pub(crate) fn zero(&mut self, range: Range<u64>) -> Result<(), Error> {
        let device = self.blocking.device().clone();
        let mut at = range.start;
        while at < range.end {
            for run in device.stored(at..range.end, RUNS)? {
                if run.stored == Stored::Data {
                    self.zero_run(at..at + run.len)?;
                }
                at += run.len;
            }
        }
        Ok(())
    }

    fn zero_run(&mut self, mut range: Range<u64>) -> Result<(), Error> {
        let geometry = self.blocking.device().geometry();
        while range.start < range.end {
            let len = range.end - range.start;
            let at = range.start;
            if geometry.write_zeroes {
                let len = len.min(geometry.max_transfer.into());
                self.add(Bio::range(BioOp::WriteZeroesUnmap, at, len, 0))?;
                range.start += len;
            } else {
                let len = len.min(MOST_ZEROS as u64);
                self.add(Bio::write(at, memory(len as usize)?, 0))?;
                range.start += len;
            }
        }
        Ok(())
    }

    /// Tells the device that a range is not needed. It may have no use for that.
    pub(super) fn discard(&mut self, range: Range<u64>) {
        let geometry = self.blocking.device().geometry();
        if !geometry.discard {
            return;
        }
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(1 << 30);
            // A hint: a device that refuses it is as good.
            let _ = self.blocking.run(Bio::range(BioOp::Discard, at, len, 0));
            at += len;
        }
    }

    /// Sends what is collected, and makes it durable.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.end_piece()?;
        self.run()?;
        self.blocking.flush().map_err(|error| Error::Device {
            op: Op::Sync,
            pos: 0,
            len: 0,
            error,
        })
    }
}
