//! From an admitted request to its bios.
//!
//! Input: a request that is counted in flight or has the turn, and the latest view of its file's map. Output: bios at the
//! end of the queue's list, or a hand-off to a worker when part of the map is not in memory. Invariant: all pieces are
//! planned before the first bio is made, so a request that cannot be served makes none. Limits: one bio carries the whole
//! buffer without a copy of its handle; several share it by a split.

use super::plan::{Obstacle, Piece, Purpose, plan};
use super::{Started, admit};
use crate::error::{Error, NotYet, Wait};
use crate::map::{LoadJob, MapView};
use crate::policy::Unaligned;
use crate::queue::{Hold, Op, QueueShared, QueueState, SlotBuf, SlotState};
use crate::workers::Work;
use diorite_block::{Bio, BioFlags, Split};
use std::sync::Arc;

/// Maps the request by `view`, or the latest one, and issues its bios.
#[inline]
pub(super) fn map_and_issue(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    view: Option<&Arc<MapView>>,
) -> Result<Started, Error> {
    let QueueState {
        slots,
        files,
        pieces,
        ..
    } = state;
    let slot = &slots[index];
    let file = files[slot.file as usize]
        .as_mut()
        .expect("a file stays attached while a request of it is in a slot");
    let ino = file.inode.ino;
    if file.inode.inline_data().is_some() {
        return inline_data(state, index);
    }
    let (purpose, len) = match slot.op {
        Op::Write => (Purpose::Overwrite, slot.len),
        Op::Read | Op::Sync { .. } => (Purpose::Read, slot.zero_to),
    };
    let view = match view {
        Some(view) => view,
        None => file.latest_map(),
    };
    let limits = &queue.limits;
    let first = slot.pos >> limits.block_bits;
    let end = (slot.pos + u64::from(len)).div_ceil(1 << limits.block_bits);
    let walk = view.walk(first, end);
    match plan(
        purpose,
        walk,
        (slot.pos, len),
        limits.block_bits,
        limits.max_transfer,
        pieces,
    ) {
        Ok(extents) => issue_planned(queue, state, index, extents),
        Err(Obstacle::NotLoaded(_)) if slot.flags.nowait => Err(Error::WouldBlock(Wait::Map)),
        Err(Obstacle::NotLoaded(_)) => Ok(load(queue, state, index, first, end)),
        Err(Obstacle::NotWritten(mapping)) => Err(Error::NotYet(NotYet::Allocate {
            ino,
            block: mapping.start,
        })),
    }
}

#[inline]
fn issue_planned(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    extents: u32,
) -> Result<Started, Error> {
    let slot = &state.slots[index];
    let flags = if slot.op == Op::Write {
        let unaligned = (slot.pos | u64::from(slot.len)) & queue.limits.block_mask() != 0;
        let one =
            queue.volume.policy().unaligned == Unaligned::ConcurrentIfOneExtent && extents > 1;
        if unaligned && one && slot.hold != Hold::Turn {
            return admit::write_alone(queue, state, index);
        }
        write_flags(queue, state, index)
    } else {
        BioFlags {
            fua: false,
            nowait: slot.flags.nowait && state.pieces.len() == 1,
        }
    };
    Ok(issue(state, index, flags))
}

/// Rules C3, C4, C13: without a volatile cache nothing is owed; a device with FUA gets it with the write; else a flush
/// follows the last bio. Nothing of the file's map or size is ever uncommitted in this slice.
fn write_flags(queue: &QueueShared, state: &mut QueueState, index: u32) -> BioFlags {
    let one_piece = state.pieces.len() == 1;
    let slot = &mut state.slots[index];
    let owed = slot.flags.dsync && queue.limits.volatile_cache;
    let fua = owed && queue.limits.fua;
    slot.owes_flush = owed && !fua;
    BioFlags {
        fua,
        nowait: slot.flags.nowait && one_piece,
    }
}

#[inline]
fn issue(state: &mut QueueState, index: u32, flags: BioFlags) -> Started {
    let QueueState {
        slots,
        bios,
        pieces,
        ..
    } = state;
    let slot = &mut slots[index];
    let SlotBuf::Whole(buf) = std::mem::take(&mut slot.buf) else {
        unreachable!("a request is issued once")
    };
    let make = if slot.op == Op::Write {
        Bio::write
    } else {
        Bio::read
    };
    if let [Piece::Data { at, len }] = pieces[..] {
        if len as usize == buf.len() {
            slot.state = SlotState::InFlight;
            slot.gather.start();
            bios.push_back(Bio {
                flags,
                ..make(at, buf, u64::from(index))
            });
            return Started::Issued;
        }
    }
    let mut split = Split::new(buf);
    slot.gather.start();
    for piece in pieces.iter() {
        match *piece {
            Piece::Zero { len } => split.skip_zeroed(len as usize),
            Piece::Data { at, len } => {
                slot.gather.add();
                bios.push_back(Bio {
                    flags,
                    ..make(at, split.take(len as usize), u64::from(index))
                });
            }
        }
    }
    slot.buf = SlotBuf::Parts(split);
    slot.state = SlotState::InFlight;
    // The submitter's own reference. Bios leave this thread only when the queue's list is pushed down.
    if slot.gather.put(Ok(())) {
        Started::Done
    } else {
        Started::Issued
    }
}

/// Hands the request to a worker that may read the map's missing part; it stays counted in flight meanwhile.
#[cold]
fn load(
    queue: &Arc<QueueShared>,
    state: &mut QueueState,
    index: u32,
    first: u64,
    end: u64,
) -> Started {
    state.slots[index].state = SlotState::Worker;
    state.counters.map_loads += 1;
    let file = state.file_of(index).handle();
    queue.hand_off(
        state,
        Work::Load(LoadJob {
            queue: queue.clone(),
            slot: index,
            file,
            blocks: first..end,
        }),
    );
    Started::Away
}

/// A file whose data is in its inode is served from there: through the buffered path, and counted so.
#[cold]
fn inline_data(state: &mut QueueState, index: u32) -> Result<Started, Error> {
    let inode = state.file_of(index).inode.clone();
    let Some(data) = inode.inline_data() else {
        unreachable!("the caller saw inline data")
    };
    let slot = &mut state.slots[index];
    if slot.op == Op::Write {
        return Err(Error::NotYet(NotYet::InlineData { ino: inode.ino }));
    }
    state.counters.fallback_buffered += 1;
    let SlotBuf::Whole(buf) = &mut slot.buf else {
        unreachable!("nothing was issued yet")
    };
    let from = usize::try_from(slot.pos)
        .unwrap_or(usize::MAX)
        .min(data.len());
    let there = data.len().min(from + slot.done as usize);
    buf.copy_in(0, &data[from..there]);
    buf.zero(there - from..slot.done as usize);
    Ok(Started::Done)
}

/// Makes durable what was acknowledged: a flush of the device, if it has a cache to flush.
pub(super) fn flush(queue: &QueueShared, state: &mut QueueState, index: u32) -> Started {
    if !queue.limits.volatile_cache {
        return Started::Done;
    }
    let slot = &mut state.slots[index];
    slot.state = SlotState::InFlight;
    slot.gather.start();
    state.bios.push_back(Bio::flush(u64::from(index)));
    Started::Issued
}
