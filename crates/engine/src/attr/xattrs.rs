//! Attributes by their whole names, set and taken away, with all that follows.
//!
//! Input: inodes' numbers and names. Output: the attribute changed; what it alone named deleted. Invariants: the attribute is changed or not,
//! whatever becomes of what it named. Limits: blocks.

use crate::caller::Maker;
use crate::delete;
use crate::error::Error;
use crate::inode::{Fs, Inode};
use crate::xattr::{self, XattrWhen};
use diorite_format::Ino;
use std::sync::Arc;

/// See [`crate::Volume::set_xattr_when`].
pub(crate) fn set_xattr(
    fs: &Arc<Fs>,
    ino: Ino,
    (name, value): (&[u8], &[u8]),
    when: XattrWhen,
    maker: &Maker,
) -> Result<(), Error> {
    let (inode, which) = xattr::to_change(fs, ino, name)?;
    let done = xattr::set(&inode, which, value, when, maker);
    finish(fs, &inode, done)
}

/// See [`crate::Volume::remove_xattr`].
pub(crate) fn remove_xattr(fs: &Arc<Fs>, ino: Ino, name: &[u8]) -> Result<(), Error> {
    let (inode, which) = xattr::to_change(fs, ino, name)?;
    let done = xattr::remove(&inode, which).and_then(|is_there| match is_there {
        true => Ok(()),
        false => Err(xattr::missing(name)),
    });
    finish(fs, &inode, done)
}

/// Deletes what nothing names any more, and settles the inode if it was changed.
fn finish(fs: &Arc<Fs>, inode: &Inode, done: Result<(), Error>) -> Result<(), Error> {
    delete::delete_doomed_best_effort(fs);
    done.and_then(|()| inode.settle())
}
