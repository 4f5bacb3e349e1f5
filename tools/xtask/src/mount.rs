//! What it is: unmounts, and whether a failed mount is due to this machine or to the image.
//! Input: where an image is mounted; an image, and the options of its mount. Output: the image, free again; whether the kernel mounts a
//! new image with the same features, with these options. Invariant: nothing stays mounted, and no loop device holds the image. Limit: a
//! kernel that knows a feature may still refuse what a larger image needs of it.

use crate::error::Result;
use crate::loopback::Held;
use crate::run::{run, tool};
use std::path::Path;
use std::time::Duration;

/// Does the kernel mount a new image with the features and sizes of this one? If so, it refuses this one for its contents. Also true if
/// the superblock cannot be read.
///
/// # Panics
/// If the new image stays mounted.
#[must_use]
pub fn mounts_one_like(image: &Path, options: &str) -> bool {
    let told = tool("dumpe2fs").arg("-h").arg(image).output();
    let Some(told) = told.ok().filter(|out| out.status.success()) else {
        return true;
    };
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let field = |name: &str| {
        let lines = told.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(field, _)| *field == name);
        found.next().map_or("", |(_, value)| value.trim())
    };
    // A volume has these only while it is in use.
    let of_use = ["needs_recovery", "orphan_present"];
    let names = field("Filesystem features").split_whitespace();
    let names: Vec<&str> = names.filter(|name| !of_use.contains(name)).collect();
    let dir = tempfile::tempdir().expect("a scratch folder");
    let (like, at) = (dir.path().join("like"), dir.path().join("mnt"));
    std::fs::create_dir(&at).expect("a folder in it");
    let made = tool("mke2fs")
        .args(["-q", "-F", "-O", &format!("none,{}", names.join(","))])
        .args(["-b", field("Block size"), "-I", field("Inode size")])
        .arg(&like)
        .arg("64M")
        .output();
    if !made.is_ok_and(|out| out.status.success()) {
        return false;
    }
    let mounted = tool("mount")
        .args(["-t", "ext4", "-o", options])
        .args([&like, &at])
        .output();
    let mounts = mounted.is_ok_and(|out| out.status.success());
    if mounts {
        unmount(&at).expect("nothing uses it");
    }
    mounts
}

/// `umount`, and waits until the loop device below has released its image. Retries: between its fork and its exec, a child of another
/// thread holds every file that is open here, and the mount is busy for that moment.
///
/// # Errors
/// It is still busy after a second, or the loop device keeps its file.
pub fn unmount(at: &Path) -> Result<()> {
    const TRIES: usize = 50;
    let held = Held::below(at);
    let mut unmounted = run("umount", &[at]);
    for _ in 1..TRIES {
        if unmounted.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        unmounted = run("umount", &[at]);
    }
    unmounted.and_then(|_| held.released())
}
