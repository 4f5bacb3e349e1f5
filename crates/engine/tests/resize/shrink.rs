//! File systems that shrink: fresh ones, aged ones, power cuts in the middle, and what is refused.

use super::{
    KINDS, Kind, MIB, by_kernel, check_files, contents, e2fsck_keeps, extend, fill, fresh, kind,
    made, numbers, open,
};
use crate::common::stage::mem_of;
use crate::common::{Rng, fsck, run, scaled, scratch};
use diorite::{Error, OpenFlags, OpenOptions, Repair, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::{PowerCuts, plan};
use diorite_block::{Blocking, Buf, Device};
use diorite_check::{CheckOptions, check_device};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A fresh file system that has grown becomes as small as it was: what mke2fs made and what is there then have the same numbers.
#[test]
fn what_has_grown_can_shrink_again() {
    for kind in &KINDS {
        let (_dir, path, files) = fresh(kind);
        // The percentage of reserved blocks loses what is behind the point.
        let counts = |path: &Path| {
            let mut lines = numbers(path);
            lines.retain(|line| !line.starts_with("Reserved block"));
            lines
        };
        let before = counts(&path);
        extend(&path, kind.to * MIB);
        let volume = open(&path);
        volume.grow(kind.to * MIB).unwrap();
        volume.close().unwrap();
        let bytes = open(&path).shrink(kind.from * MIB, &mut |_| true).unwrap();
        assert_eq!(bytes, kind.from * MIB);
        fsck(&path);
        extend(&path, bytes);
        fsck(&path);
        assert_eq!(counts(&path), before, "{}", kind.words);
        let volume = open(&path);
        check_files(&volume, &files);
        fill(&volume);
        volume.close().unwrap();
        fsck(&path);
    }
}

/// With clusters and blocks of 1 KiB the inode that keeps blocks for descriptors leads one block behind those of a copy: here into a
/// cluster that is free. The defect: the volume was called damaged, and e2fsck had nothing to repair.
#[test]
fn a_kept_block_may_be_counted_in_a_free_cluster() {
    let dir = scratch();
    let words = "-t ext4 -b 1024 -O bigalloc -C 4096 -g 2048 -J size=1 -E resize=1250000";
    let (path, files) = made(dir.path(), &kind(words, 11, 11));
    let volume = open(&path);
    let geometry = volume.superblock().geometry();
    let head = 2 + geometry.reserved_gdt_blocks();
    assert!(
        head.is_multiple_of(4),
        "{head} blocks are no whole clusters"
    );
    let bytes = volume.shrink(8 * MIB, &mut |_| true).unwrap();
    assert_eq!(bytes, 8 * MIB);
    fsck(&path);
    check_files(&open(&path), &files);
}

/// Fills a volume with files in turns, and takes some away: what is left lies everywhere.
fn age(volume: &Volume, rng: &mut Rng) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for round in 0..6 {
        for n in 0..60 {
            let dir = format!("/d{}", n % 7);
            match volume.mkdir(&dir, 0o755) {
                Ok(_) | Err(Error::Exists { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            let name = format!("{dir}/f{round}-{n}");
            let mut bytes = vec![0; rng.below(60_000) as usize];
            rng.fill(&mut bytes);
            let file = volume.create(&name, 0o644).unwrap();
            // In pieces, so that files lie between each other.
            for (at, piece) in bytes.chunks(7000).enumerate() {
                file.write_bytes(at as u64 * 7000, piece).unwrap();
                if n % 3 == 0 {
                    file.sync_data().unwrap();
                }
            }
            files.push((name, bytes));
        }
        let kept = files.drain(..).filter(|(name, _)| {
            let stays = rng.below(3) > 0;
            if !stays {
                volume.unlink(name).unwrap();
            }
            stays
        });
        files = kept.collect();
    }
    volume.sync().unwrap();
    files
}

#[test]
fn an_aged_volume_becomes_as_small_as_it_can() {
    for kind in KINDS.iter().filter(|kind| kind.to <= 400) {
        let mut rng = Rng::from_env(kind.words);
        let dir = scratch();
        let (path, mut files) = made(
            dir.path(),
            &Kind {
                from: kind.to,
                ..*kind
            },
        );
        let volume = open(&path);
        files.extend(age(&volume, &mut rng));
        volume.close().unwrap();
        let mut more = 0;
        let (least, after) = loop {
            let volume = open(&path);
            let least = volume.least_bytes(more);
            match volume.shrink(least, &mut |_| true) {
                Ok(after) => break (least, after),
                Err(Error::NoSpace { .. }) => more += 64 << 10,
                Err(other) => panic!("{}: {other}", kind.words),
            }
            fsck(&path);
        };
        eprintln!(
            "{}: {} KiB of {} MiB, {more} more",
            kind.words,
            after >> 10,
            kind.to
        );
        assert!(after <= least && after < kind.to * MIB);
        fsck(&path);
        extend(&path, after);
        fsck(&path);
        by_kernel(&path, &files);
        let volume = open(&path);
        check_files(&volume, &files);
        // It can be used, and grows again.
        volume.unlink(&files[0].0).unwrap();
        let extended = after + 10 * MIB;
        extend(&path, extended);
        volume.device().refresh().unwrap();
        let grown = volume.grow(extended).unwrap();
        assert!(grown > after || kind.to > 1000, "{grown}");
        fill(&volume);
        volume.close().unwrap();
        fsck(&path);
    }
}

#[test]
fn a_power_cut_while_it_shrinks_loses_nothing() {
    let states = scaled("DIORITE_CUTS", 24) as usize;
    for (words, from, to) in [
        ("-t ext4 -b 1024 -J size=1 -N 2000", 40, 14),
        (
            "-t ext4 -b 2048 -O orphan_file,^metadata_csum_seed",
            100,
            36,
        ),
        ("-t ext3 -b 1024", 40, 20),
    ] {
        let mut rng = Rng::from_env(words);
        let dir = scratch();
        let (path, mut files) = made(dir.path(), &kind(words, from, to));
        let volume = open(&path);
        files.extend(age(&volume, &mut rng));
        volume.close().unwrap();
        let base = std::fs::read(&path).unwrap();
        let device = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
        let volume =
            Volume::open_device(Arc::new(device.clone()), &OpenOptions::writable()).unwrap();
        volume.shrink(to * MIB, &mut |_| true).unwrap();
        let log = device.log();
        let mut walk = PowerCuts::new(base, &log);
        let (mut old, mut new, mut leaks) = (0, 0, 0);
        for cut in plan(&log, states, rng.below(u64::MAX), 512) {
            let bytes = walk.with_image(cut, <[u8]>::to_vec);
            let cut_at = dir.path().join("cut");
            std::fs::write(&cut_at, &bytes).unwrap();
            let volume = open(&cut_at);
            let size = volume.superblock().geometry().volume_bytes();
            check_files(&volume, &files);
            volume.close().unwrap();
            match size < from * MIB {
                true => new += 1,
                false => old += 1,
            }
            // A move of the journal may leave blocks that nobody uses, and nothing else.
            let said = xtask::run::tool("e2fsck")
                .arg("-fn")
                .arg(&cut_at)
                .output()
                .unwrap();
            if said.status.code() != Some(0) {
                let said = String::from_utf8_lossy(&said.stdout).into_owned();
                let is_leak = |line: &str| {
                    line.starts_with("Block bitmap differences:  -")
                        || line.starts_with("Free blocks count wrong")
                        // A torn superblock was replaced by a copy, whose counts are old.
                        || line.starts_with("Free inodes count wrong (")
                        || line.starts_with("Fix? no")
                        || line.starts_with("Padding at end")
                };
                let others = said.lines().filter(|l| {
                    l.ends_with("no") || l.contains("wrong") || l.contains("differences")
                });
                let others: Vec<&str> = others.filter(|l| !is_leak(l)).collect();
                assert!(others.is_empty(), "{words} {cut:?}\n{said}");
                let recovered = std::fs::read(&cut_at).unwrap();
                free_leaks(dir.path(), &recovered, &format!("{words} {cut:?}"));
                leaks += 1;
            }
            std::fs::write(&cut_at, &bytes).unwrap();
            e2fsck_keeps(&cut_at, &files, &format!("{cut:?}"));
        }
        eprintln!("{words}: {old} old, {new} new, {leaks} with blocks that nobody uses");
        assert!(old > 0);
    }
}

/// The defect: blocks that nobody uses were a finding with which a repair did nothing. Anything else that is wrong still prevents it.
#[test]
fn blocks_that_nobody_uses_are_freed() {
    let dir = scratch();
    let (path, _) = made(dir.path(), &kind("-t ext4 -b 1024 -g 1024", 10, 10));
    let name = path.to_str().unwrap();
    // In several groups, and more runs in one than are reported.
    for run in ["3100 3", "3110 1", "3120 2", "3130 1", "3140 9", "5100 20"] {
        let request = format!("setb {run}");
        run_debugfs(name, &request);
    }
    let image = std::fs::read(&path).unwrap();
    free_leaks(dir.path(), &image, "set by debugfs");
    run_debugfs(name, "clri /f7");
    let found = diorite_check::check(name, &CheckOptions::default(), &|_| ()).unwrap();
    assert!(!found.unused.is_empty() && !found.is_repairable());
}

fn run_debugfs(image: &str, request: &str) {
    run("debugfs", &["-w", "-R", request, image]);
}

/// What a check finds of a volume whose shrinking was cut off can be repaired, after which e2fsck finds nothing.
fn free_leaks(dir: &Path, image: &[u8], label: &str) {
    let device: Arc<dyn Device> = Arc::new(mem_of(image));
    let look = || check_device(&device, &CheckOptions::default(), &|_| ()).unwrap();
    let found = look();
    let said: Vec<_> = found.kept().map(|(_, finding)| &finding.what).collect();
    assert!(found.is_repairable(), "{label}: {said:?}");
    let repair = Repair {
        groups: found.counts.clone(),
        unused: found.unused.clone(),
        orphan_file: found.stale.orphan_file,
    };
    let options = OpenOptions::writable().repair(repair);
    Volume::open_device(device.clone(), &options)
        .unwrap()
        .close()
        .unwrap();
    assert!(look().is_clean(), "{label}: {:?}", look());
    let mut bytes = image.to_vec();
    let blocking = Blocking::new(device.clone());
    let all = blocking.read(0, Buf::zeroed(bytes.len())).unwrap();
    bytes.copy_from_slice(all.as_slice());
    let path = dir.join("freed");
    std::fs::write(&path, &bytes).unwrap();
    fsck(&path);
}

/// Without a journal the superblock counts, at every moment, groups whose descriptors are there. The defect: it went home together with
/// them.
#[test]
fn without_a_journal_every_group_has_its_descriptor() {
    let states = scaled("DIORITE_CUTS", 24) as usize;
    let words = "-t ext4 -b 1024 -g 1024 -N 2000 -O ^has_journal";
    let mut rng = Rng::from_env(words);
    for (from, to) in [(40, 14), (14, 40)] {
        let dir = scratch();
        let (path, _) = made(dir.path(), &kind(words, from, to));
        let mut base = std::fs::read(&path).unwrap();
        base.resize((from.max(to) * MIB) as usize, 0xEE);
        let device = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
        let volume =
            Volume::open_device(Arc::new(device.clone()), &OpenOptions::writable()).unwrap();
        match from > to {
            true => drop(volume.shrink(to * MIB, &mut |_| true).unwrap()),
            false => {
                volume.grow(to * MIB).unwrap();
                volume.close().unwrap();
            }
        }
        let log = device.log();
        let mut walk = PowerCuts::new(base, &log);
        let mut whole = 0;
        for cut in plan(&log, 4 * states, rng.below(u64::MAX), 1024) {
            let image = walk.with_image(cut, mem_of);
            // Only the count of what is free in the group that was the last one may be that of the other size.
            match Volume::open_device(Arc::new(image), &OpenOptions::default()) {
                Ok(_) => whole += 1,
                Err(e) => assert!(
                    e.to_string().contains("the number of free blocks") && to > from,
                    "{from} to {to}, {cut:?}: {e}"
                ),
            }
        }
        assert!(whole > states, "{whole} states can be read");
    }
}

/// The defects: the bitmap of a group that became the last one stayed unwritten, which e2fsck mends; and if the keeper committed at the
/// wrong moment, the superblock had the free counts of before.
#[test]
fn whole_groups_are_left() {
    let dir = scratch();
    let words = "-t ext4 -b 1024 -g 1024 -N 3000";
    let (path, files) = made(dir.path(), &kind(words, 40, 0));
    for groups in [33, 24, 20, 13, 12] {
        let bytes = 1024 * (1 + 1024 * groups);
        let options = OpenOptions::writable().commit_interval(Duration::from_micros(1));
        let volume = Volume::open(path.to_str().unwrap(), &options).unwrap();
        assert_eq!(volume.shrink(bytes, &mut |_| true).unwrap(), bytes);
        fsck(&path);
        let said = run("e2fsck", &["-fn", path.to_str().unwrap()]);
        assert!(!said.contains("wrong"), "{said}");
    }
    check_files(&open(&path), &files);
    // Our check agrees with e2fsck on such a group.
    let name = path.to_str().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "set_bg 11 flags 2\nset_bg 11 checksum calc\n").unwrap();
    run("debugfs", &["-w", "-f", script.to_str().unwrap(), name]);
    let theirs = xtask::run::tool("e2fsck")
        .arg("-fn")
        .arg(&path)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&theirs.stdout).contains("Last group block bitmap"));
    let found = diorite_check::check(name, &Default::default(), &|_| ()).unwrap();
    let said: Vec<String> = found
        .kept()
        .map(|(_, finding)| finding.what.clone())
        .collect();
    assert!(
        said.iter().any(|what| what.contains("is the last one")),
        "{said:?}"
    );
}

