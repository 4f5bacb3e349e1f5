//! Makes a file system larger whose group descriptors have no room to grow: what lies behind them is moved.
//!
//! Input: a volume that nobody else uses, and a number of blocks. Output: the volume of that size on disk; in memory it is as before, and
//! can only be closed. The steps:
//!
//! 1. Files, the journal and the orphan file move away from where descriptors and structures are to lie; each move is a transaction of its
//!    own. Inode tables are copied.
//! 2. Bitmaps and tables of the new groups are written behind the end of the volume.
//! 3. The change of the layout: see `change`.
//!
//! Invariants: after a crash at any point the volume has one of the two sizes and all its files. Limits: as of `room` and `change`.

use super::grow::Added;
use super::room::Room;
use super::{change, size};
use crate::error::Error;
use crate::inode::Fs;
use crate::relocate::Progress;
use std::sync::Arc;

/// How many blocks a volume would have that [`enlarge`] makes larger to `blocks`. Judges the size alone.
///
/// # Errors
/// `Invalid`: fewer blocks than there are, more than the format has.
pub(crate) fn enlarged(fs: &Fs, blocks: u64) -> Result<u64, Error> {
    Ok(size::larger_at_will(&fs.sb, blocks)?
        .geometry()
        .blocks_count())
}

/// Makes a volume larger: see the module. To as many of `blocks` as are of use; returns how many it has then. Blocks; no lock may be held.
///
/// # Errors
/// `Invalid`: fewer blocks than there are, more than the format or the device has; `NoSpace`, `NotSupported`, `Refused`: there is no room
/// for descriptors; damage; errors of the device.
pub(crate) fn enlarge(fs: &Arc<Fs>, blocks: u64, progress: Progress<'_>) -> Result<u64, Error> {
    let (old, new) = (&*fs.sb, size::larger_at_will(&fs.sb, blocks)?);
    new.check_device(fs.device.geometry().size)?;
    let added = Added::place(old, &new)?;
    let room = Room::plan(fs, (old, &new))?;
    room.make(fs, progress)?;
    added.prepare(fs, &new)?;
    let mut groups = room.groups;
    groups.extend(added.descs);
    let new = change::apply(fs, (old, &new), &groups)?;
    Ok(new.geometry().blocks_count())
}
