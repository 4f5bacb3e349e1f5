//! What an inode says of itself, set: permissions, owner, times.
//!
//! Input: which of them, and what to. Output: the inode in one handle, its change time now. Invariants: another owner of a file takes
//! set-user-id, set-group-id and the capability away, unless permissions are set with it, which come after that; permissions that a write
//! takes away are noted for the next one; an access control list follows the permissions. Limits: who may set what is the caller's
//! policy.

use super::first::{CAPABILITY, without_privileges};
use super::{Inode, timestamp};
use crate::error::Error;
use diorite_format::{InodeFlags, Timestamp};

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

impl Inode {
    /// See [`crate::Volume::set_attr`].
    pub(crate) fn set_attr(&self, set: &SetAttr) -> Result<(), Error> {
        self.volume.check_writable()?;
        self.check_settable()?;
        let is_given = set.uid.is_some() || set.gid.is_some();
        let now = timestamp(self.volume.now_nanos());
        self.volume.in_handle(self.attribute_credits()?, |handle| {
            let is_file = self.disk().is_file();
            let _map = self.map_lock.lock();
            let takes = is_given && is_file;
            if let Some(permissions) = set.permissions {
                if takes {
                    self.own_attribute_block(handle)?;
                }
                self.follow_mode(handle, permissions)?;
            }
            if takes {
                let removed = self.remove_xattr(handle, CAPABILITY);
                // With a block of its own this has all the room that it needs.
                match set.permissions {
                    Some(_) => handle.or_abort(removed)?,
                    None => removed?,
                };
            }
            handle.or_abort(self.change(handle, |disk| {
                if set.mtime.is_some() {
                    self.forget_noted_write();
                }
                if set.atime.is_some() {
                    self.forget_noted_read();
                }
                (disk.uid, disk.gid) = (set.uid.unwrap_or(disk.uid), set.gid.unwrap_or(disk.gid));
                if takes {
                    disk.mode = without_privileges(disk.mode);
                }
                if let Some(permissions) = set.permissions {
                    disk.mode = disk.mode & !0o7777 | permissions & 0o7777;
                }
                disk.atime = set.atime.unwrap_or(disk.atime);
                disk.mtime = set.mtime.unwrap_or(disk.mtime);
                disk.ctime = now;
            }))?;
            let disk = self.disk();
            let after = self.volume.caller.mode_after_write(disk.mode, disk.gid);
            if is_file && after != disk.mode {
                self.note_privileges();
            }
            Ok(())
        })?;
        self.settle()
    }

    /// May its attributes, its names, its place be changed?
    pub(crate) fn check_settable(&self) -> Result<(), Error> {
        let (ino, flags) = (self.ino, self.disk().flags);
        let refused = |flag| Err(Error::NotPermitted { ino, flag });
        if self.volume.is_system_inode(ino) {
            return refused("one of the volume's own");
        }
        if flags.has(InodeFlags::IMMUTABLE) {
            return refused("immutable");
        }
        if flags.has(InodeFlags::APPEND) {
            return refused("append-only");
        }
        Ok(())
    }
}
