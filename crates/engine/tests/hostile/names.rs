//! Directories and directory indexes with cycles.

use crate::common::scratch;
use crate::common::watch::{Watchdog, resident};
use crate::{KINDS, LIMIT, Patient, Ward, block_of, ino_of, survive, victim};
use diorite::{OpenOptions, Volume};

/// Directories that contain themselves or their parents, and ".." entries that point anywhere: walking paths of any length ends.
#[test]
fn cyclic_directories() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let (name, args) = KINDS[1];
    let image = victim(dir.path(), name, args);
    let script = "link /sub /sub/deep/up\nlink /sub/deep /sub/deep/self\nlink / /sub/root\n";
    let path = dir.path().join("script");
    std::fs::write(&path, script).unwrap();
    let _ = xtask::run::tool("debugfs")
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
    // The "." and ".." in each directory's first block point to arbitrary inodes.
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

/// Indexes whose entries point to the root, to themselves, or to one leaf a hundred times, with hashes that all collide.
#[test]
fn cyclic_hash_trees() {
    let ward = Ward::new(1);
    let image = &ward.image;
    let patient = &ward.patient;
    let root = u64::from(block_of(image, "/big", 0)) * 1024;
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
                ward.survives(&label, &changes);
            }
        }
    }
}