/// With sparse_super2 the last group has the second copy of the superblock. The defect: it went with its group. In the second volume the
/// last group's bitmaps and table are where it would be; resize2fs fails there.
#[test]
fn the_last_group_gets_the_second_copy() {
    for (words, copy) in [
        (
            "-t ext4 -b 1024 -g 1024 -N 3000 -O sparse_super2",
            Some((19, 19457)),
        ),
        (
            "-t ext4 -b 1024 -g 1024 -N 3000 -O sparse_super2,^flex_bg",
            None,
        ),
        (
            "-t ext4 -b 4096 -g 1024 -N 3000 -O sparse_super2,^metadata_csum",
            Some((4, 4096)),
        ),
    ] {
        let mut rng = Rng::from_env(words);
        let dir = scratch();
        let (path, mut files) = made(dir.path(), &kind(words, 40, 0));
        let theirs = dir.path().join("theirs");
        std::fs::copy(&path, &theirs).unwrap();
        let volume = open(&path);
        files.extend(age(&volume, &mut rng));
        volume.close().unwrap();
        open(&path).shrink(20 * MIB, &mut |_| true).unwrap();
        fsck(&path);
        let volume = open(&path);
        let copies = volume.superblock().groups_with_copies();
        let copies: Vec<u32> = copies.map(|group| group.get()).collect();
        let expected = [1].into_iter().chain(copy.map(|(group, _)| group));
        assert_eq!(copies, expected.collect::<Vec<u32>>(), "{words}");
        if let Some((_, block)) = copy {
            run("resize2fs", &["-f", theirs.to_str().unwrap(), "20M"]);
            assert_eq!(backups(&path), backups(&theirs), "{words}");
            // It is one.
            let place = format!("superblock={block}");
            let size = format!("blocksize={}", volume.superblock().block_size());
            let name = path.to_str().unwrap();
            run("dumpe2fs", &["-h", "-o", &place, "-o", &size, name]);
        }
        check_files(&volume, &files);
        fill(&volume);
        volume.close().unwrap();
        fsck(&path);
        // What is full cannot shrink by much, and keeps its copies.
        open(&path).shrink(10 * MIB, &mut |_| true).unwrap_err();
        fsck(&path);
    }
}

