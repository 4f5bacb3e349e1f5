//! Names that are durable as soon as they are changed: in directories with the flag for that.
//!
//! Input: directories of which a name was just made, moved or removed. Output: what did that is committed, if one of them has the flag `D` or `S`.
//! Invariant: no lock is held, so changes by others in the same directory share the commit. Limits: a name in an atomic change is durable
//! with the atomic change; what is behind a name that is gone is freed later.
//! Source: man 1 chattr (D, S); man 8 mount (dirsync, sync).

use crate::error::Error;
use crate::inode::Inode;
use diorite_format::InodeFlags;

/// Commits the change of these directories' names, if one of them wants that. Blocks; no lock may be held.
pub(super) fn commit_names(dirs: &[&Inode]) -> Result<(), Error> {
    let wanting = dirs.iter().filter(|dir| {
        let flags = dir.disk().flags;
        flags.has(InodeFlags::DIRSYNC) || flags.has(InodeFlags::SYNC)
    });
    // They were changed in one transaction: the first commit is that of all.
    wanting.copied().try_for_each(Inode::commit_change)
}
