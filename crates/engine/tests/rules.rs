//! Rules of direct I/O by number, as far as they are about reads and overwrites. Counts are asserted, times never.
#![allow(clippy::unwrap_used)]

mod common;

use common::recipe::{self, Known, RECIPES};
use common::stage::Stage;
use common::watch::Watchdog;
use common::{Rng, fsck, image, scratch};
use diorite::policy::{CompletionPolicy, PRESETS};
use diorite::{
    Completion, Error, LoopDevice, Misaligned, OpenFlags, OpenOptions, Policy, Queue, Reason,
    Request, RequestFlags, Volume, Wait,
};
use diorite_block::sim::SimClock;
use diorite_block::{
    Bio, BioErrorKind, BioFlags, BioList, BioOp, Buf, Device, QueueOptions, SimOptions,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

const NOWAIT: RequestFlags = RequestFlags {
    nowait: true,
    dsync: false,
    sync: false,
};
const DSYNC: RequestFlags = RequestFlags {
    nowait: false,
    dsync: true,
    sync: false,
};

fn writable() -> OpenFlags {
    OpenFlags {
        write: true,
        ..OpenFlags::default()
    }
}

fn made(recipe: usize) -> (tempfile::TempDir, PathBuf, Vec<Known>) {
    let mut rng = Rng::from_env("rules");
    let dir = scratch();
    let (image, files) = recipe::make(dir.path(), &RECIPES[recipe], &mut rng);
    (dir, image, files)
}

fn known<'a>(files: &'a [Known], path: &str) -> &'a Known {
    files.iter().find(|k| k.path == path).unwrap()
}

/// Submits these and reaps them all, in the order of their tokens.
fn run_all(queue: &Queue, requests: Vec<Request>) -> Vec<Completion> {
    let (count, mut batch, mut done) = (requests.len(), VecDeque::from(requests), Vec::new());
    while done.len() < count {
        queue.submit(&mut batch);
        queue.reap(&mut done, 1, None);
    }
    done.sort_by_key(|d| d.token);
    done
}

fn sim(image: &std::path::Path, params: &str) -> Stage {
    Stage::sim(image, SimOptions::parse(&format!("0,{params}")).unwrap())
}

/// Rules G1, G2: wrong alignment each way is refused, by name and by how much, and nothing changes; pieces of any size and number
/// make a request if their sum is a multiple.
#[test]
fn alignment_is_judged_by_the_device() {
    let _watchdog = Watchdog::new(LIMIT, "alignment");
    let (_dir, image, files) = made(0);
    for logical in [512u64, 4096] {
        let stage = sim(&image, &format!("logical={logical}"));
        let before = stage.bytes();
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
        let queue = volume.queue(8).unwrap();
        let id = queue.attach(&file).unwrap();
        let taken = stage.disk().counters();
        for (pos, len, what, by) in [
            (1, logical, Misaligned::Offset, 1),
            (logical - 1, logical, Misaligned::Offset, logical - 1),
            (u64::MAX, 0, Misaligned::Offset, logical - 1),
            (0, 1, Misaligned::Length, 1),
            (logical, logical + 100, Misaligned::Length, 100),
            (logical / 2, logical / 2, Misaligned::Offset, logical / 2),
        ] {
            let buf = || Buf::zeroed(len as usize);
            let done = run_all(
                &queue,
                vec![
                    Request::read(id, pos, buf(), 0),
                    Request::write(id, pos, buf(), 1),
                ],
            );
            for done in done {
                let Err(error) = done.result else {
                    panic!("{pos}+{len} was done")
                };
                let text = error.to_string();
                let Error::Unaligned {
                    what: w,
                    by: b,
                    need,
                } = error
                else {
                    panic!("{error:?}")
                };
                assert_eq!((w, b, need), (what, by, logical), "{pos}+{len}");
                assert!(
                    text.contains(&by.to_string()) && text.contains(&logical.to_string()),
                    "{text}"
                );
                assert_eq!(done.buf.len() as u64, len, "the buffer comes back");
            }
        }
        // Past what any file can have.
        let far = (u64::MAX - 1_000_000) / 4096 * 4096;
        let done = run_all(
            &queue,
            vec![
                Request::read(id, far, Buf::zeroed(4096), 0),
                Request::write(id, far, Buf::zeroed(4096), 1),
            ],
        );
        assert!(matches!(done[0].result, Ok(0)), "{:?}", done[0]);
        assert!(
            matches!(done[1].result, Err(Error::TooBig { .. })),
            "{:?}",
            done[1]
        );
        assert_eq!(stage.disk().counters(), taken, "no I/O");
        assert!(stage.bytes() == before);
        // Odd pieces.
        let sizes = [1, 510, 3, 4096, 1, 1, 7, 512, 2909, 8192 - 8040 + 8192];
        let parts: Vec<Buf> = sizes.iter().map(|n| Buf::zeroed(*n)).collect();
        let buf = Buf::from_parts(parts);
        let len = buf.len();
        let odd = len as u64 % logical != 0;
        let (buf, result) = file.read_at(0, buf);
        if odd {
            assert!(
                matches!(
                    result,
                    Err(Error::Unaligned {
                        what: Misaligned::Length,
                        ..
                    })
                ),
                "{result:?}"
            );
        } else {
            assert_eq!(result.unwrap(), len);
            let got: Vec<u8> = buf.parts().flatten().copied().collect();
            assert!(got == known(&files, "/even").bytes[..len]);
        }
    }
}

