//! On whose behalf a volume's blocks are used: the last ones are kept for the privileged.
//!
//! Input: ids, of this process or of whom a frontend serves. Output: whether they may take what is kept. Invariants: none of its own. Limits: one
//! caller per opened volume; ids give no right to files here, that is for frontends.
//! Source: man 8 tune2fs (-m, -r, -u, -g); that a reserved group 0 means nobody: the kernel's ext4, measured.

use diorite_format::Superblock;
use rustix::process::{getegid, geteuid, getgroups};

/// User and groups of who uses a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// All groups that the user is in.
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

    /// May it use the blocks that are kept: root, the user that they are kept for, a member of the group that they are kept for.
    pub(crate) fn is_privileged(&self, sb: &Superblock) -> bool {
        let (uid, gid) = (sb.info().reserved_uid, sb.info().reserved_gid);
        self.uid == 0 || self.uid == uid || gid != 0 && self.gids.contains(&gid)
    }
}
