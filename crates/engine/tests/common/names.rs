//! The names in a directory as found by debugfs, and by the kernel where mounting is allowed.
//!
//! Input: an image that nobody has open. Output: names. Invariants: neither changes the image. Limits: names without a slash or a
//! newline; the kernel is asked only by root with loop devices.

use super::kernel::mounted;
use super::{image, run, scratch};
use diorite::{OpenFlags, OpenOptions, Volume};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The names in a directory as debugfs lists them, without "." and "..".
pub fn by_debugfs(image: &Path, dir: &str) -> BTreeSet<String> {
    let listed = run(
        "debugfs",
        &["-R", &format!("ls -p {dir}"), image.to_str().unwrap()],
    );
    let names = listed.lines().filter_map(|line| line.split('/').nth(5));
    let shown = |name: &&str| !name.is_empty() && *name != "." && *name != "..";
    names.filter(shown).map(str::to_owned).collect()
}

/// The names as the kernel lists them, if it can mount the image. Each name is looked up, too.
pub fn by_kernel(image: &Path, dir: &str) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mounted = mounted(image, "ro", |at| {
        for entry in std::fs::read_dir(at.join(dir.trim_start_matches('/'))).unwrap() {
            let entry = entry.unwrap();
            std::fs::symlink_metadata(entry.path()).unwrap();
            assert!(names.insert(entry.file_name().into_string().unwrap()));
        }
    });
    mounted.then_some(names)
}

/// The names as diorite lists them; asserts that each is listed once.
pub fn by_diorite(volume: &Volume, dir: &str) -> BTreeSet<String> {
    let ino = volume.resolve(dir.as_bytes(), true).unwrap();
    let mut names = BTreeSet::new();
    for entry in volume.read_dir(ino).unwrap() {
        let name = String::from_utf8(entry.unwrap().name).unwrap();
        assert!(names.insert(name.clone()), "{name} twice");
    }
    assert!(names.remove(".") && names.remove(".."));
    names
}

/// Has the directory an index (htree), according to its inode's flags?
pub fn is_hashed(volume: &Volume, dir: &str) -> bool {
    let ino = volume.resolve(dir.as_bytes(), true).unwrap();
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    file.metadata().flags.has(diorite_format::InodeFlags::INDEX)
}

pub fn open(image: &Path, write: bool) -> Volume {
    let options = match write {
        true => OpenOptions::writable(),
        false => OpenOptions::default(),
    };
    Volume::open(image.to_str().unwrap(), &options).unwrap()
}

/// An empty image in a scratch directory, and its volume, open for writing.
pub fn fresh(size: &str, args: &[&str]) -> (tempfile::TempDir, PathBuf, Volume) {
    let dir = scratch();
    let image = empty(dir.path(), size, args);
    let volume = open(&image, true);
    (dir, image, volume)
}

/// The bytes of a new empty image.
pub fn empty_bytes(size: &str, args: &[&str]) -> Vec<u8> {
    let dir = scratch();
    std::fs::read(empty(dir.path(), size, args)).unwrap()
}

pub fn empty(dir: &Path, size: &str, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    image(dir, size, args, &tree)
}
