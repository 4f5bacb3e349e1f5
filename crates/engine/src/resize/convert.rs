//! Group descriptors of another size: the feature 64bit, on or off.
//!
//! Input: a volume that nobody else uses. Output: the same with descriptors of 64 bytes, or of 32; in memory it is as before, and can only
//! be closed. Invariants: files stay as they are; after a crash the volume is the old one or the new one, whoever opens it first, but
//! between two writes of the commit the kernel and e2fsck find superblock and descriptors that do not fit, and leave the volume alone:
//! opening it here replays the log, which completes it, and e2fsck takes a copy of the superblock. Limits: as of `room` and `change`; a
//! volume of more than 2^32 blocks needs 64bit, and 64bit needs extents, as in resize2fs.

use super::room::Room;
use super::{change, size};
use crate::error::Error;
use crate::inode::Fs;
use crate::relocate::Progress;
use diorite_format::features::Incompat;
use std::sync::Arc;

/// Switches 64bit: see the module. Blocks; no lock may be held.
///
/// # Errors
/// `Invalid`, `NotSupported`: it cannot be switched; `NoSpace`: descriptors need more room; `Refused`; damage; errors of the device.
pub(crate) fn convert(fs: &Arc<Fs>, wide: bool, progress: Progress<'_>) -> Result<(), Error> {
    let old = &*fs.sb;
    let incompat = old.features().incompat;
    if incompat.has(Incompat::BIT64) == wide {
        return Ok(());
    }
    if wide && !incompat.has(Incompat::EXTENTS) {
        let what = "64bit needs the feature extents".to_owned();
        return Err(Error::NotSupported(what));
    }
    if !wide && old.geometry().blocks_count() > u64::from(u32::MAX) {
        let blocks = old.geometry().blocks_count();
        let what = format!("{blocks} blocks need the feature 64bit");
        return Err(Error::Invalid(what));
    }
    let new = size::with_width(old, wide)?;
    let room = Room::plan(fs, (old, &new))?;
    room.make(fs, progress)?;
    change::apply(fs, (old, &new), &room.groups).map(drop)
}
