//! The checks that every request passes first: alignment, bounds, and what the file allows.
//!
//! Input: a request in its slot. Output: nothing, or the error that says which rule was broken and by how much.
//! Invariant: a request that fails here has taken no lock and touched nothing. Limits: rules G1, G2.

use crate::error::{Error, Misaligned};
use crate::queue::{MAX_REQUEST, Op, QueueShared, QueueState, SlotBuf};
use crate::volume::VolumeShared;

/// What does not change while a queue is open: the device's and the volume's numbers that every request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Logical block - 1.
    pub(crate) logical_mask: u64,
    /// DMA alignment - 1.
    pub(crate) dma_mask: usize,
    /// log2 of the file system's block size.
    pub(crate) block_bits: u32,
    /// The largest bio.
    pub(crate) max_transfer: u32,
    /// FUA makes a write durable by itself.
    pub(crate) fua: bool,
    /// Writes need FUA or a flush to be durable.
    pub(crate) volatile_cache: bool,
}

impl Limits {
    pub(crate) fn new(volume: &VolumeShared) -> Limits {
        let geometry = volume.device.geometry();
        let block = volume.block_size();
        Limits {
            logical_mask: u64::from(geometry.logical) - 1,
            dma_mask: geometry.dma_align as usize - 1,
            block_bits: block.trailing_zeros(),
            max_transfer: geometry.max_transfer & !(geometry.logical - 1),
            fua: geometry.fua,
            volatile_cache: geometry.volatile_cache,
        }
    }

    /// The mask of file-system blocks.
    #[inline]
    pub(crate) fn block_mask(&self) -> u64 {
        (1 << self.block_bits) - 1
    }
}

/// Checks the request in slot `index`.
#[inline]
pub(crate) fn check(queue: &QueueShared, state: &mut QueueState, index: u32) -> Result<(), Error> {
    let slot = &state.slots[index];
    if matches!(slot.op, Op::Sync { .. }) {
        return Ok(());
    }
    let bits = match &slot.buf {
        SlotBuf::Whole(buf) => buf.alignment_bits(),
        SlotBuf::Parts(_) => 0,
    };
    let limits = &queue.limits;
    if (slot.pos | u64::from(slot.len)) & limits.logical_mask != 0 || bits & limits.dma_mask != 0 {
        return Err(misaligned(limits, slot.pos, slot.len, bits));
    }
    if slot.len as usize > MAX_REQUEST {
        return Err(Error::Invalid(format!(
            "{} bytes in one request; at most {MAX_REQUEST} are possible",
            slot.len
        )));
    }
    if slot.op == Op::Write {
        check_write(state, index)
    } else {
        Ok(())
    }
}

fn check_write(state: &QueueState, index: u32) -> Result<(), Error> {
    let (slot, file) = (&state.slots[index], state.file_of(index));
    file.check_writable()?;
    let most = file.inode.max_size();
    match slot.pos.checked_add(u64::from(slot.len)) {
        Some(end) if end <= most => Ok(()),
        _ => Err(Error::TooBig {
            ino: file.inode.ino,
            end: u128::from(slot.pos) + u128::from(slot.len),
            most,
        }),
    }
}

#[cold]
fn misaligned(limits: &Limits, pos: u64, len: u32, address: usize) -> Error {
    let need = limits.logical_mask + 1;
    let (what, value, need) = if pos & limits.logical_mask != 0 {
        (Misaligned::Offset, pos, need)
    } else if u64::from(len) & limits.logical_mask != 0 {
        (Misaligned::Length, u64::from(len), need)
    } else {
        (
            Misaligned::Buffer,
            address as u64,
            limits.dma_mask as u64 + 1,
        )
    };
    Error::Unaligned {
        what,
        by: value & (need - 1),
        need,
    }
}
