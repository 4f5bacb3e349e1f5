//! The steps before the first write of a file's data: clearing rights that a write takes away, moving inline data out.
//!
//! Input: a file that is going to be written. Output: a file that can be written without further steps. Invariants: if several threads do
//! it at the same time, the later ones find it done. Limits: blocks.

use crate::caller::Caller;
use crate::error::Error;
use crate::inode::{Inode, timestamp};
use crate::xattr;
use diorite_format::Inode as DiskInode;

/// Clears rights, and moves inline data out. Blocks; no lock may be held and no handle open.
pub(crate) fn prepare_first_write(inode: &Inode) -> Result<(), Error> {
    clear_privileges(inode)?;
    inode.move_out()
}

/// Clears set-uid, set-gid and the capability; also needed for changes that leave inline data in the inode.
pub(crate) fn clear_privileges(inode: &Inode) -> Result<(), Error> {
    match inode.owes_privileges() {
        true => drop_privileges(inode),
        false => Ok(()),
    }
}

/// Clears set-uid and set-gid as far as a write by this caller does. Returns whether there was something to clear. Blocks; no lock may be
/// held.
pub(crate) fn clear_rights(inode: &Inode, by: &Caller) -> Result<bool, Error> {
    let after = |disk: &DiskInode| by.mode_after_write(disk.mode, disk.gid);
    let disk = inode.disk();
    if !disk.is_file() || after(&disk) == disk.mode {
        return Ok(false);
    }
    let now = timestamp(inode.volume.now_nanos());
    inode.volume.in_handle(1, |handle| {
        let _map = inode.map_lock.lock();
        inode.change(handle, |disk| {
            disk.mode = after(disk);
            disk.ctime = now;
        })
    })?;
    Ok(true)
}

fn drop_privileges(inode: &Inode) -> Result<(), Error> {
    inode
        .volume
        .in_handle(xattr::attribute_credits(inode)?, |handle| {
            // Other threads that do the same wait for this lock, and find nothing left to do.
            let _map = inode.map_lock.lock();
            xattr::remove_capability(inode, handle)?;
            let disk = inode.disk();
            let less = inode.volume.mode_after_write(&disk);
            if less != disk.mode {
                handle.or_abort(inode.change(handle, |disk| disk.mode = less))?;
            }
            inode.note_no_privileges();
            Ok(())
        })
}
