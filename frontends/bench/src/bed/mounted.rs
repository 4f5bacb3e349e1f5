//! A mount of the kernel's ext4, which goes away with its guard.
//!
//! Input: a block device with an image. Output: a mount point. Invariant: the mount is gone before its directory. Limits: root.

use super::super::failure::Failure;
use super::super::{host, tool};
use super::make::Scratch;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mount of the kernel's.
pub(in super::super) struct Mounted {
    at: Option<PathBuf>,
    _dir: Scratch,
}

impl Mounted {
    /// Mounts the device in a directory of our own.
    pub(in super::super) fn mount(device: &Path) -> Result<Mounted, Failure> {
        let dir = Scratch::new(&std::env::temp_dir())?;
        let at = dir.path().join("mnt");
        std::fs::create_dir(&at).map_err(|e| Failure::host("cannot make a mount point", e))?;
        tool::run(
            "mount",
            [
                "-t".as_ref(),
                "ext4".as_ref(),
                device.as_os_str(),
                at.as_os_str(),
            ],
        )?;
        Ok(Mounted {
            at: Some(at),
            _dir: dir,
        })
    }

    pub(in super::super) fn path(&self) -> &Path {
        self.at
            .as_deref()
            .expect("the mount point is there until unmount takes it")
    }

    /// Where a file of the image is.
    pub(in super::super) fn file(&self, inside: &str) -> PathBuf {
        self.path().join(inside.trim_start_matches('/'))
    }

    /// Unmounts; returns an error if that failed.
    pub(in super::super) fn unmount(mut self) -> Result<(), Failure> {
        self.at.take().map_or(Ok(()), |at| unmount(&at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(at) = self.at.take() {
            // Only the earlier failure, which led here, is reported.
            let _ = unmount(&at);
        }
    }
}

/// Unmounts, with retries: io_uring may release its last reference to a file shortly after the ring is closed.
fn unmount(at: &Path) -> Result<(), Failure> {
    for _ in 0..40 {
        if tool::run("umount", [at]).is_ok() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    tool::run("umount", [at]).map(drop)
}

/// Mounts a block device; fails as unavailable if there is none or mounting is not permitted.
pub(in super::super) fn mount(device: Option<&Path>) -> Result<Mounted, Failure> {
    let device = device
        .ok_or_else(|| Failure::unavailable("the kernel's row needs a block device to mount"))?;
    if !host::is_root() {
        return Err(Failure::unavailable("mounting needs root"));
    }
    Mounted::mount(device)
}
