//! The kernel's ext4 on an image, for users who may mount.

use super::scratch;
use std::path::Path;

/// Mounts the image and calls `look` on it. Returns false, with the reason printed, if it cannot be mounted here.
pub fn mounted(image: &Path, options: &str, look: impl FnOnce(&Path)) -> bool {
    let at = scratch();
    let (from, to) = (image.to_str().unwrap(), at.path().to_str().unwrap());
    let options = format!("loop,{options}");
    let out = xtask::run::tool("mount")
        .args(["-t", "ext4", "-o", &options, from, to])
        .output();
    match out {
        Ok(out) if out.status.success() => {}
        other => {
            not_mounted(image, &options, &other);
            return false;
        }
    }
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(at.path())));
    xtask::mount::unmount(at.path()).unwrap();
    seen.unwrap();
    true
}

/// Prints why the kernel's view of an image is missing, which was to be mounted with these options.
///
/// # Panics
/// The kernel refuses the image, and mounts a new one with the same features.
#[track_caller]
pub fn not_mounted(image: &Path, options: &str, tried: &impl std::fmt::Debug) {
    if !rustix::process::geteuid().is_root() {
        return xtask::skip::skipped("the kernel's mount needs root");
    }
    assert!(
        !xtask::mount::mounts_one_like(image, options),
        "the kernel refuses the image: {tried:?}"
    );
    xtask::skip::skipped(format_args!("the kernel's mount: {tried:?}"));
}
