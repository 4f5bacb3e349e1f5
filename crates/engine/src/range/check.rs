//! The checks of a range operation before its request waits for anything.
//!
//! Input: an attached file and a caller's numbers. Output: the bytes that the operation concerns, or the reason of a refusal. Invariants:
//! a refused request has not waited. Limits: the same checks are made again when the request has the turn.

use super::bounds;
use crate::error::Error;
use crate::inode::{Handle, Inode};
use crate::op::Op;
use diorite_format::InodeFlags;
use std::ops::Range;

/// Checks whether the operation is allowed and its range possible. Called before the request waits for its turn, and again when it has it.
/// Returns the bytes that it concerns; for a truncation an empty range at the new end.
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

/// Refuses an operation that would change existing data of an append-only file.
fn check_append_only(inode: &Inode, moves_data: bool) -> Result<(), Error> {
    if moves_data && inode.disk().flags.has(InodeFlags::APPEND) {
        let (ino, flag) = (inode.ino, "append-only");
        return Err(Error::NotPermitted { ino, flag });
    }
    Ok(())
}
