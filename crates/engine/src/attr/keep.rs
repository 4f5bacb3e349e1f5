//! Stores a small file's whole contents in its inode.
//!
//! Input: an empty file and its contents. Output: inline data, if the inode has room for it. Invariants: data, size and times are in one
//! transaction. Limits: waits for direct requests in flight.

use super::clear_privileges;
use crate::error::Error;
use crate::inode::{INSIDE_CREDITS, OpenFile, Owed};
use diorite_format::features::Incompat;

/// See [`crate::File::keep_inside`].
pub(crate) fn keep_inside(file: &OpenFile, data: &[u8]) -> Result<bool, Error> {
    let inode = &file.inode;
    file.check_writable()?;
    inode.check_writable(false)?;
    inode.check_data_access()?;
    let volume = &inode.volume;
    let has_feature = volume.sb.features().incompat.has(Incompat::INLINE_DATA);
    let small = data.len() <= volume.sb.geometry().inode_size() as usize;
    if !has_feature || !small || data.is_empty() || !inode.disk().is_file() {
        return Ok(false);
    }
    clear_privileges(inode)?;
    let kept = {
        let _alone = inode.quiesce();
        if inode.pages.has_unwritten() {
            return Ok(false);
        }
        inode.drop_clean_pages(&(0..u64::MAX));
        inode.claims.close(inode);
        volume.in_handle(INSIDE_CREDITS, |handle| {
            let _map = inode.map_lock.lock();
            Ok(inode.is_blank() && inode.write_inside(handle, data)?)
        })?
    };
    // Rule D1: data, size and times are in one transaction, so one commit makes all durable.
    match kept && file.is_dsync() {
        true => volume.make_durable(Owed::commit(inode.uncommitted_change()))?,
        false => inode.sync_if_flagged()?,
    }
    Ok(kept)
}
