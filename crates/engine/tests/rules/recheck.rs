//! What a request checks again after it has waited: the size, the map, its place, its permissions (rules G15, U7).
//!
//! Input: volumes on a device that holds requests back. Output: none. Invariants: counts are asserted, times never; e2fsck judges the end.
//! Limits: the cases of two or three requests.

use crate::common::fixture::{LIMIT, filled, known, made, run_all, writable};
use crate::common::fsck;
use crate::common::recipe::RECIPES;
use crate::common::stage::{Stage, one_worker};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::rules::bed::Bed;
use diorite::policy::PRESETS;
use diorite::{Completion, Error, Fallocate, MappingState, Policy, Queue, Request, Volume};
use diorite_format::InodeFlags;
use std::sync::Arc;

fn reap(queue: &Queue, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        queue.reap(&mut done, 1, None);
    }
    done.sort_by_key(|d| d.token);
    done
}

fn collect(queue: &Queue, count: usize) {
    let done = reap(queue, count);
    assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
}

/// Rule G15. An operation that makes a file longer checks the size after earlier appends have ended, so it cuts none of them off;
/// one that makes the file shorter frees all that they have put past the new end.
#[test]
fn the_size_is_looked_at_after_the_wait() {
    let _watchdog = Watchdog::new(LIMIT, "size after the wait");
    let keep_size = false;
    let modes = [
        Fallocate::Allocate { keep_size },
        Fallocate::ZeroRange { keep_size },
        Fallocate::WriteZeroes { keep_size },
    ];
    let cases = modes.map(Some).into_iter().chain([None]);
    for (mode, end) in cases.flat_map(|mode| [(mode, 12_288), (mode, 40_960)]) {
        let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
        let (file, queue, id) = bed.open("/empty");
        bed.valve.hold(&[1]);
        let appends = (0..4).map(|n| Request::append(id, filled(1, 8192), n));
        let operation = match mode {
            Some(mode) => Request::fallocate(id, mode, 0, end, 4),
            None => Request::truncate(id, end, 4),
        };
        queue.submit(&mut appends.chain([operation]).collect());
        let waits = || queue.counters().parked - queue.counters().parked_for_range == 1;
        while !waits() {
            queue.reap(&mut Vec::new(), 0, None);
        }
        assert_eq!(file.size(), 0, "{mode:?}: the appends are held");
        bed.valve.hold(&[]);
        collect(&queue, 5);
        let size = if mode.is_some() { end.max(32_768) } else { end };
        assert_eq!(file.size(), size, "{mode:?} to {end}");
        let behind = file.mappings(size, 1 << 20).unwrap();
        assert!(behind.iter().all(|m| m.state == MappingState::Hole));
        let data = match mode {
            Some(Fallocate::Allocate { .. }) => 0..32_768,
            Some(_) => end.min(32_768)..32_768,
            None => 0..end.min(32_768),
        };
        let mut bytes = vec![0xEE; size as usize];
        file.read_bytes(0, &mut bytes).unwrap();
        for (at, byte) in (0..).zip(&bytes) {
            let want = u8::from(data.contains(&at));
            assert_eq!(*byte, want, "{mode:?} to {end}: byte {at}");
        }
        drop((file, queue));
        bed.judge();
    }
}

/// Rule U7. A write has checked the size and a part of the map, and then finds that it must run alone; a truncation that came
/// meanwhile goes first. The write checks both again: the file ends where the write ends, with its data, and with zeros where it
/// was truncated. A write that need not run alone goes before the truncation.
#[test]
fn who_has_to_run_alone_after_all_looks_at_the_size_again() {
    let (dir, image, files) = made(0);
    let holed = known(&files, "/holed");
    let last = holed.written.iter().rposition(|w| !w).unwrap() as u64;
    let mut went_second = Vec::new();
    for (name, policy) in PRESETS {
        for len in [512, 4096] {
            let _watchdog = Watchdog::new(LIMIT, format!("{name}, {len}"));
            let stage = Stage::mem(&image);
            let valve = Valve::new(stage.device.clone());
            let volume = Volume::open_device(Arc::new(valve.clone()), &one_worker(policy)).unwrap();
            let file = volume.open_path("/holed", writable()).unwrap();
            let queue = volume.queue(4).unwrap();
            let id = queue.attach(&file).unwrap();
            // The write needs a part of the map that has to be read.
            valve.hold_reads(0..u64::MAX);
            let pos = last * 4096;
            let write = Request::write(id, pos, filled(1, len), 0);
            queue.submit(&mut [write, Request::truncate(id, 8192, 1)].into());
            assert_eq!(
                (queue.counters().map_loads, queue.counters().parked),
                (1, 1)
            );
            valve.hold_reads(0..0);
            collect(&queue, 2);
            let end = pos + len as u64;
            let mut bytes = vec![0xEE; end as usize];
            let read = file.read_bytes(0, &mut bytes).unwrap();
            assert_eq!(read as u64, file.size());
            assert!(bytes[..8192] == holed.bytes[..8192]);
            if file.size() == end {
                assert!(bytes[8192..pos as usize].iter().all(|b| *b == 0));
                assert!(bytes[pos as usize..].iter().all(|b| *b == 1));
                went_second.push((name, len));
            } else {
                assert_eq!(file.size(), 8192, "{name}, {len}");
            }
            drop((file, queue));
            volume.close().unwrap();
            std::fs::write(dir.path().join("after"), stage.bytes()).unwrap();
            fsck(&dir.path().join("after"));
        }
    }
    let shared = [("linux-6.5", 512), ("linux-6.19", 512)];
    let alone = ["linux-2.6.31", "linux-4.15", "linux-5.10"].map(|name| (name, 4096));
    went_second.sort_unstable();
    let mut expected: Vec<_> = shared.into_iter().chain(alone).collect();
    expected.sort_unstable();
    assert_eq!(went_second, expected);
}

