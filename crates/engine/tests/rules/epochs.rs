//! Which flush covers an acknowledgement (rule D1), the caches of stacked devices (D2), more times than one commit can hold (D4).
//!
//! Input: small volumes on a simulated disk with a volatile cache, whose power is cut right after an acknowledgement. Output: none.
//! Invariant: what was acknowledged as durable is there, whichever of the unflushed writes are lost. Limits: a commit is stopped
//! between its flush and its end by holding its commit block, so what happens meanwhile does not depend on timing.

use crate::common::fixture::{DSYNC, LIMIT, filled, writable};
use crate::common::recipe::{RECIPES, bare};
use crate::common::stage::{Stage, mem_of};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{image, run, scratch, words};
use diorite::{Error, File, LoopDevice, Op, OpenFlags, OpenOptions, RequestFlags, Volume};
use diorite_block::{Device, SimOptions};
use diorite_format::InodeFlags;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The clock stands still: all times are of one tick.
const NOW: Duration = Duration::from_secs(2_000_000_000);
/// Power cuts after each acknowledgement.
const CUTS: u64 = 16;

const LAZY: RequestFlags = RequestFlags::none();
const SYNC: RequestFlags = LAZY.sync(true);

/// Options for a volume on which nothing commits by itself.
fn quiet() -> OpenOptions {
    OpenOptions::writable()
        .commit_interval(Duration::from_secs(3600))
        .clock(|| NOW)
}

fn put(file: &File, (pos, byte, len): (u64, u8, usize), flags: RequestFlags) {
    assert_eq!(
        file.call(Op::Write, pos, filled(byte, len), flags)
            .1
            .unwrap(),
        len
    );
}

/// A byte of a file after recovery.
fn byte_at(device: Arc<dyn Device>, path: &str, pos: u64) -> u8 {
    let volume = Volume::open_device(device, &OpenOptions::default()).unwrap();
    let file = volume.open_path(path, OpenFlags::default()).unwrap();
    let mut bytes = [0xEE; 512];
    file.read_bytes(pos, &mut bytes).unwrap();
    bytes[0]
}

/// Asserts that the byte is there whichever unflushed writes a power cut now loses.
fn survives(stage: &Stage, what: &str, path: &str, (pos, byte): (u64, u8)) {
    for seed in 0..CUTS {
        let image = Arc::new(stage.disk().crash(seed).unwrap());
        assert_eq!(byte_at(image, path, pos), byte, "{what}: power cut {seed}");
    }
}

const DISKS: [&str; 2] = [
    "0,cache=volatile,fua=yes,crash=yes",
    "0,cache=volatile,fua=no,crash=yes",
];

/// Rules D1, C7. The defect: the second O_SYNC overwrite of a clock tick found nothing to commit and was acknowledged without any
/// flush. The same happened to the edges that a range operation zeroes.
#[test]
fn nothing_to_commit_is_no_reason_to_leave_the_flush_out() {
    let _watchdog = Watchdog::new(LIMIT, "nothing to commit");
    for params in DISKS {
        let dir = scratch();
        let stage = Stage::sim(
            &bare(dir.path(), &RECIPES[0]),
            SimOptions::parse(params).unwrap(),
        );
        let volume = stage.open(&quiet()).unwrap();
        let file = volume.open_path("/odd", writable()).unwrap();
        put(&file, (4096, 1, 512), SYNC);
        put(&file, (4096, 2, 512), SYNC);
        survives(&stage, params, "/odd", (4096, 2));
        let flags = writable().sync(true);
        let synced = volume.open_path("/odd", flags).unwrap();
        let zero = diorite::Fallocate::PunchHole;
        synced.fallocate(zero, 4096, 512).unwrap();
        survives(&stage, params, "/odd", (4096, 0));
        put(&file, (4096, 3, 512), LAZY);
        volume.sync().unwrap();
        survives(&stage, params, "/odd", (4096, 3));
    }
}

