//! The counters: requests that complete inline, deferred or with an error; requests that wait; how many bios a submit passes on at
//! once.
//!
//! Input: a few requests of each kind. Output: none. Invariant: counts are exact. Limits: counters that belong to a rule with a
//! letter are tested with that rule.

use crate::common::fixture::{DSYNC, LIMIT, filled, run_all, sim, writable};
use crate::common::recipe::{RECIPES, bare};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::rules::bed::{Bed, drain_until, quiet};
use diorite::policy::PRESETS;
use diorite::{
    AccessTimes, Error, Fallocate, FileId, Policy, Queue, Reason, Request, RequestFlags, SetAttr,
};
use diorite_block::Buf;
use diorite_format::{InodeFlags, Timestamp};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How the counters saw one request: completed inline, deferred by reason, buffered, failed.
fn counted(queue: &Queue, request: Request) -> (u64, [u64; Reason::ALL.len()], u64, u64) {
    let before = queue.counters();
    let done = run_all(queue, vec![request]);
    let now = queue.counters();
    let failed = now.failed - before.failed;
    assert_eq!(done[0].result.is_err(), failed == 1, "{done:?}");
    let mut deferred = now.deferred;
    let reasons = deferred.iter_mut().zip(before.deferred);
    reasons.for_each(|(now, before)| *now -= before);
    let inline = now.inline - before.inline;
    let buffered = now.fallback_buffered - before.fallback_buffered;
    (inline, deferred, buffered, failed)
}

fn none() -> [u64; Reason::ALL.len()] {
    [0; Reason::ALL.len()]
}

fn one(reason: Reason) -> [u64; Reason::ALL.len()] {
    let mut all = none();
    all[reason as usize] = 1;
    all
}

/// A failed request is counted once, wherever the error is found: before any check, by a check, on the device, or while it is
/// mapped.
#[test]
fn a_failure_is_counted_once() {
    let _watchdog = Watchdog::new(LIMIT, "failures");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let detached = queue.attach(&file).unwrap();
    queue.detach(detached);
    let write = |id: FileId, pos, byte| Request::write(id, pos, filled(byte, 512), 0);
    bed.valve.fail(&[3]);
    let too_large = Buf::zeroed((1 << 30) + 512);
    for (n, request, reason) in [
        (0, write(detached, 0, 1), None),
        (0, Request::read(id, 0, too_large, 0), None),
        (1, write(id, 1, 1), None),
        (1, write(id, 0, 3).with_flags(DSYNC), Some(Reason::Failed)),
        (1, write(id, 1 << 20, 3), Some(Reason::Failed)),
    ] {
        let deferred = reason.map_or(none(), one);
        let inline = if reason.is_some() { 0 } else { n };
        assert_eq!(counted(&queue, request), (inline, deferred, 0, 1));
    }
    assert_eq!(queue.counters().failed, 5);
    let good = (1, none(), 0, 0);
    assert_eq!(counted(&queue, write(id, 0, 1)), good);
    let committed = (0, one(Reason::Commit), 0, 0);
    assert_eq!(counted(&queue, Request::sync_volume(0)), committed);
    drop((file, queue));
    bed.finish();
}

/// Rule C1. A write that ends at the file's end does not make the file longer: it owes nothing, even if it is not one for the fast
/// attempt.
#[test]
fn an_overwrite_up_to_the_end_is_inline() {
    let _watchdog = Watchdog::new(LIMIT, "up to the end");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/empty");
    assert_eq!(file.write_buf(0, filled(1, 8192)).1.unwrap(), 8192);
    let halves = || Buf::from_parts(vec![filled(2, 2048), filled(2, 2048)]);
    for pos in [0, 4096] {
        let write = Request::write(id, pos, halves(), 0);
        assert_eq!(counted(&queue, write), (1, none(), 0, 0), "at {pos}");
    }
    assert_eq!(file.size(), 8192);
    drop((file, queue));
    bed.judge();
}

