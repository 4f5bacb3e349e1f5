//! A smaller file system.
//!
//! Input: a volume that nobody else uses, and a number of blocks. Output: the volume of that size on disk; in memory it is as before, and
//! can only be closed. The steps:
//!
//! 1. What lies behind the new end moves to the front: data, maps, directories, inodes. Each move is a transaction of its own. So does
//!    what lies in the new last group, if that gets the copy of the superblock that another one had (sparse_super2).
//! 2. The change of the layout: see `change`.
//!
//! Invariants: after a crash at any point the volume has one of the two sizes and all its files; nothing of step 2 begins before everything
//! behind the end is seen to be free. Limits: bitmaps and tables of groups that stay do not move.

use super::{change, size};
use crate::disk::Zone;
use crate::error::Error;
use crate::inode::Fs;
use crate::relocate::{Limit, Progress, evacuate};
use diorite_format::{GroupNo, Superblock};
use std::sync::Arc;

/// Makes a volume smaller: see the module. To at most `blocks` blocks; returns how many it has then. Blocks; no lock may be held.
///
/// # Errors
/// `Invalid`, `NotSupported`: a size that cannot be; `NoSpace`: the files need more; damage; errors of the device.
pub(crate) fn shrink(fs: &Arc<Fs>, blocks: u64, progress: Progress<'_>) -> Result<u64, Error> {
    let (old, new) = (&*fs.sb, size::smaller(&fs.sb, blocks)?);
    if new.geometry().blocks_count() == old.geometry().blocks_count() {
        return Ok(old.geometry().blocks_count());
    }
    let new = empty(fs, old, new, progress)?;
    let stay = &fs.groups[..new.group_count() as usize];
    let new = change::apply(fs, (old, &new), stay)?;
    Ok(new.geometry().blocks_count())
}

/// Moves to the front what lies behind the end of `new`. Returns `new` as it is then: with sparse_super2, if a copy of the superblock goes
/// with its group, the last group gets one, if what else it has finds room elsewhere.
fn empty(
    fs: &Arc<Fs>,
    old: &Superblock,
    new: Superblock,
    progress: Progress<'_>,
) -> Result<Superblock, Error> {
    if let Some(with) = size::with_last_copy(old, &new) {
        let last = GroupNo::new(with.group_count() - 1);
        let stay = &fs.groups[..with.group_count() as usize];
        let limit = Limit::behind(
            with.group_first_block(last).get(),
            last.get() * with.geometry().inodes_per_group(),
        );
        let is_room = Zone::of_groups(&with, stay)?.fits(&with);
        match is_room.then(|| evacuate(fs, &limit, progress)) {
            Some(Ok(_)) => return Ok(with),
            None
            | Some(Err(Error::NoSpace { .. } | Error::NoInodes { .. } | Error::Refused { .. })) => {
            }
            Some(Err(other)) => return Err(other),
        }
    }
    let limit = Limit::behind(new.geometry().blocks_count(), new.geometry().inodes_count());
    evacuate(fs, &limit, progress)?;
    Ok(new)
}
