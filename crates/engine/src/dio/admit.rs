//! Admission: the hold on its inode that a request must have before it may look at the map.
//!
//! Input: a request in its slot. Output: a request that is counted in flight (or has the exclusive turn), mapped and issued;
//! or what it has to wait for. Invariants: the size is loaded once, after the gate and before the map; the inode lock is held only
//! while mapping and planning. Limits: none of its own.

use super::{Attempt, check, issue, map, pages};
use crate::error::{Error, Misaligned, Wait};
use crate::inode::{Handle, Inode};
use crate::map::MapView;
use crate::op::Op;
use crate::policy::{Extending, ReadLock, Unaligned};
use crate::range;
use crate::slots::Limits;
use crate::slots::{QueueState, Slot};
use crate::turn::Hold;
use crate::turn::NoPlace;
use std::sync::Arc;

/// One attempt: check, admit, map, plan, issue. Blocks on nothing but the inode lock, and with `nowait` not on that either.
#[inline]
pub(super) fn attempt(state: &mut QueueState, index: u32, view: Option<&Arc<MapView>>) -> Attempt {
    let limits = state.limits;
    let slot = &mut state.slots[index];
    let policy = slot.policy;
    let file = state.files[slot.file as usize]
        .as_ref()
        .expect("a file with requests stays attached");
    let read = match slot.op {
        Op::Read => true,
        Op::Write | Op::WriteAtomic | Op::Append => false,
        Op::Sync | Op::DataSync => return issue::flush(state, index),
        Op::Truncate | Op::Fallocate(_) => return operate(slot, file),
        Op::SyncVolume => return Attempt::SyncsVolume,
    };
    if slot.hold == Hold::None
        && let Err(error) = check::check(&limits, slot, file)
    {
        return Attempt::Refused(error);
    }
    if read && policy.read_lock == ReadLock::None {
        let admitted = enter(slot, file, Hold::InFlight)
            .and_then(|()| pages::look(slot, file, limits.block_bits))
            .and_then(|()| size_read(&limits, slot, file));
        return match admitted {
            Ok(()) => map::map_and_issue(state, index, view),
            Err(stop) => stop,
        };
    }
    let file = file.handle();
    let nowait = slot.flags.nowait;
    let admitted = if read && policy.read_lock == ReadLock::Exclusive {
        file.inode
            .lock_exclusive(nowait)
            .map(|_lock| locked(state, index, view, &file))
    } else {
        file.inode
            .lock_briefly(nowait)
            .map(|_lock| locked(state, index, view, &file))
    };
    admitted.unwrap_or_else(Attempt::refused)
}

/// Admits a range operation. It needs the exclusive turn, and it changes metadata, which `nowait` excludes.
#[cold]
fn operate(slot: &mut Slot, file: &Handle) -> Attempt {
    if slot.hold == Hold::Exclusive {
        return match pages::look_for_range(slot, file) {
            Ok(()) => Attempt::Operates,
            Err(stop) => stop,
        };
    }
    match range::check(file, slot.op, slot.pos, slot.range_len) {
        Err(error) => Attempt::refused(error),
        Ok(_) if slot.flags.nowait => Attempt::refused(Error::WouldBlock(Wait::Metadata)),
        Ok(_) => match pages::look_for_range(slot, file) {
            Ok(()) => Attempt::Wants(Hold::Exclusive),
            Err(stop) => stop,
        },
    }
}

/// The part of an attempt for which the inode lock is held.
fn locked(
    state: &mut QueueState,
    index: u32,
    view: Option<&Arc<MapView>>,
    file: &Handle,
) -> Attempt {
    let limits = state.limits;
    let slot = &mut state.slots[index];
    let policy = slot.policy;
    let sized = if slot.op == Op::Read {
        enter(slot, file, Hold::InFlight)
            .and_then(|()| pages::look(slot, file, limits.block_bits))
            .and_then(|()| size_read(&limits, slot, file))
    } else {
        // Rules B1 to B3: some policies run a write alone that is unaligned, or that makes the file longer.
        let unaligned = policy.unaligned == Unaligned::Exclusive && !limits.is_block_aligned(slot);
        let waits = policy.extending == Extending::Waiting && grows(slot, file);
        let alone = unaligned || waits || slot.alone || needs_turn(slot, file);
        let hold = match alone && !slot.is_waited_for() {
            true => Hold::Exclusive,
            false => Hold::InFlight,
        };
        enter(slot, file, hold)
            .and_then(|()| may_share(slot, file))
            .and_then(|()| pages::look(slot, file, limits.block_bits))
            .and_then(|()| size_write(&limits, slot, file))
    };
    match sized {
        Ok(()) if slot.op != Op::Read && owes_first(slot, file) => Attempt::NeedsFirstWrite,
        Ok(()) => map::map_and_issue(state, index, view),
        Err(stop) => stop,
    }
}

/// Counts the request in flight, unless it has that hold or the turn already.
#[inline]
fn enter(slot: &mut Slot, file: &Handle, wanted: Hold) -> Result<(), Attempt> {
    if slot.hold == Hold::Exclusive || slot.hold == wanted {
        return Ok(());
    }
    if wanted == Hold::InFlight && file.inode.gate.enter_with_pages(&file.shard) {
        slot.hold = Hold::InFlight;
        return Ok(());
    }
    Err(Attempt::Wants(wanted))
}

