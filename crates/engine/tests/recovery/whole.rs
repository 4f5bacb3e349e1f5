//! Undamaged logs: made by debugfs, and left by the kernel.

use crate::common::log::{Log, MAGIC};
use crate::common::stage::mem_of;
use crate::common::{Rng, debugfs_script, fsck, run, scratch};
use crate::recovery::{by_e2fsck, compare, in_memory, mke2fs, on_disk, same};
use diorite::{OpenOptions, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::Event;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// Five transactions: with copies that need escaping, copies of the same block, revocations, and new copies of revoked blocks; the
/// last one has no commit block.
pub(crate) fn written_by_debugfs(dir: &Path, block: usize, features: &str, open: &str) -> Vec<u8> {
    let size = block.to_string();
    let image = mke2fs(dir, &["-b", &size, "-O", features], "24M");
    let mut script = format!("{open}\n");
    let far = 20 * 1024 * 1024 / block;
    let mut write = |name: &str, count: usize, args: &str| {
        let mut data = vec![0; count * block];
        Rng::new(count as u64).fill(&mut data);
        data[..4].copy_from_slice(&MAGIC.to_be_bytes());
        let path = dir.join(name);
        std::fs::write(&path, &data).unwrap();
        writeln!(script, "jw {args} {}", path.display()).unwrap();
    };
    let list = |from: usize, count: usize| {
        let names: Vec<String> = (far + from..far + from + count)
            .map(|n| n.to_string())
            .collect();
        names.join(",")
    };
    // With v2 tags debugfs writes a second descriptor that cannot be read, so the first one must hold all tags.
    let first = if open.ends_with("-v 2") { 60 } else { 200 };
    write("d1", first, &format!("-b {}", list(0, first)));
    write("d2", 3, &format!("-b {}", list(2, 3)));
    // debugfs includes revocations in the checksum of v1 commits, which recovery does not expect: the log ends there.
    writeln!(script, "jw -r {}", list(10, 5)).unwrap();
    let mut write = |name: &str, count: usize, args: &str| {
        let data = vec![count as u8; count * block];
        let path = dir.join(name);
        std::fs::write(&path, &data).unwrap();
        writeln!(script, "jw {args} {}", path.display()).unwrap();
    };
    write("d3", 2, &format!("-b {}", list(12, 2)));
    write("d4", 7, &format!("-c -b {}", list(100, 7)));
    script.push_str("jc\n");
    // What it prints is not checked: the comparison with e2fsck judges the result.
    debugfs_script(&image, &script);
    std::fs::read(image).unwrap()
}

#[test]
fn logs_written_by_debugfs() {
    let dir = scratch();
    for block in [1024, 4096] {
        for (sums, open) in [
            ("^metadata_csum", "jo"),
            ("metadata_csum", "jo -c -v 2"),
            ("metadata_csum", "jo -c -v 3"),
        ] {
            for bits in ["64bit", "^64bit"] {
                let features = format!("{sums},{bits}");
                let image = written_by_debugfs(dir.path(), block, &features, open);
                let label = format!("{block} {features} {open}");
                let after = compare(dir.path(), &image, &label);
                assert!(
                    after.said.contains("of 4 transactions"),
                    "{label}: {}",
                    after.said
                );
                std::fs::write(dir.path().join("mine"), &after.bytes).unwrap();
                fsck(&dir.path().join("mine"));
                for turn in [1, 150, 600] {
                    let mut turned = image.clone();
                    Log::of(dir.path(), &image).rotate(&mut turned, turn);
                    compare(dir.path(), &turned, &format!("{label}, turned by {turn}"));
                }
            }
        }
    }
}

/// A revocation in a log with v1 checksums, as debugfs writes it: its checksum is not the one that recovery expects.
#[test]
fn a_transaction_that_e2fsck_calls_corrupt() {
    let dir = scratch();
    let image = written_by_debugfs(dir.path(), 1024, "^metadata_csum", "jo -c");
    let theirs = by_e2fsck(dir.path(), &image);
    assert!(
        theirs.said.contains("transaction 3 was corrupt"),
        "{}",
        theirs.said
    );
    let mine = in_memory(&image).unwrap();
    assert!(
        mine.said.contains("journal transaction 3 is damaged"),
        "{}",
        mine.said
    );
    same(
        &Log::of(dir.path(), &image),
        &mine.bytes,
        &theirs.bytes,
        "v1",
    );
    let refused = on_disk(&image).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("transaction 3 is damaged"), "{refused}");
}

