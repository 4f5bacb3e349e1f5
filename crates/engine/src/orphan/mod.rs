//! The orphan module: the list of inodes that a crash must not leave half deleted or half truncated. It knows only numbers.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `list` | an inode's number -> on the list, or off it, on disk and in memory |
//! | `slots` | an inode's number -> in the orphan file, or out of it, if the volume has that file |
//!
//! On disk the list is a chain: the superblock has the newest inode, and each inode's deletion time field has the next one. With an orphan
//! file it is the numbers in the slots of that file.
//!
//! Input: unlink and truncate, and inodes without names that lose their last user. Output: changes in the caller's handle. Invariants: an
//! inode is on the list from the handle in which it lost its last name, or the first one of a truncation, to the handle that completes the
//! deletion or truncation. Limits: the callers change the inodes; the module `delete` deletes them.

mod list;
mod slots;

pub(crate) use list::{ORPHAN_CREDITS, Orphans};
pub(crate) use slots::SlotFile;

use crate::error::Error;
use diorite_format::Ino;

/// The error for a number that cannot be on the list.
pub(crate) fn damaged(ino: Ino, why: &str) -> Error {
    Error::Damaged(format!("inode {ino} {why}; run e2fsck"))
}
