//! Recovery against e2fsck: logs made by debugfs and by the running kernel, whole and damaged.
//!
//! `e2fsck -E journal_only` replays a copy; what diorite replays in memory, and what it brings home, must be the same in every block
//! but the journal's own and the superblock. `DIORITE_RECOVERY_FLIPS` makes the campaign of damaged logs longer.
#![allow(clippy::unwrap_used)]

mod common;

use common::log::{Log, MAGIC};
use common::stage::{Stage, mem_of};
use common::watch::Watchdog;
use common::{Rng, fsck, run, scaled, scratch};
use diorite::{Error, OpenOptions, Volume};
use diorite_block::record::{PowerCuts, plan};
use diorite_block::{Blocking, Buf, MemDevice, RecordDevice, SimOptions};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// What an image is like after recovery, and what was said about it.
struct After {
    bytes: Vec<u8>,
    said: String,
}

/// Reads the volume's blocks through the device that a reader sees.
fn in_memory(bytes: &[u8]) -> Result<After, Error> {
    let device = Arc::new(mem_of(bytes));
    let volume = Volume::open_device(device.clone(), &OpenOptions::default())?;
    let blocking = Blocking::new(volume.device().clone());
    let mut out = Vec::new();
    while out.len() < bytes.len() {
        let len = (bytes.len() - out.len()).min(1 << 20);
        let buf = blocking.read(out.len() as u64, Buf::zeroed(len)).unwrap();
        out.extend_from_slice(buf.as_slice());
    }
    assert_eq!(
        all_of(&device, bytes.len()),
        bytes,
        "reading wrote something"
    );
    let said = volume.notes().join("\n");
    Ok(After { bytes: out, said })
}

fn all_of(device: &MemDevice, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    device.read_at(0, &mut out);
    out
}

/// Opens for writing; what is on the device then.
fn on_disk(bytes: &[u8]) -> Result<After, Error> {
    let device = Arc::new(mem_of(bytes));
    let opened = Volume::open_device(device.clone(), &OpenOptions::writable());
    let out = all_of(&device, bytes.len());
    let volume = match opened {
        Ok(volume) => volume,
        Err(e) => {
            assert_eq!(out, bytes, "a refused volume was changed: {e}");
            return Err(e);
        }
    };
    let said = volume.notes().join("\n");
    volume.close().unwrap();
    let again = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    assert!(!again.notes().join("\n").contains("replayed"));
    Ok(After { bytes: out, said })
}

/// What e2fsck makes of a copy.
fn by_e2fsck(dir: &Path, bytes: &[u8]) -> After {
    let copy = dir.join("judge");
    std::fs::write(&copy, bytes).unwrap();
    let out = Command::new("e2fsck")
        .args(["-E", "journal_only", "-y", copy.to_str().unwrap()])
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    let bytes = std::fs::read(&copy).unwrap();
    After { bytes, said }
}

/// The same in every block but the journal's and the superblock.
fn same(log: &Log, mine: &[u8], theirs: &[u8], label: &str) {
    assert_eq!(mine.len(), theirs.len(), "{label}");
    let size = log.block;
    let blocks = mine.chunks(size).zip(theirs.chunks(size)).enumerate();
    for (n, (mut a, mut b)) in blocks {
        if log.is_journal(n as u64) {
            continue;
        }
        if n == 1024 / size {
            // The superblock is the whole block, or lies behind the boot block.
            if size == 1024 {
                continue;
            }
            assert_eq!(a[..1024], b[..1024], "{label}: the boot block");
            (a, b) = (&a[2048..], &b[2048..]);
        }
        assert!(a == b, "{label}: block {n} differs");
    }
}

