//! Where requests complete and what that costs: inline or deferred, FUA or flush (rules C1 to C4, C7).
//!
//! Input: recipes of known files on a simulated disk that counts. Output: none. Invariant: counts are asserted, times never.
//! Limits: overwrites.

use crate::common::Rng;
use crate::common::fixture::{DSYNC, LIMIT, made, run_all, sim, writable};
use crate::common::stage::{Stage, one_worker};
use crate::common::watch::Watchdog;
use diorite::policy::{CompletionPolicy, PRESETS};
use diorite::{OpenFlags, OpenOptions, Reason, Request, RequestFlags, Volume};
use diorite_block::sim::SimClock;
use diorite_block::{Buf, SimOptions};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Rules C1, C3: overwrites complete inline and carry neither FUA nor flush, according to the counters.
#[test]
fn overwrites_are_inline_and_owe_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "inline");
    let (_dir, image, _) = made(0);
    for (name, policy) in PRESETS {
        let stage = sim(&image, "cache=volatile,fua=no");
        let volume = stage.open(&OpenOptions::writable().policy(policy)).unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
        let queue = volume.queue(64).unwrap();
        let id = queue.attach(&file).unwrap();
        let before = stage.disk().counters();
        let requests = (0..200)
            .map(|n| Request::write(id, n * 4096, Buf::zeroed(4096), n))
            .collect();
        assert!(run_all(&queue, requests).iter().all(|d| d.result.is_ok()));
        let did = stage.disk().counters().since(&before);
        assert_eq!(
            (did.writes, did.fua_writes, did.flushes),
            (200, 0, 0),
            "{name}"
        );
        let counted = queue.counters();
        let deferred = if policy.completion == CompletionPolicy::Deferred {
            200
        } else {
            0
        };
        assert_eq!(
            counted.deferred[Reason::Policy as usize],
            deferred,
            "{name}"
        );
        assert_eq!(counted.inline, 200 - deferred, "{name}");
        assert_eq!(counted.deferred.iter().sum::<u64>(), deferred, "{name}");
        // Reads are inline under every policy.
        let requests = (0..100)
            .map(|n| Request::read(id, n * 4096, Buf::zeroed(4096), n))
            .collect();
        run_all(&queue, requests);
        assert_eq!(queue.counters().inline, counted.inline + 100, "{name}");
    }
}

/// Rules C4, C7: the cost of a DSYNC overwrite on a disk with FUA, on one that only flushes, and on one without a cache.
#[test]
fn durability_costs_what_the_disk_needs() {
    let _watchdog = Watchdog::new(LIMIT, "durability");
    let (_dir, image, _) = made(0);
    for (name, policy) in PRESETS {
        for (params, fua, flush) in [
            ("cache=volatile,fua=yes", true, false),
            ("cache=volatile,fua=no", false, true),
            ("cache=none", false, false),
        ] {
            for by_open in [false, true] {
                let what = format!("{name}, {params}, by open: {by_open}");
                let stage = sim(&image, params);
                let volume = stage
                    .open(
                        &OpenOptions::writable()
                            .policy(policy)
                            // Times are committed later, not with these writes.
                            .commit_interval(Duration::from_secs(3600)),
                    )
                    .unwrap();
                let flags = writable().dsync(by_open);
                let file = volume.open_path("/pieces", flags).unwrap();
                let queue = volume.queue(1).unwrap();
                let id = queue.attach(&file).unwrap();
                let wanted = if by_open {
                    RequestFlags::default()
                } else {
                    DSYNC
                };
                let before = stage.disk().counters();
                // One at a time, so that no flush is shared; the last write has several extents.
                let mut pieces = 10;
                for n in 0..10u64 {
                    let done = run_all(
                        &queue,
                        vec![Request::write(id, n * 512, Buf::zeroed(512), n).with_flags(wanted)],
                    );
                    assert!(done[0].result.is_ok(), "{what}");
                }
                let many = Request::write(id, 0, Buf::zeroed(40 * 4096), 0).with_flags(wanted);
                assert!(run_all(&queue, vec![many])[0].result.is_ok(), "{what}");
                let did = stage.disk().counters().since(&before);
                pieces = did.writes.max(pieces);
                assert!(pieces > 11, "{what}: the last write was to be in pieces");
                assert_eq!(did.fua_writes, if fua { pieces } else { 0 }, "{what}");
                assert_eq!(did.flushes, if flush { 11 } else { 0 }, "{what}");
                let deferred = queue.counters().deferred[Reason::Flush as usize];
                assert_eq!(deferred, if flush { 11 } else { 0 }, "{what}");
                // A data sync costs one flush where there is a cache, and nothing where there is none.
                let before = stage.disk().counters();
                let data_sync = Request::sync(id, true, 0);
                assert!(run_all(&queue, vec![data_sync])[0].result.is_ok());
                let did = stage.disk().counters().since(&before);
                assert_eq!(did.flushes, u64::from(fua || flush), "{what}");
                assert_eq!(did.writes, 0, "{what}");
                // A sync also commits the times; a second sync has only the flush to do.
                let before = stage.disk().counters();
                file.sync().unwrap();
                assert!(stage.disk().counters().since(&before).writes > 0, "{what}");
                let before = stage.disk().counters();
                file.sync().unwrap();
                let did = stage.disk().counters().since(&before);
                assert_eq!(
                    (did.flushes, did.writes),
                    (u64::from(fua || flush), 0),
                    "{what}"
                );
            }
        }
    }
}

