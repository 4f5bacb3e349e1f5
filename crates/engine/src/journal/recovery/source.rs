//! Where the blocks of a log are: in the journal's inode, or on a device of its own.
//!
//! Input: a block number in the log. Output: the block. Invariants: a number outside the log, or in a hole of the journal's file, is
//! an error. Limits: reads ahead by [`WINDOW`] bytes, and keeps no more than that; the superblock is read alone, as most logs are empty;
//! blocks the calling thread.

use crate::disk::{flush, write_block};
use crate::error::Error;
use crate::journal::Places;
use crate::mapping::{Mapping, MappingState};
use crate::op::Op;
use diorite_block::{Blocking, Buf, Device};
use diorite_format::FsBlock;
use std::sync::Arc;

/// Bytes that are read ahead at once.
const WINDOW: u32 = 256 << 10;

/// Access to the blocks of a log by their numbers.
pub(crate) trait LogBlocks {
    /// Reads block `at`.
    fn read(&mut self, at: u32) -> Result<&[u8], Error>;
}

/// A log on a device.
#[derive(Debug)]
pub(crate) struct LogSource {
    blocking: Blocking,
    block_size: u32,
    /// The block with the journal's superblock.
    super_at: u32,
    places: Places,
    /// The first block that was read ahead, and the bytes from there.
    window: Option<(u32, Buf)>,
}

impl LogSource {
    /// A log in a file with this map.
    pub(crate) fn in_file(device: Arc<dyn Device>, block_size: u32, map: &[Mapping]) -> LogSource {
        let runs = map.iter().filter_map(|m| match m.state {
            MappingState::Written(at) | MappingState::Unwritten(at) => {
                Some((u32::try_from(m.start).ok()?, at, u32::try_from(m.len).ok()?))
            }
            MappingState::Hole => None,
        });
        LogSource::new(device, block_size, 0, runs.collect())
    }

    /// A log on an external device: its blocks are numbered from the start of the device.
    pub(crate) fn on_device(device: Arc<dyn Device>, block_size: u32, super_at: u32) -> LogSource {
        let end = device.geometry().size / u64::from(block_size);
        let len = u32::try_from(end).unwrap_or(u32::MAX);
        let whole = vec![(0, FsBlock::new(0), len)];
        LogSource::new(device, block_size, super_at, whole)
    }

    fn new(
        device: Arc<dyn Device>,
        block_size: u32,
        super_at: u32,
        runs: Vec<(u32, FsBlock, u32)>,
    ) -> LogSource {
        LogSource {
            blocking: Blocking::new(device),
            block_size,
            super_at,
            places: Places { runs },
            window: None,
        }
    }

    /// The device, where the log's blocks are on it, and the number of the block with the journal's superblock.
    pub(crate) fn into_parts(self) -> (Blocking, Places, u32) {
        (self.blocking, self.places, self.super_at)
    }

    /// Reads the block with the journal's superblock.
    pub(crate) fn read_super(&self) -> Result<Vec<u8>, Error> {
        let (place, _) = self.place(self.super_at)?;
        let raw = self.read_from(place, self.block_size)?;
        Ok(raw.as_slice().to_vec())
    }

    /// Writes the block with the journal's superblock, durably.
    pub(crate) fn write_super(&mut self, raw: &[u8]) -> Result<(), Error> {
        self.write(self.super_at, raw)?;
        self.flush()
    }

    /// Writes block `at`.
    pub(super) fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), Error> {
        self.window = None;
        let (place, _) = self.place(at)?;
        write_block(
            &self.blocking,
            place.get() * u64::from(self.block_size),
            bytes,
        )
    }

    /// Makes durable what was written to the log's device before.
    pub(super) fn flush(&self) -> Result<(), Error> {
        flush(&self.blocking)
    }

    /// Where block `at` is on the device, and how many blocks of the log are contiguous from there, itself included.
    fn place(&self, at: u32) -> Result<(FsBlock, u32), Error> {
        let runs = &self.places.runs;
        let next = runs.partition_point(|(first, ..)| *first <= at);
        let run = next.checked_sub(1).map(|n| runs[n]);
        match run.filter(|(first, _, len)| at - first < *len) {
            Some((first, start, len)) => {
                let into = at - first;
                Ok((FsBlock::new(start.get() + u64::from(into)), len - into))
            }
            None => Err(Error::Damaged(format!(
                "block {at} of the journal has no place on the device; run e2fsck"
            ))),
        }
    }

    /// Reads `len` bytes of the device from `place` on.
    fn read_from(&self, place: FsBlock, len: u32) -> Result<Buf, Error> {
        let pos = place.get() * u64::from(self.block_size);
        let read = self.blocking.read(pos, Buf::zeroed(len as usize));
        read.map_err(|error| Error::Device {
            op: Op::Read,
            pos,
            len,
            error,
        })
    }
}

impl LogBlocks for LogSource {
    fn read(&mut self, at: u32) -> Result<&[u8], Error> {
        let size = self.block_size as usize;
        let held = |(first, bytes): &(u32, Buf)| {
            let n = at.checked_sub(*first)? as usize;
            (n < bytes.len() / size).then_some(n * size)
        };
        let from = match self.window.as_ref().and_then(held) {
            Some(from) => from,
            None => {
                let (place, run) = self.place(at)?;
                let len = run.min(WINDOW / self.block_size).max(1) * self.block_size;
                self.window = Some((at, self.read_from(place, len)?));
                0
            }
        };
        let window = self.window.as_ref().map(|(_, bytes)| bytes.as_slice());
        Ok(&window.expect("it was filled above")[from..from + size])
    }
}
