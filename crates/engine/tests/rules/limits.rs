//! Limits and failures: extreme numbers from callers, policies that change, bytes and blocks that an error leaves behind (rules D5
//! to D7, D9, D11).
//!
//! Input: volumes on a device that holds requests, fails them, or executes them and reports a failure. Output: none. Invariants:
//! counts are asserted, times never; e2fsck judges the end. Limits: the cases of a few requests.

use crate::bed::{Bed, drain_until, push_out, quiet};
use crate::common::fixture::{DSYNC, LIMIT, filled, known, made, run_all, sim, writable};
use crate::common::recipe::{RECIPES, bare, debugfs};
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{Rng, fsck, scratch};
use diorite::policy::PRESETS;
use diorite::{Error, Fallocate, File, MappingState, OpenFlags, OpenOptions, Policy};
use diorite::{Request, RequestFlags, Seek, Volume};
use diorite_block::Buf;
use diorite_format::InodeFlags;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xEE; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Rule D7. The defect: punching a hole at 2^64 - 101 emptied the whole file, because rounding up its start wrapped to 0. No range
/// and no size near the limits of 64 bits touches a byte, and one that no file can have is refused as too big.
#[test]
fn ranges_at_the_end_of_numbers_touch_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "ranges at the end of numbers");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let (before, blocks) = (contents(&file), file.metadata().blocks);
    let keep = |keep_size| {
        [
            Fallocate::Allocate { keep_size },
            Fallocate::ZeroRange { keep_size },
            Fallocate::WriteZeroes { keep_size },
        ]
    };
    let others = [
        Fallocate::PunchHole,
        Fallocate::CollapseRange,
        Fallocate::InsertRange,
    ];
    let modes: Vec<Fallocate> = [keep(false), keep(true), others].concat();
    let (max, most) = (u64::MAX, u64::from(u32::MAX) * 4096);
    let places = [
        max,
        max - 1,
        max - 100,
        max - 4095,
        max - 4096,
        1 << 63,
        (1 << 63) - 1,
    ];
    let lengths = [1, 50, 4095, 4096, 8192, 1 << 32, 1 << 63, max - 1, max];
    for mode in modes {
        for (pos, len) in places.iter().flat_map(|p| lengths.map(|l| (*p, l))) {
            let request = Request::fallocate(id, mode, pos, len, 0);
            let done = run_all(&queue, vec![request]).remove(0).result;
            let too_big = matches!(done, Err(Error::TooBig { .. }));
            assert!(too_big, "{mode:?} {len} at {pos}: {done:?}");
        }
        // Only start plus length wraps.
        let done = file.fallocate(mode, 4096, max - 4000);
        assert!(
            matches!(done, Err(Error::TooBig { .. })),
            "{mode:?}: {done:?}"
        );
    }
    for size in [most + 1, 1 << 63, max - 4095, max] {
        let done = file.truncate(size);
        assert!(
            matches!(done, Err(Error::TooBig { .. })),
            "{size}: {done:?}"
        );
    }
    assert_eq!(file.metadata().blocks, blocks);
    assert!(contents(&file) == before, "bytes of the file have changed");
    // The largest size of a file, and back.
    file.truncate(most).unwrap();
    assert_eq!(file.size(), most);
    file.truncate(before.len() as u64).unwrap();
    assert!(contents(&file) == before, "bytes of the file have changed");
    // The range of a hole may reach past the largest size of a file.
    file.fallocate(Fallocate::PunchHole, 4096, max - 4096)
        .unwrap();
    let now = contents(&file);
    assert!(now[..4096] == before[..4096] && now[4096..].iter().all(|b| *b == 0));
    bed.finish();
}

