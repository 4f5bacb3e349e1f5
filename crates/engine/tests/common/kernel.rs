//! The kernel's ext4 on an image, for users who may mount.

use super::{run, scratch};
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
    unmount(to);
    wait_for_loop(from);
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

/// Retries: a process that another thread is just starting may hold a file there for an instant.
fn unmount(at: &str) {
    for _ in 0..100 {
        let out = xtask::run::tool("umount").arg(at).output();
        if out.is_ok_and(|out| out.status.success()) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    run("umount", &[at]);
}

/// The kernel releases a loop device some time after the unmount, and holds the image until then.
fn wait_for_loop(image: &str) {
    let backs = || {
        let disks = std::fs::read_dir("/sys/block")
            .into_iter()
            .flatten()
            .flatten();
        let files = disks.map(|disk| disk.path().join("loop/backing_file"));
        files
            .filter_map(|file| std::fs::read_to_string(file).ok())
            .any(|file| file.trim_end() == image)
    };
    for _ in 0..500 {
        if !backs() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(4));
    }
}