/// Must the write have the exclusive turn under any policy? It must if the file's data goes through the journal, and if it makes a file
/// longer in which a failed truncation has left blocks behind the size: they have to be freed first.
#[inline]
fn needs_turn(slot: &Slot, file: &Handle) -> bool {
    file.inode.is_journalled() || file.inode.is_cut() && grows(slot, file)
}

#[inline]
fn grows(slot: &Slot, file: &Handle) -> bool {
    slot.op == Op::Append || slot.end() > file.inode.size()
}

/// Asks [`needs_turn`] again of a request that is counted in flight: the answer cannot change as long as it is.
#[inline]
fn may_share(slot: &Slot, file: &Handle) -> Result<(), Attempt> {
    match slot.hold == Hold::InFlight && !slot.is_waited_for() && needs_turn(slot, file) {
        true => Err(Attempt::Wants(Hold::Exclusive)),
        false => Ok(()),
    }
}

/// Must something be done to the file before the request's data is written? Write-back takes no rights away: whoever made the page dirty
/// has, and the file may have got others since.
#[inline]
fn owes_first(slot: &Slot, file: &Handle) -> bool {
    file.inode.owes_first_write() && (!file.of_cache || file.inode.is_inside())
        || slot.hold == Hold::Exclusive && slot.past_end && file.inode.is_cut()
}

/// Computes how many bytes a read reports and how many it transfers. The transfer goes on to the end of the last sector; what the read
/// gets behind the file's end is zeroed when it ends (rule G3).
#[inline]
fn size_read(limits: &Limits, slot: &mut Slot, file: &Handle) -> Result<(), Attempt> {
    // A request that comes back with its map keeps the size that it has seen, because the size must be loaded before the map.
    if slot.moved != 0 {
        return Ok(());
    }
    let left = file.inode.size().saturating_sub(slot.pos);
    if left != 0 && slot.len != 0 && !file.of_cache {
        file.inode.note_read();
    }
    if left >= u64::from(slot.len) && slot.len != 0 {
        (slot.done, slot.moved) = (slot.len, slot.len);
        return Ok(());
    }
    if left == 0 || slot.len == 0 {
        return Err(Attempt::Done);
    }
    let in_sectors = left.saturating_add(limits.logical_mask) & !limits.logical_mask;
    let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).min(slot.len);
    (slot.done, slot.moved) = (short(left), short(in_sectors));
    Ok(())
}

/// Determines the position of an append, and whether a write makes the file longer.
#[inline]
fn size_write(limits: &Limits, slot: &mut Slot, file: &Handle) -> Result<(), Attempt> {
    if slot.len == 0 {
        return Err(Attempt::Done);
    }
    let inode = &file.inode;
    let size = inode.size();
    if slot.op == Op::Append && !slot.extends {
        if inode.is_journalled() {
            place_alone(limits, slot, inode)?;
        } else {
            place_append(limits, slot, inode)?;
        }
    }
    slot.past_end = slot.end() > size;
    let (dsync, sync) = file.makes_durable();
    slot.flags.sync |= sync;
    slot.flags.dsync |= dsync || slot.flags.sync;
    (slot.done, slot.moved) = (slot.len, slot.len);
    if slot.is_last() {
        let (from, all) = (slot.len as usize, slot.buf.len());
        // A page has zeros behind the end, and other pages may have moved the size over it.
        if !file.of_cache {
            if slot.end() <= inode.visible_size() {
                return Err(Attempt::refused(check::not_last(slot, inode)));
            }
            slot.buf.zero(from..all);
        }
        slot.moved = u32::try_from(all).expect("a buf is at most 2 GiB");
    }
    Ok(())
}

/// Reserves the append's place, once: behind the size and behind all places that others have reserved.
fn place_append(limits: &Limits, slot: &mut Slot, inode: &Inode) -> Result<(), Attempt> {
    let (len, most, logical) = (u64::from(slot.len), inode.max_size, limits.logical_mask + 1);
    match inode
        .pending
        .append(|| inode.visible_size(), len, most, logical)
    {
        Ok(pos) => {
            (slot.pos, slot.extends) = (pos, true);
            Ok(())
        }
        Err(NoPlace::Unsure) => Err(Attempt::WantsPlace),
        Err(NoPlace::Inside(end)) => Err(inside_sector(end, logical)),
        Err(NoPlace::TooBig) => Err(too_big(inode, len)),
    }
}

/// Places an append that has the exclusive turn: at the size, which nobody else can move now.
fn place_alone(limits: &Limits, slot: &mut Slot, inode: &Inode) -> Result<(), Attempt> {
    let (size, len, logical) = (inode.size(), u64::from(slot.len), limits.logical_mask + 1);
    if size % logical != 0 {
        return Err(inside_sector(size, logical));
    }
    if size.saturating_add(len) > inode.max_size {
        return Err(too_big(inode, len));
    }
    slot.pos = size;
    Ok(())
}

fn inside_sector(end: u64, logical: u64) -> Attempt {
    Attempt::refused(Error::Unaligned {
        what: Misaligned::Offset,
        by: end % logical,
        need: logical,
    })
}

fn too_big(inode: &Inode, len: u64) -> Attempt {
    Attempt::refused(Error::TooBig {
        ino: inode.ino,
        end: inode.size().saturating_add(len),
        most: inode.max_size,
    })
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
