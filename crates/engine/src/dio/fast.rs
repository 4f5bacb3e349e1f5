//! The fast attempt: a request that lies in one written run of its file, inside the size, and owes nothing.
//!
//! Input: a request that has not been given a slot yet. Output: its one bio, in the queue's list; or nothing done, and the
//! general attempt takes over from the checks. Invariants: the same conditions in the same order as the general attempt
//! (check, lock, gate, size, map), asked of the same places; at its end nothing is owed, so it completes inline. Limits: reads under
//! a policy that locks, and writes that owe durability or must run alone, are not for here.

use super::Limits;
use crate::inode::Attached;
use crate::ioend::{CachedPages, Facts, Verdict, decide};
use crate::policy::{Policy, ReadLock, Unaligned};
use crate::queue::{MAX_REQUEST, Op, QueueShared, QueueState, Request};
use diorite_block::{Bio, BioFlags, BioOp};

/// What the policy lets the fast attempt do; worked out once per batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fast {
    reads: bool,
    writes: bool,
    unaligned_writes: bool,
}

impl Fast {
    pub(crate) fn of(policy: Policy) -> Fast {
        let nothing_owed = Facts { failed: false, owes_flush: false, cached: CachedPages::None };
        let inline = decide(policy.completion, nothing_owed) == Verdict::Inline;
        // One run is one extent, so only a policy that wants every unaligned write alone keeps them out.
        let unaligned_writes = inline && policy.unaligned != Unaligned::Exclusive;
        Fast { reads: policy.read_lock == ReadLock::None, writes: inline, unaligned_writes }
    }

    /// A bio of a fast attempt that ended well completes inline. The policy may have changed since it was issued.
    #[inline(always)]
    pub(crate) fn ends_inline(self, op: BioOp) -> bool {
        op == BioOp::Read || self.writes
    }
}

/// Issues the request's bio and takes a slot for it, or gives the request back untouched.
#[inline(always)]
pub(super) fn issue(queue: &QueueShared, state: &mut QueueState, request: Request) -> Result<(), Request> {
    let fast = state.fast;
    let Some(Some(file)) = state.files.get_mut(request.file.index as usize) else { return Err(request) };
    let Some(at) = place(&queue.limits, fast, file, &request) else { return Err(request) };
    file.requests += 1;
    let op = if request.op == Op::Read { BioOp::Read } else { BioOp::Write };
    let (nowait, len) = (request.flags.nowait, request.buf.len() as u64);
    let index = state.slots.put_single(&request);
    state.bios.push_back(Bio {
        buf: request.buf,
        pos: at,
        len,
        token: u64::from(index),
        op,
        flags: BioFlags { fua: false, nowait },
        result: Ok(()),
    });
    Ok(())
}

/// The byte on the device where the request begins, if the fast attempt can take it: it is counted in flight then.
#[inline(always)]
fn place(limits: &Limits, fast: Fast, file: &mut Attached, request: &Request) -> Option<u64> {
    let len = request.buf.len();
    let fits = (request.pos | len as u64) & limits.logical_mask == 0
        && request.buf.alignment_bits() & limits.dma_mask == 0
        && len.wrapping_sub(1) < MAX_REQUEST.min(limits.max_transfer as usize)
        && file.generation == request.file.generation;
    if !fits {
        return None;
    }
    if request.op == Op::Read {
        return if fast.reads { place_admitted(limits, file, request.pos, len as u64) } else { None };
    }
    let aligned = (request.pos | len as u64) & ((1 << limits.block_bits) - 1) == 0;
    let allowed = if aligned { fast.writes } else { fast.unaligned_writes };
    let owes = (request.flags.dsync || file.dsync) && limits.volatile_cache;
    if request.op != Op::Write || !allowed || owes || file.check_writable().is_err() {
        return None;
    }
    let handle = file.handle();
    // Not free at once: the general attempt waits for it, or says EAGAIN.
    let _shared = handle.inode.try_lock_shared()?;
    place_admitted(limits, file, request.pos, len as u64)
}

/// Gate, size, map: in this order.
#[inline(always)]
fn place_admitted(limits: &Limits, file: &mut Attached, pos: u64, len: u64) -> Option<u64> {
    if !file.inode.gate.enter(&file.shard) {
        return None;
    }
    let (first, end) = (pos >> limits.block_bits, pos.wrapping_add(len));
    if end <= file.inode.size() && end > pos {
        let last = (end - 1) >> limits.block_bits;
        if let Some(block) = file.written_run(first, last - first + 1) {
            return Some((block << limits.block_bits) + (pos & ((1 << limits.block_bits) - 1)));
        }
    }
    file.inode.gate.leave(&file.shard);
    None
}
