//! Counts of a group descriptor, set to what somebody else has counted.
//!
//! Input: counts. Output: the descriptor with them, changed in a handle. Invariants: nothing else of the descriptor changes. Limits: only
//! before the volume's free space is in use: an [`super::Alloc`] that was made before goes by the old counts.

use super::bits::write_desc;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::group::GroupCounts;

/// The blocks that [`set_counts`] changes.
pub(crate) const COUNTS_CREDITS: u32 = 1;

/// Sets the counts of a group. Blocks while metadata is read.
///
/// # Errors
/// A group that the volume does not have, or counts that it cannot have; damage; a device that fails.
pub(crate) fn set_counts(handle: &JournalHandle<'_>, counts: &GroupCounts) -> Result<(), Error> {
    let group = counts.group;
    let Some(desc) = handle.store().groups.get(group.get() as usize) else {
        return Err(Error::Invalid(format!("group {group}: there is none")));
    };
    let mut desc = desc.clone();
    desc.free_clusters = counts.free_clusters;
    desc.free_inodes = counts.free_inodes;
    desc.used_dirs = counts.used_dirs;
    write_desc(handle, &desc)
}
