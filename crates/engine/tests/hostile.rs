//! Hostile images: whatever the bytes are, an error or data, never a panic, a hang, or memory without bound.
//!
//! `DIORITE_HOSTILE_IMAGES` makes the campaigns longer. Each image has a seed of its own, printed when it fails.
#![allow(clippy::unwrap_used)]

mod common;

use common::stage::{Stage, mem_of};
use common::walk::{Walked, open_and_walk};
use common::watch::{Watchdog, resident};
use common::{Rng, run, scaled, scratch};
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_block::{Buf, MemDevice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
/// More than this, beyond what the test itself holds, is memory without bound.
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
    // A tree of depth: every other block of the file is a hole.
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
    // Directories get their hash trees.
    let _ = std::process::Command::new("e2fsck")
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
    let now = resident().saturating_sub(base);
    assert!(now < MOST_MEMORY, "{label}: {} MiB", now >> 20);
    walked
}

#[test]
fn a_sound_image_is_walked_whole() {
    let dir = scratch();
    for (name, args) in KINDS {
        let image = victim(dir.path(), name, args);
        let walked = open_and_walk(Arc::new(mem_of(&std::fs::read(&image).unwrap())));
        assert!(
            walked.opened && walked.inodes > 320 && walked.bytes > 100_000,
            "{name}: {walked:?}"
        );
    }
}

#[test]
fn truncated_images() {
    let mut rng = Rng::from_env("truncated");
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    for (name, args) in KINDS {
        let bytes = std::fs::read(victim(dir.path(), name, args)).unwrap();
        let base = resident();
        let mut lengths: Vec<usize> = (0..24).map(|n| n * 512).collect();
        lengths.extend((0..40).map(|_| rng.below(bytes.len() as u64) as usize));
        lengths.extend([bytes.len() - 1, bytes.len() - 512, bytes.len() - 1024]);
        for len in lengths {
            let label = format!("{name} cut at {len}");
            let walked = survive(&watchdog, &label, base, || {
                open_and_walk(Arc::new(mem_of(&bytes[..len])))
            });
            assert!(
                !walked.opened || len + 511 >= bytes.len(),
                "{label}: it opened"
            );
            // The same length by the device, the rest zeros: what a lost tail looks like.
            survive(&watchdog, &format!("{name} zeros from {len}"), base, || {
                let mut cut = bytes.clone();
                cut[len..].fill(0);
                open_and_walk(Arc::new(mem_of(&cut)))
            });
        }
    }
}

/// A victim in memory that is damaged and repaired again and again.
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

    /// Writes `changes`, walks, and writes back what was there.
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

fn mutate(patient: &Patient, rng: &mut Rng) -> Vec<(u64, Vec<u8>)> {
    (0..1 + rng.below(4))
        .map(|_| {
            // Half of it where the structures are: the first 300 KiB.
            let sector = if rng.below(2) == 0 {
                patient.busy[rng.below(patient.busy.len().min(400) as u64) as usize]
            } else {
                patient.busy[rng.below(patient.busy.len() as u64) as usize]
            };
            let at = sector * 512 + rng.below(508);
            let old = &patient.bytes[at as usize..][..4];
            let new = match rng.below(6) {
                0 | 1 => vec![old[0] ^ 1 << rng.below(8)],
                2 => vec![rng.next() as u8],
                3 => (at / 1024).to_le_bytes()[..4].to_vec(),
                4 => [[0; 4], [0xff; 4], [0, 0, 0, 0x80], [1, 0, 0, 0]][rng.below(4) as usize]
                    .to_vec(),
                _ => (rng.below(6000) as u32).to_le_bytes().to_vec(),
            };
            let at = if new.len() == 4 { at & !3 } else { at };
            (at, new)
        })
        .collect()
}

#[test]
fn flipped_bits() {
    let images = scaled("DIORITE_HOSTILE_IMAGES", 600);
    let first = Rng::from_env("flipped").next();
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    for (name, args) in KINDS {
        let patient = Patient::new(&victim(dir.path(), name, args));
        let (base, mut opened) = (resident(), 0);
        for n in 0..images {
            let seed = first.wrapping_add(n);
            let changes = mutate(&patient, &mut Rng::new(seed));
            let label = format!("{name}, image {n} ({changes:x?})");
            let walked = survive(&watchdog, &label, base, || patient.try_with(&changes));
            opened += u64::from(walked.opened);
        }
        eprintln!("{name}: {opened} of {images} opened");
    }
}

