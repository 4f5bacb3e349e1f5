//! Recognises the mount that a keeper has made among other mounts at the same place.
//!
//! Input: a directory where something has just been mounted. Output: it is unmounted. Invariants: nothing but this mount is unmounted; the
//! file system itself is not asked whether it is there. Limits: a mount that was moved is not found.

use diorite_fuse::{mount_number, mounted_at, mounts_of};
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};

/// A mount. What is still there when this is dropped is detached. Its server has ended by then, or ends with that.
pub(super) struct Mount {
    pub(super) dir: PathBuf,
    /// The numbers of its device.
    pub(super) device: Option<String>,
    /// The number by which the mount table has it: the next mount may get both, once this one is gone.
    id: Option<u64>,
    /// The number that no other mount gets, where the kernel has such numbers.
    number: Option<u64>,
}

impl Mount {
    /// What is mounted there now.
    pub(super) fn new(dir: &Path) -> Mount {
        let (id, device) = mounted_at(dir)
            .map(|entry| (entry.id, entry.device))
            .unzip();
        Mount {
            dir: dir.to_owned(),
            device,
            id,
            number: mount_number(dir),
        }
    }

    fn is_there(&self) -> bool {
        let (id, device) = mounted_at(&self.dir)
            .map(|entry| (entry.id, entry.device))
            .unzip();
        let is_another = match (self.number, mount_number(&self.dir)) {
            (Some(ours), Some(now)) => now != ours,
            _ => false,
        };
        id.is_some() && (id, device.as_ref()) == (self.id, self.device.as_ref()) && !is_another
    }

    /// Is its file system mounted nowhere else? With another mount, also one in another mount namespace, it does not end.
    pub(super) fn is_the_only_one(&self) -> bool {
        let device = self.device.as_deref();
        device.is_none_or(|device| mounts_of(device, true).len() <= 1)
    }

    /// Unmounts it. False: it is in use.
    pub(super) fn unmount(&self, lazily: bool) -> bool {
        !self.is_there() || diorite_fuse::unmount(&self.dir, lazily).is_ok()
    }

    /// Unmounts it, also if it is in use: what the kernel has collected is written first. False: it stays.
    pub(super) fn end(&self) -> bool {
        if self.unmount(false) {
            return true;
        }
        sync(&self.dir);
        self.unmount(true)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The next mount at this place tries again.
        let _ = self.unmount(true);
    }
}

/// Hands what the kernel has collected to the server. Whoever has written it without a sync has no promise, so a failure is none of ours.
fn sync(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(root) = rustix::fs::open(dir, flags, Mode::empty()) {
        let _ = rustix::fs::syncfs(&root);
    }
}
