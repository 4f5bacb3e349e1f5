//! Atomic writes where memory is short: maps that are evicted meanwhile.
//!
//! Input: small caches. Output: none. Invariants: every write ends; no handle takes more than it has asked for. Limits: none of its own.

use super::{ONE_K, made, sim};
use crate::common::fixture::{filled, run_all, writable};
use crate::common::watch::Watchdog;
use crate::common::{Rng, scratch};
use diorite::{Fallocate, OpenFlags, OpenOptions, Request};
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
    let options = OpenOptions {
        map_cache: 4096,
        keep_for_maps: false,
        ..OpenOptions::writable()
    };
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
        let direct = OpenFlags {
            direct: true,
            ..OpenFlags::default()
        };
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
