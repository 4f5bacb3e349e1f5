//! Directories whose names are durable as soon as they are changed.
//!
//! Input: directories in which a name was just created, moved or removed. Output: the change is committed, if one of the directories has
//! the flag `D` or `S`. Invariant: no lock is held, so concurrent changes in the same directory share the commit. Limits: a change in an
//! atomic change is durable only with that; the space of an inode that lost its last name is freed later. Source: man 1 chattr (D, S); man
//! 8 mount (dirsync, sync).

use crate::error::Error;
use crate::inode::Inode;
use diorite_format::InodeFlags;

/// Commits the last change of these directories if one of them has the flag. Blocks; no lock may be held.
pub(super) fn commit_names(dirs: &[&Inode]) -> Result<(), Error> {
    let wanting = dirs.iter().filter(|dir| {
        let flags = dir.flags();
        flags.has(InodeFlags::DIRSYNC) || flags.has(InodeFlags::SYNC)
    });
    // One transaction has changed all of them, so the first commit covers all.
    wanting.copied().try_for_each(Inode::commit_change)
}
