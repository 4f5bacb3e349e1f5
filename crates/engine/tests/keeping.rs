//! What a volume maintains: a journal on another device, the superblock's statistics, commits and checkpoints in the background.

use crate::common::fixture::{DSYNC, filled, sim, writable};
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{image, run, scratch};
use diorite::{File, Op, OpenFlags, OpenOptions, RequestFlags, Volume};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use xtask::loopback::Loop;

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.size() as usize];
    file.read_bytes(0, &mut bytes).unwrap();
    bytes
}

/// A volume and its journal, each in a file.
fn with_journal_device(dir: &Path, block: &str) -> Option<(PathBuf, PathBuf)> {
    let (journal, image) = (dir.join("journal"), dir.join("image"));
    for (path, size) in [(&journal, 8 << 20), (&image, 24 << 20)] {
        std::fs::File::create(path).unwrap().set_len(size).unwrap();
    }
    let (j, i) = (
        Loop::attach_or_skip(&journal, &[])?,
        Loop::attach_or_skip(&image, &[])?,
    );
    run(
        "mke2fs",
        &["-q", "-F", "-O", "journal_dev", "-b", block, j.device()],
    );
    let on = format!("device={}", j.device());
    let of_volume = ["-q", "-F", "-t", "ext4", "-b", block, "-J", &on, i.device()];
    run("mke2fs", &of_volume);
    Some((journal, image))
}

/// Changes go through a journal on another device: a file is written, more often than the log has room for. After a close, e2fsck
/// with that journal finds nothing; without one, the changes are recovered from it.
#[test]
fn a_journal_on_another_device_is_written() {
    for block in ["1024", "4096"] {
        let dir = scratch();
        let Some((journal, image)) = with_journal_device(dir.path(), block) else {
            return;
        };
        let (j, i) = (journal.to_str().unwrap(), image.to_str().unwrap());
        let options = OpenOptions::writable().journal(j.to_owned());
        let volume = Volume::open(i, &options).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        for n in 0..600u64 {
            file.write_buf(n * 8192, filled(n as u8, 4096)).1.unwrap();
            file.sync().unwrap();
        }
        // A crash: copies of both as they are now.
        let copies = (
            dir.path().join("journal.copy"),
            dir.path().join("image.copy"),
        );
        std::fs::copy(&journal, &copies.0).unwrap();
        std::fs::copy(&image, &copies.1).unwrap();
        let bytes = read_all(&file);
        drop(file);
        volume.close().unwrap();
        run("e2fsck", &["-fn", "-j", j, i]);
        let options = OpenOptions::writable().journal(copies.0.to_str().unwrap().to_owned());
        let volume = Volume::open(copies.1.to_str().unwrap(), &options).unwrap();
        let said = volume.notes().join("\n");
        assert!(said.contains("the journal was replayed"), "{said}");
        let file = volume.open_path("/file", OpenFlags::default()).unwrap();
        assert!(read_all(&file) == bytes);
        drop(file);
        volume.close().unwrap();
        run(
            "e2fsck",
            &[
                "-fn",
                "-j",
                copies.0.to_str().unwrap(),
                copies.1.to_str().unwrap(),
            ],
        );
    }
}