/// Both ways of recovery against e2fsck's, of a log that is whole.
fn compare(dir: &Path, image: &[u8], label: &str) -> After {
    let log = Log::of(dir, image);
    let theirs = by_e2fsck(dir, image);
    let memory = in_memory(image).unwrap_or_else(|e| panic!("{label}: {e}"));
    assert!(
        memory.said.contains("the journal was replayed in memory"),
        "{label}: {}",
        memory.said
    );
    same(&log, &memory.bytes, &theirs.bytes, label);
    let disk = on_disk(image).unwrap_or_else(|e| panic!("{label}: {e}"));
    assert!(
        disk.said.contains("the journal was replayed: "),
        "{label}: {}",
        disk.said
    );
    same(&log, &disk.bytes, &theirs.bytes, label);
    let end = |bytes: &[u8]| Log::of(dir, bytes).position();
    assert_eq!(
        end(&disk.bytes),
        end(&theirs.bytes),
        "{label}: where the log stands"
    );
    disk
}

fn mke2fs(dir: &Path, args: &[&str], size: &str) -> PathBuf {
    let path = dir.join("image");
    let _ = std::fs::remove_file(&path);
    let all = [
        &["-q", "-F", "-t", "ext4"],
        args,
        &[path.to_str().unwrap(), size],
    ]
    .concat();
    run("mke2fs", &all);
    path
}

/// Runs a debugfs script; what it prints is left to the comparison with e2fsck.
fn debugfs(dir: &Path, image: &Path, script: &str) {
    std::fs::write(dir.join("script"), script).unwrap();
    let script = dir.join("script");
    run(
        "debugfs",
        &[
            "-w",
            "-f",
            script.to_str().unwrap(),
            image.to_str().unwrap(),
        ],
    );
}

/// Five transactions: copies that need escaping, that are copied again, that are revoked and copied again; the last one has no commit.
fn written_by_debugfs(dir: &Path, block: usize, features: &str, open: &str) -> Vec<u8> {
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
    // With v2 tags debugfs writes a second descriptor that nobody can read.
    let first = if open.ends_with("-v 2") { 60 } else { 200 };
    write("d1", first, &format!("-b {}", list(0, first)));
    write("d2", 3, &format!("-b {}", list(2, 3)));
    // debugfs sums revocations into v1 commits, which nobody expects: the log ends there.
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
    debugfs(dir, &image, &script);
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

/// A revocation in a log with v1 sums as debugfs writes it: the sum is not the one that recovery expects.
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
fn crashed(dir: &Path, args: &[&str], options: &str) -> Option<Vec<u8>> {
    let (image, at) = (mke2fs(dir, args, "24M"), dir.join("mnt"));
    std::fs::create_dir_all(&at).unwrap();
    let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
    let options = format!("loop,commit=300,{options}");
    let mounted = Command::new("mount")
        .args(["-t", "ext4", "-o", &options, image, at])
        .output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: mount -o {options} is not permitted here");
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
    run("umount", &[at]);
    Some(bytes)
}

const CRASHES: [(&[&str], &str); 6] = [
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
        // The kernel takes it without a word of recovery.
        let features = run("dumpe2fs", &["-h", mine.to_str().unwrap()]);
        assert!(!features.contains("needs_recovery"), "{label}");
    }
}

/// Flips in headers, tags, lists, copies and commit blocks: the log ends, or recovery fails, where e2fsck says so.
#[test]
fn damaged_logs_end_where_e2fsck_ends_them() {
    let dir = scratch();
    let mut rng = Rng::from_env("recovery");
    // Without sums a flipped tag makes e2fsck write anywhere; the forms that have them are compared.
    for (args, options) in [CRASHES[0], CRASHES[1], CRASHES[2], CRASHES[5]] {
        let Some(image) = crashed(dir.path(), args, options) else {
            return;
        };
        let log = Log::of(dir.path(), &image);
        let used = log.used(&image);
        for _ in 0..scaled("DIORITE_RECOVERY_FLIPS", 40) {
            let at = used[rng.below(used.len() as u64) as usize];
            let place = match rng.below(4) {
                0 => rng.below(12),
                1 => 12 + rng.below(52),
                2 => log.block as u64 - 1 - rng.below(8),
                _ => rng.below(log.block as u64),
            };
            let mut hurt = image.clone();
            let bit = 1 << rng.below(8);
            hurt[log.byte_of(at) + place as usize] ^= bit;
            let label =
                format!("{args:?} {options}, block {at} of the log, byte {place} ^ {bit:#x}");
            judge(dir.path(), &log, &hurt, &label);
        }
    }
}