/// Absurd counts: every word of the superblock, of the group descriptors and of the inodes in use, one at a time.
#[test]
fn absurd_words() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let stride = scaled("DIORITE_HOSTILE_STRIDE", 3);
    for (name, args) in &KINDS[1..] {
        let image = victim(dir.path(), name, args);
        let patient = Patient::new(&image);
        let base = resident();
        let mut words: Vec<u64> = (1024..1024 + 400).step_by(4).collect();
        words.extend((2048..2048 + 64).step_by(4));
        for ino in [2, 8, 11, 12, 13, 14, 20, 30] {
            let at = inode_at(&image, ino);
            words.extend((at..at + 160).step_by(4));
        }
        for (n, at) in words.into_iter().enumerate() {
            let values = [0, 1, 0x7fff_ffff, u32::MAX, 0x0001_0000, 0xffff];
            for (m, value) in values.iter().enumerate() {
                if (n + m) as u64 % stride != 0 {
                    continue;
                }
                let change = [(at, value.to_le_bytes().to_vec())];
                let label = format!("{name}: {value:#x} at {at:#x}");
                survive(&watchdog, &label, base, || patient.try_with(&change));
            }
        }
    }
}

/// Where an inode lies in the image, as debugfs says.
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

/// A block that holds data of `path`.
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

fn header(entries: u16, max: u16, depth: u16) -> Vec<u8> {
    [0xf30a, entries, max, depth, 0, 0]
        .iter()
        .flat_map(|v: &u16| v.to_le_bytes())
        .collect()
}

fn index(block: u32, leaf: u32) -> Vec<u8> {
    [block, leaf, 0]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect()
}

fn extent(block: u32, len: u16, start: u32) -> Vec<u8> {
    [
        block.to_le_bytes().to_vec(),
        len.to_le_bytes().to_vec(),
        vec![0, 0],
        start.to_le_bytes().to_vec(),
    ]
    .concat()
}

/// Extent trees that go in circles, lie about their depth, or whose children claim other ranges than their parents say.
#[test]
fn cyclic_extent_trees() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let (name, args) = KINDS[1];
    let image = victim(dir.path(), name, args);
    let patient = Patient::new(&image);
    let base = resident();
    let root = inode_at(&image, ino_of(&image, "/sub/deep/other")) + 0x28;
    let node = block_of(&image, "/sub/deep/other", 3);
    let second = block_of(&image, "/sub/deep/other", 4);
    let at = |b: u32| u64::from(b) * 1024;
    for root_depth in [1, 2, 3, 4, 5, 6, 65535] {
        for node_depth in [0, 1, 2, 3, 4, 5, 65535] {
            for (first, entries) in [(0, 1), (0, 84), (1000, 2), (u32::MAX, 3)] {
                let mut child = header(entries, 84, node_depth);
                for n in 0..u32::from(entries) {
                    let b = first.saturating_add(n);
                    // To itself, to the other node, and so in circles.
                    child.extend(index(b, if n % 2 == 0 { node } else { second }));
                }
                let changes = [
                    (root, [header(1, 4, root_depth), index(0, node)].concat()),
                    (at(node), child.clone()),
                    (at(second), child),
                ];
                let label =
                    format!("depths {root_depth}, {node_depth}, {entries} entries from {first}");
                survive(&watchdog, &label, base, || patient.try_with(&changes));
                for (at, new) in &changes {
                    patient.device.write_at(*at, new);
                }
                let volume =
                    Volume::open_device(patient.device.clone(), &OpenOptions::default()).unwrap();
                let file = volume.open_path("/sub/deep/other", OpenFlags::default());
                let read = file.and_then(|f| f.read_at(0, Buf::zeroed(49_152)).1);
                // A child that begins later than its parent says leaves a hole before it.
                let hole = first > 0 && read.as_ref().is_ok_and(|n| *n > 0);
                assert!(
                    hole || read.as_ref().is_err_and(Error::is_corrupt),
                    "{label}: {read:?}"
                );
                drop(volume);
                for (at, new) in &changes {
                    patient
                        .device
                        .write_at(*at, &patient.bytes[*at as usize..][..new.len()]);
                }
            }
        }
    }
}