/// Writes, changes and deletes on a mounted image, and copies the image while it is mounted. None without the rights to mount.
pub(crate) fn crashed(dir: &Path, args: &[&str], options: &str) -> Option<Vec<u8>> {
    let (image, at) = (mke2fs(dir, args, "24M"), dir.join("mnt"));
    std::fs::create_dir_all(&at).unwrap();
    let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
    let options = format!("loop,commit=300,{options}");
    let mounted = xtask::run::tool("mount")
        .args(["-t", "ext4", "-o", &options, image, at])
        .output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        xtask::skip::skipped(format_args!("mount -o {options} is not permitted here"));
        return None;
    }
    for n in 0..24u32 {
        let file = |n: u32| format!("{at}/file{n}");
        std::fs::write(file(n), vec![n as u8; 700 * n as usize]).unwrap();
        if n % 3 == 2 {
            std::fs::remove_file(file(n - 1)).unwrap();
            std::fs::create_dir(format!("{at}/dir{n}")).unwrap();
        }
        if n % 5 == 4 {
            std::fs::remove_dir(format!("{at}/dir{}", n / 3 * 3 - 1)).unwrap();
        }
        if n % 2 == 0 && n < 20 {
            run("sync", &["-f", at]);
        }
    }
    let bytes = std::fs::read(image).unwrap();
    xtask::mount::unmount(Path::new(at)).unwrap();
    Some(bytes)
}

pub(crate) const CRASHES: [(&[&str], &str); 6] = [
    (&["-b", "1024"], "data=ordered"),
    (&["-b", "4096"], "data=ordered"),
    (
        &["-b", "1024", "-O", "^metadata_csum,^64bit"],
        "journal_checksum",
    ),
    (&["-b", "4096", "-O", "^metadata_csum"], "data=ordered"),
    (
        &["-b", "1024", "-O", "^extents,^64bit,^metadata_csum"],
        "data=journal",
    ),
    (&["-b", "1024"], "data=writeback,journal_async_commit"),
];

#[test]
fn what_the_kernel_leaves_in_a_crash() {
    let dir = scratch();
    for (args, options) in CRASHES {
        let Some(image) = crashed(dir.path(), args, options) else {
            return;
        };
        let label = format!("{args:?} {options}");
        let after = compare(dir.path(), &image, &label);
        let mine = dir.path().join("mine");
        std::fs::write(&mine, &after.bytes).unwrap();
        fsck(&mine);
        // The kernel mounts the result without recovery.
        let features = run("dumpe2fs", &["-h", mine.to_str().unwrap()]);
        assert!(!features.contains("needs_recovery"), "{label}");
    }
}

/// A process may have died between writing its commit block and the flush after it: then recovery reads a log that is only in a
/// cache. Recovery flushes the log before it writes anything home; otherwise a power cut could leave home blocks that are newer
/// than the log.
#[test]
fn a_log_is_flushed_before_it_is_believed() {
    let dir = scratch();
    let bytes = written_by_debugfs(dir.path(), 1024, "^metadata_csum", "jo");
    let device = RecordDevice::with_volatile_cache(Arc::new(mem_of(&bytes)));
    let volume = Volume::open_device(Arc::new(device.clone()), &OpenOptions::writable()).unwrap();
    volume.close().unwrap();
    let log = device.log();
    let ended = |flush| {
        log.iter()
            .position(|e| matches!(e, Event::Ended { id } if *id == flush))
    };
    let flushed = log.iter().find_map(|event| match event {
        Event::Flush { id } => ended(*id),
        _ => None,
    });
    let is_write = |event: &Event| matches!(event, Event::Write { .. });
    let wrote = log.iter().position(is_write).unwrap();
    assert!(flushed.unwrap() < wrote, "{flushed:?}, {wrote}");
}
