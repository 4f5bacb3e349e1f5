//! What is asked of an operation on a range before it waits for anybody.
//!
//! Input: an attached file and a caller's numbers. Output: the bytes that it is about, or why it is refused. Invariants: what is refused has
//! waited for nobody. Limits: asked again with the turn.

use super::bounds;
use crate::error::Error;
use crate::inode::{Handle, Inode};
use crate::op::Op;
use diorite_format::InodeFlags;
use std::ops::Range;

/// May this be done to the file? Asked before the request waits for its turn, and again when it has it. Gives the bytes that it is about;
/// of a truncation, none at the new end.
pub(crate) fn check(file: &Handle, op: Op, pos: u64, len: u64) -> Result<Range<u64>, Error> {
    let inode = &file.inode;
    file.check_writable(true)?;
    inode.check_can_grow()?;
    match op {
        Op::Fallocate(mode) => {
            check_append_only(inode, mode.moves_data())?;
            bounds::of_range(inode, mode, pos, len)
        }
        _ => {
            check_append_only(inode, true)?;
            bounds::of_size(inode, pos)
        }
    }
}

/// What such a file holds stays where it is.
fn check_append_only(inode: &Inode, moves_data: bool) -> Result<(), Error> {
    if moves_data && inode.disk().flags.has(InodeFlags::APPEND) {
        let (ino, flag) = (inode.ino, "append-only");
        return Err(Error::NotPermitted { ino, flag });
    }
    Ok(())
}
