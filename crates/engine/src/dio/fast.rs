//! The fast attempt: a request that lies in one written run of its file, inside the size, and owes nothing.
//!
//! Input: a request that has not been given a slot yet. Output: its one bio, in the queue's list; or nothing done, and the
//! general attempt takes over from the checks. Invariants: the same conditions in the same order as the general attempt
//! (check, lock, gate, size, map), asked of the same places; at its end nothing is owed, so it completes inline. Limits: reads under
//! a policy that locks, and writes that owe durability or must run alone, are not for here.

use crate::op::Op;
use crate::request::Request;
use crate::slots::QueueState;
use diorite_block::{Bio, BioFlags, BioOp};

/// The byte on the device where the request begins, and its length, if the fast attempt can take it: it is counted in flight then, and
/// [`send`] must follow.
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
            let at = file.enter_for_run(request.pos, len)?;
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
    // What it owes, if it has to be durable, is the general attempt's to find out.
    let flags = request.flags;
    let owes = flags.dsync | flags.sync | file.dsync | file.sync;
    let whole = request.len == 0;
    if request.op != Op::Write || !allowed || !whole || owes || !file.writes_plainly() {
        return None;
    }
    let handle = file.handle();
    // Not free at once: the general attempt waits for it, or says EAGAIN.
    let _shared = handle.inode.try_lock_shared()?;
    let at = file.enter_for_run(request.pos, len)?;
    QueueState::touch(now, &handle.inode);
    Some((at, len))
}

/// Puts a placed request into a slot and its memory, in a bio, into the queue's list.
#[inline(always)]
pub(super) fn send(state: &mut QueueState, request: &mut Request, (at, len): (u64, u64)) {
    let token = u64::from(state.slots.put_single(request));
    let op = if request.op == Op::Read {
        BioOp::Read
    } else {
        state.written += len;
        BioOp::Write
    };
    let flags = BioFlags {
        fua: false,
        nowait: request.flags.nowait,
    };
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
