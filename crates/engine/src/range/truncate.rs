//! Truncation: a new size, and what lies behind it given back.
//!
//! Input: an inode whose gate is closed, and a size. Output: the size; blocks behind it freed, from the end backward. Invariants: the
//! rest of the new last block is zeros on the device before the handle with the size begins (rule B5); the first handle sets the size
//! and, if there will be another, puts the inode on the orphan list; the last one takes it off again. So a crash shows the old size, or
//! the new one and an orphan whose truncation recovery ends. What takes several handles is looked through before the first: damage and
//! a group without room for it change nothing. Limits: blocks. In a group the reservations of all handles count together, which is more
//! than they change. A device that fails between two handles leaves the new size, and written
//! blocks behind it, which whoever makes the file longer gives back first.

use crate::error::Error;
use crate::inode::pieces::{END, Piece};
use crate::inode::{Inode, timestamp};
use crate::map::edit::End;
use diorite_block::Epoch;
use std::cmp::Ordering::{Equal, Greater, Less};

/// Gives the file this size.
pub(crate) fn truncate(inode: &Inode, size: u64) -> Result<(), Error> {
    if size >= inode.size() {
        end_cut(inode)?;
    }
    match size.cmp(&inode.size()) {
        Less => shrink(inode, size),
        Equal => set_size(inode, size, inode.volume.data_epoch()),
        Greater => grow(inode, size),
    }
}

/// Moves the size up; what it moves over is a hole, or unwritten.
pub(super) fn grow(inode: &Inode, size: u64) -> Result<(), Error> {
    let began = inode.volume.data_epoch();
    inode.zero_tail()?;
    set_size(inode, size, began)?;
    // What is known is known of the old end.
    inode.forget_tail();
    Ok(())
}

/// A size for which no block has to be given back.
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

/// Gives back what a truncation that failed has left behind the size.
pub(crate) fn end_cut(inode: &Inode) -> Result<(), Error> {
    match inode.is_cut() {
        true => shrink(inode, inode.size()),
        false => Ok(()),
    }
}

/// Moves the size down, or gives back what lies behind it.
pub(crate) fn shrink(inode: &Inode, size: u64) -> Result<(), Error> {
    let block = u64::from(inode.volume.block_size());
    let keep = u32::try_from(size.div_ceil(block)).unwrap_or(END);
    let mut piece = first_piece(inode, keep)?;
    // What is freed as metadata is revoked.
    if !inode.holds_metadata() {
        inode.settle_data()?;
    }
    // A group may yet give back what is behind: whoever makes the file longer zeros it then.
    let is_cut = !size.is_multiple_of(block);
    let left = is_cut && inode.volume.journal()?.leaves_tail(inode.ino, size / block);
    // What is known of the end is known of the old one until the size has moved (rule D9).
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

/// What the first handle frees: the end. Where it takes more than one, all of it will succeed as far as the map and the journal say: nothing
/// takes the first one back.
fn first_piece(inode: &Inode, keep: u32) -> Result<Piece, Error> {
    let first = inode.piece_to_free(keep..END, End::Last)?;
    if first.blocks.start <= keep {
        return Ok(first);
    }
    inode.check_nodes(keep)?;
    if inode.volume.has_group() {
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

/// One handle of it: frees a piece.
fn free(inode: &Inode, piece: &Piece, size: u64, is_last: bool) -> Result<(), Error> {
    let volume = &inode.volume;
    let now = timestamp(volume.now_nanos());
    volume.in_handle(piece.credits, |handle| {
        let mut remap = inode.remap(handle)?;
        remap.replace(piece.blocks.clone(), &[])?;
        remap.disk.size = size;
        remap.written_at(now);
        // The blocks are free already.
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