/// e2fsck's verdict and ours on a damaged log.
fn judge(dir: &Path, log: &Log, hurt: &[u8], label: &str) {
    let theirs = by_e2fsck(dir, hurt);
    let mine = in_memory(hurt).unwrap_or_else(|e| panic!("{label}: {e}"));
    let (damaged, failed) = (
        theirs.said.contains("replay was aborted"),
        theirs.said.contains("checksum error") || theirs.said.contains("while recovering"),
    );
    assert_eq!(
        mine.said.contains("is damaged"),
        damaged,
        "{label}: {} / {}",
        mine.said,
        theirs.said
    );
    assert_eq!(
        mine.said.contains("cannot be replayed"),
        failed,
        "{label}: {} / {}",
        mine.said,
        theirs.said
    );
    // When recovery fails e2fsck leaves what it had replayed by then; we replay nothing.
    if !failed {
        same(log, &mine.bytes, &theirs.bytes, label);
    }
    match on_disk(hurt) {
        Ok(disk) => {
            assert!(!damaged && !failed, "{label}: opened for writing");
            same(log, &disk.bytes, &theirs.bytes, label);
        }
        Err(e) => assert!(damaged || failed, "{label}: {e}"),
    }
}

/// Logs without sums, with bytes of every kind in their descriptors: an error or data, and an end.
#[test]
fn hostile_logs_end() {
    let dir = scratch();
    let mut rng = Rng::from_env("hostile logs");
    let watchdog = Watchdog::new(Duration::from_secs(20), "hostile logs");
    let image = written_by_debugfs(dir.path(), 1024, "^metadata_csum", "jo");
    let log = Log::of(dir.path(), &image);
    let used = log.used(&image);
    for n in 0..scaled("DIORITE_HOSTILE_LOGS", 100) {
        let mut hurt = image.clone();
        for _ in 0..1 + rng.below(3) {
            let at = log.byte_of(used[rng.below(used.len() as u64) as usize]);
            let (from, len) = (rng.below(64) as usize, 1 + rng.below(64) as usize);
            match rng.below(3) {
                0 => rng.fill(&mut hurt[at + from..at + from + len]),
                // Descriptors of this transaction everywhere: a log that never commits.
                1 => {
                    for block in 1..1024 {
                        let to = log.byte_of(block);
                        hurt.copy_within(at..at + 1024, to);
                    }
                }
                _ => hurt[at + 12 + from..at + 12 + from + len].fill(0xFF),
            }
        }
        watchdog.feed(format!("log {n}"));
        let _ = in_memory(&hurt);
        let _ = on_disk(&hurt);
    }
}

/// A power cut at any write of recovery leaves an image that recovers to the same content.
#[test]
fn power_cuts_during_recovery() {
    let dir = scratch();
    let image = written_by_debugfs(dir.path(), 1024, "metadata_csum,64bit", "jo -c -v 3");
    let log = Log::of(dir.path(), &image);
    let want = on_disk(&image).unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, &image).unwrap();
    let disk = SimOptions::parse("0,cache=volatile,fua=no").unwrap();
    let device = Arc::new(RecordDevice::new(Stage::sim(&path, disk).device));
    Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
    let events = device.log();
    let mut cuts = PowerCuts::new(image, &events);
    for cut in plan(&events, 150, 7, 512) {
        cuts.with_image(cut, |image| {
            let label = format!("{cut:?}");
            let memory = in_memory(image).unwrap_or_else(|e| panic!("{label}: {e}"));
            same(&log, &memory.bytes, &want.bytes, &label);
            let disk = on_disk(image).unwrap_or_else(|e| panic!("{label}: {e}"));
            same(&log, &disk.bytes, &want.bytes, &label);
            assert_eq!(
                disk.bytes[1024..2048],
                want.bytes[1024..2048],
                "{label}: the superblock"
            );
        });
    }
}

