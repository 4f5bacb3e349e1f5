//! Corrects counts of groups, frees clusters that no file uses, and clears an inode number in the superblock. A repair does this before the
//! volume is used.
//!
//! Input: a volume that was recovered and has its journal, and counts. Output: the same volume on the device with these counts, marked as
//! clean. It has to be opened again, since the memory of this opening has the old counts. Invariants: the counts go through the journal, so
//! after a crash each group has the old or the new ones; the orphan list stays as it is, because processing it needs right counts. Limits:
//! the superblock's free counts follow with the first commit after that.

use crate::alloc::{COUNTS_CREDITS, set_counts};
use crate::delete;
use crate::error::Error;
use crate::inode::Fs;
use crate::options::Repair;
use diorite_format::GroupNo;
use diorite_format::group::GroupRun;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Has the superblock name no orphan file that the volume does not have. Blocks.
///
/// # Errors
/// Damage; a device that fails.
pub(super) fn superblock(fs: &Arc<Fs>) -> Result<(), Error> {
    fs.in_handle(1, |handle| {
        handle.edit_super(|edit| edit.forget_orphan_file())
    })
}

/// Writes the counts, and frees what nobody uses. Blocks.
///
/// # Errors
/// Counts that a group cannot have; damage; a device that fails.
pub(super) fn counts(fs: &Arc<Fs>, repair: &Repair) -> Result<(), Error> {
    // The marks of the list are kept by who has it in memory.
    delete::load(fs)?;
    let mut unused: BTreeMap<GroupNo, Vec<GroupRun>> = BTreeMap::new();
    for run in &repair.unused {
        unused.entry(run.group).or_default().push(*run);
    }
    for counts in &repair.groups {
        let here = unused.get(&counts.group).map_or(&[][..], Vec::as_slice);
        fs.in_handle(COUNTS_CREDITS, |handle| set_counts(handle, counts, here))?;
    }
    fs.make_clean()?;
    fs.end_keeper();
    Ok(())
}
