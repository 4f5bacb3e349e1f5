//! What it is: an image mounted by the kernel while this value exists.
//! Input: an image. Output: the directory where it is mounted.
//! `mount -o loop` makes the loop device, which is released with the mount.
//! Invariant: a mount is removed on every path; a failure to unmount is reported.

use crate::error::{Result, at};
use crate::mount::unmount;
use crate::run::run;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A mount, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Mount {
    dir: Option<tempfile::TempDir>,
}

impl Mount {
    /// Mounts `image`, read-only unless `write` is set.
    pub(super) fn new(image: &Path, write: bool) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("diorite-mount-")
            .tempdir()
            .map_err(at(image))?;
        let options = if write {
            "loop,noatime"
        } else {
            "loop,ro,noatime"
        };
        let words = ["-t", "ext4", "-o", options].map(OsStr::new);
        let mut args = words.to_vec();
        args.extend([image.as_os_str(), dir.path().as_os_str()]);
        run("mount", &args)?;
        Ok(Self { dir: Some(dir) })
    }

    /// The path of the image's root.
    pub(super) fn root(&self) -> PathBuf {
        let dir = self.dir.as_ref().expect("taken only when the mount ends");
        dir.path().to_path_buf()
    }

    /// Unmounts and reports a failure: after success, everything that was written is in the image.
    pub(super) fn end(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        let Some(dir) = self.dir.take() else {
            return Ok(());
        };
        let result = unmount(dir.path());
        if result.is_err() {
            // Detached from the tree at least, so that removing the directory does not remove files of the image.
            let lazy = run("umount", &[OsStr::new("-l"), dir.path().as_os_str()]);
            if lazy.is_err() {
                let _kept_because_still_mounted = dir.keep();
            }
        }
        result
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("xtask: {error}");
        }
    }
}
