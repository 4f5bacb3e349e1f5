//! Sets the counts of a group descriptor to numbers that a check has counted, and frees clusters that no file uses.
//!
//! Input: counts, and runs that are in use only according to the bitmap. Output: the descriptor with these counts, and the bitmap without
//! these runs, changed in a handle. Invariants: nothing else changes; the volume's own structures stay used. Limits: only before the
//! volume's free space is in use: an [`super::Alloc`] that was made before uses the old counts.

use super::Clusters;
use super::bits::write_desc;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::bitmap::{self, BitmapKind};
use diorite_format::group::{GroupCounts, GroupDesc, GroupRun};

/// The blocks that [`set_counts`] changes.
pub(crate) const COUNTS_CREDITS: u32 = 2;

/// Sets the counts of a group, after its `unused` runs are free. Blocks while metadata is read.
///
/// # Errors
/// A group that the volume does not have, or counts that it cannot have; runs that are no used clusters of files; damage; a device that
/// fails.
pub(crate) fn set_counts(
    handle: &JournalHandle<'_>,
    counts: &GroupCounts,
    unused: &[GroupRun],
) -> Result<(), Error> {
    let group = counts.group;
    let Some(desc) = handle.store().groups.get(group.get() as usize) else {
        return Err(Error::Invalid(format!("group {group}: there is none")));
    };
    let mut desc = desc.clone();
    if !unused.is_empty() {
        free_all(handle, &mut desc, unused)?;
    }
    desc.free_clusters = counts.free_clusters;
    desc.free_inodes = counts.free_inodes;
    desc.used_dirs = counts.used_dirs;
    match unused.is_empty() {
        true => write_desc(handle, &desc),
        // The bitmap has changed.
        false => handle.or_abort(write_desc(handle, &desc)),
    }
}

/// Clears the bits of runs in a group's bitmap.
fn free_all(
    handle: &JournalHandle<'_>,
    desc: &mut GroupDesc,
    runs: &[GroupRun],
) -> Result<(), Error> {
    let (store, before) = (handle.store(), desc.clone());
    let sb = &store.sb;
    for run in runs {
        let clusters = Clusters {
            group: run.group,
            start: run.start,
            len: run.len,
        };
        let inside = run.start.checked_add(run.len);
        if run.group != before.group
            || before.flags.block_uninit()
            || inside.is_none_or(|end| end > sb.group_clusters(run.group))
        {
            return Err(Error::Invalid(format!("{run:?} is not in a bitmap")));
        }
        let blocks = clusters.run(sb);
        if let Some(what) = store.metadata_in(blocks.start, blocks.len.into()) {
            let what = format!("{blocks} are to be freed, where {what} lies; run e2fsck");
            return Err(Error::Damaged(what));
        }
    }
    let verify = |raw: &[u8]| before.verify_block_bitmap(sb, raw);
    let cleared = handle.update(before.block_bitmap, Kind::Bitmap, verify, |map| {
        for run in runs {
            let cleared = bitmap::clear_range(map, run.start, run.len);
            cleared.map_err(|clash| clash.corrupt(run.group, BitmapKind::Block))?;
        }
        Ok(desc.seal_block_bitmap(sb, map)?)
    });
    handle.or_abort(cleared)
}