/// Rules G3, G4: holes and unwritten blocks read as zeros without the device; the end of the file is a short count, and the device
/// gives no more than the sectors that hold the file's bytes.
#[test]
fn zeros_need_no_device() {
    let _watchdog = Watchdog::new(LIMIT, "zeros");
    let (_dir, image, files) = made(0);
    let stage = sim(&image, "latency=0us");
    let volume = stage.open(&OpenOptions::default()).unwrap();
    let holed = known(&files, "/holed");
    let file = volume.open_path("/holed", OpenFlags::default()).unwrap();
    // Loads the map.
    file.mappings(0, file.size()).unwrap();
    let blocks = holed.written.len() as u64 - 1;
    for block in 0..blocks {
        let before = stage.disk().counters();
        let (buf, result) = file.read_at(block * 4096, Buf::zeroed(4096));
        assert_eq!(result.unwrap(), 4096);
        assert!(buf.as_slice() == &holed.bytes[block as usize * 4096..][..4096]);
        let reads = stage.disk().counters().since(&before);
        let expect = u64::from(holed.written[block as usize]);
        assert_eq!(
            (reads.reads, reads.read_bytes),
            (expect, expect * 4096),
            "block {block}"
        );
    }
    // The last block holds 513 bytes: two sectors.
    let before = stage.disk().counters();
    let mut buf = Buf::zeroed(8192);
    buf.as_mut_slice().fill(0xEE);
    let (buf, result) = file.read_at(blocks * 4096, buf);
    assert_eq!(result.unwrap(), 513);
    assert!(buf.as_slice()[..513] == holed.bytes[blocks as usize * 4096..]);
    assert!(
        buf.as_slice()[513..1024].iter().all(|b| *b == 0)
            && buf.as_slice()[1024..].iter().all(|b| *b == 0xEE || *b == 0)
    );
    assert_eq!(stage.disk().counters().since(&before).read_bytes, 1024);
    let before = stage.disk().counters();
    for pos in [
        blocks * 4096 + 1024,
        blocks * 4096 + 3584,
        (blocks + 1) * 4096,
        1 << 40,
    ] {
        assert_eq!(
            file.read_at(pos, Buf::zeroed(512)).1.unwrap(),
            0,
            "at {pos}"
        );
    }
    assert_eq!(stage.disk().counters(), before);
}