/// Rule D7. An append whose data goes through the journal may end at the largest size of a file, and not a sector past it.
#[test]
fn an_append_through_the_journal_ends_where_a_file_can() {
    let _watchdog = Watchdog::new(LIMIT, "the last append");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/empty");
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    let most = u64::from(u32::MAX) * 4096;
    file.truncate(most - 1024).unwrap();
    let append = |len| run_all(&queue, vec![Request::append(id, filled(1, len), 0)]).remove(0);
    let too_big = |len| matches!(append(len).result, Err(Error::TooBig { .. }));
    assert!(too_big(1536));
    let done = append(1024);
    assert_eq!((done.result.unwrap(), done.pos), (1024, most - 1024));
    assert_eq!(file.size(), most);
    assert!(too_big(512));
    let mut bytes = [0xEE; 2048];
    file.read_bytes(most - 2048, &mut bytes).unwrap();
    assert!(bytes[..1024].iter().all(|b| *b == 0) && bytes[1024..].iter().all(|b| *b == 1));
    file.truncate(0).unwrap();
    drop((file, queue));
    bed.finish();
}

/// Rule D7. The defect: a vectored buffer of 4 GiB panicked inside the queue and its slot stayed taken. A request that is too
/// large, or whose range is not within its buffer, is refused, returned with its buffer, and leaves every slot free.
#[test]
fn requests_larger_than_a_slot_can_say_come_back() {
    let _watchdog = Watchdog::new(LIMIT, "4 GiB");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let before = contents(&file);
    let parts = |more: usize| {
        let half = || Buf::zeroed(1 << 31);
        Buf::from_parts(vec![half(), half(), Buf::zeroed(more)])
    };
    type Make = fn(diorite::FileId, Buf) -> Request;
    let of_data: [Make; 4] = [
        |id, buf| Request::read(id, 0, buf, 0),
        |id, buf| Request::write(id, 0, buf, 0),
        |id, buf| Request::append(id, buf, 0),
        |id, buf| Request::write_last(id, 0, buf, 100, 0),
    ];
    let of_others: [Make; 4] = [
        |id, buf| Request {
            buf,
            ..Request::sync(id, false, 0)
        },
        |id, buf| Request {
            buf,
            ..Request::sync(id, true, 0)
        },
        |id, buf| Request {
            buf,
            ..Request::truncate(id, 5, 0)
        },
        |id, buf| Request {
            buf,
            ..Request::fallocate(id, Fallocate::PunchHole, 0, 4096, 0)
        },
    ];
    let refused = |request: Request| {
        let (op, has) = (request.op, request.buf.len());
        let done = run_all(&queue, vec![request]).remove(0);
        let invalid = matches!(done.result, Err(Error::Invalid(_)));
        assert!(invalid, "{op:?} with {has} bytes: {:?}", done.result);
        assert_eq!((done.op, done.buf.len()), (op, has), "its buffer is back");
        assert_eq!((queue.in_use(), queue.free()), (0, queue.depth()));
    };
    for make in of_data {
        // Lengths that wrap to 0 and to one sector in 32 bits.
        for more in [0, 512] {
            refused(make(id, parts(more)));
        }
        refused(make(id, Buf::zeroed((1 << 30) + 512)));
    }
    for make in of_others {
        refused(make(id, Buf::zeroed(4096)));
    }
    for len in [4097, 1 << 32, (1 << 32) + 512, u64::MAX] {
        refused(Request::write_last(id, 98_304, Buf::zeroed(4096), len, 0));
    }
    assert!(contents(&file) == before, "bytes of the file have changed");
    // The largest request that is allowed is served.
    for (len, got) in [(512, 512), (1 << 30, 100_001)] {
        let done = run_all(&queue, vec![Request::read(id, 0, Buf::zeroed(len), 0)]);
        assert_eq!(*done[0].result.as_ref().unwrap(), got);
    }
    bed.finish();
}

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

/// What happens to a file after a write past its end has failed.
#[derive(Clone, Copy, Debug)]
enum After {
    Truncate,
    Write,
    /// A write further on that was in flight before.
    WriteBefore,
}

