//! The first file of 2 GiB or more on a volume: the superblock gets ro_compat large_file in the same transaction.

use crate::common::fixture::{DSYNC, writable};
use crate::common::stage::Stage;
use crate::common::{fsck, image, run, scratch};
use diorite::{Fallocate, File, Op, OpenOptions, Volume};
use diorite_block::{Buf, SimOptions};
use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;
/// Without resize_inode, since that inode is itself a large file.
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

/// A sparse file of 3 GiB by a write, an append, a truncation or an allocation; a file one byte below 2 GiB does not set the
/// feature.
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
            // Without extents there is no preallocation.
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
            // The feature stays set when the file becomes small.
            change(&image, |file| file.truncate(5).unwrap());
            assert!(says_so(&image), "{args:?}");
        }
    }
}

/// A power cut right after the size is durable: the feature is, too.
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
        // Only replays the journal; the check after it would find anything else that is wrong.
        run(
            "e2fsck",
            &["-y", "-E", "journal_only", cut.to_str().unwrap()],
        );
        assert!(says_so(&cut), "{args:?}");
        change(&cut, |file| assert_eq!(file.size(), 3 * GIB + 4096));
    }
}
