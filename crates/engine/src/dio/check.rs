//! The checks that every request passes first: alignment, bounds, and what the file allows.
//!
//! Input: a request in its slot. Output: nothing, or the error that says which rule was broken and by how much.
//! Invariant: a request that fails here has taken no lock and touched nothing. Limits: rules G1, G2.

use crate::error::{Error, Misaligned};
use crate::inode::Fs;
use crate::inode::{Handle, Inode};
use crate::op::Op;
use crate::queue::{QueueState, Slot};
use crate::request::{MAX_REQUEST, Request};

/// What does not change while a queue is open: the device's and the volume's numbers that every request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Logical block - 1.
    pub(crate) logical_mask: u64,
    /// DMA alignment - 1.
    pub(crate) dma_mask: usize,
    /// log2 of the file system's block size, and that size - 1.
    pub(crate) block_bits: u32,
    pub(crate) block_mask: u64,
    /// The largest bio.
    pub(crate) max_transfer: u32,
    /// The largest request that one bio can carry.
    pub(crate) most_single: u64,
    /// FUA makes a write durable by itself.
    pub(crate) fua: bool,
    /// Writes need FUA or a flush to be durable.
    pub(crate) volatile_cache: bool,
}

impl Limits {
    pub(crate) fn new(volume: &Fs) -> Limits {
        let geometry = volume.device.geometry();
        let max_transfer = geometry.max_transfer & !(geometry.logical - 1);
        Limits {
            logical_mask: u64::from(geometry.logical) - 1,
            dma_mask: geometry.dma_align as usize - 1,
            block_bits: volume.block_size().trailing_zeros(),
            block_mask: u64::from(volume.block_size()) - 1,
            max_transfer,
            most_single: u64::from(max_transfer).min(MAX_REQUEST as u64),
            fua: geometry.fua,
            volatile_cache: geometry.volatile_cache,
        }
    }

    /// Does the request begin and end at file-system blocks?
    #[inline]
    pub(crate) fn is_block_aligned(&self, slot: &Slot) -> bool {
        (slot.pos | u64::from(slot.len)) & self.block_mask == 0
    }
}

/// The bytes that a request asks for: the one place where what a caller says of them is judged, before it is narrowed to what a slot
/// holds (rule D7).
pub(super) fn measure(request: &Request) -> Result<u32, Error> {
    let has = request.buf.len();
    if has > MAX_REQUEST {
        let what = format!("{has} bytes in one request; at most {MAX_REQUEST} are possible");
        return Err(Error::Invalid(what));
    }
    let asked = match request.op {
        Op::Write if request.len > has as u64 => return Err(too_few(request.len, has)),
        Op::Write if request.len != 0 => request.len,
        Op::Read | Op::Write | Op::Append => has as u64,
        Op::Sync | Op::DataSync | Op::SyncVolume | Op::Truncate | Op::Fallocate(_) if has != 0 => {
            let what = format!(
                "a buffer of {has} bytes with {:?}, which moves no data",
                request.op
            );
            return Err(Error::Invalid(what));
        }
        Op::Sync | Op::DataSync | Op::SyncVolume | Op::Truncate | Op::Fallocate(_) => 0,
    };
    Ok(u32::try_from(asked).expect("no more than its buffer, which was measured above"))
}

fn too_few(len: u64, has: usize) -> Error {
    Error::Invalid(format!(
        "the last {len} bytes of a file, in a buffer of {has}"
    ))
}

/// Checks a read or a write.
#[inline]
pub(super) fn check(limits: &Limits, slot: &Slot, file: &Handle) -> Result<(), Box<Error>> {
    let (address, len) = (slot.buf.alignment_bits(), slot.buf.len());
    if (slot.pos | len as u64) & limits.logical_mask != 0 || address & limits.dma_mask != 0 {
        return Err(misfit(limits, slot, address));
    }
    if slot.op == Op::Read {
        return Ok(());
    }
    check_write(slot, file)?;
    if slot.is_last() {
        check_last(limits, slot)?;
    }
    Ok(())
}

/// Rule U7: what a write was allowed when it was submitted may not be any more when it has waited at the gate. An append that has its
/// place was in flight.
#[cold]
pub(super) fn check_again(state: &QueueState, index: u32) -> Result<(), Box<Error>> {
    let slot = &state.slots[index];
    debug_assert!(
        slot.entry.is_none(),
        "who has its range waits for nobody (rule D6)"
    );
    let writes = matches!(slot.op, Op::Write | Op::Append);
    if !writes || slot.extends {
        return Ok(());
    }
    check_write(slot, state.file_of(index))
}

/// A write of a file's last bytes has no more than zeros of its last sector behind them.
#[cold]
fn check_last(limits: &Limits, slot: &Slot) -> Result<(), Box<Error>> {
    let (len, has) = (u64::from(slot.len), slot.buf.len());
    if has as u64 - len > limits.logical_mask {
        return Err(too_few(len, has).into());
    }
    Ok(())
}

/// A write of a file's last bytes that would not be: what is behind them stays.
#[cold]
pub(super) fn not_last(slot: &Slot, file: &Inode) -> Error {
    let (ino, end) = (file.ino, slot.end());
    Error::Invalid(format!(
        "inode {ino} does not end with byte {end}: it has bytes behind that"
    ))
}

fn check_write(slot: &Slot, file: &Handle) -> Result<(), Box<Error>> {
    file.check_writable(slot.op == Op::Append)?;
    // What was writable when it was attached may not be any more.
    file.inode.volume.check_sound()?;
    let most = file.inode.max_size;
    match slot.pos.checked_add(u64::from(slot.len)) {
        Some(end) if end <= most => Ok(()),
        _ => Err(Error::TooBig {
            ino: file.inode.ino,
            end: slot.end(),
            most,
        }
        .into()),
    }
}

#[cold]
fn misfit(limits: &Limits, slot: &Slot, address: usize) -> Box<Error> {
    let (logical, len) = (limits.logical_mask + 1, slot.buf.len() as u64);
    let (what, value, need) = if slot.pos & limits.logical_mask != 0 {
        (Misaligned::Offset, slot.pos, logical)
    } else if len & limits.logical_mask != 0 {
        (Misaligned::Length, len, logical)
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
    .into()
}