/// Rules C1, C3: overwrites complete inline and carry neither FUA nor flush; counts.
#[test]
fn overwrites_are_inline_and_owe_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "inline");
    let (_dir, image, _) = made(0);
    for (name, policy) in PRESETS {
        let stage = sim(&image, "cache=volatile,fua=no");
        let volume = stage
            .open(&OpenOptions {
                policy,
                ..OpenOptions::writable()
            })
            .unwrap();
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

/// Rules C4, C7: what a DSYNC overwrite costs on a disk with FUA, on one that has only a flush, and on one without a cache.
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
                    .open(&OpenOptions {
                        policy,
                        ..OpenOptions::writable()
                    })
                    .unwrap();
                let flags = OpenFlags {
                    sync: by_open,
                    ..writable()
                };
                let file = volume.open_path("/pieces", flags).unwrap();
                let queue = volume.queue(1).unwrap();
                let id = queue.attach(&file).unwrap();
                let wanted = if by_open {
                    RequestFlags::default()
                } else {
                    DSYNC
                };
                let before = stage.disk().counters();
                // One by one, so that no flush is shared; the last one lies in several pieces.
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
                // A sync is a flush where there is a cache, and nothing where there is none.
                let before = stage.disk().counters();
                file.sync().unwrap();
                let flushes = stage.disk().counters().since(&before).flushes;
                assert_eq!(flushes, u64::from(fua || flush), "{what}");
            }
        }
    }
}