/// Rules D9, U9, U10. The defect: a write into the rest of the last block reached the device but was reported as failed. The note
/// that the bytes past the end are zeros stayed, and once the file became longer it showed the written bytes. They read as zeros,
/// whichever operation makes the file longer.
#[test]
fn what_a_failed_write_left_behind_the_end_is_not_shown() {
    let _watchdog = Watchdog::new(LIMIT, "behind the end");
    // In the second of each pair, the end of the last block was zeroed before. Until then, no write overtakes another.
    let cases = [
        (After::Truncate, false),
        (After::Truncate, true),
        (After::Write, false),
        (After::Write, true),
        (After::WriteBefore, true),
    ];
    for (after, first_zeroed) in cases {
        let bed = Bed::new(&RECIPES[0], &quiet());
        let (file, queue, id) = bed.open("/odd");
        let mut size = 100_001;
        if first_zeroed {
            size = 100_352;
            let done = run_all(&queue, vec![Request::write(id, 99_840, filled(5, 512), 0)]);
            assert!(done[0].result.is_ok(), "{done:?}");
        }
        assert_eq!(file.size(), size);
        bed.valve.lie(&[0xBD]);
        bed.valve.hold(&[7]);
        let behind = || Request::write(id, 1 << 20, filled(7, 512), 1);
        if matches!(after, After::WriteBefore) {
            queue.submit(&mut VecDeque::from([behind()]));
            drain_until(&queue, || bed.valve.holding() == 1);
        }
        let other = bed.volume.queue(4).unwrap();
        let other_id = other.attach(&file).unwrap();
        let bad = Request::write(other_id, 100_864, filled(0xBD, 512), 0);
        let failed = run_all(&other, vec![bad]).remove(0).result;
        assert!(matches!(failed, Err(Error::Device { .. })), "{failed:?}");
        assert_eq!(file.size(), size);
        bed.valve.hold(&[]);
        match after {
            After::Truncate => file.truncate(102_400).unwrap(),
            After::Write => {
                let done = run_all(&queue, vec![behind()]);
                assert!(done[0].result.is_ok(), "{done:?}");
            }
            After::WriteBefore => {
                let mut done = Vec::new();
                queue.reap(&mut done, 1, None);
                assert!(done[0].result.is_ok(), "{done:?}");
            }
        }
        let mut bytes = vec![0xEE; 102_400 - size as usize];
        file.read_bytes(size, &mut bytes).unwrap();
        let shown: Vec<u8> = bytes.into_iter().filter(|b| *b != 0).take(4).collect();
        assert!(shown.is_empty(), "{after:?}, {first_zeroed}: {shown:x?}");
        drop((queue, other));
        bed.judge();
    }
}

/// Rule D9. The defect: a truncation noted that the bytes past the new end are zeros before the size had moved. It failed, and the
/// bytes past the old end became visible when the file was made longer.
#[test]
fn a_truncation_that_fails_knows_nothing_of_the_old_end() {
    let _watchdog = Watchdog::new(LIMIT, "a truncation that fails");
    let (_dir, image, files) = made(0);
    let size = known(&files, "/pieces").bytes.len() as u64;
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let options = OpenOptions {
        metadata_cache: 0,
        map_cache: 0,
        ..quiet()
    };
    // Garbage past the end, as a memory mapping of the last page may leave it.
    let peek = stage.open(&OpenOptions::default()).unwrap();
    let file = peek.open_path("/pieces", OpenFlags::default()).unwrap();
    let last = file.mappings(size - 1, 1).unwrap()[0];
    let MappingState::Written(place) = last.state else {
        panic!("{last:?}")
    };
    drop((file, peek));
    let sector = place.get() * 4096 + size.next_multiple_of(512) % 4096;
    let blocking = diorite_block::Blocking::new(stage.device.clone());
    let garbage = diorite_block::Bio::write(sector, filled(0xCC, 512), 0);
    blocking.run(garbage).result.unwrap();

    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/pieces", writable()).unwrap();
    // The node that the root's first entry points to: a leaf of the map, or a node above one.
    let node = leaf_of(&file) * 4096;
    // So that it has to be read from the device.
    push_out(&volume);
    valve.fail_reads(node..node + 4096);
    let cut = file.truncate(8192);
    valve.fail_reads(0..0);
    assert!(matches!(cut, Err(Error::Device { .. })), "{cut:?}");
    assert_eq!(file.size(), size, "it has changed nothing");
    file.truncate(size + 8192).unwrap();
    let mut bytes = [0xEE; 8192];
    file.read_bytes(size, &mut bytes).unwrap();
    let shown: Vec<u8> = bytes.into_iter().filter(|b| *b != 0).take(4).collect();
    assert!(shown.is_empty(), "{shown:x?}");
}

