//! Hostile images: whatever the bytes are, the result is an error or data, never a panic, a hang, or unbounded memory.
//!
//! `DIORITE_HOSTILE_IMAGES` makes the tests longer. Each image has a seed of its own, printed when it fails.
//!
//! | file | what is damaged |
//! |---|---|
//! | `bytes` | truncated images, random bit flips, words with absurd values |
//! | `maps` | maps with cycles or wrong fields, data over the volume's own structures |
//! | `names` | directories and directory indexes with cycles |
//! | `structures` | the volume's own structures in each other's blocks |
//! | `again` | directories that map the same blocks again and again |
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod again;
mod bytes;
mod maps;
mod names;
mod structures;

use common::stage::mem_of;
use common::walk::{Walked, open_and_walk};
use common::watch::{Watchdog, most_resident, resident};
use common::{Rng, run, scratch};
use diorite_block::MemDevice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);
/// More memory than this, beyond what the test itself holds, counts as unbounded.
const MOST_MEMORY: u64 = 200 << 20;

const KINDS: [(&str, &[&str]); 6] = [
    (
        "csum",
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit"],
    ),
    (
        "no-csum",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit"],
    ),
    ("ext2", &["-t", "ext2", "-b", "1024"]),
    ("ext3", &["-t", "ext3", "-b", "1024"]),
    (
        "inline",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "^metadata_csum,inline_data,ea_inode",
        ],
    ),
    (
        "bigalloc",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,bigalloc,meta_bg,^resize_inode",
            "-C",
            "4096",
        ],
    ),
];

/// A small image with one of everything.
fn victim(dir: &Path, name: &str, args: &[&str]) -> PathBuf {
    let (source, out) = (dir.join("source"), dir.join(name));
    if !source.exists() {
        std::fs::create_dir_all(source.join("dir")).unwrap();
        std::fs::create_dir_all(source.join("big")).unwrap();
        std::fs::create_dir_all(source.join("sub/deep")).unwrap();
        for n in 0..20 {
            std::fs::write(source.join(format!("dir/name{n}")), vec![n as u8; 300 * n]).unwrap();
        }
        for n in 0..300 {
            std::fs::write(source.join(format!("big/name{n}")), b"").unwrap();
        }
        let mut file = vec![0; 400 << 10];
        Rng::new(3).fill(&mut file);
        std::fs::write(source.join("file"), &file).unwrap();
        std::fs::write(source.join("sub/deep/other"), &file[..50_000]).unwrap();
        std::os::unix::fs::symlink("sub/deep/other", source.join("link")).unwrap();
        std::os::unix::fs::symlink("x/".repeat(60), source.join("long")).unwrap();
        std::os::unix::fs::symlink("loop", source.join("loop")).unwrap();
    }
    std::fs::create_dir_all(&out).unwrap();
    let image = common::image(&out, "5M", args, &source);
    let mut script = String::new();
    // A tree with nodes: every other block of the file is a hole.
    if !matches!(name, "ext2" | "ext3" | "bigalloc") {
        (0..400)
            .step_by(2)
            .for_each(|n| script.push_str(&format!("punch /file {n} {n}\n")));
    }
    script.push_str("ea_set /file user.small value\n");
    let big = dir.join("value");
    std::fs::write(&big, "v".repeat(700)).unwrap();
    script.push_str(&format!("ea_set -f {} /file user.large\n", big.display()));
    common::recipe::debugfs(&image, dir, &script);
    // Makes the indexes of directories.
    let _ = xtask::run::tool("e2fsck")
        .args(["-fyD", image.to_str().unwrap()])
        .output();
    common::fsck(&image);
    image
}

/// Runs `walk` under the watchdog; a panic or too much memory fails with the label.
fn survive(watchdog: &Watchdog, label: &str, base: u64, walk: impl FnOnce() -> Walked) -> Walked {
    watchdog.feed(label);
    let walked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk));
    let Ok(walked) = walked else {
        panic!("it panicked: {label}");
    };
    // The peak, not what is left: memory that was freed again counts, too.
    let now = most_resident().saturating_sub(base);
    assert!(now < MOST_MEMORY, "{label}: {} MiB", now >> 20);
    walked
}

/// The offset of an inode in the image, according to debugfs.
fn inode_at(image: &Path, ino: u32) -> u64 {
    let text = run(
        "debugfs",
        &["-R", &format!("imap <{ino}>"), image.to_str().unwrap()],
    );
    let after = |key: &str| text.split(key).nth(1).unwrap().trim_start().to_owned();
    let block: u64 = after("at block")
        .split(',')
        .next()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let offset = after("offset 0x");
    let offset = u64::from_str_radix(offset.split_whitespace().next().unwrap(), 16).unwrap();
    block * 1024 + offset
}

fn ino_of(image: &Path, path: &str) -> u32 {
    let text = run(
        "debugfs",
        &["-R", &format!("stat {path}"), image.to_str().unwrap()],
    );
    text.split("Inode:")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// The block with this block of data of `path`.
fn block_of(image: &Path, path: &str, block: u32) -> u32 {
    let text = run(
        "debugfs",
        &[
            "-R",
            &format!("bmap {path} {block}"),
            image.to_str().unwrap(),
        ],
    );
    text.lines().next().unwrap().trim().parse().unwrap()
}

/// An image in memory that is damaged and restored for each case.
struct Patient {
    bytes: Vec<u8>,
    device: Arc<MemDevice>,
    /// Sectors that are not all zeros.
    busy: Vec<u64>,
}

impl Patient {
    fn new(image: &Path) -> Patient {
        let bytes = std::fs::read(image).unwrap();
        let busy = (0..bytes.len() as u64 / 512)
            .filter(|s| bytes[*s as usize * 512..][..512].iter().any(|b| *b != 0))
            .collect();
        Patient {
            device: Arc::new(mem_of(&bytes)),
            bytes,
            busy,
        }
    }

    /// Writes `changes`, walks the image, and restores the old bytes.
    fn try_with(&self, changes: &[(u64, Vec<u8>)]) -> Walked {
        for (at, new) in changes {
            self.device.write_at(*at, new);
        }
        let walked = open_and_walk(self.device.clone());
        for (at, new) in changes {
            self.device
                .write_at(*at, &self.bytes[*at as usize..][..new.len()]);
        }
        walked
    }
}

/// What a test of one image starts with.
struct Ward {
    _dir: TempDir,
    watchdog: Watchdog,
    image: PathBuf,
    patient: Patient,
    /// Resident memory, in bytes, before anything is tried.
    base: u64,
}

impl Ward {
    /// With the image of this one of [`KINDS`].
    fn new(kind: usize) -> Ward {
        let dir = scratch();
        let watchdog = Watchdog::new(LIMIT, "start");
        let (name, args) = KINDS[kind];
        let image = victim(dir.path(), name, args);
        let patient = Patient::new(&image);
        Ward {
            _dir: dir,
            watchdog,
            image,
            patient,
            base: resident(),
        }
    }

    /// Damages the image by these changes, walks it and restores it: see [`survive`].
    fn survives(&self, label: &str, changes: &[(u64, Vec<u8>)]) -> Walked {
        survive(&self.watchdog, label, self.base, || {
            self.patient.try_with(changes)
        })
    }
}