/// Rule C4: whatever was acknowledged as durable is there after a power cut at any moment; stepped clock, seeded.
#[test]
fn what_is_acknowledged_survives_a_power_cut() {
    let mut rng = Rng::from_env("power-cut");
    let (_dir, image, _) = made(0);
    for round in 0..40 {
        let _watchdog = Watchdog::new(LIMIT, format!("round {round}"));
        let options = SimOptions {
            volatile_cache: true,
            fua: round % 2 == 0,
            crash: true,
            clock: SimClock::Auto,
            seed: rng.next(),
            ..SimOptions::default()
        };
        let stage = Stage::sim(&image, options);
        let policy = PRESETS[round % 6].1;
        let volume = stage
            .open(&OpenOptions {
                policy,
                workers: 1,
                ..OpenOptions::writable()
            })
            .unwrap();
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
            let (buf, result) = file.read_at(done.token * 3 * 512, Buf::zeroed(3 * 512));
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

/// Rule B8: an overwrite of sectors in written blocks writes exactly these sectors, and reads nothing.
#[test]
fn sector_overwrites_touch_their_sectors_only() {
    let mut rng = Rng::from_env("sectors");
    let _watchdog = Watchdog::new(LIMIT, "sectors");
    let (_dir, image, files) = made(0);
    for (_, policy) in PRESETS {
        let stage = sim(&image, "cache=none");
        let volume = stage
            .open(&OpenOptions {
                policy,
                ..OpenOptions::writable()
            })
            .unwrap();
        let even = known(&files, "/even");
        let file = volume.open_path("/even", writable()).unwrap();
        file.mappings(0, file.size()).unwrap();
        let queue = volume.queue(32).unwrap();
        let id = queue.attach(&file).unwrap();
        let (before, image_before) = (stage.disk().counters(), stage.bytes());
        let mut model = even.bytes.clone();
        let mut requests = Vec::new();
        for n in 0..100u64 {
            let (first, sectors) = (n * 20 + rng.below(4), 1 + rng.below(16));
            let mut buf = Buf::zeroed(sectors as usize * 512);
            rng.fill(buf.as_mut_slice());
            model[first as usize * 512..][..buf.len()].copy_from_slice(buf.as_slice());
            requests.push(Request::write(id, first * 512, buf, n));
        }
        let bytes: u64 = requests.iter().map(|r| r.buf.len() as u64).sum();
        assert!(run_all(&queue, requests).iter().all(|d| d.result.is_ok()));
        let did = stage.disk().counters().since(&before);
        assert_eq!((did.write_bytes, did.reads), (bytes, 0));
        let mut out = vec![0; model.len()];
        file.read_bytes(0, &mut out).unwrap();
        assert!(out == model);
        let changed = image_before
            .iter()
            .zip(stage.bytes())
            .filter(|(a, b)| **a != *b)
            .count() as u64;
        assert!(changed <= bytes);
    }
}

/// Rules B1 to B3: which writes a policy runs alone. Requests that went straight down are with the device, those that did not are
/// parked; both are counted while the disk holds its completions back.
#[test]
fn the_presets_run_alone_what_they_say() {
    let _watchdog = Watchdog::new(LIMIT, "presets");
    let (_dir, image, files) = made(0);
    let pieces = known(&files, "/pieces");
    for (name, policy) in PRESETS {
        let stage = sim(&image, "cache=none");
        let volume = stage
            .open(&OpenOptions {
                policy,
                ..OpenOptions::writable()
            })
            .unwrap();
        let file = volume.open_path("/pieces", writable()).unwrap();
        let mappings = file.mappings(0, file.size()).unwrap();
        // Where one extent ends and the next begins, one block before.
        let border = mappings
            .iter()
            .map(|m| m.start + m.len)
            .find(|b| *b > 2 && pieces.overwrites((b - 1) * 4096, 8192));
        let border = border.unwrap() * 4096;
        let exclusive = matches!(name, "linux-2.6.31" | "linux-4.15" | "linux-5.10");
        let by_extent = matches!(name, "linux-6.5" | "linux-6.19");
        let cases = [
            (
                "aligned",
                vec![(0, 4096), (8192, 4096), (16384, 8192)],
                false,
            ),
            (
                "unaligned in one extent",
                vec![(0, 512), (512, 1024), (2048, 2048)],
                exclusive,
            ),
            (
                "unaligned over two extents",
                vec![
                    (border - 512, 1024),
                    (border - 2048, 1024),
                    (border + 1024, 512),
                ],
                exclusive || by_extent,
            ),
        ];
        for (case, writes, alone) in cases {
            let queue = volume.queue(16).unwrap();
            let id = queue.attach(&file).unwrap();
            stage.disk().hold(true);
            let mut batch: VecDeque<Request> = writes
                .iter()
                .zip(0..)
                .map(|(&(pos, len), n)| Request::write(id, pos, Buf::zeroed(len), n))
                .collect();
            queue.submit(&mut batch);
            let parked = queue.counters().parked;
            // The first runs alone and keeps the two others out.
            assert_eq!(parked, if alone { 2 } else { 0 }, "{name}: {case}");
            // A later aligned write and a read wait behind it, too; for NOWAIT that is EAGAIN (rule G12).
            let mut more = VecDeque::from([
                Request::read(id, 1 << 20, Buf::zeroed(4096), 10).with_flags(NOWAIT),
                Request::write(id, 1 << 20, Buf::zeroed(4096), 11).with_flags(NOWAIT),
            ]);
            queue.submit(&mut more);
            stage.disk().hold(false);
            let mut done = Vec::new();
            while done.len() < 5 {
                queue.reap(&mut done, 1, None);
            }
            for done in done {
                let kept_out = done.token >= 10 && alone;
                let eagain = matches!(done.result, Err(Error::WouldBlock(Wait::Gate | Wait::Turn)));
                assert!(
                    if kept_out {
                        eagain
                    } else {
                        done.result.is_ok()
                    },
                    "{name}: {case}: {done:?}"
                );
            }
        }
    }
}

/// Rule G12: with a part of the map not in memory NOWAIT is EAGAIN and loads nothing; without it the map is loaded, and then NOWAIT
/// is served. Writes that need what does not exist yet are refused as such, not as EAGAIN.
#[test]
fn nowait_waits_for_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "nowait");
    for recipe in [1, 2] {
        let (_dir, image, files) = made(recipe);
        let stage = sim(&image, "latency=50us");
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let holed = known(&files, "/holed");
        let file = volume.open_path("/holed", writable()).unwrap();
        let queue = volume.queue(8).unwrap();
        let id = queue.attach(&file).unwrap();
        let block = holed.written.iter().rposition(|w| *w).unwrap() as u64 - 1;
        let block = (0..block)
            .rev()
            .find(|b| holed.written[*b as usize])
            .unwrap();
        let pos = block * holed.block;
        let ask = || {
            run_all(
                &queue,
                vec![
                    Request::read(id, pos, Buf::zeroed(512), 0).with_flags(NOWAIT),
                    Request::write(id, pos, Buf::zeroed(512), 1).with_flags(NOWAIT),
                ],
            )
        };
        let before = (stage.disk().counters(), volume.metadata_loads());
        for done in ask() {
            assert!(
                matches!(done.result, Err(Error::WouldBlock(Wait::Map))),
                "{done:?}"
            );
        }
        assert_eq!((stage.disk().counters(), volume.metadata_loads()), before);
        assert_eq!(queue.counters().map_loads, 0);
        assert!(
            run_all(&queue, vec![Request::read(id, pos, Buf::zeroed(512), 0)])[0]
                .result
                .is_ok()
        );
        assert_eq!(queue.counters().map_loads, 1);
        for done in ask() {
            assert!(done.result.is_ok(), "{done:?}");
        }
        // Another queue sees the same map.
        let other = volume.queue(2).unwrap();
        let id = other.attach(&file).unwrap();
        let done = run_all(
            &other,
            vec![Request::read(id, pos, Buf::zeroed(512), 0).with_flags(NOWAIT)],
        );
        assert!(done[0].result.is_ok(), "{done:?}");
        let past = Request::write(id, file.size().next_multiple_of(512), Buf::zeroed(512), 0)
            .with_flags(NOWAIT);
        assert!(matches!(
            run_all(&other, vec![past])[0].result,
            Err(Error::NotYet(_))
        ));
    }
}