/// Rule C7. A data sync owes no commit for times, and a sync owes none if everything is committed: without a cache both complete
/// inline.
#[test]
fn a_sync_owes_what_is_not_committed() {
    let _watchdog = Watchdog::new(LIMIT, "syncs");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let (nothing, commit) = ((1, none(), 0, 0), (0, one(Reason::Commit), 0, 0));
    let overwrite = || Request::write(id, 0, filled(1, 512), 0);
    let sync = |data_only| Request::sync(id, data_only, 0);
    for (request, owed) in [
        (overwrite(), nothing),
        (sync(true), nothing),
        (sync(false), commit),
        (sync(false), nothing),
        (sync(true), nothing),
    ] {
        assert_eq!(counted(&queue, request), owed);
    }
    drop((file, queue));
    bed.judge();
}

/// Each operation that changes a file's map or size and moves no data is counted as such.
#[test]
fn operations_are_counted() {
    let _watchdog = Watchdog::new(LIMIT, "operations");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let keep_size = false;
    let deferred = (0, one(Reason::Range), 0, 0);
    for request in [
        Request::truncate(id, 50_000, 0),
        Request::fallocate(id, Fallocate::PunchHole, 0, 8192, 0),
        Request::fallocate(id, Fallocate::Allocate { keep_size }, 0, 65_536, 0),
    ] {
        assert_eq!(counted(&queue, request), deferred);
    }
    assert_eq!(queue.counters().deferred[Reason::Range as usize], 3);
    drop((file, queue));
    bed.finish();
}

/// Rule C3, where data goes through the journal: a write that need not be durable causes no commit, and a read never does.
#[test]
fn only_durable_writes_through_the_journal_commit() {
    let _watchdog = Watchdog::new(LIMIT, "through the journal");
    let dir = scratch();
    let stage = sim(&bare(dir.path(), &RECIPES[0]), "cache=volatile,fua=no");
    let volume = stage.open(&quiet()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    let commits = || volume.journal_stats().commits;
    let write = || Request::write(id, 4096, filled(1, 512), 0);
    let read = || Request::read(id, 4096, Buf::zeroed(512), 0);
    for (request, commit) in [
        (write(), false),
        (read(), false),
        (read().with_flags(DSYNC), false),
        (write().with_flags(DSYNC), true),
        (write(), false),
    ] {
        let before = commits();
        let expected = match commit {
            true => (0, one(Reason::Commit), 1, 0),
            false => (1, none(), 1, 0),
        };
        assert_eq!(counted(&queue, request), expected);
        assert_eq!(commits() - before, u64::from(commit));
    }
}

/// A sync of a file with nothing uncommitted causes no commit: it costs a flush where the device has a cache, else nothing.
#[test]
fn a_sync_of_what_is_committed_commits_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "nothing to commit");
    let dir = scratch();
    let image = bare(dir.path(), &RECIPES[0]);
    let cached = sim(&image, "cache=volatile,fua=no");
    let flushed = (0, one(Reason::Flush), 0, 0);
    for (stage, expected) in [(Stage::mem(&image), (1, none(), 0, 0)), (cached, flushed)] {
        let volume = stage.open(&quiet()).unwrap();
        let file = volume.open_path("/odd", writable()).unwrap();
        let queue = volume.queue(8).unwrap();
        let id = queue.attach(&file).unwrap();
        let sync = |data_only| counted(&queue, Request::sync(id, data_only, 0));
        assert_eq!((sync(false), sync(true)), (expected, expected));
        // After a write, its time is uncommitted; after the sync nothing is.
        counted(&queue, Request::write(id, 0, filled(1, 512), 0));
        assert_eq!(sync(true), expected);
        assert_eq!(sync(false), (0, one(Reason::Commit), 0, 0));
        assert_eq!(volume.journal_stats().commits, 1);
        assert_eq!((sync(false), sync(true)), (expected, expected));
        assert_eq!(volume.journal_stats().commits, 1);
    }
}