/// A superblock whose sum is wrong: a copy stands in, the log is replayed, and the primary is written again.
#[test]
fn a_torn_superblock() {
    let dir = scratch();
    let Some(mut image) = crashed(dir.path(), &["-b", "1024"], "data=ordered") else {
        return;
    };
    let want = on_disk(&image).unwrap();
    let log = Log::of(dir.path(), &image);
    image[1024 + 0x180] ^= 1;
    let memory = in_memory(&image).unwrap();
    assert!(memory.said.contains("stands in for it") && memory.said.contains("replayed in memory"));
    same(&log, &memory.bytes, &want.bytes, "torn");
    let disk = on_disk(&image).unwrap();
    same(&log, &disk.bytes, &want.bytes, "torn");
    let mine = dir.path().join("mine");
    std::fs::write(&mine, &disk.bytes).unwrap();
    fsck(&mine);
}

/// An error of the journal becomes the volume's, and is cleared in the journal.
#[test]
fn an_aborted_journal() {
    let dir = scratch();
    let mut image = written_by_debugfs(dir.path(), 1024, "^metadata_csum", "jo");
    let log = Log::of(dir.path(), &image);
    let errno = log.byte_of(0) + 0x20;
    image[errno..errno + 4].copy_from_slice(&(-5i32).to_be_bytes());
    let said = in_memory(&image).unwrap().said;
    assert!(said.contains("aborted by error -5"), "{said}");
    let device = Arc::new(mem_of(&image));
    let refused = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap_err();
    assert!(
        refused.to_string().contains("errors are recorded"),
        "{refused}"
    );
    let after = all_of(&device, image.len());
    assert_eq!(after[errno..errno + 4], [0; 4]);
    assert_eq!(after[1024 + 0x3A] & 2, 2);
    same(
        &log,
        &after,
        &by_e2fsck(dir.path(), &image).bytes,
        "aborted",
    );
}

/// Fast commits are not replayed: named, and refused for writing.
#[test]
fn fast_commits_are_named() {
    let dir = scratch();
    let image = mke2fs(dir.path(), &["-b", "1024", "-O", "fast_commit"], "32M");
    let at = dir.path().join("mnt");
    std::fs::create_dir_all(&at).unwrap();
    let mounted = Command::new("mount")
        .args([
            "-o",
            "loop,commit=300",
            image.to_str().unwrap(),
            at.to_str().unwrap(),
        ])
        .output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: mounting is not permitted here");
        return;
    }
    for n in 0..4 {
        let path = at.join(format!("file{n}"));
        std::fs::write(&path, [7; 20_000]).unwrap();
        std::fs::File::open(path).unwrap().sync_all().unwrap();
    }
    let bytes = std::fs::read(&image).unwrap();
    run("umount", &[at.to_str().unwrap()]);
    let area = Log::of(dir.path(), &bytes).byte_of(4097);
    if bytes[area..area + 2] != [9, 0] {
        eprintln!("skipped: this kernel made no fast commit");
        return;
    }
    let said = in_memory(&bytes).unwrap().said;
    assert!(
        said.contains("fast_commit") && said.contains("replayed in memory"),
        "{said}"
    );
    let refused = on_disk(&bytes).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("fast_commit"), "{refused}");
}

