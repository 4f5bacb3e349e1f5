//! What comes before the first write of a file's data, done: rights that a write takes away, data that leaves the inode.
//!
//! Input: a file that is going to be written. Output: one that can be written plainly. Invariants: what others do at the same time is found done.
//! Limits: blocks.

use crate::error::Error;
use crate::inode::{CAPABILITY, Inode};
use crate::xattr;

/// Does it. Blocks; no lock may be held and no handle open.
pub(crate) fn settle_first_write(inode: &Inode) -> Result<(), Error> {
    settle_privileges(inode)?;
    inode.move_out()
}

/// The part of it that has to be done also where data stays in the inode.
pub(crate) fn settle_privileges(inode: &Inode) -> Result<(), Error> {
    match inode.owes_privileges() {
        true => drop_privileges(inode),
        false => Ok(()),
    }
}

fn drop_privileges(inode: &Inode) -> Result<(), Error> {
    inode
        .volume
        .in_handle(xattr::attribute_credits(inode)?, |handle| {
            // Others who settle wait, and find nothing to do.
            let _map = inode.map_lock.lock();
            xattr::remove_xattr(inode, handle, CAPABILITY)?;
            let disk = inode.disk();
            let less = inode.volume.caller.mode_after_write(disk.mode, disk.gid);
            if less != disk.mode {
                handle.or_abort(inode.change(handle, |disk| disk.mode = less))?;
            }
            inode.note_no_privileges();
            Ok(())
        })
}
