//! Files past 2 GiB on volumes that have had none: the superblock says so from the same transaction on (ro_compat large_file).
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::fixture::{DSYNC, writable};
use common::stage::Stage;
use common::{fsck, image, run, scratch};
use diorite::{Fallocate, File, Op, OpenOptions, Volume};
use diorite_block::{Buf, SimOptions};
use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;
/// A resize inode is itself a large file.
const KINDS: [&[&str]; 4] = [
    &[
        "-t",
        "ext2",
        "-b",
        "4096",
        "-O",
        "^large_file,^resize_inode",
    ],
    &[
        "-t",
        "ext3",
        "-b",
        "4096",
        "-O",
        "^large_file,^resize_inode",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "^large_file,^resize_inode,^huge_file",
    ],
    &["-t", "ext2", "-b", "4096", "-r", "0"],
];

fn made(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), b"").unwrap();
    image(dir, "64M", args, &tree)
}

fn says_so(image: &Path) -> bool {
    let text = run("dumpe2fs", &["-h", image.to_str().unwrap()]);
    let features = text.lines().find(|l| l.starts_with("Filesystem features:"));
    features
        .unwrap()
        .split_whitespace()
        .any(|w| w == "large_file")
}

fn change(image: &Path, change: impl FnOnce(&File)) {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    change(&file);
    drop(file);
    volume.close().unwrap();
    fsck(image);
}

/// A sparse file of 3 GiB comes by a write, an append, a truncation and an allocation; up to one byte less nothing is said.
#[test]
fn the_first_large_file_is_announced() {
    let ways: [fn(&File); 4] = [
        |file| assert_eq!(file.write_at(3 * GIB, Buf::zeroed(4096)).1.unwrap(), 4096),
        |file| file.truncate(2 * GIB).unwrap(),
        |file| {
            file.truncate(2 * GIB - 4096).unwrap();
            let append = file.call(Op::Append, 0, Buf::zeroed(4096), DSYNC);
            assert_eq!(append.1.unwrap(), 4096);
        },
        |file| {
            let mode = Fallocate::Allocate { keep_size: false };
            file.fallocate(mode, 3 * GIB, 8192).unwrap();
        },
    ];
    for args in KINDS {
        for (n, way) in ways.iter().enumerate() {
            // Without extents nothing is preallocated.
            if n == 3 && args[1] != "ext4" {
                continue;
            }
            let dir = scratch();
            let image = made(dir.path(), args);
            assert!(!says_so(&image), "{args:?}");
            change(&image, |file| file.truncate(2 * GIB - 1).unwrap());
            assert!(!says_so(&image), "{args:?}");
            change(&image, |file| {
                file.truncate(0).unwrap();
                way(file);
            });
            assert!(says_so(&image), "{args:?}, way {n}");
            // It stays, and is not written again and again.
            change(&image, |file| file.truncate(5).unwrap());
            assert!(says_so(&image), "{args:?}");
        }
    }
}

/// The power goes right after the size is durable: the feature is too.
#[test]
fn announced_in_the_same_transaction() {
    for args in &KINDS[1..3] {
        let dir = scratch();
        let image = made(dir.path(), args);
        let options = SimOptions::parse("0,cache=volatile,fua=no").unwrap();
        let stage = Stage::sim(&image, options);
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let file = volume.open_path("/file", writable()).unwrap();
        let (_, done) = file.call(Op::Write, 3 * GIB, Buf::zeroed(4096), DSYNC);
        assert_eq!(done.unwrap(), 4096);
        let cut = dir.path().join("cut");
        std::fs::write(&cut, stage.bytes()).unwrap();
        // The journal only; whatever else were wrong would be found by the check after it.
        run(
            "e2fsck",
            &["-y", "-E", "journal_only", cut.to_str().unwrap()],
        );
        assert!(says_so(&cut), "{args:?}");
        change(&cut, |file| assert_eq!(file.size(), 3 * GIB + 4096));
    }
}
