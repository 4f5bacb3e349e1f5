//! The user on whose behalf a volume is used: may that user take reserved blocks, who owns new inodes, which mode bits a write clears.
//!
//! Input: user and group ids, of this process or of the client of a frontend. Output: whether they may take reserved blocks; a file's mode
//! after they have written it; owner and permissions of what they make. Invariants: none of its own. Limits: one caller per opened volume,
//! unless its frontend decides that for each write ([`crate::Volume::leave_rights_to_frontend`]); files are not protected by these ids,
//! that is left to frontends; user 0 is root, whatever capabilities the process has. Source: man 8 tune2fs (-m, -r, -u, -g); that a
//! reserved group 0 means nobody, and which bits a write clears: the kernel's ext4, measured.

use diorite_format::Superblock;
use diorite_format::inode::{GROUP_EXECUTES, SETGID, SETUID};
use rustix::process::{getegid, geteuid, getgroups};
use std::sync::Arc;

/// The user on whose behalf a volume is used, and the user's groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// All groups of the user; new inodes belong to the first.
    pub gids: Vec<u32>,
}

impl Caller {
    /// The effective user and the groups of this process.
    #[must_use]
    pub fn of_process() -> Caller {
        // Where the host does not tell the groups, the process's own group is the only one.
        let others = getgroups().unwrap_or_default();
        let gids = std::iter::once(getegid()).chain(others);
        Caller {
            uid: geteuid().as_raw(),
            gids: gids.map(rustix::process::Gid::as_raw).collect(),
        }
    }

    /// The mode of a file of this group after the caller has written or truncated it. Root clears nothing; everybody else clears
    /// set-user-id, and set-group-id where the group may execute the file or the caller is not in the group.
    #[must_use]
    pub fn mode_after_write(&self, mode: u16, gid: u32) -> u16 {
        match self.uid {
            0 => mode,
            _ if self.gids.contains(&gid) => without_privileges(mode),
            _ => mode & !(SETUID | SETGID),
        }
    }

    /// May the caller use reserved blocks? Yes for root, the user they are reserved for, and members of the group they are reserved for.
    pub(crate) fn is_privileged(&self, sb: &Superblock) -> bool {
        let (uid, gid) = (sb.info().reserved_uid, sb.info().reserved_gid);
        self.uid == 0 || self.uid == uid || gid != 0 && self.gids.contains(&gid)
    }
}

/// The mode of a file that somebody of its group has changed, or whose owner has changed: without set-user-id, and without set-group-id
/// where the group may execute the file.
pub(crate) fn without_privileges(mode: u16) -> u16 {
    match mode & GROUP_EXECUTES {
        0 => mode & !SETUID,
        _ => mode & !(SETUID | SETGID),
    }
}

/// Who makes inodes: the owner of what is made, and which permissions it does not get.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permission bits that are cleared in what is made.
    umask: u16,
    /// All groups of the user; None where only an owner was given.
    groups: Option<Arc<[u32]>>,
}

impl Maker {
    /// New inodes belong to this user and group and get all permissions that are asked for.
    pub(crate) fn of_owner((uid, gid): (u32, u32)) -> Maker {
        Maker {
            uid,
            gid,
            umask: 0,
            groups: None,
        }
    }

    /// New inodes are as a process of this user would make them.
    pub(crate) fn of_caller(caller: &Caller, umask: u16) -> Maker {
        Maker {
            uid: caller.uid,
            gid: caller.gids.first().copied().unwrap_or(0),
            umask: umask & 0o777,
            groups: Some(caller.gids.clone().into()),
        }
    }

    /// The permissions of a new inode without those of the umask: for a parent that has no default ACL, which would take the umask's
    /// place.
    pub(crate) fn without_masked(&self, permissions: u16) -> u16 {
        permissions & !self.umask
    }

    /// The permissions for a new directory: without set-user-id and set-group-id, as a process cannot ask for them.
    pub(crate) fn of_directory(&self, permissions: u16) -> u16 {
        match self.groups {
            Some(_) => permissions & 0o1777,
            None => permissions,
        }
    }

    /// The permissions for an inode of this group; without set-group-id if the maker is neither root nor in the group.
    pub(crate) fn without_foreign_group(&self, permissions: u16, gid: u32) -> u16 {
        let groups = self.groups.as_deref().filter(|_| self.uid != 0);
        match groups.is_some_and(|groups| !groups.contains(&gid)) {
            true => permissions & !SETGID,
            false => permissions,
        }
    }
}
