//! A read-only device with some blocks replaced: the volume as it will be once replayed blocks are written.
//!
//! Input: bios, and replayed blocks. Output: the bios, ended by the device below, with replayed blocks copied over what was read.
//! Invariants: nothing is ever written; a bio is patched once, after the device below has ended it without an error. Limits: none on
//! alignment or on the shape of buffers; geometry and reports are those of the device below, but read-only.

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
pub(crate) struct Overlay {
    below: Arc<dyn Device>,
    patches: Patches,
}

#[derive(Clone)]
struct Patches {
    block_size: u64,
    blocks: Arc<Blocks>,
}

impl Overlay {
    /// A device like `below` with these blocks in place of its own.
    pub(crate) fn new(below: Arc<dyn Device>, block_size: u32, blocks: Arc<Blocks>) -> Overlay {
        let block_size = u64::from(block_size);
        let patches = Patches { block_size, blocks };
        Overlay { below, patches }
    }
}

impl Device for Overlay {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            read_only: true,
            discard: false,
            write_zeroes: false,
            ..self.below.geometry()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(OverlayQueue {
            below: self.below.open_queue(options)?,
            patches: self.patches.clone(),
            refused: Mutex::at_level(&DEVICE_SHARED, self.below.level(), Vec::new()),
        }))
    }
}

struct OverlayQueue {
    below: Box<dyn DeviceQueue>,
    patches: Patches,
    /// Refused bios, which would have changed something; they end at the next reap.
    refused: Mutex<Vec<Bio>>,
}

impl DeviceQueue for OverlayQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        Some(&*self.below)
    }

    fn submit(&self, bios: &mut BioList) {
        let harmless = |bio: &Bio| matches!(bio.op, BioOp::Read | BioOp::Flush);
        while let Some(n) = bios.iter().position(|bio| !harmless(bio)) {
            let mut first: BioList = bios.drain(..n).collect();
            self.below.submit(&mut first);
            if !first.is_empty() {
                // The queue is full: what did not fit goes back to the front, in order.
                first.append(bios);
                *bios = first;
                return;
            }
            if let Some(mut bio) = bios.pop_front() {
                bio.result = Err(BioError::new(BioErrorKind::ReadOnly));
                self.refused.lock().push(bio);
            }
        }
        self.below.submit(bios);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let known = out.len();
        let mut count = self.below.reap(out);
        out.range_mut(known..)
            .filter(|bio| bio.op == BioOp::Read && bio.result.is_ok())
            .for_each(|bio| self.patches.apply(bio));
        let refused = std::mem::take(&mut *self.refused.lock());
        count += refused.len();
        out.extend(refused);
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.refused.lock().is_empty() {
            self.below.wait(min, timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        let refused = self.refused.lock().len();
        self.below.in_flight() + u32::try_from(refused).unwrap_or(u32::MAX)
    }
}

impl Patches {
    fn apply(&self, bio: &mut Bio) {
        patch(bio, self.block_size, &self.blocks);
    }
}

/// Copies blocks over the parts of a read bio that they cover.
pub(super) fn patch(bio: &mut Bio, block_size: u64, blocks: &Blocks) {
    let (start, end) = (bio.pos, bio.pos + bio.buf.len() as u64);
    let first = FsBlock::new(start / block_size);
    let past = FsBlock::new(end.div_ceil(block_size));
    for (block, bytes) in blocks.range(first..past) {
        let at = block.get() * block_size;
        let (from, to) = (at.max(start), (at + block_size).min(end));
        let part = &bytes[(from - at) as usize..(to - at) as usize];
        bio.buf.copy_in((from - start) as usize, part);
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;
    use diorite_block::{Blocking, Buf, MemDevice};

    const SIZE: usize = 64 << 10;

    /// A device of ones under patches filled with 100 + their number, and the bytes that reading it must give.
    fn patched() -> (Arc<MemDevice>, Arc<dyn Device>, Vec<u8>) {
        let below = Arc::new(MemDevice::new(SIZE as u64));
        let mut want = vec![1u8; SIZE];
        below.write_at(0, &want);
        let mut blocks = Blocks::new();
        for n in [0u64, 3, 4, 9, 15] {
            let bytes = vec![100 + n as u8; 4096];
            want[n as usize * 4096..][..4096].copy_from_slice(&bytes);
            blocks.insert(FsBlock::new(n), bytes.into());
        }
        let over = Overlay::new(below.clone(), 4096, Arc::new(blocks));
        (below, Arc::new(over), want)
    }

    #[test]
    fn every_range_reads_patched() {
        let (_, over, want) = patched();
        let blocking = Blocking::new(over);
        for from in (0..SIZE).step_by(512) {
            for len in [512, 1024, 4096, 4608, 12288, 40960] {
                let len = len.min(SIZE - from);
                let parts =
                    Buf::from_parts(vec![Buf::zeroed(512.min(len)), Buf::zeroed(len - 512)]);
                for buf in [Buf::zeroed(len), parts] {
                    let read = blocking.read(from as u64, buf).unwrap();
                    let bytes: Vec<u8> = read.parts().flatten().copied().collect();
                    assert_eq!(bytes, want[from..from + len], "{len} bytes at {from}");
                }
            }
        }
    }

    #[test]
    fn writes_among_reads_are_refused_and_nothing_is_lost() {
        let (below, over, _) = patched();
        let options = QueueOptions::new(4).unwrap();
        let queue = over.open_queue(options).unwrap();
        let write = |token| Bio::write(4096, Buf::zeroed(512), token);
        let read = |token| Bio::read(4096, Buf::zeroed(512), token);
        let mut todo: BioList = (0..40)
            .map(|n| if n % 3 == 0 { write(n) } else { read(n) })
            .collect();
        let mut done = BioList::new();
        while done.len() < 40 {
            queue.submit(&mut todo);
            if queue.reap(&mut done) == 0 {
                queue.wait(1, None);
            }
        }
        assert_eq!((queue.in_flight(), todo.len()), (0, 0));
        let mut tokens: Vec<u64> = done.iter().map(|b| b.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..40).collect::<Vec<_>>());
        for bio in done {
            assert_eq!(bio.result.is_err(), bio.op == BioOp::Write);
        }
        let mut bytes = [0; 512];
        below.read_at(4096, &mut bytes);
        assert_eq!(bytes, [1; 512]);
    }
}
