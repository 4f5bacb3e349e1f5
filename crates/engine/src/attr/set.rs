//! What an inode says of itself, set: permissions, owner, times.
//!
//! Input: which of them, and what to. Output: the inode in one handle, its change time now. Invariants: another owner of what is no directory takes
//! set-user-id, set-group-id and the capability away, unless permissions are set with it, which come after that; permissions that a write
//! takes away are noted for the next one; an access control list follows the permissions. Limits: who may set what is the caller's
//! policy.

use crate::caller::Maker;
use crate::error::Error;
use crate::inode::{CAPABILITY, Inode, timestamp, without_privileges};
use crate::xattr;
use diorite_format::Timestamp;

/// What to set; none stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits, with set-user-id, set-group-id and the sticky bit.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the data.
    pub mtime: Option<Timestamp>,
}

/// See [`crate::Volume::set_attr`]. No right to act as a group is given, or left to a new owner, where `maker` may not give it.
pub(crate) fn set_attr(inode: &Inode, set: &SetAttr, maker: Option<&Maker>) -> Result<(), Error> {
    inode.volume.check_writable()?;
    inode.check_settable()?;
    let is_given = set.uid.is_some() || set.gid.is_some();
    let now = timestamp(inode.volume.now_nanos());
    inode
        .volume
        .in_handle(xattr::attribute_credits(inode)?, |handle| {
            let is_file = inode.disk().is_file();
            let _map = inode.map_lock.lock();
            let before = inode.disk();
            let takes = is_given && !before.is_dir();
            let allowed = |given, gid| maker.map_or(given, |m| m.without_foreign_group(given, gid));
            let gid = set.gid.unwrap_or(before.gid);
            let permissions = set.permissions.map(|given| allowed(given, gid));
            if let Some(permissions) = permissions {
                if takes {
                    xattr::own_attribute_block(inode, handle)?;
                }
                xattr::follow_mode(inode, handle, permissions)?;
            }
            if takes {
                let removed = xattr::remove_xattr(inode, handle, CAPABILITY);
                // With a block of its own this has all the room that it needs.
                match permissions {
                    Some(_) => handle.or_abort(removed)?,
                    None => removed?,
                };
            }
            handle.or_abort(inode.change(handle, |disk| {
                if set.mtime.is_some() {
                    inode.forget_noted_write();
                }
                if set.atime.is_some() {
                    inode.forget_noted_read();
                }
                (disk.uid, disk.gid) = (set.uid.unwrap_or(disk.uid), set.gid.unwrap_or(disk.gid));
                if takes {
                    disk.mode = allowed(without_privileges(disk.mode), before.gid);
                }
                if let Some(permissions) = permissions {
                    disk.mode = disk.mode & !0o7777 | permissions & 0o7777;
                }
                disk.atime = set.atime.unwrap_or(disk.atime);
                disk.mtime = set.mtime.unwrap_or(disk.mtime);
                disk.ctime = now;
            }))?;
            let disk = inode.disk();
            let after = inode.volume.caller.mode_after_write(disk.mode, disk.gid);
            if is_file && after != disk.mode {
                inode.note_privileges();
            }
            Ok(())
        })?;
    inode.settle()
}
