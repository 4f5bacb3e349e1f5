//! Admission: what a request must have before it may look at the map, and what it does when it cannot have it now.
//!
//! Input: a checked request. Output: a request that is counted in flight (or has the exclusive turn) and goes on to the
//! map, or one that is parked, or EAGAIN for `nowait`. Invariants: the size is loaded after the gate, before the map,
//! once; the inode lock is held only while mapping. Limits: in this slice writes end inside the size.

use super::{Started, is_fresh, issue};
use crate::error::{Error, NotYet, Wait};
use crate::inode::gate::Admission;
use crate::policy::{ReadLock, Unaligned};
use crate::queue::{Hold, Parked, QueueShared, QueueState, SlotState};
use std::sync::Arc;

/// A read: no lock under the default policy; the gate, the size, the map.
#[inline]
pub(super) fn read(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
) -> Result<Started, Error> {
    match queue.volume.policy().read_lock {
        ReadLock::None => read_admitted(queue, state, index),
        ReadLock::Shared => {
            let file = state.file_of(index).handle();
            let _shared = file.inode.lock_shared(state.slots[index].flags.nowait)?;
            read_admitted(queue, state, index)
        }
        ReadLock::Exclusive => {
            let file = state.file_of(index).handle();
            let _exclusive = file.inode.lock_exclusive(state.slots[index].flags.nowait)?;
            read_admitted(queue, state, index)
        }
    }
}

#[inline]
fn read_admitted(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
) -> Result<Started, Error> {
    if enter(queue, state, index)? == Admission::Parked {
        return Ok(Started::Away);
    }
    let size = state.file_of(index).inode.size();
    let slot = &mut state.slots[index];
    let Some(left) = size.checked_sub(slot.pos).filter(|l| *l > 0) else {
        return Ok(Started::Done);
    };
    // Bytes up to the end of the last sector come from the device and are zeroed when they are here (rule G3).
    let in_sectors = left.saturating_add(queue.limits.logical_mask) & !queue.limits.logical_mask;
    slot.done = u32::try_from(left).unwrap_or(u32::MAX).min(slot.len);
    slot.zero_to = u32::try_from(in_sectors).unwrap_or(u32::MAX).min(slot.len);
    issue::map_and_issue(queue, state, index, None)
}

/// A write: the inode lock shared while it maps, the in-flight count, or the exclusive turn if the policy wants that.
#[inline]
pub(super) fn write(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
) -> Result<Started, Error> {
    let slot = &state.slots[index];
    let aligned = (slot.pos | u64::from(slot.len)) & queue.limits.block_mask() == 0;
    let alone = !aligned && queue.volume.policy().unaligned == Unaligned::Exclusive;
    if alone {
        return write_alone(queue, state, index);
    }
    let file = state.file_of(index).handle();
    let _shared = file.inode.lock_shared(state.slots[index].flags.nowait)?;
    if enter(queue, state, index)? == Admission::Parked {
        return Ok(Started::Away);
    }
    write_admitted(queue, state, index)
}

/// Gives the in-flight count back and asks for the exclusive turn instead (rules B1 to B3).
pub(super) fn write_alone(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
) -> Result<Started, Error> {
    if state.slots[index].hold != Hold::Turn && take_turn(queue, state, index)? == Admission::Parked
    {
        return Ok(Started::Away);
    }
    write_admitted(queue, state, index)
}

fn write_admitted(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
) -> Result<Started, Error> {
    let file = state.file_of(index);
    let (ino, size, dsync) = (file.inode.ino, file.inode.size(), file.dsync);
    let slot = &mut state.slots[index];
    if slot.len == 0 {
        return Ok(Started::Done);
    }
    if slot.end() > size {
        return Err(Error::NotYet(NotYet::Extend {
            ino,
            end: slot.end(),
            size,
        }));
    }
    slot.flags.dsync |= dsync;
    slot.done = slot.len;
    issue::map_and_issue(queue, state, index, None)
}

/// Counts the request in flight, unless it is already.
#[inline]
fn enter(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32) -> Result<Admission, Error> {
    if !is_fresh(state, index) {
        return Ok(Admission::Now);
    }
    let file = state.file_of(index);
    if file.inode.gate.enter(&file.shard) {
        state.slots[index].hold = Hold::InFlight;
        return Ok(Admission::Now);
    }
    if state.slots[index].flags.nowait {
        return Err(Error::WouldBlock(Wait::Gate));
    }
    let file = file.handle();
    let admission = file
        .inode
        .gate
        .enter_or_park(&file.shard, || park(queue, state, index, Hold::InFlight));
    if admission == Admission::Now {
        state.slots[index].hold = Hold::InFlight;
    }
    Ok(admission)
}

fn take_turn(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
) -> Result<Admission, Error> {
    let file = state.file_of(index).handle();
    if state.slots[index].hold == Hold::InFlight {
        state.slots[index].hold = Hold::None;
        file.inode.gate.leave(&file.shard);
    }
    let admission = if state.slots[index].flags.nowait {
        if !file.inode.gate.try_turn() {
            return Err(Error::WouldBlock(Wait::Turn));
        }
        Admission::Now
    } else {
        file.inode
            .gate
            .take_turn(|| park(queue, state, index, Hold::Turn))
    };
    if admission == Admission::Now {
        state.slots[index].hold = Hold::Turn;
    }
    Ok(admission)
}

fn park(queue: &Arc<QueueShared>, state: &mut QueueState, index: u32, wanted: Hold) -> Parked {
    let slot = &mut state.slots[index];
    slot.state = SlotState::Parked;
    slot.wanted = wanted;
    state.parked += 1;
    state.counters.parked += 1;
    Parked {
        queue: queue.clone(),
        slot: index,
    }
}
