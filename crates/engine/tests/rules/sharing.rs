//! Which requests of one file wait for others: readers for none; writers, depending on the preset, for those that run alone;
//! changes of the map for all (rules U6, U7, B2, G13, G16).
//!
//! Input: volumes on a device that holds writes back. Output: none. Invariants: counts are asserted, times never; e2fsck judges the end.
//! Limits: the cases of a few writers.

use crate::common::Rng;
use crate::common::fixture::{LIMIT, filled, run_all, writable};
use crate::common::recipe::RECIPES;
use crate::common::stage::one_worker;
use crate::common::watch::Watchdog;
use crate::rules::bed::Bed;
use diorite::policy::PRESETS;
use diorite::{Fallocate, File, MappingState, Policy, Queue, Request, Volume};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn collect(queue: &Queue, count: usize) {
    let mut done = Vec::new();
    while done.len() < count {
        queue.reap(&mut done, 1, None);
    }
    assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
}

/// Rule U6. While the device holds overwrites, fills of holes and appends of a file, readers of that file in several threads
/// complete; none is parked, and they see the data from before the writes.
#[test]
fn readers_wait_for_no_writer() {
    let _watchdog = Watchdog::new(LIMIT, "readers");
    let mut rng = Rng::from_env("readers");
    for path in ["/odd", "/sparse"] {
        let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
        let (file, queue, id) = bed.open(path);
        let size = file.size();
        bed.valve.hold(&[0x99]);
        let writes: Vec<Request> = (0..24)
            .map(|n| Request::write(id, n * 8192, filled(0x99, 4096), n))
            .chain((24..32).map(|n| {
                Request::write(
                    id,
                    (1 << 20) + size / 512 * 512 + n * 4096,
                    filled(0x99, 4096),
                    n,
                )
            }))
            .collect();
        let count = writes.len();
        let mut batch = VecDeque::from(writes);
        queue.submit(&mut batch);
        assert!(batch.is_empty());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (mut rng, bed, file) = (rng.fork(), &bed, &file);
                scope.spawn(move || {
                    let queue = bed.volume.queue(32).unwrap();
                    let id = queue.attach(file).unwrap();
                    for _ in 0..40 {
                        let reads = (0..32)
                            .map(|n| Request::read(id, 512 * rng.below(200), Buf::zeroed(4096), n));
                        for done in run_all(&queue, reads.collect()) {
                            let got = done.result.unwrap();
                            // Sectors that are being overwritten may be old or new.
                            let seen = &done.buf.as_slice()[..got];
                            assert!(seen.iter().all(|b| [0x55, 0, 0x99].contains(b)), "{path}");
                        }
                    }
                    assert_eq!(queue.counters().parked, 0, "{path}");
                    assert_eq!(queue.counters().parked_for_range, 0, "{path}");
                });
            }
        });
        assert_eq!(
            queue.in_use(),
            count,
            "{path}: the writes are still in flight"
        );
        bed.valve.hold(&[]);
        collect(&queue, count);
        drop((file, queue));
        bed.finish();
    }
}

/// Rules B2, U7. A write over a written block and a hole is no overwrite. Presets that run such writes alone park all later writes;
/// `diorite` parks only those that need the same block. A parked request checks size and map again: it finds the hole filled and
/// the file longer, zeroes nothing of that, and the sectors of both writers are there in the end.
#[test]
fn who_was_kept_out_looks_again() {
    let _watchdog = Watchdog::new(LIMIT, "kept out");
    for (name, policy) in PRESETS {
        let bed = Bed::new(&RECIPES[0], &one_worker(policy));
        let (file, queue, id) = bed.open("/odd");
        // The file ends in the fourth sector of its last block, with nothing after it.
        let last = 100_001 / 4096 * 4096;
        bed.valve.hold(&[1]);
        queue.submit(&mut VecDeque::from([
            Request::write(id, last + 6 * 512, filled(1, 4096), 1),
            Request::write(id, last + 14 * 512, filled(2, 1024), 2),
        ]));
        // An overwrite far away in the same file: whether it waits depends on the preset.
        queue.submit(&mut VecDeque::from([Request::write(
            id,
            4096,
            filled(3, 4096),
            3,
        )]));
        let mut done = Vec::new();
        while queue.counters().parked == 0 {
            queue.reap(&mut done, 0, None);
        }
        let counters = queue.counters();
        bed.valve.hold(&[]);
        let for_turn = counters.parked > counters.parked_for_range;
        assert_eq!(for_turn, name != "diorite", "{name}: waits for the turn");
        collect(&queue, 3 - done.len());
        assert_eq!(file.size(), last + 16 * 512, "{name}");
        let mut bytes = vec![0xEE; file.size() as usize];
        file.read_bytes(0, &mut bytes).unwrap();
        for (sector, byte) in [(5, 0), (6, 1), (13, 1), (14, 2), (15, 2)] {
            let at = last as usize + sector * 512;
            assert!(
                bytes[at..at + 512].iter().all(|b| *b == byte),
                "{name}: sector {sector}"
            );
        }
        assert!(bytes[4096..8192].iter().all(|b| *b == 3), "{name}");
        drop((file, queue));
        bed.finish();
    }
}