/// Rule C2: with the gate of one inode closed and requests parked on it, requests of other inodes come through the same queue.
#[test]
fn a_closed_inode_does_not_stop_the_others() {
    let _watchdog = Watchdog::new(LIMIT, "others");
    let (_dir, image, _) = made(0);
    for (name, policy) in PRESETS {
        let stage = Stage::mem(&image);
        let volume = stage
            .open(&OpenOptions {
                policy,
                workers: 1,
                ..OpenOptions::writable()
            })
            .unwrap();
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

/// Rules G5, G6: requests of many pieces through queues with fewer slots than pieces, each once, for every depth.
#[test]
fn more_pieces_than_slots() {
    let _watchdog = Watchdog::new(LIMIT, "pieces");
    let (_dir, image, files) = made(1);
    let pieces = known(&files, "/pieces");
    for params in ["latency=20us,jitter=20us,parallel=2", "clock=auto,seed=9"] {
        let stage = sim(&image, params);
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let file = volume.open_path("/pieces", writable()).unwrap();
        let len = pieces.bytes.len() / 512 * 512;
        for depth in [1, 2, 3, 64] {
            let queue = volume.queue(depth).unwrap();
            let id = queue.attach(&file).unwrap();
            let mut buf = Buf::zeroed(len);
            buf.copy_in(0, &pieces.bytes[..len]);
            let done = run_all(
                &queue,
                vec![
                    Request::write(id, 0, buf, 0),
                    Request::read(id, 0, Buf::zeroed(len), 1),
                    Request::sync(id, true, 2),
                    Request::read(id, 0, Buf::zeroed(len), 3),
                ],
            );
            for done in &done {
                let want = if done.token == 2 { 0 } else { len };
                assert!(
                    matches!(done.result, Ok(n) if n == want),
                    "depth {depth}: {done:?}"
                );
                assert!(done.token == 2 || done.buf.as_slice() == &pieces.bytes[..len]);
            }
        }
    }
}

/// A request that names a file of another queue, or one that was detached, is refused and given back (rule G5).
#[test]
fn a_stale_file_is_refused() {
    let _watchdog = Watchdog::new(LIMIT, "stale");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let (one, two) = (volume.queue(4).unwrap(), volume.queue(4).unwrap());
    let old = one.attach(&file).unwrap();
    one.detach(old);
    let new = one.attach(&file).unwrap();
    let other = volume.open_path("/pieces", writable()).unwrap();
    for _ in 0..3 {
        two.attach(&other).unwrap();
    }
    for (queue, id) in [(&one, old), (&two, new)] {
        let done = run_all(
            queue,
            vec![
                Request::read(id, 0, Buf::zeroed(512), 7),
                Request::sync(id, true, 8),
            ],
        );
        let refused = done
            .iter()
            .filter(|d| matches!(d.result, Err(Error::Invalid(_))))
            .count();
        assert!(refused == 2 || std::ptr::eq(queue, &two), "{done:?}");
        assert_eq!(done[0].buf.len(), 512);
    }
    assert!(
        run_all(&one, vec![Request::read(new, 0, Buf::zeroed(512), 1)])[0]
            .result
            .is_ok()
    );
}

/// Only file data may change in this version: directories and the volume's own inodes are not opened for writing, however named.
#[test]
fn only_files_are_opened_for_writing() {
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    for ino in [2, 7, 8, 11] {
        let file = volume.open_ino(diorite_format::Ino::new(ino), writable());
        let written = file.and_then(|f| f.write_at(0, Buf::zeroed(512)).1);
        assert!(written.is_err(), "inode {ino} was overwritten");
    }
    volume.close().unwrap();
    stage.save();
    fsck(&image);
}

/// After close a request is refused with ShutDown, on queues that are still there too; what was in flight is there to be reaped.
#[test]
fn a_closed_volume_refuses_requests() {
    let _watchdog = Watchdog::new(LIMIT, "closed");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    volume.clone().close().unwrap();
    assert!(matches!(
        file.read_at(0, Buf::zeroed(512)).1,
        Err(Error::ShutDown)
    ));
    assert!(matches!(volume.queue(1), Err(Error::ShutDown)));
    let done = run_all(&queue, vec![Request::write(id, 0, Buf::zeroed(512), 0)]);
    assert!(matches!(done[0].result, Err(Error::ShutDown)), "{done:?}");
}

fn loop_over(stage: &Stage, path: &str, policy: Policy) -> (Volume, Arc<LoopDevice>) {
    let volume = stage
        .open(&OpenOptions {
            policy,
            workers: 1,
            ..OpenOptions::writable()
        })
        .unwrap();
    let file = volume.open_path(path, writable()).unwrap();
    (volume, Arc::new(LoopDevice::new(file, "loop".into())))
}

fn bios(device: &dyn Device, depth: u32, bios: Vec<Bio>) -> Vec<Bio> {
    let options = QueueOptions::new(depth).unwrap();
    let queue = device.open_queue(options).unwrap();
    let (count, mut todo, mut out) = (bios.len(), BioList::from(bios), BioList::new());
    while out.len() < count {
        queue.submit(&mut todo);
        assert!(queue.in_flight() <= depth);
        if queue.reap(&mut out) == 0 {
            queue.wait(1, Some(Duration::from_secs(10)));
        }
    }
    assert_eq!(queue.in_flight(), 0);
    let mut out: Vec<Bio> = out.into();
    out.sort_by_key(|b| b.token);
    out
}

/// Rule L2: the last partial sector of a loop device reads as its bytes and zeros; everything up to it is readable in any request
/// size. Rule L4: refused requests carry their kind and do not poison the queue.
#[test]
fn a_loop_device_ends_in_a_whole_sector() {
    let _watchdog = Watchdog::new(LIMIT, "loop");
    let (_dir, image, files) = made(0);
    for (_, policy) in PRESETS {
        let stage = Stage::mem(&image);
        let (_volume, device) = loop_over(&stage, "/odd", policy);
        let odd = known(&files, "/odd");
        let size = odd.bytes.len() as u64;
        let geometry = device.geometry();
        assert_eq!(geometry.size, size.next_multiple_of(512));
        let last = geometry.size - 512;
        let mut dirty = Buf::zeroed(512);
        dirty.as_mut_slice().fill(0xEE);
        let done = bios(
            &*device,
            4,
            vec![
                Bio::read(last, dirty, 0),
                Bio::read(last - 512, Buf::zeroed(1024), 1),
                Bio::read(geometry.size, Buf::zeroed(512), 2),
                Bio::read(1, Buf::zeroed(512), 3),
                Bio::range(BioOp::Discard, 0, 4096, 4),
                Bio::read(0, Buf::zeroed(4096), 5),
                Bio::write(last, Buf::zeroed(512), 6),
                Bio::flush(7),
            ],
        );
        let rest = (size - last) as usize;
        assert!(
            done[0].result.is_ok() && done[0].buf.as_slice()[..rest] == odd.bytes[last as usize..]
        );
        assert!(done[0].buf.as_slice()[rest..].iter().all(|b| *b == 0));
        assert!(
            done[1].result.is_ok()
                && done[1].buf.as_slice()[..512] == odd.bytes[last as usize - 512..last as usize]
        );
        let kinds: Vec<_> = done
            .iter()
            .map(|b| b.result.err().map(|e| e.kind))
            .collect();
        assert_eq!(
            kinds[2..],
            [
                Some(BioErrorKind::Invalid),
                Some(BioErrorKind::Invalid),
                Some(BioErrorKind::Unsupported),
                None,
                Some(BioErrorKind::Unsupported),
                None,
            ]
        );
        assert!(done[5].buf.as_slice() == &odd.bytes[..4096]);
    }
}

/// FUA on a loop device is an O_DSYNC write of the backing, and its flush a flush below, layer by layer (rules L5, C13).
#[test]
fn durability_passes_through_a_loop_device() {
    let _watchdog = Watchdog::new(LIMIT, "loop durability");
    let (_dir, image, _) = made(0);
    for (params, fua, flushes) in [
        ("cache=volatile,fua=yes", 10, 1),
        ("cache=volatile,fua=no", 0, 11),
        ("cache=none", 0, 0),
    ] {
        let stage = sim(&image, params);
        let (_volume, device) = loop_over(&stage, "/even", Policy::DIORITE);
        let before = stage.disk().counters();
        for n in 0..10u64 {
            let flags = BioFlags {
                fua: true,
                nowait: false,
            };
            let done = bios(
                &*device,
                2,
                vec![Bio {
                    flags,
                    ..Bio::write(n * 512, Buf::zeroed(512), 0)
                }],
            );
            assert!(done[0].result.is_ok());
        }
        let done = bios(&*device, 2, vec![Bio::write(0, Buf::zeroed(4096), 0)]);
        assert!(done[0].result.is_ok());
        let did = stage.disk().counters().since(&before);
        assert!(
            did.fua_writes == fua || did.flushes >= 10,
            "{params}: {did:?}"
        );
        assert!(bios(&*device, 1, vec![Bio::flush(0)])[0].result.is_ok());
        let did = stage.disk().counters().since(&before);
        assert_eq!(
            (did.writes, did.fua_writes, did.flushes),
            (11, fua, flushes),
            "{params}"
        );
    }
}

/// A read past the end of a loop device's backing never happens by its size; an empty file is a device of no size.
#[test]
fn a_loop_device_on_an_empty_file() {
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let (_volume, device) = loop_over(&stage, "/empty", Policy::DIORITE);
    assert_eq!(device.geometry().size, 0);
    let done = bios(
        &*device,
        1,
        vec![Bio::read(0, Buf::zeroed(512), 0), Bio::flush(1)],
    );
    assert!(done[0].result.is_err() && done[1].result.is_ok());
    assert!(Volume::open_device(device, &OpenOptions::default()).is_err());
}

/// Concurrent walks of maps that the budget throws out again: mappings are whole whatever others do.
#[test]
fn maps_fall_back_to_their_roots_under_walkers() {
    let _watchdog = Watchdog::new(LIMIT, "map budget");
    for recipe in [1, 2] {
        let (_dir, image, files) = made(recipe);
        let stage = Stage::mem(&image);
        let options = OpenOptions {
            map_cache: 0,
            metadata_cache: 0,
            workers: 2,
            ..OpenOptions::default()
        };
        let volume = stage.open(&options).unwrap();
        let deep: Vec<&Known> = files
            .iter()
            .filter(|k| ["/holed", "/pieces"].contains(&k.path.as_str()))
            .collect();
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (volume, known) = (&volume, deep[n % 2]);
                scope.spawn(move || {
                    let file = volume.open_path(&known.path, OpenFlags::default()).unwrap();
                    for round in 0..150u64 {
                        let blocks = known.written.len() as u64;
                        let from = round * 7 % blocks;
                        let mut next = from;
                        for m in file
                            .mappings(from * known.block, u64::MAX / 2 % (blocks * known.block))
                            .unwrap()
                        {
                            assert_eq!(m.start, next);
                            next += m.len;
                        }
                        let mut out = vec![0; 100 * known.block as usize];
                        let at = (from * known.block) as usize;
                        let got = file.read_bytes(at as u64, &mut out).unwrap();
                        assert!(out[..got] == known.bytes[at..at + got]);
                    }
                });
            }
        });
    }
}

