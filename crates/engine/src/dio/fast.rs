//! The fast attempt: for a request that lies in one written run of its file, inside the size, and owes nothing.
//!
//! Input: a request that has no slot yet. Output: its one bio, in the queue's list; or nothing is done, and the general attempt starts
//! from its first check. Invariants: it asks the same conditions as the general attempt, in the same order (check, lock, gate, size, map)
//! and of the same places; a request that it has sent owes nothing, so it completes inline. Limits: it takes no reads under a policy
//! that locks them, and no writes that must be durable or run alone.

use crate::op::Op;
use crate::request::Request;
use crate::slots::QueueState;
use diorite_block::{Bio, BioFlags, BioOp};

/// The byte on the device at which the request starts, and its length, if the fast attempt can take it. Then the request is counted in
/// flight, and [`send`] must follow.
#[inline(always)]
pub(super) fn place(state: &mut QueueState, request: &Request) -> Option<(u64, u64)> {
    let QueueState {
        fast,
        limits,
        files,
        now,
        ..
    } = state;
    let file = files.get_mut(request.file.index as usize)?.as_mut()?;
    let (address, len) = request.buf.contiguous()?;
    let fits = (request.pos | len) & limits.logical_mask == 0
        && address & limits.dma_mask == 0
        && len.wrapping_sub(1) < limits.most_single
        && file.generation == request.file.generation;
    if !fits {
        return None;
    }
    if request.op == Op::Read {
        return if fast.reads {
            let at = file.enter_for_run(request.pos, len, true)?;
            file.inode.note_read();
            Some((at, len))
        } else {
            None
        };
    }
    let aligned = (request.pos | len) & limits.block_mask == 0;
    let allowed = if aligned {
        fast.writes
    } else {
        fast.unaligned_writes
    };
    // A write that has to be durable is left to the general attempt, which finds out what it owes.
    let flags = request.flags;
    let owes = flags.dsync | flags.sync | file.dsync | file.sync;
    let whole = request.len == 0;
    if request.op != Op::Write || !allowed || !whole || owes || !file.writes_plainly() {
        return None;
    }
    let handle = file.handle();
    // If the lock is not free at once, the general attempt waits for it, or fails with EAGAIN.
    let _shared = handle.inode.try_lock_briefly()?;
    let at = file.enter_for_run(request.pos, len, fast.beside_pages)?;
    QueueState::touch(now, &handle);
    Some((at, len))
}

/// Puts a placed request into a slot, and its buffer, in a bio, into the queue's list.
#[inline(always)]
pub(super) fn send(state: &mut QueueState, request: &mut Request, (at, len): (u64, u64)) {
    let token = u64::from(state.slots.put_single(request));
    let op = if request.op == Op::Read {
        BioOp::Read
    } else {
        state.written += len;
        BioOp::Write
    };
    let flags = BioFlags::default()
        .nowait(request.flags.nowait)
        // Rule C12: it is the request's only bio, and its end owes nothing.
        .polled(state.polls);
    let buf = std::mem::take(&mut request.buf);
    state.bios.push(Bio {
        buf,
        pos: at,
        len,
        token,
        op,
        flags,
        result: Ok(()),
    });
}