/// The clock has steps. Once a write's time is committed, no other write at that time owes it, whichever queue it comes from: a mount gives
/// the requests of a file to several queues, and each fsync there committed what the inode had already.
#[test]
fn writes_at_one_time_are_committed_once() {
    static NOW: AtomicU64 = AtomicU64::new(2_000_000_000);
    let _watchdog = Watchdog::new(LIMIT, "writes at one time");
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    let options = quiet().clock(|| Duration::from_secs(NOW.load(Ordering::Relaxed)));
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let queues: Vec<_> = (0..3).map(|_| volume.queue(8).unwrap()).collect();
    let ids: Vec<_> = queues.iter().map(|q| q.attach(&file).unwrap()).collect();
    let commits = || volume.journal_stats().commits;
    let round = || {
        for (queue, id) in queues.iter().zip(&ids) {
            counted(queue, Request::write(*id, 0, filled(1, 512), 0));
            counted(queue, Request::sync(*id, false, 0));
        }
        file.write_buf(512, filled(2, 512)).1.unwrap();
        file.sync().unwrap();
    };
    for step in 1..4 {
        let now = NOW.fetch_add(1, Ordering::Relaxed) + 1;
        round();
        round();
        assert_eq!(commits(), step);
        assert_eq!(file.metadata().mtime.secs, i64::try_from(now).unwrap());
    }
    // A time that was set meanwhile does not hide that of the next write.
    let past = SetAttr::default().mtime(Timestamp { secs: 7, nanos: 0 });
    volume.set_attr(file.ino(), &past).unwrap();
    assert_eq!(file.metadata().mtime.secs, 7);
    round();
    assert_eq!(commits(), 4);
    assert_eq!(file.metadata().mtime.secs, 2_000_000_003);
}

/// Rule C5. A durable write into new space is not acknowledged before its commit, whether a worker or the caller maps it.
#[test]
fn a_durable_fill_is_committed() {
    let _watchdog = Watchdog::new(LIMIT, "a durable fill");
    let dir = scratch();
    let stage = sim(&bare(dir.path(), &RECIPES[0]), "cache=volatile,fua=no");
    let volume = stage.open(&quiet()).unwrap();
    let file = volume.open_path("/sparse", writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    let commits = || volume.journal_stats().commits;
    // A block of the log may share a flush with blocks written before it.
    let flushes = || {
        let counted = stage.disk().counters();
        counted.flushes + counted.fua_writes
    };
    // From the second round on, the volume is already marked as in use.
    for n in 0..6 {
        let (before, flushed) = (commits(), flushes());
        let flags = if n % 2 == 0 {
            DSYNC
        } else {
            RequestFlags::default()
        };
        let write = Request::write(id, n * 8192, filled(1, 4096), 0).with_flags(flags);
        assert_eq!(counted(&queue, write).1, one(Reason::Map));
        let durable = n % 2 == 0;
        assert_eq!(commits() - before, u64::from(durable), "write {n}");
        assert_eq!(flushes() > flushed, durable, "write {n}");
    }
}

/// Rule C4. A write is durable if the request, the open file, or both ask for it; no other write pays for durability.
#[test]
fn every_wish_for_durability_is_heard() {
    let _watchdog = Watchdog::new(LIMIT, "wishes");
    let dir = scratch();
    let stage = sim(&bare(dir.path(), &RECIPES[0]), "cache=volatile,fua=yes");
    let volume = stage.open(&quiet()).unwrap();
    let queue = volume.queue(8).unwrap();
    for wishes in 0..16 {
        let has = |bit: u8| wishes & bit != 0;
        let flags = writable().dsync(has(1)).sync(has(2));
        let file = volume.open_path("/odd", flags).unwrap();
        let id = queue.attach(&file).unwrap();
        let flags = RequestFlags::none().dsync(has(4)).sync(has(8));
        let before = stage.disk().counters();
        let write = Request::write(id, 4096, filled(1, 512), 0).with_flags(flags);
        assert_eq!(run_all(&queue, vec![write])[0].result.clone().unwrap(), 512);
        let did = stage.disk().counters().since(&before);
        let durable = did.fua_writes + did.flushes > 0;
        assert_eq!(durable, wishes != 0, "wishes {wishes:#b}");
        queue.detach(id);
    }
}

/// A read that returns bytes is counted as a read, on every path; an empty one, or one past the end, is not.
#[test]
fn a_read_of_nothing_is_none() {
    let _watchdog = Watchdog::new(LIMIT, "reads of nothing");
    static SECONDS: AtomicU64 = AtomicU64::new(2_000_000_000);
    let options = quiet()
        .access_times(AccessTimes::Always)
        // Each call returns another time, so no two reads share a tick.
        .clock(|| Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed)));
    for policy in [Policy::DIORITE, PRESETS[0].1] {
        let bed = Bed::new(&RECIPES[0], &options.clone().policy(policy));
        let (file, queue, id) = bed.open("/odd");
        let halves = || Buf::from_parts(vec![Buf::zeroed(512), Buf::zeroed(512)]);
        for (pos, buf, got) in [
            (0, Buf::zeroed(0), 0),
            (100_352, Buf::zeroed(512), 0),
            (1 << 40, Buf::zeroed(0), 0),
            (1 << 40, halves(), 0),
            (99_840, Buf::zeroed(1024), 161),
            (0, Buf::zeroed(512), 512),
            (0, halves(), 1024),
        ] {
            bed.volume.sync().unwrap();
            assert_eq!(bed.volume.usage().dirty_times, 0);
            let done = run_all(&queue, vec![Request::read(id, pos, buf, 0)]);
            assert_eq!(done[0].result.clone().unwrap(), got, "at {pos}");
            let noted = u64::from(got > 0);
            assert_eq!(bed.volume.usage().dirty_times, noted, "at {pos}");
        }
        drop((file, queue));
        bed.finish();
    }
}