/// Extents (and pointers) over the volume's own structures are corrupt, on read and on write, and nothing is written.
#[test]
fn data_over_metadata() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    for (name, args) in [KINDS[1], KINDS[3]] {
        let image = victim(dir.path(), name, args);
        let ino = ino_of(&image, "/sub/deep/other");
        let root = inode_at(&image, ino) + 0x28;
        let table = inode_at(&image, 1) / 1024;
        let journal = run("debugfs", &["-R", "bmap <8> 700", image.to_str().unwrap()]);
        let journal: u64 = journal.lines().next().unwrap().trim().parse().unwrap();
        let bitmaps = run("debugfs", &["-R", "stats", image.to_str().unwrap()]);
        let number = |key: &str| -> u64 {
            let rest = bitmaps.split(key).nth(1).unwrap();
            let digits: String = rest
                .chars()
                .skip_while(|c| !c.is_ascii_digit())
                .take_while(char::is_ascii_digit)
                .collect();
            digits.parse().unwrap()
        };
        let places = [
            ("superblock", 1),
            ("descriptors", 2),
            ("reserved descriptors", 10),
            ("block bitmap", number("block bitmap at")),
            ("inode bitmap", number("inode bitmap at")),
            ("inode table", table),
            ("inode table's end", inode_at(&image, 200) / 1024),
            ("journal", journal),
        ];
        for (what, block) in places {
            for before in [0, 1] {
                let label = format!("{name}: {what}, block {block} - {before}");
                watchdog.feed(&label);
                let start = block as u32 - before;
                let map = if name == "no-csum" {
                    [header(1, 4, 0), extent(0, 2, start)].concat()
                } else {
                    [start, start + 1]
                        .iter()
                        .flat_map(|b| b.to_le_bytes())
                        .collect()
                };
                let mut bytes = std::fs::read(&image).unwrap();
                bytes[root as usize..][..map.len()].copy_from_slice(&map);
                let bad = dir.path().join("bad");
                std::fs::write(&bad, &bytes).unwrap();
                let stage = Stage::mem(&bad);
                let volume = stage.open(&OpenOptions::writable()).unwrap();
                let flags = OpenFlags {
                    write: true,
                    ..OpenFlags::default()
                };
                let file = volume.open_path("/sub/deep/other", flags);
                let read = file.clone().and_then(|f| f.read_at(0, Buf::zeroed(2048)).1);
                let write = file.and_then(|f| f.write_at(0, Buf::zeroed(2048)).1);
                for result in [read, write] {
                    // The parser knows that no data lies before block 2; the rest is the map's to know.
                    let refused = result.as_ref().is_err_and(|e| match e.root() {
                        Error::BadMap(_) => true,
                        other => other.is_corrupt() && start < 2,
                    });
                    assert!(refused, "{label}: {result:?}");
                }
                drop(volume);
                assert!(stage.bytes() == bytes, "{label}: the image changed");
            }
        }
    }
}

/// Indirect blocks that point to themselves, on three levels, under a size that covers them: bounded reads end.
#[test]
fn indirect_blocks_that_point_to_themselves() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let (name, args) = KINDS[2];
    let image = victim(dir.path(), name, args);
    let patient = Patient::new(&image);
    let base = resident();
    let inode = inode_at(&image, ino_of(&image, "/sub/deep/other"));
    let node = block_of(&image, "/sub/deep/other", 3);
    let itself: Vec<u8> = (0..256).flat_map(|_| node.to_le_bytes()).collect();
    let pointers: Vec<u8> = (0..15).flat_map(|_| node.to_le_bytes()).collect();
    for size in [50_000u32, 1 << 20, 70 << 20, u32::MAX] {
        let changes = [
            (inode + 4, size.to_le_bytes().to_vec()),
            (inode + 0x28, pointers.clone()),
            (u64::from(node) * 1024, itself.clone()),
        ];
        survive(&watchdog, &format!("size {size}"), base, || {
            patient.try_with(&changes)
        });
    }
}

