//! The kernel's ext4 on an image, for those who may mount.

use super::{run, scratch};
use std::path::Path;
use std::process::Command;

/// Mounts the image and lets `look` see it; false, with the reason printed, where that is not to be had.
pub fn mounted(image: &Path, options: &str, look: impl FnOnce(&Path)) -> bool {
    let at = scratch();
    let (from, to) = (image.to_str().unwrap(), at.path().to_str().unwrap());
    let options = format!("loop,{options}");
    let out = Command::new("mount")
        .args(["-t", "ext4", "-o", &options, from, to])
        .output();
    match out {
        Ok(out) if out.status.success() => {}
        other => {
            eprintln!("skipped: the kernel's mount: {other:?}");
            return false;
        }
    }
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(at.path())));
    run("umount", &[to]);
    seen.unwrap();
    true
}