/// Rules C4, C7, D1. A blocking overwrite that must be durable is one request of a disk that flushes behind writes with FUA: no flush
/// follows. With `sync` this is so if its times are durable already. In pieces, or with a map to commit, it is flushed as before.
#[test]
fn a_blocking_durable_overwrite_is_one_request() {
    let _watchdog = Watchdog::new(LIMIT, "one request");
    let (_dir, image, _) = made(0);
    let sync = DSYNC.sync(true);
    let stage = sim(&image, "cache=volatile,fua=no");
    let options = OpenOptions::writable()
        .commit_interval(Duration::from_secs(3600))
        .clock(|| Duration::from_secs(2_000_000_000));
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/pieces", writable()).unwrap();
    let cost = |pos: u64, len, flags| {
        let before = stage.disk().counters();
        let (_, done) = file.call(diorite::Op::Write, pos, Buf::zeroed(len), flags);
        assert_eq!(done.unwrap(), len);
        let did = stage.disk().counters().since(&before);
        (did.writes, did.fua_writes, did.flushes)
    };
    let commits = || volume.journal_stats().commits;
    assert_eq!(cost(0, 512, DSYNC), (1, 1, 0));
    assert_eq!(cost(512, 1024, DSYNC), (1, 1, 0), "a part of a block");
    assert_eq!(commits(), 0);
    cost(0, 512, sync);
    assert_eq!(commits(), 1, "the first sync commits the time");
    assert_eq!(cost(0, 512, sync), (1, 1, 0), "the time is durable");
    assert_eq!(cost(0, 512, RequestFlags::default()), (1, 0, 0));
    let (writes, fua, flushes) = cost(0, 40 * 4096, DSYNC);
    assert!(writes > 1 && (fua, flushes) == (0, 1), "in pieces");
    assert_eq!(commits(), 1);
    cost(file.size().next_multiple_of(512), 512, DSYNC);
    assert_eq!(commits(), 2, "it moves the size");
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// Rule C4: whatever was acknowledged as durable survives a power cut at any moment. The clock is stepped, the cuts are seeded.
#[test]
fn what_is_acknowledged_survives_a_power_cut() {
    let mut rng = Rng::from_env("power-cut");
    let (_dir, image, _) = made(0);
    for round in 0..40 {
        let _watchdog = Watchdog::new(LIMIT, format!("round {round}"));
        let options = SimOptions::default()
            .volatile_cache(true)
            .fua(round % 2 == 0)
            .crash(true)
            .clock(SimClock::Auto)
            .seed(rng.next());
        let stage = Stage::sim(&image, options);
        let policy = PRESETS[round % 6].1;
        let volume = stage.open(&one_worker(policy)).unwrap();
        let file = volume.open_path("/pieces", writable()).unwrap();
        let queue = volume.queue(16).unwrap();
        let id = queue.attach(&file).unwrap();
        let mut batch = VecDeque::new();
        for n in 0..60u64 {
            let mut buf = Buf::zeroed(3 * 512);
            buf.as_mut_slice().fill(n as u8 + 1);
            batch.push_back(Request::write(id, n * 3 * 512, buf, n).with_flags(DSYNC));
        }
        let stop = rng.below(60) as usize;
        let mut done = Vec::new();
        while done.len() < stop {
            queue.submit(&mut batch);
            queue.reap(&mut done, 1, None);
        }
        let after = stage.disk().crash(rng.next()).unwrap();
        let survivor = Volume::open_device(Arc::new(after), &OpenOptions::default()).unwrap();
        let file = survivor.open_path("/pieces", OpenFlags::default()).unwrap();
        for done in &done {
            assert!(done.result.is_ok());
            let (buf, result) = file.read_buf(done.token * 3 * 512, Buf::zeroed(3 * 512));
            assert_eq!(result.unwrap(), 3 * 512);
            let want = done.token as u8 + 1;
            assert!(
                buf.as_slice().iter().all(|b| *b == want),
                "round {round}: write {} was acknowledged and is lost",
                want - 1
            );
        }
    }
}

/// Rule C2: while the gate of one inode is closed and requests are parked on it, requests of other inodes pass through the same
/// queue.
#[test]
fn a_closed_inode_does_not_stop_the_others() {
    let _watchdog = Watchdog::new(LIMIT, "others");
    let (_dir, image, _) = made(0);
    for (name, policy) in PRESETS {
        let stage = Stage::mem(&image);
        let volume = stage.open(&one_worker(policy)).unwrap();
        let (closed, open) = (
            volume.open_path("/even", writable()).unwrap(),
            volume.open_path("/pieces", writable()).unwrap(),
        );
        let queue = volume.queue(256).unwrap();
        let (a, b) = (queue.attach(&closed).unwrap(), queue.attach(&open).unwrap());
        let guard = closed.quiesce();
        let mut batch: VecDeque<Request> = (0..100u64)
            .flat_map(|n| {
                let len = if n % 2 == 0 { 4096 } else { 512 };
                [
                    Request::write(a, n * 4096, Buf::zeroed(len), n),
                    Request::write(b, n * 4096, Buf::zeroed(len), 1000 + n),
                ]
            })
            .collect();
        queue.submit(&mut batch);
        let mut done = Vec::new();
        while done.len() < 100 {
            assert!(
                queue.reap(&mut done, 1, Some(Duration::from_secs(20))) > 0,
                "{name}: stopped at {}",
                done.len()
            );
        }
        assert!(
            done.iter().all(|d| d.token >= 1000 && d.result.is_ok()),
            "{name}"
        );
        drop(guard);
        while done.len() < 200 {
            queue.reap(&mut done, 1, None);
        }
        assert!(done.iter().all(|d| d.result.is_ok()));
    }
}