/// The block that the first entry in the root of a file's extent tree points to.
fn leaf_of(file: &File) -> u64 {
    let root = &file.metadata().i_block;
    assert!(root[6] > 0, "the tree has a node below its root");
    u64::from(u32::from_le_bytes(root[16..20].try_into().unwrap()))
}

/// Rule D11. The defect: a conversion that failed while it loaded its map kept the blocks claimed for it until the volume was
/// opened again. After many such failures, all space that is free on disk can be written.
#[test]
fn claims_of_failed_conversions_come_back() {
    let watchdog = Watchdog::new(LIMIT, "failed conversions");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let options = OpenOptions {
        metadata_cache: 0,
        map_cache: 0,
        ..quiet()
    };
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/holed", writable()).unwrap();
    let leaf = leaf_of(&file) * 4096;
    let empty = volume.open_path("/empty", writable()).unwrap();
    empty
        .call(diorite::Op::Write, 0, filled(1, 4096), DSYNC)
        .1
        .unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    let mappings = file.mappings(0, file.size()).unwrap();
    let holes = mappings.iter().filter(|m| m.state == MappingState::Hole);
    let holes: Vec<u64> = holes.map(|m| m.start).collect();
    let mut failed = 0;
    for block in holes.iter().take(100).cycle().take(200) {
        watchdog.feed(format!("block {block}"));
        valve.hold(&[0xD7]);
        let write = Request::write(id, block * 4096, filled(0xD7, 4096), 0).with_flags(DSYNC);
        queue.submit(&mut VecDeque::from([write]));
        drain_until(&queue, || valve.holding() == 1);
        // Evict the map from the caches.
        push_out(&volume);
        valve.fail_reads(leaf..leaf + 4096);
        valve.hold(&[]);
        let mut done = Vec::new();
        queue.reap(&mut done, 1, None);
        valve.fail_reads(0..0);
        failed += u32::from(done[0].result.is_err());
    }
    assert!(failed > 150, "{failed} conversions failed");
    fill(&volume);
    drop((queue, file, empty));
    volume.close().unwrap();
    let again = stage.open(&quiet()).unwrap();
    assert_eq!(
        fill(&again),
        0,
        "blocks were free on disk that nobody could have"
    );
    again.close().unwrap();
    stage.save();
    fsck(&image);
}

