//! The first checks of every request: alignment, bounds, and what the file allows.
//!
//! Input: a request in its slot. Output: nothing, or an error with the number that is wrong and by how much. Invariant: a request that
//! fails here has taken no lock and changed nothing. Limits: rules G1, G2.

use super::untorn;
use crate::error::{Error, Misaligned};
use crate::inode::{Handle, Inode};
use crate::op::Op;
use crate::request::{MAX_REQUEST, Request};
use crate::slots::{Limits, QueueState, Slot};

/// The bytes that a request asks for. This is the only place that checks the lengths a caller gives, before they are narrowed to the
/// 32 bits of a slot (rule D7).
pub(super) fn measure(request: &Request) -> Result<u32, Error> {
    let has = request.buf.len();
    if has > MAX_REQUEST {
        let what = format!("{has} bytes in one request; at most {MAX_REQUEST} are possible");
        return Err(Error::Invalid(what));
    }
    let asked = match request.op {
        Op::Write if request.len > has as u64 => return Err(too_few(request.len, has)),
        Op::Write if request.len != 0 => request.len,
        Op::WriteAtomic if request.len != 0 => {
            let what = "only a write of a whole buffer at a position can be atomic";
            return Err(Error::Invalid(what.into()));
        }
        Op::Read | Op::Write | Op::WriteAtomic | Op::Append => has as u64,
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

/// Checks alignment of a read or a write, and of a write also what the file allows.
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
    if slot.op == Op::WriteAtomic {
        return untorn::check(limits, slot, file);
    }
    if slot.is_last() && !file.of_cache {
        check_last(limits, slot)?;
    }
    Ok(())
}

/// Rule U7: checks a write again that was parked on the gate, as it may have become forbidden meanwhile. An append that has its place is
/// not checked again: it was in flight all the time.
#[cold]
pub(super) fn check_again(state: &QueueState, index: u32) -> Result<(), Box<Error>> {
    let slot = &state.slots[index];
    debug_assert!(
        slot.entry.is_none(),
        "who has its range waits for nobody (rule D6)"
    );
    if !slot.op.writes() || slot.extends {
        return Ok(());
    }
    check_write(slot, state.file_of(index))
}

/// Checks the buffer of a [`Request::write_last`]: behind the last byte it has only the rest of the last sector.
#[cold]
fn check_last(limits: &Limits, slot: &Slot) -> Result<(), Box<Error>> {
    let (len, has) = (u64::from(slot.len), slot.buf.len());
    if has as u64 - len > limits.logical_mask {
        return Err(too_few(len, has).into());
    }
    Ok(())
}

/// The error of a [`Request::write_last`] whose end is not behind the file's end: bytes behind it would be lost.
#[cold]
pub(super) fn not_last(slot: &Slot, file: &Inode) -> Error {
    let (ino, end) = (file.ino, slot.end());
    Error::Invalid(format!(
        "inode {ino} does not end with byte {end}: it has bytes behind that"
    ))
}

fn check_write(slot: &Slot, file: &Handle) -> Result<(), Box<Error>> {
    if !file.of_cache {
        let appends = slot.op == Op::Append || slot.pos >= file.inode.visible_size();
        file.check_writable(appends)?;
    }
    // The volume may have failed since the file was attached.
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
