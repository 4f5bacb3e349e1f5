//! What comes before the first write of a file's data: rights that writing takes away, and data that leaves the inode.
//!
//! Input: an inode that was just read. Output: set-user-id, set-group-id (of a file that its group may execute) and the capability cleared in one
//! handle, before any data goes down; then a file with a map (see `inline`). Invariants: noted when the inode is read, settled once, and never owed again while it is in
//! memory; a write that fails a check settles nothing. Limits: asks nothing of who writes: what the kernel leaves to a privileged
//! writer goes too.

use super::Inode;
use crate::error::Error;
use crate::volume::VolumeShared;
use crate::xattr::REMOVE_CREDITS;
use diorite_block::sync::atomic::{AtomicBool, Ordering};
use diorite_format::Inode as DiskInode;
use diorite_format::xattr::{NameIndex, Xattrs};

pub(super) const CAPABILITY: (NameIndex, &[u8]) = (NameIndex::SECURITY, b"capability");

/// See the module.
#[derive(Debug)]
pub(super) struct FirstWrite {
    privileges: AtomicBool,
}

impl FirstWrite {
    /// What a file owes. A block of attributes is looked into when it matters.
    pub(super) fn of(volume: &VolumeShared, disk: &DiskInode, raw: &[u8]) -> FirstWrite {
        let inside = || match Xattrs::parse_inode(&volume.sb, disk, raw) {
            Ok(attrs) => attrs.get(CAPABILITY.0, CAPABILITY.1).is_some(),
            // What is wrong is told to who writes.
            Err(_) => true,
        };
        let may_have = without_privileges(disk.mode) != disk.mode || !disk.file_acl.is_none();
        let privileges = disk.is_file() && (may_have || inside());
        FirstWrite {
            privileges: AtomicBool::new(privileges),
        }
    }
}

/// The mode after a write.
pub(super) fn without_privileges(mode: u16) -> u16 {
    const SETUID: u16 = 0o4000;
    const SETGID: u16 = 0o2000;
    const GROUP_EXECUTES: u16 = 0o0010;
    match mode & GROUP_EXECUTES {
        0 => mode & !SETUID,
        _ => mode & !(SETUID | SETGID),
    }
}

impl Inode {
    /// Must something be done before data is written?
    pub(crate) fn owes_first_write(&self) -> bool {
        self.first.privileges.load(Ordering::Acquire) || self.has_file_inside()
    }

    /// The file was given rights that the next write takes away.
    pub(crate) fn note_privileges(&self) {
        self.first.privileges.store(true, Ordering::Release);
    }

    /// Does it. Blocks; no lock may be held and no handle open.
    pub(crate) fn settle_first_write(&self) -> Result<(), Error> {
        if self.first.privileges.load(Ordering::Acquire) {
            self.drop_privileges()?;
            self.first.privileges.store(false, Ordering::Release);
        }
        if self.has_file_inside() {
            self.move_out()?;
        }
        Ok(())
    }

    /// Is it a file whose data is in its inode?
    pub(crate) fn has_file_inside(&self) -> bool {
        self.inline_data().is_some() && self.disk().is_file()
    }

    fn drop_privileges(&self) -> Result<(), Error> {
        self.volume.in_handle(REMOVE_CREDITS, |handle| {
            // Others who settle wait, and find nothing to do.
            let _map = self.map_lock.lock();
            self.remove_xattr(handle, CAPABILITY)?;
            let mode = self.disk().mode;
            let less = without_privileges(mode);
            if less != mode {
                handle.or_abort(self.change(handle, |disk| disk.mode = less))?;
            }
            Ok(())
        })
    }
}
