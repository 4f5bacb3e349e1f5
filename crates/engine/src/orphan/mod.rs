//! The orphan room: the list of inodes that a crash must not leave half deleted or half truncated. Numbers only.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `list` | an inode's number -> on the list, or off it, on disk and in memory |
//! | `slots` | the same in the orphan file, where the volume has one |
//!
//! On disk the list is a chain: the superblock names the newest, each one's deletion time the next; or numbers in the slots of the orphan
//! file. Input: unlink and truncate, and inodes that nobody uses any more. Output: changes in the caller's handle. Invariants: an inode
//! is on the list from the handle in which it lost its last name, or the first of a truncation, to the one that ends the matter. Limits:
//! inodes are changed by who calls; they are deleted in the room `delete`.

mod list;
mod slots;

pub(crate) use list::{ORPHAN_CREDITS, Orphans};
pub(crate) use slots::SlotFile;

use crate::error::Error;
use diorite_format::Ino;

/// Why a number cannot be on the list.
pub(crate) fn damaged(ino: Ino, why: &str) -> Error {
    Error::Damaged(format!("inode {ino} {why}; run e2fsck"))
}
