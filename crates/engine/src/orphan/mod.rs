//! The orphan room: inodes that a crash must not leave half deleted or half truncated.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `list` | an inode -> on the list, or off it, on disk and in memory |
//! | `slots` | the same in the orphan file, where the volume has one |
//! | `delete` | an inode without names or users -> free space |
//! | `recover` | the list as it was left -> all of it deleted or truncated |
//!
//! On disk the list is a chain: the superblock names the newest, each one's deletion time the next; or numbers in the slots of the orphan
//! file. Input: unlink and truncate, and inodes that nobody uses any more. Output: changes in the caller's handle. Invariants: an inode
//! is on the list from the handle in which it lost its last name, or the first of a truncation, to the one that ends the matter. Limits:
//! what stays open when the process ends, or the volume goes before its last file, is deleted by the next opening for writing.

mod delete;
mod list;
mod recover;
mod slots;

pub(crate) use delete::check_deletable;
pub(crate) use list::{ORPHAN_CREDITS, Orphans};
pub(crate) use recover::{load, recover};

#[cfg(test)]
mod tests;
