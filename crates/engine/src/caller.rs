//! On whose behalf a volume's blocks are used: the last ones are kept for the privileged.
//!
//! Input: ids, of this process or of whom a frontend serves. Output: whether they may take what is kept; which rights of a file their
//! writes take away. Invariants: none of its own. Limits: one caller per opened volume; ids give no right to files here, that is for
//! frontends; user 0 is root, whatever capabilities the process has. Source: man 8 tune2fs (-m, -r, -u, -g); that a reserved group 0
//! means nobody, and what goes at a write: the kernel's ext4, measured.

use diorite_format::Superblock;
use rustix::process::{getegid, geteuid, getgroups};
use std::sync::Arc;

/// User and groups of who uses a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// All groups that the user is in; the first is that of what the user makes.
    pub gids: Vec<u32>,
}

impl Caller {
    /// The effective user and the groups of this process.
    #[must_use]
    pub fn of_process() -> Caller {
        // A process whose groups the host does not tell has its own group alone.
        let others = getgroups().unwrap_or_default();
        let gids = std::iter::once(getegid()).chain(others);
        Caller {
            uid: geteuid().as_raw(),
            gids: gids.map(rustix::process::Gid::as_raw).collect(),
        }
    }

    /// The mode of a file of this group after it has written or cut it: nothing goes for root; for others set-user-id, and set-group-id
    /// where the group executes the file or the caller is not in the group.
    pub(crate) fn mode_after_write(&self, mode: u16, gid: u32) -> u16 {
        const SETUID: u16 = 0o4000;
        const SETGID: u16 = 0o2000;
        const GROUP_EXECUTES: u16 = 0o0010;
        if self.uid == 0 {
            return mode;
        }
        match mode & GROUP_EXECUTES {
            0 if self.gids.contains(&gid) => mode & !SETUID,
            _ => mode & !(SETUID | SETGID),
        }
    }

    /// May it use the blocks that are kept: root, the user that they are kept for, a member of the group that they are kept for.
    pub(crate) fn is_privileged(&self, sb: &Superblock) -> bool {
        let (uid, gid) = (sb.info().reserved_uid, sb.info().reserved_gid);
        self.uid == 0 || self.uid == uid || gid != 0 && self.gids.contains(&gid)
    }
}

/// Who makes inodes: whose they are, and what is taken from their permissions.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// What he is asked for no permission of.
    umask: u16,
    /// All groups that the user is in; none is known of who only gives owners.
    groups: Option<Arc<[u32]>>,
}

impl Maker {
    /// What is made belongs to these, with the permissions that are asked for.
    pub(crate) fn of_owner((uid, gid): (u32, u32)) -> Maker {
        Maker {
            uid,
            gid,
            umask: 0,
            groups: None,
        }
    }

    /// What is made is as a process of this user makes it.
    pub(crate) fn of_caller(caller: &Caller, umask: u16) -> Maker {
        Maker {
            uid: caller.uid,
            gid: caller.gids.first().copied().unwrap_or(0),
            umask: umask & 0o777,
            groups: Some(caller.gids.clone().into()),
        }
    }

    /// Permissions of a new inode whose directory has no list of its own to say so.
    pub(crate) fn without_masked(&self, permissions: u16) -> u16 {
        permissions & !self.umask
    }

    /// Permissions of a new directory: a process gives it no rights to act as others.
    pub(crate) fn of_directory(&self, permissions: u16) -> u16 {
        match self.groups {
            Some(_) => permissions & 0o1777,
            None => permissions,
        }
    }

    /// Permissions for an inode of this group, without the right to act as that group, unless he may give it.
    pub(crate) fn without_foreign_group(&self, permissions: u16, gid: u32) -> u16 {
        const SETGID: u16 = 0o2000;
        let groups = self.groups.as_deref().filter(|_| self.uid != 0);
        match groups.is_some_and(|groups| !groups.contains(&gid)) {
            true => permissions & !SETGID,
            false => permissions,
        }
    }
}