/// Rule U7. The map that was read for a write is out of date when it gets its range, because another write has filled the hole. The
/// write maps again and zeroes no sector of the other write: the data of both is there.
#[test]
fn a_map_from_before_the_range_counts_for_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "an old map");
    let (dir, image, files) = made(0);
    let holed = known(&files, "/holed");
    // The first block is before the first extent: no node of the map has to be read for it.
    let mut empty = (4..holed.written.len()).filter(|n| !holed.written[*n]);
    for block in [empty.next(), empty.next_back()].map(Option::unwrap) {
        let stage = Stage::mem(&image);
        let volume = stage.open(&one_worker(Policy::DIORITE)).unwrap();
        let file = volume.open_path("/holed", writable()).unwrap();
        let (late, early) = (volume.queue(4).unwrap(), volume.queue(4).unwrap());
        let (late_id, early_id) = (late.attach(&file).unwrap(), early.attach(&file).unwrap());
        let pos = block as u64 * 4096;
        late.submit(&mut [Request::write(late_id, pos, filled(1, 512), 0)].into());
        assert_eq!(late.counters().map_loads, 1);
        // One worker reads the map for both writes: for the second one after the first.
        let write = Request::write(early_id, pos + 512, filled(2, 512), 0);
        assert!(run_all(&early, vec![write])[0].result.is_ok());
        collect(&late, 1);
        let mut bytes = [0xEE; 4096];
        file.read_bytes(pos, &mut bytes).unwrap();
        for (sector, bytes) in bytes.chunks(512).enumerate() {
            let want = [1, 2].get(sector).copied().unwrap_or(0);
            assert!(bytes.iter().all(|b| *b == want), "sector {sector}");
        }
        assert_eq!(volume.counters().pads, 1);
        drop((file, late, early));
        volume.close().unwrap();
        std::fs::write(dir.path().join("after"), stage.bytes()).unwrap();
        fsck(&dir.path().join("after"));
    }
}

/// Rule U7. An append that waits for the exclusive turn is placed where the file ends once it has the turn.
#[test]
fn an_append_that_waits_goes_where_the_file_ends_then() {
    for (name, policy) in PRESETS {
        let _watchdog = Watchdog::new(LIMIT, name);
        let bed = Bed::new(&RECIPES[0], &one_worker(policy));
        let (file, queue, id) = bed.open("/empty");
        bed.valve.hold(&[1]);
        let append = |n: u8| Request::append(id, filled(n, 4096 * usize::from(n)), n.into());
        queue.submit(&mut (1..=3).map(append).collect());
        bed.valve.hold(&[]);
        let mut at = 0;
        for done in reap(&queue, 3) {
            let len = done.result.unwrap();
            assert_eq!((done.pos, len as u64), (at, 4096 * done.token), "{name}");
            let mut bytes = vec![0xEE; len];
            file.read_bytes(at, &mut bytes).unwrap();
            assert!(bytes.iter().all(|b| u64::from(*b) == done.token), "{name}");
            at += len as u64;
        }
        assert_eq!(file.size(), at);
        drop((file, queue));
        bed.judge();
    }
}

/// Rule U7. A write that was allowed when it was submitted, but is not any more when its wait ends, is refused and has written
/// nothing.
#[test]
fn who_may_not_write_any_more_after_the_wait_is_refused() {
    let _watchdog = Watchdog::new(LIMIT, "not any more");
    let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
    let (file, queue, id) = bed.open("/odd");
    let closed = file.quiesce();
    let write = |n: u64| Request::write(id, n * 4096, filled(1, 4096), n);
    queue.submit(&mut [write(0), write(30), Request::append(id, filled(1, 512), 31)].into());
    queue.submit(&mut [Request::read(id, 0, filled(2, 512), 32)].into());
    assert_eq!(queue.counters().parked, 4);
    assert_eq!(bed.volume.usage().waiting_requests, 4);
    let flags = file.metadata().flags;
    file.set_flags(flags.with(InodeFlags::IMMUTABLE)).unwrap();
    drop(closed);
    let mut ended = reap(&queue, 4);
    let read = ended.pop().unwrap();
    assert_eq!((read.token, read.result.unwrap()), (32, 512));
    assert!(read.buf.as_slice().iter().all(|b| *b == 0x55));
    for done in ended {
        let refused = matches!(done.result, Err(Error::NotPermitted { .. }));
        assert!(refused, "{done:?}");
    }
    assert_eq!(bed.volume.usage().waiting_requests, 0);
    let mut bytes = vec![0xEE; 100_001];
    assert_eq!(
        (file.read_bytes(0, &mut bytes).unwrap(), file.size()),
        (100_001, 100_001)
    );
    assert!(bytes.iter().all(|b| *b == 0x55));
    file.set_flags(flags).unwrap();
    assert!(run_all(&queue, vec![write(0)])[0].result.is_ok());
    drop((file, queue));
    bed.judge();
}
