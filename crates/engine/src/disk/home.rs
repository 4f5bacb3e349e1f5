//! Writing blocks of metadata in place, durably.
//!
//! Input: block numbers and bytes. Output: the same bytes on the device. Invariants: neighbouring blocks are written by one bio; all
//! writes have ended, well or not, when the call returns; the first error is reported. Limits: the bytes are copied, [`PIECE`]
//! blocks at a time, so that who changes a block next does not wait for the device.

use super::Disk;
use crate::error::Error;
use diorite_block::{Bio, BioList, Blocking, Buf, Epoch};
use diorite_format::FsBlock;
use std::sync::Arc;

/// Largest number of blocks in one bio.
const RUN: usize = 128;
/// Largest number of blocks that are copied and in flight at once: eight full bios.
const PIECE: usize = 1024;

impl Disk {
    /// Makes durable all writes to the volume's device that have ended. Blocks.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.flush_since(self.data_epoch())
    }

    /// Makes durable the writes to the volume's device that had ended at `epoch`; shares a later flush of others, if there is one. Blocks.
    pub(crate) fn flush_since(&self, epoch: Epoch) -> Result<(), Error> {
        let failed = |e| Error::of_flush(&*self.device, e);
        self.blocking.flush_since(epoch).map_err(failed)
    }

    /// Writes blocks, given in ascending order, and makes them durable together with all writes that had ended before. Fails also if
    /// another thread's flush has failed since the first of these writes: that flush may have dropped them, and our own flush would not
    /// show it. Blocks.
    pub(crate) fn write_blocks_durably<'a>(
        &self,
        blocks: impl Iterator<Item = (FsBlock, &'a [u8])>,
    ) -> Result<(), Error> {
        let before = self.data_epoch();
        self.write_blocks_to(&self.blocking, blocks)?;
        self.flush()?;
        self.check_flushes_since(before)
    }

    /// Writes blocks to a device with the same block size. Blocks.
    fn write_blocks_to(
        &self,
        device: &Blocking,
        blocks: impl Iterator<Item = (FsBlock, impl AsRef<[u8]>)>,
    ) -> Result<(), Error> {
        let mut blocks = blocks.peekable();
        while blocks.peek().is_some() {
            let bios = self.in_runs(device, blocks.by_ref().take(PIECE));
            well(device, device.run_all(bios))?;
        }
        Ok(())
    }

    /// As [`Disk::write_blocks_durably`], to a device with the same block size. Where the host flushes behind each durable write, the last
    /// writes and the flush are one wait. Blocks.
    pub(crate) fn write_blocks_durably_to(
        &self,
        device: &Blocking,
        blocks: impl Iterator<Item = (FsBlock, impl AsRef<[u8]>)>,
    ) -> Result<(), Error> {
        let failed = |e| Error::of_flush(&**device.device(), e);
        let before = device.flushes().now();
        let mut blocks = blocks.peekable();
        loop {
            let bios = self.in_runs(device, blocks.by_ref().take(PIECE));
            if blocks.peek().is_none() {
                well(device, device.run_all_durably(bios).map_err(failed)?)?;
                return device.flushes().check(before).map_err(failed);
            }
            well(device, device.run_all(bios))?;
        }
    }

    /// Builds the bios that write these blocks, and counts their bytes as written.
    fn in_runs(
        &self,
        device: &Blocking,
        blocks: impl Iterator<Item = (FsBlock, impl AsRef<[u8]>)>,
    ) -> BioList {
        let size = u64::from(self.block_size());
        let (mut bios, mut run) = (BioList::new(), Vec::new());
        let mut first = FsBlock::new(0);
        for (at, bytes) in blocks {
            let next = first.get() + run.len() as u64;
            if run.len() == RUN || !run.is_empty() && at.get() != next {
                bios.push_back(gathered(first.get() * size, &mut run));
            }
            if run.is_empty() {
                first = at;
            }
            run.push(bytes);
        }
        if !run.is_empty() {
            bios.push_back(gathered(first.get() * size, &mut run));
        }
        // As in the kernel, writes to an external journal do not count.
        if Arc::ptr_eq(device.device(), &self.device) {
            self.note_written(bios.iter().map(|bio| bio.len).sum());
        }
        bios
    }
}

/// The first error among ended writes.
fn well(device: &Blocking, done: BioList) -> Result<(), Error> {
    for bio in done {
        let len = u32::try_from(bio.len).unwrap_or(u32::MAX);
        let failed = |e| Error::of_write(&**device.device(), bio.pos, len, e);
        bio.result.map_err(failed)?;
    }
    Ok(())
}

/// One bio for a run of blocks.
fn gathered(pos: u64, run: &mut Vec<impl AsRef<[u8]>>) -> Bio {
    let len = run.iter().map(|b| b.as_ref().len()).sum();
    let mut buf = Buf::zeroed(len);
    let mut rest = buf.as_mut_slice();
    for bytes in run.drain(..) {
        let bytes = bytes.as_ref();
        let (head, tail) = rest.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        rest = tail;
    }
    Bio::write(pos, buf, 0)
}

#[cfg(test)]
mod tests;
