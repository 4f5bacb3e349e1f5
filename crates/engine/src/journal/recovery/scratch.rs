//! A device whose writes stay in memory, over a device that is not changed.
//!
//! Input: bios. Output: reads from the device below, with blocks that were written here in place of its own; at the end, all these blocks.
//! Invariants: only reads reach the device below; a write is visible to every read that is reaped after it. Limits: writes are whole
//! blocks; discard and write-zeroes are not supported; memory grows with the blocks that are written.

use crate::disk::Blocks;
use diorite_block::sync::{DEVICE_SHARED, Mutex};
use diorite_block::{
    Bio, BioError, BioErrorKind, BioList, BioOp, Device, DeviceError, DeviceQueue, Geometry,
    QueueOptions,
};
use diorite_format::FsBlock;
use std::sync::Arc;
use std::time::Duration;

/// See the module. Send and Sync.
pub(crate) struct Scratch {
    below: Arc<dyn Device>,
    written: Arc<Written>,
}

struct Written {
    block_size: usize,
    blocks: Mutex<Blocks>,
}

impl Scratch {
    /// A device like `below`, with nothing written yet.
    pub(crate) fn new(below: Arc<dyn Device>, block_size: u32) -> Scratch {
        let blocks = Mutex::at_level(&DEVICE_SHARED, below.level(), Blocks::new());
        let block_size = block_size as usize;
        let written = Arc::new(Written { block_size, blocks });
        Scratch { below, written }
    }

    /// Takes the blocks that were written; the device is as `below` again.
    pub(crate) fn take(&self) -> Blocks {
        std::mem::take(&mut *self.written.blocks.lock())
    }
}

impl Device for Scratch {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            read_only: false,
            discard: false,
            write_zeroes: false,
            volatile_cache: false,
            ..self.below.geometry()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(ScratchQueue {
            below: self.below.open_queue(options)?,
            written: self.written.clone(),
            ended: Mutex::at_level(&DEVICE_SHARED, self.below.level(), Vec::new()),
        }))
    }
}

struct ScratchQueue {
    below: Box<dyn DeviceQueue>,
    written: Arc<Written>,
    /// Bios that ended without the device below.
    ended: Mutex<Vec<Bio>>,
}

impl DeviceQueue for ScratchQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        Some(&*self.below)
    }

    fn submit(&self, bios: &mut BioList) {
        let mut reads = BioList::new();
        let mut ended = Vec::new();
        for mut bio in bios.drain(..) {
            if bio.op == BioOp::Read {
                reads.push_back(bio);
            } else {
                bio.result = self.written.take_in(&bio);
                ended.push(bio);
            }
        }
        self.ended.lock().append(&mut ended);
        self.below.submit(&mut reads);
        bios.append(&mut reads);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let known = out.len();
        let mut count = self.below.reap(out);
        out.range_mut(known..)
            .filter(|bio| bio.op == BioOp::Read && bio.result.is_ok())
            .for_each(|bio| self.written.patch(bio));
        let ended = std::mem::take(&mut *self.ended.lock());
        count += ended.len();
        out.extend(ended);
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.ended.lock().is_empty() {
            self.below.wait(min, timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        let ended = self.ended.lock().len();
        self.below.in_flight() + u32::try_from(ended).unwrap_or(u32::MAX)
    }
}

impl Written {
    /// Executes a bio that is not a read.
    fn take_in(&self, bio: &Bio) -> Result<(), BioError> {
        let size = self.block_size as u64;
        match bio.op {
            BioOp::Flush => return Ok(()),
            BioOp::Write => {}
            _ => return Err(BioError::new(BioErrorKind::Unsupported)),
        }
        if !bio.pos.is_multiple_of(size)
            || !bio.len.is_multiple_of(size)
            || bio.len != bio.buf.len() as u64
        {
            return Err(BioError::new(BioErrorKind::Invalid));
        }
        let bytes: Vec<u8> = bio.buf.parts().flatten().copied().collect();
        let mut blocks = self.blocks.lock();
        for (n, block) in (bio.pos / size..).zip(bytes.chunks_exact(self.block_size)) {
            blocks.insert(FsBlock::new(n), block.into());
        }
        Ok(())
    }

    fn patch(&self, bio: &mut Bio) {
        super::overlay::patch(bio, self.block_size as u64, &self.blocks.lock());
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;
    use diorite_block::{Blocking, Buf, MemDevice};

    /// What was written is read back, in whole blocks and parts of them, and the device below does not change.
    #[test]
    fn writes_stay_here() {
        let below = Arc::new(MemDevice::new(64 << 10));
        below.write_at(0, &[1; 64 << 10]);
        let scratch = Arc::new(Scratch::new(below.clone(), 1024));
        let blocking = Blocking::new(scratch.clone());
        let mut buf = Buf::zeroed(2048);
        buf.as_mut_slice().fill(7);
        blocking.run(Bio::write(4096, buf, 0)).result.unwrap();
        blocking.flush().unwrap();
        let read = blocking.read(3584, Buf::zeroed(3072)).unwrap();
        let mut want = vec![1; 3072];
        want[512..2560].fill(7);
        assert_eq!(read.as_slice(), want);
        let part = blocking.run(Bio::write(4096, Buf::zeroed(512), 0));
        assert!(part.result.is_err());
        let mut bytes = [0; 2048];
        below.read_at(4096, &mut bytes);
        assert_eq!(bytes, [1; 2048]);
        let taken = scratch.take();
        assert_eq!(taken.keys().map(|b| b.get()).collect::<Vec<_>>(), [4, 5]);
        assert!(taken.values().all(|block| **block == [7; 1024]));
    }
}
