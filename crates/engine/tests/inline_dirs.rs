//! Directories that are kept in their inode, made by debugfs and the kernel: they are read, changed, moved, emptied and removed; e2fsck and the
//! kernel see the same names.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::kernel::mounted;
use common::names::{by_debugfs, by_diorite};
use common::{fsck, image, run, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_format::MapKind;
use std::path::{Path, PathBuf};

/// Directories without names, with a few, and with some that do not fit the inode's own field: these the kernel makes, if it may be asked.
const DIRS: [(&str, usize); 3] = [("none", 0), ("few", 2), ("more", 8)];

fn fill(tree: &Path, (name, count): (&str, usize)) {
    std::fs::create_dir_all(tree.join(name)).unwrap();
    for n in 0..count {
        std::fs::write(tree.join(format!("{name}/file-{n}")), b"x").unwrap();
    }
}

/// The image, and which directories are in it.
fn make(dir: &Path) -> (PathBuf, &'static [(&'static str, usize)]) {
    let tree = dir.join("tree");
    DIRS[..2].iter().for_each(|of| fill(&tree, *of));
    let args = ["-t", "ext4", "-b", "4096", "-I", "512", "-O", "inline_data"];
    let image = image(dir, "16M", &args, &tree);
    let by_kernel = mounted(&image, "rw", |at| fill(at, DIRS[2]));
    (image, &DIRS[..2 + usize::from(by_kernel)])
}

fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

fn is_inline(volume: &Volume, path: &str) -> bool {
    let ino = volume.resolve(path.as_bytes(), true).unwrap();
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    file.metadata().map_kind() == MapKind::Inline
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("file-{n}")).collect()
}

#[test]
fn names_come_and_go() {
    let dir = scratch();
    let (image, dirs) = make(dir.path());
    let volume = open(&image);
    for (name, count) in dirs.iter().copied() {
        let path = format!("/{name}");
        assert!(is_inline(&volume, &path), "{name}");
        assert!(by_diorite(&volume, &path).iter().eq(&names(count)));
        // What fails changes nothing but where the names are.
        let gone = volume.unlink(&format!("{path}/not there"));
        assert!(matches!(gone, Err(Error::NotFound { .. })));
        volume.create(&format!("{path}/new"), 0o644).unwrap();
        assert!(!is_inline(&volume, &path));
        if count > 0 {
            volume.unlink(&format!("{path}/file-0")).unwrap();
        }
    }
    volume.close().unwrap();
    fsck(&image);
    for (name, count) in dirs.iter().copied() {
        let mut expected = names(count);
        expected.push("new".to_owned());
        expected.retain(|n| n != "file-0");
        let found = by_debugfs(&image, &format!("/{name}/"));
        assert!(found.iter().eq(&expected), "{name}: {found:?}");
        mounted(&image, "ro", |at| {
            let all = std::fs::read_dir(at.join(name)).unwrap();
            assert_eq!(all.count(), expected.len());
        });
    }
}

#[test]
fn moved_and_removed_as_they_are() {
    let dir = scratch();
    let (image, _) = make(dir.path());
    let volume = open(&image);
    volume.mkdir("/new", 0o755).unwrap();
    let flags = RenameFlags::default();
    volume.rename("/few", "/new/few", flags).unwrap();
    assert!(is_inline(&volume, "/new/few"));
    let up = volume.resolve(b"/new/few/..", true).unwrap();
    assert_eq!(up, volume.resolve(b"/new", true).unwrap());
    assert!(matches!(volume.rmdir("/more"), Err(Error::NotEmpty { .. })));
    volume.rmdir("/none").unwrap();
    // From one into another.
    volume.mkdir("/other", 0o755).unwrap();
    volume
        .rename("/new/few/file-1", "/other/file-1", flags)
        .unwrap();
    volume.close().unwrap();
    fsck(&image);
}

/// Without a free block it stays where it is, with all its names.
#[test]
fn without_a_block() {
    let dir = scratch();
    let (image, _) = make(dir.path());
    let volume = open(&image);
    let mut n = 0;
    while volume
        .symlink(&"t".repeat(1000), &format!("/full-{n}"))
        .is_ok()
    {
        n += 1;
    }
    assert!(n > 1000);
    let made = volume.create("/few/new", 0o644);
    assert!(matches!(made, Err(Error::NoSpace { .. })), "{made:?}");
    assert!(is_inline(&volume, "/few"));
    volume.unlink("/full-0").unwrap();
    volume.create("/few/new", 0o644).unwrap();
    volume.close().unwrap();
    fsck(&image);
    let listed = run("debugfs", &["-R", "ls -l /few", image.to_str().unwrap()]);
    assert!(listed.contains("new") && listed.contains("file-1"));
}