/// The journal's own map is walked when a volume is opened: an indirect block that points to itself under a huge size must not
/// make that long or large. A journal is no larger than its volume.
#[test]
fn a_journal_that_claims_to_be_huge() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let (name, args) = KINDS[3];
    let image = victim(dir.path(), name, args);
    let patient = Patient::new(&image);
    let base = resident();
    let inode = inode_at(&image, 8);
    let node = block_of(&image, "/sub/deep/other", 3);
    let itself: Vec<u8> = (0..256).flat_map(|_| node.to_le_bytes()).collect();
    for (low, high) in [(70 << 20, 0u32), (u32::MAX, 0), (0, 3), (0, u32::MAX)] {
        let changes = [
            (inode + 4, low.to_le_bytes().to_vec()),
            (inode + 0x6c, high.to_le_bytes().to_vec()),
            (
                inode + 0x28 + 12 * 4,
                [node, node, node]
                    .iter()
                    .flat_map(|b: &u32| b.to_le_bytes())
                    .collect(),
            ),
            (u64::from(node) * 1024, itself.clone()),
        ];
        let label = format!("journal size {low:#x} {high:#x}");
        survive(&watchdog, &label, base, || patient.try_with(&changes));
    }
}

/// Directories that contain themselves and their parents, ".." that goes anywhere: paths of any length end.
#[test]
fn cyclic_directories() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let (name, args) = KINDS[1];
    let image = victim(dir.path(), name, args);
    let script = "link /sub /sub/deep/up\nlink /sub/deep /sub/deep/self\nlink / /sub/root\n";
    let path = dir.path().join("script");
    std::fs::write(&path, script).unwrap();
    let _ = std::process::Command::new("debugfs")
        .args(["-w", "-f", path.to_str().unwrap(), image.to_str().unwrap()])
        .output();
    let patient = Patient::new(&image);
    let base = resident();
    let walked = survive(&watchdog, "linked", base, || patient.try_with(&[]));
    assert!(walked.opened);
    let volume = Volume::open_device(patient.device.clone(), &OpenOptions::default()).unwrap();
    let deep = format!("/sub/{}other", "deep/self/up/".repeat(2000));
    watchdog.feed("a long path through the circle");
    let _ = volume.resolve(deep.as_bytes(), true);
    let _ = volume.resolve("../".repeat(10_000).as_bytes(), true);
    // Each directory's first block: "." and ".." point anywhere.
    for path in ["/", "/sub", "/sub/deep", "/big"] {
        let block = u64::from(block_of(&image, path, 0)) * 1024;
        for target in [
            0u32,
            1,
            2,
            8,
            11,
            12,
            ino_of(&image, "/sub/deep"),
            100_000,
            u32::MAX,
        ] {
            for entry in [0, 12] {
                let change = [(block + entry, target.to_le_bytes().to_vec())];
                let label = format!("{path}: entry at {entry} goes to {target}");
                survive(&watchdog, &label, base, || patient.try_with(&change));
            }
        }
    }
}

/// Hash trees whose entries point to the root, to themselves, to one leaf a hundred times, with hashes that all collide.
#[test]
fn cyclic_hash_trees() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let (name, args) = KINDS[1];
    let image = victim(dir.path(), name, args);
    let patient = Patient::new(&image);
    let base = resident();
    let root = u64::from(block_of(&image, "/big", 0)) * 1024;
    assert_eq!(
        patient.bytes[root as usize + 0x1d],
        8,
        "the directory has a hash tree"
    );
    for levels in [0u8, 1, 2, 3, 255] {
        for (count, block) in [
            (2u16, 0u32),
            (2, 1),
            (100, 1),
            (100, 2),
            (124, 0),
            (500, 1),
            (100, u32::MAX),
        ] {
            for step in [0u32, 1, 2] {
                let mut entries = 124u16.to_le_bytes().to_vec();
                entries.extend(count.to_le_bytes());
                entries.extend(block.to_le_bytes());
                for n in 1..u32::from(count.min(124)) {
                    let hash = if step == 0 {
                        1
                    } else {
                        (n * step) | u32::from(step == 1)
                    };
                    entries.extend(hash.to_le_bytes());
                    entries.extend(block.to_le_bytes());
                }
                let changes = [(root + 0x1e, vec![levels]), (root + 0x20, entries)];
                let label = format!("levels {levels}, {count} entries to {block}, step {step}");
                survive(&watchdog, &label, base, || patient.try_with(&changes));
            }
        }
    }
}