/// Writes into new space each take long to prepare, so they are submitted in batches: the first go down before the last are ready.
/// Overwrites go down together.
#[test]
fn writes_into_new_space_go_down_some_at_a_time() {
    let _watchdog = Watchdog::new(LIMIT, "some at a time");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/sparse");
    let writes = |n: u64| {
        let halves = || Buf::from_parts(vec![filled(1, 2048), filled(1, 2048)]);
        (0..n).map(move |n| Request::write(id, n * 4096, halves(), n))
    };
    // The first write loads the metadata that the others need.
    run_all(&queue, writes(1).collect());
    bed.valve.most_at_once();
    run_all(&queue, writes(48).collect());
    assert_eq!(bed.valve.most_at_once(), 16);
    run_all(&queue, writes(48).collect());
    assert_eq!(bed.valve.most_at_once(), 48);
    drop((file, queue));
    bed.judge();
}

/// A waiting request is counted for as long as it waits: at a closed gate, for another's range, for the size.
#[test]
fn who_waits_is_counted_while_he_does() {
    let _watchdog = Watchdog::new(LIMIT, "waiting");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let waiting = || bed.volume.usage().waiting_requests;
    let closed = file.quiesce();
    let writes = (0..5).map(|n| Request::write(id, n * 4096, filled(1, 4096), n));
    queue.submit(&mut writes.collect());
    assert_eq!((waiting(), queue.counters().parked), (5, 5));
    drop(closed);
    let mut done = Vec::new();
    while done.len() < 5 {
        queue.reap(&mut done, 1, None);
    }
    assert_eq!((waiting(), bed.volume.usage().requests), (0, 0));
    let (sparse, other, id) = bed.open("/sparse");
    bed.valve.hold(&[2]);
    let sectors = (0..3).map(|n| Request::write(id, n * 512, filled(2, 512), n));
    other.submit(&mut sectors.collect());
    drain_until(&other, || bed.valve.holding() == 1);
    assert_eq!((waiting(), other.counters().parked_for_range), (2, 2));
    bed.valve.hold(&[]);
    let mut done = Vec::new();
    while done.len() < 3 {
        other.reap(&mut done, 1, None);
    }
    let good = |d: &diorite::Completion| !matches!(d.result, Err(Error::WouldBlock(_)));
    assert!(done.iter().all(good), "{done:?}");
    assert_eq!((waiting(), bed.volume.usage().pending), (0, 0));
    drop((file, sparse, queue, other));
    bed.judge();
}
