//! Atomic (untorn) writes: by one request of the device where it can do that, otherwise by mapping new blocks.
//!
//! Input: an admitted atomic write. Output: its bios, or what it has to wait for, or the reason of a refusal. Invariants: rule B10: it is
//! never divided by the device, and never goes through the page cache; new blocks are mapped by one edit in one handle, after all of their
//! data is there. Limits: see [`crate::Volume::atomic_limits`].
//!
//! If two atomic writes, or an atomic one and one into new space, want the same block, the later one is parked on the pending map. Plain
//! overwrites are not registered there: one that has looked up the old mapping writes to the old blocks; for readers it precedes the atomic
//! write. The old blocks are used again only after it has ended (`alloc/swapped.rs`).

use super::{Attempt, issue, space};
use crate::error::Error;
use crate::inode::Handle;
use crate::map::MapView;
use crate::slots::plan::{Obstacle, Piece, Purpose, plan};
use crate::slots::{Limits, QueueState, Slot};
use crate::turn::Hold;
use std::sync::Arc;

/// Checks length and position of an atomic write, and whether the volume and the file can have any.
#[cold]
pub(super) fn check(limits: &Limits, slot: &Slot, file: &Handle) -> Result<(), Box<Error>> {
    let inode = &file.inode;
    let Some(bounds) = limits.untorn.limits() else {
        let what = "this volume has no atomic writes: they need a journal, and clusters of at most 64 KiB, or a device that has them";
        return Err(Error::NotSupported(what.into()).into());
    };
    if inode.is_journalled() {
        return Err(journalled(slot, file).into());
    }
    let len = u64::from(slot.len);
    let (min, max) = (u64::from(bounds.unit_min), u64::from(bounds.unit_max));
    if !len.is_power_of_two() || !(min..=max).contains(&len) {
        let what = format!(
            "an atomic write of {len} bytes; here its length is a power of two from {min} to {max}"
        );
        return Err(Error::Invalid(what).into());
    }
    if !slot.pos.is_multiple_of(len) {
        let what = format!(
            "an atomic write of {len} bytes at byte {}, which is no multiple of its length",
            slot.pos
        );
        return Err(Error::Invalid(what).into());
    }
    Ok(())
}

/// The error for a file whose data goes through the journal: no direct write of it is possible.
pub(super) fn journalled(slot: &Slot, file: &Handle) -> Error {
    Error::NotSupported(format!(
        "an atomic write at byte {} of inode {}: the file's data goes through the journal",
        slot.pos, file.inode.ino
    ))
}

/// Issues an atomic write.
#[cold]
pub(super) fn attempt(state: &mut QueueState, index: u32, view: Option<&Arc<MapView>>) -> Attempt {
    state.file_of(index).inode.note_untorn();
    match in_place(state, index, view) {
        Ok(true) => {
            let issued = issue::issue_planned(state, index, 1);
            if let (Attempt::Issued, Some(bio)) = (&issued, state.bios.last_mut()) {
                bio.flags.atomic = true;
            }
            return issued;
        }
        Ok(false) => {}
        Err(stop) => return stop,
    }
    if state.limits.untorn.remaps.is_none() {
        let slot = &state.slots[index];
        let what = format!(
            "an atomic write of {} bytes at byte {}: without a journal the range must be one written extent with a place on the device \
             that is a multiple of the length",
            slot.len, slot.pos
        );
        return Attempt::refused(Error::NotSupported(what));
    }
    let inode = state.file_of(index).inode.clone();
    let slot = &state.slots[index];
    match slot.hold {
        // Nobody else is in flight, so nobody knows blocks that were replaced before.
        Hold::Exclusive => inode.let_go_of_swapped(),
        _ if !slot.is_waited_for() && inode.should_let_go_of_swapped(slot.flags.nowait) => {
            return Attempt::Wants(Hold::Exclusive);
        }
        _ => {}
    }
    space::attempt(state, index, view)
}

/// Plans the write as one request of the device, in the blocks that the file has. False if that is not possible.
fn in_place(
    state: &mut QueueState,
    index: u32,
    view: Option<&Arc<MapView>>,
) -> Result<bool, Attempt> {
    let QueueState {
        slots,
        files,
        pieces,
        limits,
        ..
    } = state;
    let slot = &slots[index];
    let len = u64::from(slot.len);
    let fits = |unit: (u32, u32)| u64::from(unit.0) <= len && len <= u64::from(unit.1);
    let device = limits.untorn.device;
    let device = device.filter(|d| fits((d.unit_min, d.unit_max)) && len <= limits.most_single);
    let in_one = slot.buf.contiguous().is_some();
    if device.is_none() || !in_one || slot.past_end || slot.is_waited_for() {
        return Ok(false);
    }
    let file = files[slot.file as usize]
        .as_mut()
        .expect("a file with requests stays attached");
    let blocks = slot.pos >> limits.block_bits..(slot.pos + len) >> limits.block_bits;
    let mapped = view.unwrap_or(file.with_latest_map().1);
    let planned = plan(
        Purpose::Overwrite,
        mapped.walk(blocks.start, blocks.end),
        (slot.pos, slot.len),
        limits.block_bits,
        limits.max_transfer,
        pieces,
    );
    match planned {
        Ok(1) => Ok(matches!(pieces[..], [Piece::Data { at, .. }] if at.is_multiple_of(len))),
        Ok(_) | Err(Obstacle::NotWritten(_)) => Ok(false),
        Err(Obstacle::NotLoaded(_)) => Err(Attempt::NeedsMap(blocks)),
    }
}
