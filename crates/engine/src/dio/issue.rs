//! From an admitted request to its bios.
//!
//! Input: a request that is counted in flight or has the turn, with its planned pieces. Output: bios at the end of the queue's list, or
//! what the request owes instead. Invariant: all pieces are planned before the first bio is made, so a request that cannot be served
//! makes no bio. Limits: a single bio carries the whole buffer; several bios get parts of it by a split.

use super::Attempt;
use crate::op::Op;
use crate::policy::Unaligned;
use crate::reason::Reason;
use crate::slots::plan::Piece;
use crate::slots::{PAD, QueueState};
use crate::turn::Hold;
use diorite_block::{Bio, BioFlags, BioOp, Buf};

/// Makes the bios of a planned request.
pub(super) fn issue_planned(state: &mut QueueState, index: u32, extents: u32) -> Attempt {
    let slot = &state.slots[index];
    if slot.op != Op::Read
        && !slot.is_waited_for()
        && extents > 1
        && slot.policy.unaligned == Unaligned::ConcurrentIfOneExtent
        && !state.limits.is_block_aligned(slot)
        && slot.hold != Hold::Exclusive
    {
        return Attempt::Wants(Hold::Exclusive);
    }
    let op = match slot.op {
        Op::Read => BioOp::Read,
        _ => BioOp::Write,
    };
    let is_single = state.pieces.len() == 1;
    let mut flags = BioFlags::default()
        // Set only on a single bio: of several, one could be refused after another was done.
        .nowait(slot.flags.nowait && is_single);
    if op == BioOp::Write {
        let is_durable = slot.flags.dsync;
        let file = state.files[slot.file as usize].as_ref();
        let file = file.expect("a file with requests stays attached");
        // A write to the cache has noted its own time.
        if !file.of_cache {
            QueueState::touch(&mut state.now, file);
        }
        let bytes = |piece: &Piece| match *piece {
            Piece::Pad { len, .. } | Piece::Data { len, .. } => u64::from(len),
            Piece::Zero { .. } => 0,
        };
        state.written += state.pieces.iter().map(bytes).sum::<u64>();
        if is_durable {
            flags.fua = owe(state, index, is_single);
        }
    }
    let padded = state.pieces.iter().any(|p| matches!(p, Piece::Pad { .. }));
    state.counters.pads += u64::from(padded);
    let QueueState {
        slots,
        bios,
        pieces,
        ..
    } = state;
    // The submitter's reference keeps the request from ending before its last bio is made.
    slots[index].gather.start();
    for piece in pieces.iter() {
        match *piece {
            Piece::Pad { at, len } => {
                slots[index].gather.add();
                let zeros = Buf::zeroed(len as usize);
                bios.push(Bio::write(at, zeros, u64::from(index) | PAD));
            }
            Piece::Zero { len } => slots.split_for(index).skip_zeroed(len as usize),
            Piece::Data { at, len } => {
                let buf = slots.split_for(index).take(len as usize);
                slots[index].gather.add();
                let (len, token) = (u64::from(len), u64::from(index));
                bios.push(Bio {
                    buf,
                    pos: at,
                    len,
                    token,
                    op,
                    flags,
                    result: Ok(()),
                });
            }
        }
    }
    if slots[index].gather.put(Ok(())) {
        Attempt::Done
    } else {
        Attempt::Issued
    }
}

/// Notes what a durable write owes. Returns whether its bios are written with FUA.
///
/// Rules C3 to C6, C13: a durable write that has to be mapped, or whose file has an uncommitted change of map or size, owes that commit,
/// and a flush that begins after the write has ended; with `sync` also for an uncommitted time, its own included, which was noted before.
/// Otherwise it owes nothing if the device has no volatile cache; it is written with FUA if the device has that, or if the caller waits
/// for a single bio and the host follows that by a flush; else a flush follows its last bio. Rule D3: whether the map is committed is
/// asked after the map was loaded, and the transaction is noted before a map is published, so no visible change is missed.
fn owe(state: &mut QueueState, index: u32, is_single: bool) -> bool {
    let limits = state.limits;
    let slot = &mut state.slots[index];
    let file = state.files[slot.file as usize].as_ref();
    let file = file.expect("a file with requests stays attached");
    let inode = &file.inode;
    slot.owes_commit = slot.owes_map
        || slot.extends
        || inode.uncommitted_map().is_some()
        || slot.flags.sync && inode.has_uncommitted_times();
    // A request with an entry in the pending map has noted it when it registered.
    slot.began.get_or_insert_with(|| inode.volume.data_epoch());
    let owed = limits.volatile_cache && !slot.owes_commit;
    let fua = owed && (limits.fua || limits.fua_flushes && is_single);
    slot.owes_flush = owed && !fua;
    fua
}

/// Serves a read of inline data from the inode, without I/O. Counted as `fallback-buffered`.
#[cold]
pub(super) fn inline_data(state: &mut QueueState, index: u32, data: &[u8]) -> Attempt {
    let slot = &mut state.slots[index];
    debug_assert_eq!(slot.op, Op::Read, "before a write it is moved out");
    state.counters.fallback_buffered += 1;
    let from = usize::try_from(slot.pos)
        .unwrap_or(usize::MAX)
        .min(data.len());
    let there = data.len().min(from + slot.done as usize);
    slot.buf.copy_in(0, &data[from..there]);
    slot.buf.zero(there - from..slot.done as usize);
    Attempt::Done
}

/// A sync of one file. If the file has changed since the last commit it owes a commit, with the flush that this leaves to do; else a
/// flush, if the device has a volatile cache. A worker makes the flush too, or the caller of a blocking call: others share it, and its
/// failure is known to all when it has ended, not only when somebody reaps it.
pub(super) fn flush(state: &mut QueueState, index: u32) -> Attempt {
    let file = state.file_of(index);
    let owes_pages = file.inode.pages.has_unwritten() || file.has_page_failure();
    if owes_pages && !state.slots[index].pages_done {
        return Attempt::NeedsPages(0..u64::MAX);
    }
    let (inode, since) = (&file.inode, file.handle().opened.told.since());
    // Acknowledged changes may not have been committed before the failure.
    if let Err(error) = inode.volume.check_sound() {
        return Attempt::refused(error);
    }
    // For a directory everything counts: its names are its data, and may have changed although its map has not.
    let all = state.slots[index].op == Op::Sync || inode.disk().is_dir();
    let uncommitted = inode.uncommitted_map().is_some() || all && inode.has_uncommitted_times();
    let slot = &mut state.slots[index];
    slot.began = Some(since);
    if uncommitted {
        slot.owes_commit = true;
        slot.flags.sync |= all;
        return Attempt::Owes(Reason::Commit);
    }
    if !state.limits.volatile_cache {
        return Attempt::Done;
    }
    slot.owes_flush = true;
    Attempt::Owes(Reason::Flush)
}