/// Without its journal a volume accepts overwrites, and syncs of them: no time is written, and no error is returned for that. The
/// defect: every fsync and O_SYNC write failed.
#[test]
fn overwrites_without_the_journal_are_synced() {
    let dir = scratch();
    let Some((journal, image)) = with_journal_device(dir.path(), "4096") else {
        return;
    };
    let (j, i) = (journal.to_str().unwrap(), image.to_str().unwrap());
    let named = OpenOptions::writable().journal(j.to_owned());
    let volume = Volume::open(i, &named).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_buf(0, filled(1, 8192)).1.unwrap();
    drop(file);
    volume.close().unwrap();
    let volume = Volume::open(i, &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let sync = RequestFlags::default().sync(true);
    for (byte, flags) in [(2, RequestFlags::default()), (3, DSYNC), (4, sync)] {
        let (_, done) = file.call(Op::Write, 0, filled(byte, 4096), flags);
        assert_eq!(done.unwrap(), 4096);
        file.sync_data().unwrap();
        file.sync().unwrap();
    }
    volume.sync().unwrap();
    assert!(read_all(&file)[..4096] == [4; 4096]);
    drop(file);
    volume.close().unwrap();
    run("e2fsck", &["-fn", "-j", j, i]);
}

/// Without a sync, a change is in the log after the interval; after another interval it is written home, and the log is empty.
#[test]
fn an_idle_volume_is_committed_and_checkpointed() {
    let _watchdog = Watchdog::new(Duration::from_secs(60), "the keeper");
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let path = image(dir.path(), "32M", &["-t", "ext4", "-b", "4096"], &tree);
    let stage = Stage::mem(&path);
    let options = OpenOptions::writable().commit_interval(Duration::from_millis(30));
    let volume = stage.open(&options).unwrap();
    let before = volume.journal_stats().checkpoints;
    let file = volume.create("/file", 0o644).unwrap();
    file.write_buf(0, filled(7, 65536)).1.unwrap();
    // After a crash now, the file would have to be found without the log, which has to be empty.
    let lost = || {
        stage.save();
        let seen = run("dumpe2fs", &["-h", path.to_str().unwrap()]);
        let empty = seen.lines().any(|l| {
            l.strip_prefix("Journal start:")
                .is_some_and(|at| at.trim() == "0")
        });
        if !empty {
            return true;
        }
        let crashed = Stage::mem(&path);
        let found = crashed
            .open(&OpenOptions::default())
            .and_then(|v| v.open_path("/file", OpenFlags::default()));
        !found.is_ok_and(|file| read_all(&file) == vec![7; 65536])
    };
    while lost() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(volume.journal_stats().checkpoints > before);
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// The last user of a volume waits until the keeper has let go of it, so the device is free then. The defect: a keeper that was
/// committing at that moment held the device a little longer.
#[test]
fn a_keeper_that_commits_does_not_hold_the_device() {
    let _watchdog = Watchdog::new(Duration::from_secs(60), "the keeper's end");
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let path = image(dir.path(), "32M", &["-t", "ext4", "-b", "4096"], &tree);
    let stage = sim(&path, "latency=100us,cache=volatile,fua=no");
    let before = Arc::strong_count(&stage.device);
    let options = OpenOptions::writable().commit_interval(Duration::from_millis(1));
    for n in 0..100u64 {
        let volume = stage.open(&options).unwrap();
        volume.create(&*format!("/file{n}"), 0o644).unwrap();
        std::thread::sleep(Duration::from_micros(1000 + n * 20));
        drop(volume);
        let left = Arc::strong_count(&stage.device) - before;
        assert_eq!(left, 0, "round {n}: the device is held");
    }
    stage.fsck();
}

/// The value of a line of `dumpe2fs -h`.
fn field(image: &Path, name: &str) -> String {
    let seen = run("dumpe2fs", &["-h", image.to_str().unwrap()]);
    let found = seen.lines().find_map(|l| l.strip_prefix(name));
    found.unwrap_or_default().trim().to_owned()
}

/// "Lifetime writes" in KiB, as rounded by dumpe2fs.
fn lifetime(image: &Path) -> u64 {
    let volume = Stage::mem(image).open(&OpenOptions::default()).unwrap();
    volume.superblock().info().kbytes_written
}

/// The same operations by the kernel and by diorite leave the same statistics in the superblock.
#[test]
fn the_superblock_is_kept_as_the_kernel_keeps_it() {
    let dir = scratch();
    let (tree, at) = (dir.path().join("tree"), dir.path().join("mnt"));
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::create_dir_all(&at).unwrap();
    let mine = image(dir.path(), "64M", &["-t", "ext4", "-b", "4096"], &tree);
    let theirs = dir.path().join("theirs");
    std::fs::copy(&mine, &theirs).unwrap();
    let before = lifetime(&mine);
    let on = at.to_str().unwrap().to_owned();
    let mounted = xtask::run::tool("mount")
        .args(["-o", "loop", theirs.to_str().unwrap(), &on])
        .output();
    if !mounted.as_ref().is_ok_and(|out| out.status.success()) {
        return crate::common::kernel::not_mounted(&theirs, "loop", &mounted);
    }
    std::fs::write(at.join("file"), vec![5; 8 << 20]).unwrap();
    xtask::mount::unmount(&at).unwrap();
    let options = OpenOptions::writable().mounted_on(on);
    let volume = Volume::open(mine.to_str().unwrap(), &options).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_buf(0, filled(5, 8 << 20)).1.unwrap();
    drop(file);
    volume.close().unwrap();
    for name in [
        "Last mounted on:",
        "Filesystem state:",
        "Mount count:",
        "Maximum mount count:",
        "Free blocks:",
        "Free inodes:",
    ] {
        assert_eq!(field(&mine, name), field(&theirs, name), "{name}");
    }
    let (ours, kernels) = (lifetime(&mine) - before, lifetime(&theirs) - before);
    // Each writes the file once, and in addition its own metadata.
    for written in [ours, kernels] {
        assert!((8192..12288).contains(&written), "{ours}, {kernels}");
    }
    crate::common::fsck(&mine);
}
