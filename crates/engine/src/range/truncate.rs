//! Truncation: sets a new size, and frees the blocks behind it.
//!
//! Input: an inode whose gate is closed, and a size. Output: the size; blocks behind it freed, from the end backward. Invariants: the
//! rest of the new last block is zeros on the device before the handle with the size begins (rule B5); the first handle sets the size
//! and, if there will be another, puts the inode on the orphan list; the last one takes it off. So a crash leaves the old size, or the
//! new one and an orphan whose truncation recovery completes. Before a truncation of several handles, all nodes of the map are checked
//! and, in an atomic change, the room for all handles: damage or lack of room changes nothing. Limits: blocks. In an atomic change the
//! credits of all handles count together, which is more than they change. If the device fails between two handles, the new size stays, with
//! written blocks behind it; they are freed before the file becomes longer.

use crate::error::Error;
use crate::inode::pieces::{END, Piece};
use crate::inode::{Inode, timestamp};
use crate::map::edit::End;
use crate::mapping::MappingState;
use diorite_block::Epoch;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::ControlFlow;

/// Gives the file this size. Blocks; the caller has the turn.
pub(crate) fn truncate(inode: &Inode, size: u64) -> Result<(), Error> {
    if size >= inode.size() {
        end_cut(inode)?;
    }
    match size.cmp(&inode.size()) {
        Less => shrink(inode, size),
        Equal if maps_behind(inode, size)? => shrink(inode, size),
        Equal => set_size(inode, size, inode.volume.data_epoch()),
        Greater => grow(inode, size),
    }
}

/// Are there blocks behind this size? The file may have been preallocated there.
fn maps_behind(inode: &Inode, size: u64) -> Result<bool, Error> {
    let first = size.div_ceil(u64::from(inode.volume.block_size()));
    let mut is_mapped = false;
    inode.walk_map(first..u64::from(END), |mapping| match mapping.state {
        MappingState::Hole => ControlFlow::Continue(()),
        _ => {
            is_mapped = true;
            ControlFlow::Break(())
        }
    })?;
    Ok(is_mapped)
}

/// Makes the file longer; the new part is a hole, or was unwritten already.
pub(super) fn grow(inode: &Inode, size: u64) -> Result<(), Error> {
    let began = inode.volume.data_epoch();
    inode.zero_tail()?;
    set_size(inode, size, began)?;
    // The zeros were behind the old end; nothing is known of the bytes behind the new one.
    inode.forget_tail();
    Ok(())
}

/// Sets a size for which no block has to be freed.
fn set_size(inode: &Inode, size: u64, began: Epoch) -> Result<(), Error> {
    let now = timestamp(inode.volume.now_nanos());
    let credits = inode.credits_to_map(0, &[]);
    inode.volume.in_handle(credits, |handle| {
        handle.relies_on(began)?;
        let mut remap = inode.remap(handle)?;
        remap.disk.size = size;
        remap.written_at(now);
        remap.publish()
    })
}

/// Frees the blocks that a failed truncation has left behind the size.
pub(crate) fn end_cut(inode: &Inode) -> Result<(), Error> {
    match inode.is_cut() {
        true => shrink(inode, inode.size()),
        false => Ok(()),
    }
}

/// Makes the file shorter, or frees what lies behind its size.
pub(crate) fn shrink(inode: &Inode, size: u64) -> Result<(), Error> {
    let block = u64::from(inode.volume.block_size());
    let keep = u32::try_from(size.div_ceil(block)).unwrap_or(END);
    let mut piece = first_piece(inode, keep)?;
    // Blocks that are freed as metadata are revoked, so they need no checkpoint.
    if !inode.holds_metadata() {
        inode.checkpoint_data()?;
    }
    // If an atomic change is abandoned the bytes behind the end are needed again. So they stay, and are zeroed before the file becomes
    // longer.
    let is_cut = !size.is_multiple_of(block);
    let left = is_cut && inode.volume.journal()?.leaves_tail(inode.ino, size / block);
    // Until the size has moved, what is known of the tail is about the old end (rule D9).
    inode.forget_tail();
    let before = inode.before_zeros();
    if is_cut && !left {
        inode.zero_behind(size, size / block)?;
    }
    inode.claims.close(inode);
    loop {
        let end = piece.blocks.start;
        free(inode, &piece, size, end <= keep)?;
        if !left {
            inode.learn_tail(before);
        }
        inode.note_cut(end > keep);
        if end <= keep {
            return Ok(());
        }
        piece = inode.piece_to_free(keep..end, End::Last)?;
    }
}

/// The piece at the end, which the first handle frees. If there will be more handles, it checks first that they will not fail because of
/// the map or for lack of room in the atomic change's transaction, since the first handle cannot be undone.
fn first_piece(inode: &Inode, keep: u32) -> Result<Piece, Error> {
    let first = inode.piece_to_free(keep..END, End::Last)?;
    if first.blocks.start <= keep {
        return Ok(first);
    }
    inode.check_nodes(&inode.disk(), keep)?;
    if inode.volume.has_atomic() {
        let (mut end, mut credits) = (first.blocks.start, first.credits);
        while end > keep {
            let piece = inode.piece_to_free(keep..end, End::Last)?;
            credits = credits.saturating_add(piece.credits);
            end = piece.blocks.start;
        }
        inode.volume.journal()?.check_room(credits)?;
    }
    Ok(first)
}

/// Frees a piece, in one handle.
fn free(inode: &Inode, piece: &Piece, size: u64, is_last: bool) -> Result<(), Error> {
    let volume = &inode.volume;
    let now = timestamp(volume.now_nanos());
    volume.in_handle(piece.credits, |handle| {
        let mut remap = inode.remap(handle)?;
        inode.prepare_orphan(handle)?;
        remap.replace(piece.blocks.clone(), &[])?;
        remap.disk.size = size;
        remap.written_at(now);
        // The blocks have been freed in this handle, so a failure here aborts the journal.
        handle.or_abort(if !is_last {
            inode.begin_orphan(handle)
        } else if inode.disk().links > 0 {
            inode.end_orphan(handle, 0)
        } else {
            Ok(())
        })?;
        remap.publish()
    })
}
