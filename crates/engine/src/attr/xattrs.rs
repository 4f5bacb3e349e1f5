//! Sets and removes extended attributes by their full names, with everything that follows from it.
//!
//! Input: inode numbers and names. Output: the attribute changed; inodes of values that nothing refers to any more deleted. Invariants:
//! the attribute is changed or not, even if a deletion fails. Limits: blocks.

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

/// Deletes inodes of values that nothing refers to any more; commits the inode if it was changed and has the flag `S`.
fn finish(fs: &Arc<Fs>, inode: &Inode, done: Result<(), Error>) -> Result<(), Error> {
    delete::delete_doomed_best_effort(fs);
    done.and_then(|()| inode.sync_if_flagged())
}
