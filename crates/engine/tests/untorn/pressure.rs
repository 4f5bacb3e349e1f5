//! Atomic writes where memory or space is short, or other files have it: maps that are evicted meanwhile, old blocks of idle files, writers
//! of other files on a full volume.
//!
//! Input: small caches, small volumes, several files. Output: none. Invariants: every write ends; no handle takes more than it has asked
//! for; one file's old blocks do not slow another. Limits: none of its own.

use super::full::{fill, is_full};
use super::{FOUR_K, ONE_K, atomic, made, opened, sim};
use crate::common::fixture::{filled, run_all, writable};
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scratch};
use diorite::{Error, Fallocate, File, OpenFlags, OpenOptions, Request, Volume};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Maps that are evicted between a write's data and its edit: its cost is not known then without a read.
#[test]
fn maps_may_leave_memory_meanwhile() {
    const PARTS: u64 = 2000;
    let _watchdog = Watchdog::new(Duration::from_secs(120), "evicted maps");
    let dir = scratch();
    let stage = sim(
        &made(dir.path(), &ONE_K, "64M"),
        "latency=300us,jitter=300us",
    );
    let options = OpenOptions::writable().map_cache(4096).keep_for_maps(false);
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    file.truncate(0).unwrap();
    file.write_buf(0, filled(5, 8 << 20)).1.unwrap();
    for n in 0..PARTS {
        file.fallocate(Fallocate::PunchHole, n * 4096 + 2048, 2048)
            .unwrap();
    }
    volume.sync().unwrap();
    let mut rng = Rng::from_env("untorn-evicted");
    let over = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let (mut reads, volume, over) = (rng.fork(), &volume, &over);
        let direct = OpenFlags::default().direct(true);
        let reader = volume.open_path("/file", direct).unwrap();
        scope.spawn(move || {
            while !over.load(Relaxed) {
                let pos = reads.below(PARTS) * 4096;
                reader.read_buf(pos, filled(0, 4096)).1.unwrap();
            }
        });
        let queue = volume.queue(64).unwrap();
        let id = queue.attach(&file).unwrap();
        let mut failed = Vec::new();
        for round in 0..40u64 {
            let write = |n, pos| Request::write(id, pos, filled(round as u8, 1024), n).atomic();
            let requests = (0..48).map(|n| write(n, rng.below(PARTS) * 4096));
            let done = run_all(&queue, requests.collect());
            failed.extend(done.into_iter().filter_map(|d| d.result.err()));
        }
        over.store(true, Relaxed);
        failed
    });
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(volume.journal_stats().uncredited, 0);
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// An idle file with as many old blocks as the volume shall have: another file's writes do not take the turn one by one.
#[test]
fn old_blocks_of_one_file_do_not_slow_another() {
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), &FOUR_K, "64M"));
    let (volume, idle) = opened(&stage);
    let busy = volume.open_path("/filler", writable()).unwrap();
    let queue = volume.queue(32).unwrap();
    let id = queue.attach(&busy).unwrap();
    let parked = || {
        let before = queue.counters().parked;
        for _ in 0..20 {
            let write = |n| Request::write(id, n * 8192, filled(3, 8192), n).atomic();
            for done in run_all(&queue, (0..32).map(write).collect()) {
                done.result.unwrap();
            }
        }
        queue.counters().parked - before
    };
    parked();
    volume.sync().unwrap();
    let alone = parked();
    // The turn: no old blocks.
    busy.truncate(0).unwrap();
    // A sixteenth of the volume, but for what the busy one has.
    for _ in 0..63 {
        atomic(&idle, 0, 2, 65536).unwrap();
    }
    volume.sync().unwrap();
    let beside = parked() + parked();
    // A turn for each MiB of old blocks, a quarter of the most, instead of each write.
    assert!(beside <= 10 * alone + 64, "{alone} alone, {beside} beside");
    drop((queue, idle, busy));
    volume.close().unwrap();
    stage.fsck();
}

/// On a full volume a writer is told so, although blocks are freed all the time: they are the atomic writers' again, none of which fails.
#[test]
fn a_full_volume_is_full_for_others() {
    let _watchdog = Watchdog::new(Duration::from_secs(120), "others on a full volume");
    let dir = scratch();
    let stage = sim(
        &made(dir.path(), &FOUR_K, "32M"),
        "latency=100us,jitter=100us,cache=volatile",
    );
    let (volume, file) = opened(&stage);
    file.write_buf(0, filled(1, 1 << 20)).1.unwrap();
    atomic(&file, 0, 1, 65536).unwrap();
    let filler = fill(&volume);
    let over = AtomicBool::new(false);
    let errors: Vec<Error> = thread::scope(|scope| {
        for k in 0..2u64 {
            let (file, over, volume) = (&file, &over, &volume);
            scope.spawn(move || overwrite_until(volume, file, k << 19, over));
        }
        thread::sleep(Duration::from_millis(100));
        let write = |_| filler.write_buf(filler.size(), filled(0x44, 1 << 20)).1;
        let errors = (0..6).filter_map(|n| write(n).err()).collect();
        over.store(true, Relaxed);
        errors
    });
    assert_eq!(errors.len(), 6);
    for error in errors {
        assert!(is_full(&error), "{error}");
    }
    drop((file, filler));
    volume.close().unwrap();
    stage.fsck();
}

fn overwrite_until(volume: &Volume, file: &File, start: u64, over: &AtomicBool) {
    let queue = volume.queue(64).unwrap();
    let id = queue.attach(file).unwrap();
    while !over.load(Relaxed) {
        let write = |n| Request::write(id, start + n * 4096, filled(3, 4096), n).atomic();
        for done in run_all(&queue, (0..32).map(write).collect()) {
            done.result.unwrap();
        }
    }
}