/// Writes until there is no space. Returns the number of blocks.
fn fill(volume: &Volume) -> u64 {
    let file = volume.open_path("/empty", writable()).unwrap();
    let from = file.size().next_multiple_of(4096);
    let mut pos = from;
    for len in [1 << 20, 64 << 10, 4096] {
        while file.write_at(pos, filled(0x5A, len)).1.is_ok() {
            pos += len as u64;
        }
    }
    (pos - from) / 4096
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

/// Rule D5. The defect: a write into thousands of separate extents was converted in one handle, with credits for one run: its
/// transaction could become larger than the smallest journal. It is converted in parts, each with credits for what it changes.
#[test]
fn conversions_of_many_pieces_have_credits() {
    let watchdog = Watchdog::new(LIMIT, "pieces");
    // Unwritten blocks in many extents may need a node of the map for each when they are written.
    let kinds = [
        ("ext4", false, 1u64 << 20),
        ("ext4", true, 1 << 19),
        ("ext3", false, 1 << 19),
    ];
    for (kind, allocated, len) in kinds {
        let dir = scratch();
        let image = in_pieces(dir.path(), kind);
        watchdog.feed(format!("{kind}, {allocated}: the write"));
        let stage = Stage::mem(&image);
        let volume = stage.open(&quiet()).unwrap();
        let file = volume.open_path("/wide", writable()).unwrap();
        if allocated {
            let keep_size = false;
            file.fallocate(Fallocate::Allocate { keep_size }, 0, len)
                .unwrap();
        }
        let (mut rng, mut bytes) = (Rng::new(5), Buf::zeroed(len as usize));
        rng.fill(bytes.as_mut_slice());
        let before = volume.journal_stats();
        let (bytes, done) = file.write_at(0, bytes);
        assert_eq!(done.unwrap() as u64, len);
        let after = volume.journal_stats();
        assert_eq!(after.uncredited, 0, "{kind}, {allocated}");
        // With unwritten extents in many leaves, no single handle can hold the conversion.
        let handles = after.handles - before.handles;
        assert!(!allocated || handles > 1, "{handles} handles");
        assert!(contents(&file) == bytes.as_slice());
        let pieces = file.mappings(0, len).unwrap().len();
        assert!(pieces > 200, "{kind}: only {pieces} pieces");
        drop(file);
        volume.close().unwrap();
        stage.save();
        fsck(&image);
    }
}

/// A full volume of 1 KiB blocks with the smallest journal; every other one of its small files was deleted. `/wide` is empty.
fn in_pieces(dir: &Path, kind: &str) -> PathBuf {
    const PADS: usize = 6400;
    let source = dir.join("source");
    std::fs::create_dir_all(source.join("pads")).unwrap();
    for n in 0..PADS {
        std::fs::write(source.join(format!("pads/{n}")), [n as u8; 700]).unwrap();
    }
    for name in ["empty", "wide"] {
        std::fs::write(source.join(name), b"").unwrap();
    }
    let args = [
        "-t", kind, "-b", "1024", "-J", "size=1", "-N", "8192", "-m", "0",
    ];
    let image = crate::common::image(dir, "24M", &args, &source);
    let stage = Stage::mem(&image);
    let volume = stage.open(&quiet()).unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    let mut pos = 0;
    for len in [1 << 20, 64 << 10, 1024] {
        while file.write_at(pos, filled(0x5A, len)).1.is_ok() {
            pos += len as u64;
        }
    }
    drop(file);
    volume.close().unwrap();
    stage.save();
    let gone = (0..PADS).step_by(2).map(|n| format!("rm /pads/{n}\n"));
    debugfs(&image, dir, &gone.collect::<String>());
    image
}

/// The defect: blocks of pointers that point to themselves map any number of blocks, and `seek` and `mappings` visited all 16
/// million of them and kept them in memory. They stop with an error when a map has more blocks than the volume.
#[test]
fn maps_that_have_more_than_the_volume_end() {
    let _watchdog = Watchdog::new(LIMIT, "pointers to themselves");
    let dir = scratch();
    let image = bare(dir.path(), &RECIPES[2]);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::default()).unwrap();
    let file = volume.open_path("/odd", OpenFlags::default()).unwrap();
    let MappingState::Written(block) = file.mappings(4096, 1).unwrap()[0].state else {
        panic!("the file's data is written")
    };
    drop((file, volume));
    let script = format!("sif /odd block[TIND] {block}\nsif /odd size 17000000000\n");
    debugfs(&image, dir.path(), &script);
    let mut bytes = std::fs::read(&image).unwrap();
    let at = block.get() as usize * 1024;
    for pointer in bytes[at..at + 1024].chunks_mut(4) {
        pointer.copy_from_slice(&u32::try_from(block.get()).unwrap().to_le_bytes());
    }
    std::fs::write(&image, &bytes).unwrap();
    let volume = Stage::mem(&image).open(&OpenOptions::default()).unwrap();
    let file = volume.open_path("/odd", OpenFlags::default()).unwrap();
    // The first byte that the triple-indirect block maps.
    let from = (12 + 256 + 65_536) * 1024;
    let found = file.seek(from, Seek::Hole);
    assert!(matches!(found, Err(Error::Damaged(_))), "{found:?}");
    assert_eq!(file.seek(from, Seek::Data).unwrap(), Some(from));
    let all = file.mappings(0, u64::MAX).map(|all| all.len());
    assert!(matches!(all, Err(Error::Damaged(_))), "{all:?}");
}
