//! Tests of the room, on images of many kinds whose free space is filled with a pattern, so that e2fsck notices blocks never initialised.
//!
//! Input: mke2fs arguments. Output: an open volume, and what `dumpe2fs` says of the image when it is closed or settled. Invariants: the
//! image is clean by e2fsck before it is opened. Limits: the tools are those installed.

mod cases;
mod faults;
mod model;
mod swapped;
mod threads;

use crate::options::OpenOptions;
use crate::volume::Volume;
use std::path::PathBuf;
use std::time::Duration;

/// One kind of volume.
pub(super) struct Kind {
    name: &'static str,
    args: &'static str,
    size: &'static str,
}

const KINDS: [Kind; 9] = [
    kind("ext4", "-t ext4 -b 4096 -g 4096", "96M"),
    kind("1k", "-t ext4 -b 1024 -J size=4", "48M"),
    kind(
        "lazy",
        "-t ext4 -b 1024 -J size=4 -N 16384 -E lazy_itable_init=1",
        "61M",
    ),
    kind(
        "no-flex",
        "-t ext4 -b 1024 -O ^flex_bg,^has_journal -E lazy_itable_init=1",
        "44M",
    ),
    kind(
        "bigalloc",
        "-t ext4 -b 1024 -O bigalloc -C 4096 -J size=4",
        "67111K",
    ),
    kind("ext2", "-t ext2 -b 1024", "33M"),
    kind("ext3", "-t ext3 -b 4096 -g 2048", "64M"),
    kind(
        "meta-bg",
        "-t ext4 -b 1024 -O meta_bg,^resize_inode -J size=4 -g 1024",
        "48M",
    ),
    kind(
        "gdt-csum",
        "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit -J size=4 -E lazy_itable_init=1",
        "40M",
    ),
];

const fn kind(name: &'static str, args: &'static str, size: &'static str) -> Kind {
    Kind { name, args, size }
}

/// An image in a directory that goes away with it.
pub(super) struct Image {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Image {
    fn new(kind: &Kind) -> Image {
        let dir = xtask::run::scratch();
        let path = dir.path().join(kind.name);
        let kib: usize = match kind.size.strip_suffix('M') {
            Some(mib) => mib.parse::<usize>().unwrap() * 1024,
            None => kind.size.trim_end_matches('K').parse().unwrap(),
        };
        std::fs::write(&path, vec![0xA5; kib * 1024]).unwrap();
        let image = Image { path, _dir: dir };
        let args: Vec<&str> = kind.args.split(' ').collect();
        let path = image.path.to_str().unwrap();
        let nodiscard = ["-q", "-F", "-E", "nodiscard"];
        run(
            "mke2fs",
            &[&nodiscard, &args[..], &[path, kind.size]].concat(),
        );
        image.fsck();
        image
    }

    fn of(name: &str) -> Image {
        Image::new(KINDS.iter().find(|k| k.name == name).unwrap())
    }

    fn open(&self) -> Volume {
        self.open_with(16 << 20)
    }

    /// With so many bytes of metadata in memory; commits come only when they are asked for.
    fn open_with(&self, metadata_cache: usize) -> Volume {
        let options = OpenOptions {
            metadata_cache,
            commit_interval: Duration::from_secs(3600),
            ..OpenOptions::writable()
        };
        Volume::open(self.path.to_str().unwrap(), &options).unwrap()
    }

    fn fsck(&self) {
        run("e2fsck", &["-fn", self.path.to_str().unwrap()]);
    }

    fn dump(&self) -> Dump {
        Dump::parse(&run("dumpe2fs", &[self.path.to_str().unwrap()]))
    }
}

/// Runs a tool; panics with its output if it fails.
fn run(program: &str, args: &[&str]) -> String {
    let out = xtask::run::tool(program).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {text}{errors}");
    text
}

/// What `dumpe2fs` says is free.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Dump {
    /// As the superblock says.
    blocks: u64,
    inodes: u32,
    /// Per group, as the descriptor says: free clusters, free inodes, directories.
    counts: Vec<(u64, u32, u32)>,
    /// As the bitmaps say, first and last.
    free_blocks: Vec<(u64, u64)>,
    free_inodes: Vec<(u64, u64)>,
}

impl Dump {
    fn parse(text: &str) -> Dump {
        let mut dump = Dump::default();
        for line in text.lines() {
            if let Some(count) = line.strip_prefix("Free blocks:") {
                dump.blocks = count.trim().parse().unwrap();
            } else if let Some(count) = line.strip_prefix("Free inodes:") {
                dump.inodes = count.trim().parse().unwrap();
            } else if let Some(runs) = line.strip_prefix("  Free blocks: ") {
                dump.free_blocks.extend(ranges(runs));
            } else if let Some(runs) = line.strip_prefix("  Free inodes: ") {
                dump.free_inodes.extend(ranges(runs));
            } else if line.contains(" free inodes, ") {
                let mut words = line.split_whitespace();
                let mut next = |skip| words.nth(skip).unwrap();
                let (clusters, inodes, dirs) = (next(0), next(2), next(2));
                let counts = (clusters.parse().unwrap(), inodes.parse().unwrap());
                dump.counts
                    .push((counts.0, counts.1, dirs.parse().unwrap()));
            }
        }
        dump
    }
}

fn ranges(text: &str) -> Vec<(u64, u64)> {
    let number = |n: &str| n.trim().parse().unwrap();
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => (number(first), number(last)),
        None => (number(part), number(part)),
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(range).collect()
}

/// Blocks that freeing `len` blocks in a row changes at most: a bitmap and a descriptor in every group that they touch.
fn free_credits(sb: &diorite_format::Superblock, len: u32) -> u32 {
    (len / sb.geometry().blocks_per_group() + 2).min(sb.group_count()) * super::MARK_CREDITS
}