/// A volume with its journal on another device, crashed: both images. None without the rights.
fn crashed_with_journal_device(dir: &Path, block: &str) -> Option<(PathBuf, PathBuf)> {
    let (journal, image, at) = (dir.join("journal"), dir.join("image"), dir.join("mnt"));
    std::fs::create_dir_all(&at).unwrap();
    let attach = |path: &Path, size: &str| {
        let _ = std::fs::remove_file(path);
        run("truncate", &["-s", size, path.to_str().unwrap()]);
        let out = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(path)
            .output()
            .ok()?;
        let name = String::from_utf8(out.stdout).unwrap().trim().to_owned();
        out.status.success().then_some(name)
    };
    let Some(loops) = attach(&journal, "8M").zip(attach(&image, "24M")) else {
        eprintln!("skipped: loop devices are not permitted here");
        return None;
    };
    run(
        "mke2fs",
        &["-q", "-F", "-O", "journal_dev", "-b", block, &loops.0],
    );
    let device = format!("device={}", loops.0);
    run(
        "mke2fs",
        &[
            "-q", "-F", "-t", "ext4", "-b", block, "-J", &device, &loops.1,
        ],
    );
    let at = at.to_str().unwrap();
    let mounted = Command::new("mount")
        .args(["-o", "commit=300", &loops.1, at])
        .output()
        .unwrap();
    let copies = (dir.join("journal.copy"), dir.join("image.copy"));
    if mounted.status.success() {
        for n in 0..9u8 {
            std::fs::write(format!("{at}/file{n}"), vec![n; 9000]).unwrap();
            run("sync", &["-f", at]);
        }
        std::fs::copy(&journal, &copies.0).unwrap();
        std::fs::copy(&image, &copies.1).unwrap();
        run("umount", &[at]);
    }
    run("losetup", &["-d", &loops.0]);
    run("losetup", &["-d", &loops.1]);
    mounted.status.success().then_some(copies)
}

#[test]
fn a_journal_on_a_device_of_its_own() {
    let dir = scratch();
    for block in ["1024", "4096"] {
        let Some((journal, image)) = crashed_with_journal_device(dir.path(), block) else {
            return;
        };
        let (j, i) = (journal.to_str().unwrap(), image.to_str().unwrap());
        let said = Volume::open(i, &OpenOptions::default())
            .unwrap()
            .notes()
            .join("\n");
        assert!(said.contains("not in the volume"), "{said}");
        let unnamed = Volume::open(i, &OpenOptions::writable())
            .unwrap_err()
            .to_string();
        assert!(unnamed.contains("--journal"), "{unnamed}");
        let with = |write, journal: &str| OpenOptions {
            write,
            journal: Some(journal.to_owned()),
            ..OpenOptions::default()
        };
        // No journal at all, in place of the journal.
        assert!(Volume::open(i, &with(false, i)).is_err());
        let volume = Volume::open(i, &with(false, j)).unwrap();
        let said = volume.notes().join("\n");
        assert!(said.contains("replayed in memory"), "{said}");
        assert!(volume.resolve(b"/file8", true).is_ok());
        drop(volume);
        let (theirs, log) = (dir.path().join("theirs"), dir.path().join("their-log"));
        std::fs::copy(&image, &theirs).unwrap();
        std::fs::copy(&journal, &log).unwrap();
        let (t, l) = (theirs.to_str().unwrap(), log.to_str().unwrap());
        run("e2fsck", &["-E", "journal_only", "-y", "-j", l, t]);
        Volume::open(i, &with(true, j)).unwrap().close().unwrap();
        let (mine, theirs) = (
            std::fs::read(&image).unwrap(),
            std::fs::read(&theirs).unwrap(),
        );
        let differ: Vec<usize> = (0..mine.len()).filter(|n| mine[*n] != theirs[*n]).collect();
        assert!(
            differ.iter().all(|n| (1024..2048).contains(n)),
            "{block}: {differ:?}"
        );
        let (mine, theirs) = (
            std::fs::read(&journal).unwrap(),
            std::fs::read(&log).unwrap(),
        );
        let at = if block == "1024" { 2048 } else { 4096 };
        assert_eq!(
            mine[at + 0x18..at + 0x24],
            theirs[at + 0x18..at + 0x24],
            "the log's position"
        );
        run("e2fsck", &["-fn", "-j", j, i]);
    }
}