/// A name, and a call that makes data durable.
type Promise = (&'static str, fn(&Volume, &File));

/// One way to overwrite a block that has just been mapped, and to make that durable.
struct Syncing {
    name: &'static str,
    overwrite: RequestFlags,
    sync: fn(&Volume, &File),
}

const SYNCING: [Syncing; 5] = [
    Syncing {
        name: "fdatasync",
        overwrite: LAZY,
        sync: |_, file| file.sync_data().unwrap(),
    },
    Syncing {
        name: "fsync",
        overwrite: LAZY,
        sync: |_, file| file.sync().unwrap(),
    },
    Syncing {
        name: "Volume::sync",
        overwrite: LAZY,
        sync: |volume, _| volume.sync().unwrap(),
    },
    Syncing {
        name: "O_DSYNC",
        overwrite: DSYNC,
        sync: |_, _| (),
    },
    Syncing {
        name: "O_SYNC",
        overwrite: SYNC,
        sync: |_, _| (),
    },
];

/// Rule D1. The defect: while another thread's commit was between its flush and its end, a sync waited for that commit only, though
/// the sync's data had ended after that flush.
#[test]
fn a_commit_whose_flush_began_before_covers_nothing() {
    for syncing in &SYNCING {
        let _watchdog = Watchdog::new(LIMIT, syncing.name);
        let dir = scratch();
        let path = bare(dir.path(), &RECIPES[0]);
        let stage = Stage::sim(&path, SimOptions::parse(DISKS[0]).unwrap());
        let valve = Valve::new(stage.device.clone());
        let volume = Volume::open_device(Arc::new(valve.clone()), &quiet()).unwrap();
        let open = |path| volume.open_path(path, writable()).unwrap();
        let (other, file) = (open("/odd"), open("/sparse"));
        // The volume is marked as in use, and two files have changed.
        put(&other, (1 << 20, 9, 4096), LAZY);
        other.sync().unwrap();
        put(&file, (0, 1, 4096), LAZY);
        put(&other, (2 << 20, 9, 4096), LAZY);
        valve.hold_fua(true);
        let committer = thread::spawn(move || other.sync());
        while valve.holding() == 0 {
            thread::yield_now();
        }
        // The commit's flush is over, its commit block is held.
        if syncing.overwrite == LAZY {
            put(&file, (0, 2, 512), LAZY);
        }
        let (of_volume, of_file) = (volume.clone(), file.clone());
        let syncer = thread::spawn(move || {
            if syncing.overwrite != LAZY {
                put(&of_file, (0, 2, 512), syncing.overwrite);
            }
            (syncing.sync)(&of_volume, &of_file);
        });
        // Long enough for the call to meet the commit under way. If it is too short, the call finds the commit ended and owes the
        // same.
        thread::sleep(Duration::from_millis(50));
        valve.hold_fua(false);
        syncer.join().unwrap();
        survives(&stage, syncing.name, "/sparse", (0, 2));
        committer.join().unwrap().unwrap();
        drop(file);
        volume.close().unwrap();
        stage.fsck();
    }
}

/// Rule D1: what is durable is not made durable again. One flush that began after the data answers every later sync.
#[test]
fn a_flush_that_began_later_is_shared() {
    let _watchdog = Watchdog::new(LIMIT, "a shared flush");
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let stage = Stage::sim(&path, SimOptions::parse(DISKS[0]).unwrap());
    let volume = stage.open(&quiet()).unwrap();
    let file = volume.open_path("/sparse", writable()).unwrap();
    put(&file, (0, 1, 4096), LAZY);
    let before = stage.disk().counters();
    // This sync's commit includes a flush after the data.
    file.sync().unwrap();
    let did = stage.disk().counters().since(&before);
    assert_eq!(did.flushes, 1, "{did:?}");
    // Nothing was written since: the flush is repeated, the commit is not.
    let before = stage.disk().counters();
    file.sync().unwrap();
    let did = stage.disk().counters().since(&before);
    assert_eq!((did.flushes, did.writes), (1, 0), "{did:?}");
}

/// Rule D2. The defect: a loop device above a disk without a cache reported that it has none either, so nobody ever synced its
/// file, whose map was in memory only.
#[test]
fn a_stack_on_a_disk_without_a_cache_is_durable() {
    let _watchdog = Watchdog::new(LIMIT, "a stack without a cache");
    let dir = scratch();
    let made = |name: &str, size, source: &dyn Fn(&std::path::Path)| {
        let (at, from) = (
            dir.path().join(name),
            dir.path().join(format!("{name}-source")),
        );
        std::fs::create_dir(&at).unwrap();
        std::fs::create_dir(&from).unwrap();
        source(&from);
        image(&at, size, &["-t", "ext4", "-b", "4096"], &from)
    };
    let inner = made("inner", "16M", &|from| {
        std::fs::write(from.join("file"), b"").unwrap()
    });
    let sparse = |from: &std::path::Path| {
        let to = from.join("inner");
        run(
            "cp",
            &[
                "--sparse=always",
                inner.to_str().unwrap(),
                to.to_str().unwrap(),
            ],
        );
    };
    let stage = Stage::mem(&made("outer", "64M", &sparse));
    assert!(!stage.device.geometry().volatile_cache);
    let below = stage.open(&quiet()).unwrap();
    let loop_on = |volume: &Volume| {
        let file = volume.open_path("/inner", writable()).unwrap();
        Arc::new(LoopDevice::new(file, "loop".into()))
    };
    let promises: [Promise; 4] = [
        ("O_DSYNC", |_, file| put(file, (0, 1, 1 << 20), DSYNC)),
        ("fdatasync", |_, file| {
            put(file, (1 << 20, 2, 1 << 20), LAZY);
            file.sync_data().unwrap();
        }),
        ("fsync", |_, file| {
            put(file, (2 << 20, 3, 1 << 20), LAZY);
            file.sync().unwrap();
        }),
        ("Volume::sync", |volume, file| {
            put(file, (3 << 20, 4, 1 << 20), LAZY);
            volume.sync().unwrap();
        }),
    ];
    let above = Volume::open_device(loop_on(&below), &quiet()).unwrap();
    let file = above.open_path("/file", writable()).unwrap();
    for (n, (what, promise)) in promises.iter().enumerate() {
        promise(&above, &file);
        // A disk without a cache keeps every write that has ended.
        let cut = Arc::new(mem_of(&stage.bytes()));
        let cut = Volume::open_device(cut, &OpenOptions::writable()).unwrap();
        for (done, byte) in (0..=n).zip(1..) {
            let found = byte_at(loop_on(&cut), "/file", (done as u64) << 20);
            assert_eq!(found, byte, "behind {what}: MiB {done}");
        }
    }
}

/// Rule D4. The defect: one commit wrote the times of all inodes that were written to, however many. With 4,400 files and blocks of
/// 1 KiB they did not fit into the smallest journal, which was aborted. The number of inodes that noted times keep in memory is
/// bounded, too.
#[test]
fn times_of_many_files_take_several_transactions() {
    const FILES: usize = 4400;
    let _watchdog = Watchdog::new(2 * LIMIT, "many times");
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..FILES {
        std::fs::write(tree.join(format!("f{n}")), [1; 1024]).unwrap();
    }
    let made = "-t ext4 -b 1024 -I 256 -N 8192 -J size=1";
    let path = image(dir.path(), "40M", &words(made), &tree);
    for ended_by in [Volume::sync, |volume: &Volume| volume.clone().close()] {
        let stage = Stage::mem(&path);
        let volume = stage.open(&quiet()).unwrap();
        for n in 0..FILES {
            let file = volume.open_path(&format!("/f{n}"), writable()).unwrap();
            put(&file, (0, 7, 512), LAZY);
        }
        ended_by(&volume).unwrap();
        let commits = volume.journal_stats().commits;
        assert!(commits > 1, "{commits} commits");
        drop(volume);
        stage.fsck();
        let volume = stage.open(&OpenOptions::default()).unwrap();
        for n in 0..FILES {
            let file = volume
                .open_path(&format!("/f{n}"), OpenFlags::default())
                .unwrap();
            assert_eq!(file.metadata().mtime.secs, NOW.as_secs() as i64, "/f{n}");
        }
    }
}

/// Rule D1. The defect: a thread that wrote noted times first took all of them out of the list. A second sync found neither them
/// nor a transaction, and was acknowledged before they were written.
#[test]
fn a_sync_does_not_overtake_who_writes_times() {
    let _watchdog = Watchdog::new(LIMIT, "two syncs");
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let stage = Stage::sim(&path, SimOptions::parse(DISKS[0]).unwrap());
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &quiet()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    put(&file, (4096, 7, 512), LAZY);
    // Before the first handle, the superblock is written; its block begins with zeros.
    valve.hold(&[0]);
    let sync = |volume: &Volume| {
        let volume = volume.clone();
        thread::spawn(move || volume.sync())
    };
    let first = sync(&volume);
    while valve.holding() == 0 {
        thread::yield_now();
    }
    let second = sync(&volume);
    // Long enough to be acknowledged by mistake. If it is too short, the test finds nothing.
    thread::sleep(Duration::from_millis(100));
    assert!(!second.is_finished(), "nothing was written yet");
    valve.hold(&[]);
    second.join().unwrap().unwrap();
    let cut = Arc::new(stage.disk().crash(1).unwrap());
    let cut = Volume::open_device(cut, &OpenOptions::default()).unwrap();
    let found = cut
        .open_path("/odd", OpenFlags::default())
        .unwrap()
        .metadata()
        .mtime;
    assert_eq!(found.secs, NOW.as_secs() as i64);
    first.join().unwrap().unwrap();
}

/// Rule D1. The defect: data written into the inode of a file with the flag `S`, or opened with O_DSYNC, was in memory only when
/// the call returned.
#[test]
fn what_is_kept_inside_is_durable_where_a_write_is() {
    let _watchdog = Watchdog::new(LIMIT, "kept inside");
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let args = "-t ext4 -b 4096 -I 256 -O inline_data";
    let path = image(dir.path(), "32M", &words(args), &tree);
    let stage = Stage::sim(&path, SimOptions::parse(DISKS[0]).unwrap());
    let volume = stage.open(&quiet()).unwrap();
    for (path, byte) in [("/flag", 1), ("/dsync", 2), ("/sync", 3)] {
        let made = volume.create(path, 0o644).unwrap();
        if path == "/flag" {
            made.set_flags(made.metadata().flags.with(InodeFlags::SYNC))
                .unwrap();
        }
        volume.sync().unwrap();
        let flags = writable().dsync(path == "/dsync").sync(path == "/sync");
        let file = volume.open_path(path, flags).unwrap();
        assert!(file.keep_inside(&[byte; 40]).unwrap());
        survives(&stage, path, path, (0, byte));
    }
}

/// Times that were noted in an atomic change belong to a later transaction. The defects: a sync in an atomic change of nothing else was
/// acknowledged without them (rule D1); an abandoned atomic change left them in the list, and their inodes kept the volume and its device
/// open for ever.
#[test]
fn times_in_a_group_are_neither_promised_nor_kept() {
    let _watchdog = Watchdog::new(LIMIT, "times in an atomic change");
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let stage = Stage::sim(&path, SimOptions::parse(DISKS[0]).unwrap());
    let before = Arc::strong_count(&stage.device);
    let volume = stage.open(&quiet()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let atomic = volume.atomic().unwrap();
    volume.sync().unwrap();
    put(&file, (4096, 7, 512), LAZY);
    assert!(matches!(volume.sync(), Err(Error::InAtomic)));
    drop((file, volume));
    atomic.abandon().unwrap();
    assert_eq!(Arc::strong_count(&stage.device), before);
}
