//! Settings that change while queues have requests in flight: the volume's policy, and a file's flag S (rules C7, D1, D6).
//!
//! Input: volumes on a device that holds requests, or that counts flushes. Output: none. Invariants: counts are asserted, times never.
//! Limits: one file.

use crate::common::fixture::{LIMIT, filled, run_all, sim, writable};
use crate::common::recipe::{RECIPES, bare};
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scratch};
use crate::rules::bed::{Bed, drain_until, quiet};
use diorite::policy::PRESETS;
use diorite::{OpenOptions, Policy, Request, RequestFlags, Volume};
use diorite_format::InodeFlags;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rule D6. The defect: a write that had its range asked for the exclusive turn, because a new policy now required that, and waited
/// for another that waited for its range: a deadlock. Both end, under every change from one policy to another.
#[test]
fn a_policy_that_changes_in_mid_flight_is_for_what_comes_after() {
    let watchdog = Watchdog::new(LIMIT, "policies");
    let dir = scratch();
    let image = bare(dir.path(), &RECIPES[0]);
    for (from, before) in PRESETS {
        for (to, after) in PRESETS {
            watchdog.feed(format!("{from} to {to}"));
            let stage = Stage::mem(&image);
            let valve = Valve::new(stage.device.clone());
            let volume = Volume::open_device(Arc::new(valve.clone()), &quiet()).unwrap();
            volume.set_policy(before);
            let file = volume.open_path("/sparse", writable()).unwrap();
            let queue = volume.queue(8).unwrap();
            let id = queue.attach(&file).unwrap();
            // Holds the read of the bitmap that the first write needs.
            valve.hold_reads(0..u64::MAX);
            let write = |n: u64| Request::write(id, 65_536 + n * 512, filled(1 + n as u8, 512), n);
            queue.submit(&mut VecDeque::from([write(0), write(1)]));
            drain_until(&queue, || valve.holding() > 0);
            volume.set_policy(after);
            queue.submit(&mut VecDeque::from([write(2)]));
            valve.hold_reads(0..0);
            let mut done = Vec::new();
            while done.len() < 3 {
                queue.reap(&mut done, 1, None);
            }
            assert!(
                done.iter().all(|d| d.result.is_ok()),
                "{from} to {to}: {done:?}"
            );
            let mut bytes = [0; 1536];
            file.read_bytes(65_536, &mut bytes).unwrap();
            let sectors = bytes.chunks(512).zip(1u8..);
            assert!(sectors.into_iter().all(|(s, b)| s.iter().all(|x| *x == b)));
        }
    }
}

/// Rule D6. As above, at random: appends, fills and overwrites of one file through two queues, while the policy changes all the
/// time.
#[test]
fn a_storm_under_policies_that_change() {
    let watchdog = Watchdog::new(LIMIT, "policies in a storm");
    let bed = Bed::new(&RECIPES[0], &OpenOptions::writable());
    let mut rng = Rng::from_env("policies");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (volume, mut mine, ended) = (&bed.volume, rng.fork(), &stop);
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                volume.set_policy(PRESETS[mine.below(PRESETS.len() as u64) as usize].1);
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (bed, mut rng) = (&bed, rng.fork());
                scope.spawn(move || {
                    let (_file, queue, id) = bed.open("/sparse");
                    for n in 0..150u64 {
                        let batch = (0..8).map(|t| storm_write(id, &mut rng, t));
                        let done = run_all(&queue, batch.collect());
                        let ended = done.iter().all(|d| d.result.is_ok());
                        assert!(ended, "round {n}: {done:?}");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
            watchdog.feed("the other writer");
        }
        stop.store(true, Ordering::Relaxed);
    });
    bed.volume.set_policy(Policy::DIORITE);
    // Overlapping overwrites are part of the test, so overlaps are not judged.
    bed.finish();
}

fn storm_write(id: diorite::FileId, rng: &mut Rng, token: u64) -> Request {
    let len = 512 * (1 + rng.below(12) as usize);
    match rng.below(8) {
        0 => Request::append(id, filled(3, len), token),
        _ => Request::write(id, 512 * rng.below(4000), filled(4, len), token),
    }
}

/// Rules C7, D1. The defect: if a file was given the flag S when a queue had it attached already, that queue did not notice, and
/// acknowledged writes before they were durable. They are durable for as long as the file has the flag.
#[test]
fn a_flag_is_seen_by_queues_that_have_the_file() {
    let _watchdog = Watchdog::new(LIMIT, "the flag S");
    let dir = scratch();
    let stage = sim(&bare(dir.path(), &RECIPES[0]), "cache=volatile,fua=yes");
    let volume = stage.open(&quiet()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    let plain = file.metadata().flags;
    let commits = || volume.journal_stats().commits;
    // The number of flushes, of commits, and whether anything was made durable by FUA.
    let did = |request: Request| {
        let (before, commits_before) = (stage.disk().counters(), commits());
        let done = run_all(&queue, vec![request]);
        assert!(done[0].result.is_ok(), "{done:?}");
        let did = stage.disk().counters().since(&before);
        (did.flushes, commits() - commits_before, did.fua_writes > 0)
    };
    let overwrite = || Request::write(id, 4096, filled(1, 512), 0);
    let resize = |size| Request::truncate(id, size, 0);
    let sync = || Request::sync(id, true, 0);
    let (nothing, flush, commit) = ((0, 0, false), (1, 0, false), (1, 1, true));
    assert_eq!(overwrite().flags, RequestFlags::default());
    // The first change marks the volume as in use in the superblock.
    did(resize(95_000));
    for size in [90_000, 80_000] {
        assert_eq!(
            (did(overwrite()), did(resize(size + 1))),
            (nothing, nothing)
        );
        file.set_flags(plain.with(InodeFlags::SYNC)).unwrap();
        // As with O_SYNC: a flush makes the data durable, and a commit its time, if the clock has moved.
        let by_write = did(overwrite());
        assert!(by_write == commit || by_write == flush, "{by_write:?}");
        assert_eq!(did(sync()), flush, "a write left nothing else to an fsync");
        assert_eq!(did(resize(size)), commit);
        assert_eq!(did(sync()), flush, "nor did a truncation");
        file.set_flags(plain).unwrap();
    }
    assert_eq!(did(overwrite()), nothing);
}
