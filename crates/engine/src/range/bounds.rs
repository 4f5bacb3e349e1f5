//! Which bytes a range operation concerns: checked once, before the request waits for anything.
//!
//! Input: a caller's mode, position and length; or a size. Output: bytes that the file can have, `start <= end <= max_size`, so that
//! rounding them to blocks cannot wrap; or a refusal. Invariant: the code behind this check adds no numbers of a caller any more (rule
//! D7). Limits: a hole that reaches behind the largest size is cut there, as there is nothing to punch; one that begins behind it is
//! refused.

use crate::error::Error;
use crate::inode::Inode;
use crate::op::Fallocate;
use std::ops::Range;

/// The bytes that a [`Fallocate`] concerns.
pub(super) fn of_range(
    inode: &Inode,
    mode: Fallocate,
    pos: u64,
    len: u64,
) -> Result<Range<u64>, Error> {
    let (ino, most) = (inode.ino, inode.max_size);
    if len == 0 {
        return Err(Error::Invalid(format!("inode {ino}: an empty range")));
    }
    let punches = mode == Fallocate::PunchHole;
    if !punches && !inode.will_have_extents() {
        return Err(Error::NotSupported(format!(
            "inode {ino} has no extents: it cannot be preallocated, only be punched"
        )));
    }
    let end = pos.checked_add(len);
    let end = end.ok_or(Error::TooBig {
        ino,
        end: u64::MAX,
        most,
    })?;
    match punches && pos <= most {
        true => Ok(pos..end.min(most)),
        false => of_size(inode, end).map(|_| pos..end),
    }
}

/// A size, as an empty range at the new end. A size that the file's map cannot have is refused.
pub(super) fn of_size(inode: &Inode, size: u64) -> Result<Range<u64>, Error> {
    let (ino, most) = (inode.ino, inode.max_size);
    if size > most {
        let end = size;
        return Err(Error::TooBig { ino, end, most });
    }
    Ok(size..size)
}