fn backups(path: &Path) -> Option<String> {
    let said = run("dumpe2fs", &["-h", path.to_str().unwrap()]);
    let mut lines = said.lines();
    let line = lines.find(|line| line.starts_with("Backup block groups"));
    line.map(str::to_owned)
}

#[test]
fn a_volume_in_use_does_not_shrink() {
    let dir = scratch();
    let (path, files) = made(dir.path(), &kind("-t ext4 -b 1024", 40, 0));
    let volume = open(&path);
    let file = volume.open_path(&files[1].0, OpenFlags::default()).unwrap();
    let error = volume.shrink(20 * MIB, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(file);
    let volume = open(&path);
    let other = volume.clone();
    let error = volume.shrink(20 * MIB, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(other);
    // Its caller may end it.
    let volume = open(&path);
    let big = volume.create("/big", 0o600).unwrap();
    big.write_bytes(25 << 20, &vec![1; 1 << 20]).unwrap();
    drop(big);
    let ended = volume.shrink(10 * MIB, &mut |_| false).unwrap_err();
    assert!(ended.to_string().contains("ended by its caller"), "{ended}");
    fsck(&path);
    // Its pages may be in the cache, clean or dirty.
    let volume = open(&path);
    let small = volume.create("/small", 0o600).unwrap();
    small.write_bytes(0, &[7; 5000]).unwrap();
    small.sync().unwrap();
    small.write_bytes(5000, &[8; 5000]).unwrap();
    drop(small);
    volume.shrink(30 * MIB, &mut |_| true).unwrap();
    fsck(&path);
    let bytes = contents(&open(&path), "/small");
    assert!(bytes[..5000] == [7; 5000] && bytes[5000..] == [8; 5000]);
    let volume = open(&path);
    check_files(&volume, &files);
    volume.close().unwrap();
}
