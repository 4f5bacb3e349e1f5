//! Memory after many requests is what it was after some (rule D8).
//!
//! Input: a volume in memory, requests of every kind, some of which fail. Output: none. Invariant: this is the only test of its process, whose resident memory
//! is what is compared. Limits: a tenth of a million requests by default; `DIORITE_LEAK_ROUNDS` is how many times 10,000.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::fixture::{filled, run_all, writable};
use common::recipe::{RECIPES, bare};
use common::stage::Stage;
use common::valve::Valve;
use common::watch::{Watchdog, resident};
use common::{fsck, scaled, scratch};
use diorite::{Fallocate, FileId, OpenOptions, Queue, Request, Volume};
use diorite_block::Buf;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of the file, each of which gets a write of a part of it into a hole.
const BLOCKS: u64 = 1024;
/// What allocators and caches may keep.
const SLACK: u64 = 12 << 20;

/// The zeros around each sub-block write into a hole were not freed where the queue's owner reaped: 16 KiB for each write.
#[test]
fn memory_does_not_grow_with_requests() {
    let watchdog = Watchdog::new(Duration::from_secs(120), "the first round");
    let dir = scratch();
    let image = bare(dir.path(), &RECIPES[0]);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/sparse", writable()).unwrap();
    let queue = volume.queue(64).unwrap();
    let id = queue.attach(&file).unwrap();
    valve.fail(&[0xBD]);
    let mut requests = 0;
    let mut rounds = |until: u64| {
        while requests < until {
            requests += round(&queue, id);
            watchdog.feed(format!("{requests} requests"));
        }
        assert_eq!((queue.in_use(), valve.in_flight()), (0, 0));
        resident()
    };
    let some = rounds(10_000);
    let many = rounds(10_000 * (1 + scaled("DIORITE_LEAK_ROUNDS", 9)));
    let more = many.saturating_sub(some);
    assert!(
        more < SLACK,
        "{} KiB more after {requests} requests",
        more >> 10
    );
    drop((queue, file));
    volume.close().unwrap();
    stage.save();
    fsck(&image);
}

/// Requests of every kind, after which the file is what it was; says how many.
fn round(queue: &Queue, id: FileId) -> u64 {
    let mut count = 0;
    let mut run = |requests: Vec<Request>, good: bool| {
        count += requests.len() as u64;
        for done in run_all(queue, requests) {
            assert_eq!(done.result.is_ok(), good, "{done:?}");
        }
    };
    let each = |make: &dyn Fn(u64, u64) -> Request| {
        let requests = (0..BLOCKS).map(|n| make(n * 4096, n));
        requests.collect::<Vec<_>>()
    };
    run(vec![Request::truncate(id, BLOCKS * 4096, 0)], true);
    // Parts of new blocks: with zeros around them, ending well and not.
    run(
        each(&|pos, n| Request::write(id, pos + 512, filled(0xBD, 512), n)),
        false,
    );
    run(
        each(&|pos, n| Request::write(id, pos + 512, filled(1, 512), n)),
        true,
    );
    run(
        each(&|pos, n| Request::write(id, pos, filled(2, 512), n)),
        true,
    );
    run(
        each(&|pos, n| Request::write(id, pos, filled(0xBD, 512), n)),
        false,
    );
    run(
        each(&|pos, n| Request::read(id, pos, Buf::zeroed(4096), n)),
        true,
    );
    run(
        each(&|pos, n| Request::read(id, pos + 1, Buf::zeroed(512), n)),
        false,
    );
    let vectored = || Buf::from_parts(vec![Buf::zeroed(512), Buf::zeroed(3584)]);
    run(each(&|pos, n| Request::write(id, pos, vectored(), n)), true);
    run(
        (0..64)
            .map(|n| Request::append(id, filled(3, 1536), n))
            .collect(),
        true,
    );
    run(
        (0..64)
            .map(|n| Request::append(id, filled(0xBD, 4096), n))
            .collect(),
        false,
    );
    run(
        (0..8).map(|n| Request::sync(id, n % 2 == 0, n)).collect(),
        true,
    );
    let punch = |pos, n| Request::fallocate(id, Fallocate::PunchHole, pos, 65_536, n);
    run(
        (0..BLOCKS / 16).map(|n| punch(n * 65_536, n)).collect(),
        true,
    );
    run(vec![Request::truncate(id, 0, 0)], true);
    count
}