/// Two threads on one queue: one attaches and detaches while the other submits what it has just been given.
#[test]
fn threads_that_share_a_queue() {
    let _watchdog = Watchdog::new(LIMIT, "shared queue");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let queue = volume.queue(64).unwrap();
    let shared = std::sync::Mutex::new(queue.attach(&file).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3000 {
                let old =
                    std::mem::replace(&mut *shared.lock().unwrap(), queue.attach(&file).unwrap());
                queue.detach(old);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut done = Vec::new();
                for n in 0..3000 {
                    let id = *shared.lock().unwrap();
                    queue.submit(&mut VecDeque::from([Request::read(
                        id,
                        0,
                        Buf::zeroed(4096),
                        n,
                    )]));
                    queue.reap(&mut done, 0, None);
                }
            });
        }
    });
    let mut done = Vec::new();
    queue.reap(&mut done, queue.in_use(), None);
}

/// A file whose data is in its inode is read from there, counted, and not written.
#[test]
fn inline_data_is_read_and_refused_for_writing() {
    let _watchdog = Watchdog::new(LIMIT, "inline data");
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir_all(&source).unwrap();
    let bytes: Vec<u8> = (0..50u8).collect();
    std::fs::write(source.join("small"), &bytes).unwrap();
    let args = ["-t", "ext4", "-b", "4096", "-I", "256", "-O", "inline_data"];
    let image = image(dir.path(), "16M", &args, &source);
    let stage = Stage::mem(&image);
    let before = stage.bytes();
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path("/small", writable()).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let mut buf = Buf::zeroed(1024);
    buf.as_mut_slice().fill(0xEE);
    let done = run_all(
        &queue,
        vec![
            Request::read(id, 0, buf, 0),
            Request::read(id, 512, Buf::zeroed(512), 1),
            Request::write(id, 0, Buf::zeroed(0), 2),
        ],
    );
    assert_eq!(done[0].result.clone().unwrap(), 50);
    assert!(done[0].buf.as_slice()[..50] == bytes[..]);
    assert!(
        done[0].buf.as_slice()[50..]
            .iter()
            .all(|b| *b == 0 || *b == 0xEE)
    );
    assert_eq!(
        (
            done[1].result.clone().unwrap(),
            done[2].result.clone().unwrap()
        ),
        (0, 0)
    );
    assert!(queue.counters().fallback_buffered > 0);
    assert!(matches!(
        run_all(&queue, vec![Request::write(id, 0, Buf::zeroed(512), 0)])[0].result,
        Err(Error::NotYet(_))
    ));
    volume.close().unwrap();
    assert!(stage.bytes() == before);
}