/// Rule B2: inside the size, too, a write of parts of blocks over a written block and a hole is no overwrite.
#[test]
fn half_a_hole_is_no_overwrite() {
    let _watchdog = Watchdog::new(LIMIT, "half a hole");
    for (name, policy) in PRESETS {
        let bed = Bed::new(&RECIPES[0], &one_worker(policy));
        let (file, queue, id) = bed.open("/sparse");
        for block in [0, 16] {
            let write = file.write_at(block * 4096, filled(4, 4096));
            assert_eq!(write.1.unwrap(), 4096);
        }
        bed.valve.hold(&[1]);
        queue.submit(&mut VecDeque::from([
            Request::write(id, 2048, filled(1, 4096), 1),
            Request::write(id, 16 * 4096, filled(2, 4096), 2),
        ]));
        let mut done = Vec::new();
        // A request that is not kept out completes while the first is held.
        while done.is_empty() && queue.counters().parked == 0 {
            queue.reap(&mut done, 0, None);
        }
        let alone = queue.counters().parked == 1;
        assert_eq!(alone, name != "diorite", "{name}");
        bed.valve.hold(&[]);
        collect(&queue, 2 - done.len());
        let mut bytes = vec![0xEE; 8192];
        file.read_bytes(0, &mut bytes).unwrap();
        for (sector, bytes) in bytes.chunks(512).enumerate() {
            let want = [4, 1, 0][usize::from(sector >= 4) + usize::from(sector >= 12)];
            assert!(bytes.iter().all(|b| *b == want), "{name}: sector {sector}");
        }
        drop((file, queue));
        bed.finish();
    }
}

/// Rule G13: a thread that closes the gate of a file waits for the writes that the device has.
#[test]
fn a_closer_waits_for_what_the_device_has() {
    let _watchdog = Watchdog::new(LIMIT, "closer");
    let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
    let (file, queue, id) = bed.open("/odd");
    let closers: [fn(&File); 3] = [
        |file| drop(file.quiesce()),
        |file| file.truncate(50_000).unwrap(),
        |file| file.fallocate(Fallocate::PunchHole, 0, 8192).unwrap(),
    ];
    for close in closers {
        bed.valve.hold(&[1]);
        let writes = (0..4).map(|n| Request::write(id, n * 4096, filled(1, 4096), n));
        queue.submit(&mut writes.collect());
        let (start, closed) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| {
                start.wait();
                close(&file);
                closed.store(true, Ordering::SeqCst);
            });
            start.wait();
            // Long enough for a thread that does not wait.
            std::thread::sleep(Duration::from_millis(20));
            let early = closed.load(Ordering::SeqCst);
            bed.valve.hold(&[]);
            closer.join().unwrap();
            assert!(!early, "closed while writes were in flight");
        });
        collect(&queue, 4);
    }
    drop((file, queue));
    bed.finish();
}

/// Rule G16. A read is on the device while its file is truncated, punched or deleted: the blocks can go to another file only once
/// the read has ended, so it returns none of that file's bytes.
#[test]
fn a_read_keeps_its_blocks_until_it_has_ended() {
    let _watchdog = Watchdog::new(LIMIT, "a read and its blocks");
    let closers: [fn(&File); 2] = [
        |file| file.truncate(0).unwrap(),
        |file| file.fallocate(Fallocate::PunchHole, 0, 1 << 20).unwrap(),
    ];
    for (recipe, close) in [0, 2].into_iter().flat_map(|n| closers.map(|c| (n, c))) {
        let recipe = &RECIPES[recipe];
        let bed = Bed::new(recipe, &one_worker(Policy::DIORITE));
        let (file, queue, id) = bed.open("/odd");
        let MappingState::Written(at) = file.mappings(0, 1).unwrap()[0].state else {
            panic!("the first block holds data")
        };
        let from = at.get() * recipe.block;
        bed.valve.hold_reads(from..from + recipe.block);
        queue.submit(&mut [Request::read(id, 0, Buf::zeroed(8192), 0)].into());
        let (closed, taken) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                close(&file);
                closed.store(true, Ordering::SeqCst);
                bed.volume.sync().unwrap();
                take_all(&bed.volume, recipe.block as usize);
                taken.store(true, Ordering::SeqCst);
            });
            // Long enough for a thread that does not wait; after the read has ended it may take the blocks.
            std::thread::sleep(Duration::from_millis(20));
            while closed.load(Ordering::SeqCst) && !taken.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            bed.valve.hold_reads(0..0);
            taker.join().unwrap();
        });
        let mut done = Vec::new();
        while done.is_empty() {
            queue.reap(&mut done, 1, None);
        }
        assert_eq!(done[0].result.clone().unwrap(), 8192);
        let stranger = done[0].buf.as_slice().iter().find(|b| **b != 0x55);
        assert_eq!(stranger, None, "{}: another file's", recipe.name);
        drop((file, queue));
        bed.finish();
    }
}

/// Gives all free space to one file.
fn take_all(volume: &Volume, block: usize) {
    let file = volume.open_path("/empty", writable()).unwrap();
    for len in [64 * block, block] {
        while file.write_at(file.size(), filled(0x99, len)).1.is_ok() {}
    }
}
