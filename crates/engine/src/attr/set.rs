//! Sets permissions, owner, group and times of an inode.
//!
//! Input: which of them, and their values. Output: the inode changed in one handle, its ctime now. Invariants: a change of owner or group
//! clears set-user-id, set-group-id and the capability, but for directories; permissions in the same call are set after that; rights that a
//! write takes away are noted for the next write; an access ACL follows the permissions. Limits: permissions of callers are not checked,
//! that is the frontend's.

use crate::caller::{Maker, without_privileges};
use crate::error::Error;
use crate::inode::{Inode, timestamp};
use crate::xattr;
use diorite_format::Timestamp;

/// What to set; a field that is None keeps its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetAttr {
    /// Permission bits, with set-user-id, set-group-id and the sticky bit.
    pub permissions: Option<u16>,
    /// User id of the owner.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
    /// Time of the last access.
    pub atime: Option<Timestamp>,
    /// Time of the last change of the data. The ctime becomes the time of the call.
    pub mtime: Option<Timestamp>,
    /// The times above are the current time: that may be set of a file that is append-only, too.
    pub is_now: bool,
}

diorite_block::setters! {
    SetAttr {
        is_now: bool,
    } option {
        permissions: u16,
        uid: u32,
        gid: u32,
        atime: Timestamp,
        mtime: Timestamp,
    }
}

impl SetAttr {
    fn is_touch(&self) -> bool {
        self.is_now && (self.permissions, self.uid, self.gid) == (None, None, None)
    }
}

/// See [`crate::Volume::set_attr`]. No right to act as a group is given, or left to a new owner, where `maker` may not give it.
pub(crate) fn set_attr(inode: &Inode, set: &SetAttr, maker: Option<&Maker>) -> Result<(), Error> {
    inode.volume.check_writable()?;
    match set.is_touch() {
        true => inode.check_touchable()?,
        false => inode.check_settable()?,
    }
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
                let removed = xattr::remove_capability(inode, handle);
                // The block is this inode's alone since the step above, so the removal cannot fail for lack of space.
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
            let after = inode.volume.mode_after_write(&disk);
            if is_file && after != disk.mode {
                inode.note_privileges();
            }
            Ok(())
        })?;
    inode.sync_if_flagged()
}
