//! The kernel's ext4 on an image, for those who may mount.

use super::{run, scratch};
use std::path::Path;

/// Mounts the image and lets `look` see it; false, with the reason printed, where that is not to be had.
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

/// Says why the kernel's view of an image is missing, which it was to have with these options.
///
/// # Panics
/// If it is missing because of the image: the kernel mounts a new one that is like it.
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

/// A process that another thread is just starting may hold a file there for an instant.
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

/// The kernel lets go of a loop device some time after the unmount: until then its image is held.
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
