//! Cached pages in the way of a direct request.
//!
//! Input: a request that is counted in flight, or has the turn. Output: the request may continue, with its range claimed if it changes the
//! file; or dirty pages have to be written back first. Invariants: this is asked after the gate: either the request sees the note of a new
//! page, or the thread that adds the page waits for the request; a request that waits for write-back holds nothing but its claim. Limits:
//! blocks on nothing.

use super::Attempt;
use crate::inode::{Handle, PageClaim};
use crate::ioend::CachedPages;
use crate::op::Op;
use crate::slots::Slot;

/// Looks for pages in the range of a read or a write.
#[inline]
pub(super) fn look(slot: &mut Slot, file: &Handle, block_bits: u32) -> Result<(), Attempt> {
    if file.of_cache || !file.inode.gate.has_pages() {
        return Ok(());
    }
    look_closely(slot, file, block_bits)
}

#[cold]
fn look_closely(slot: &mut Slot, file: &Handle, bits: u32) -> Result<(), Attempt> {
    let inode = &file.inode;
    let end = slot.pos.saturating_add(slot.buf.len() as u64);
    let mut bytes = slot.pos..end;
    if slot.op == Op::Append {
        // Its place is not known yet, but is not before the end; the visible end moves back if write-back fails.
        bytes = inode.size()..u64::MAX;
    } else if slot.op != Op::Read {
        // A write behind the end moves the size over what is dirty before it, which has to be on the device by then.
        bytes.start = bytes.start.min(inode.size());
    }
    let mut blocks = bytes.start >> bits..bytes.end.div_ceil(1 << bits);
    if slot.op == Op::Read {
        // U8: what was dirty before it has been written back. What became dirty meanwhile is concurrent.
        if slot.pages_done {
            return Ok(());
        }
        let size = inode.size();
        if end > size && inode.visible_size() > size {
            blocks = 0..u64::MAX;
        } else if !inode.pages.may_have(&bytes) {
            return Ok(());
        }
        return match inode.pages.is_unwritten(&blocks) {
            true => Err(Attempt::NeedsPages(blocks)),
            false => Ok(()),
        };
    }
    if slot.cached == CachedPages::None && !inode.pages.is_empty() {
        slot.cached = CachedPages::Elsewhere;
    }
    if slot.claim.is_none() && !inode.pages.may_have(&bytes) {
        return Ok(());
    }
    claim(slot, file, blocks)
}

/// Claims the whole file for an operation on its map or size, if it may have pages.
pub(super) fn look_for_range(slot: &mut Slot, file: &Handle) -> Result<(), Attempt> {
    match file.inode.gate.has_pages() {
        true => claim(slot, file, 0..u64::MAX),
        false => Ok(()),
    }
}

/// Claims blocks, once. Then no page of them becomes dirty any more, and those that are not dirty are dropped.
fn claim(slot: &mut Slot, file: &Handle, blocks: std::ops::Range<u64>) -> Result<(), Attempt> {
    let inode = &file.inode;
    // An append may have to begin before the end at which it has waited.
    slot.claim = slot.claim.take().filter(|c| c.blocks.start <= blocks.start);
    let claim = slot
        .claim
        .get_or_insert_with(|| PageClaim::new(inode, blocks));
    let blocks = claim.blocks.clone();
    if inode.pages.is_unwritten(&blocks) {
        return Err(Attempt::NeedsPages(blocks));
    }
    if inode.drop_clean_pages(&blocks) {
        slot.cached = CachedPages::InRange;
    }
    Ok(())
}
