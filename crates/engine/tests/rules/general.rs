//! Requests in general: alignment, the file's end, holes, what may wait, what is refused and given back (rules G1 to G12).
//!
//! Input: recipes of known files. Output: none. Invariant: counts are asserted, times never. Limits: reads and overwrites.

use crate::common::fixture::{LIMIT, NOWAIT, attached, known, made, run_all, sim, writable};
use crate::common::recipe::{Known, POISON};
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{image, scratch};
use diorite::{Error, MappingState, Misaligned, OpenFlags, OpenOptions, Request, Volume, Wait};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::sync::Arc;

/// Rules G1, G2: a misaligned request is refused with an error that says what is misaligned and by how much, and nothing changes.
/// Pieces of memory may have any size and number if their sum is a multiple of the logical block.
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
        // Past the largest size of a file.
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
        // Pieces of odd sizes.
        let sizes = [1, 510, 3, 4096, 1, 1, 7, 512, 2909, 8192 - 8040 + 8192];
        let parts: Vec<Buf> = sizes.iter().map(|n| Buf::zeroed(*n)).collect();
        let buf = Buf::from_parts(parts);
        let len = buf.len();
        let odd = !(len as u64).is_multiple_of(logical);
        let (buf, result) = file.read_buf(0, buf);
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

/// Rule G2: memory that is less aligned than the device requires is refused, with the amount; an aligned part of a buffer is
/// accepted.
#[test]
fn memory_is_as_aligned_as_the_device_wants_it() {
    let _watchdog = Watchdog::new(LIMIT, "memory");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let device = Valve::aligned(stage.device.clone(), 512);
    let volume = Volume::open_device(Arc::new(device), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    for (skip, by) in [(64, 64), (512, 0), (1, 1), (1024, 0), (256, 256)] {
        let part = || Buf::zeroed(skip + 4096).split_off(skip);
        let vector = || Buf::from_parts(vec![Buf::zeroed(512), part()]);
        let requests = vec![
            Request::read(id, 0, part(), 0),
            Request::write(id, 0, part(), 1),
            Request::read(id, 0, vector(), 2),
            Request::write(id, 0, vector(), 3),
        ];
        for done in run_all(&queue, requests) {
            match done.result {
                Ok(n) => assert_eq!((n, by), (done.buf.len(), 0)),
                Err(Error::Unaligned {
                    what: Misaligned::Buffer,
                    by: found,
                    need: 512,
                }) => assert_eq!(found, by),
                other => panic!("{skip}: {other:?}"),
            }
        }
    }
}

/// Rules G3, G4: holes and unwritten blocks read as zeros without device I/O. A read across the end of the file returns a short
/// count, and the device reads only the sectors that hold the file's bytes.
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
    // Past the end of the file, the block has bytes that nobody wrote to the file.
    let MappingState::Written(last) = file.mappings(blocks * 4096, 1).unwrap()[0].state else {
        panic!("the last block holds data")
    };
    let behind = last.get() * 4096 + 513;
    stage.disk().write_at(behind, &[POISON; 4096 - 513]);
    for block in 0..blocks {
        let before = stage.disk().counters();
        let (buf, result) = file.read_buf(block * 4096, Buf::zeroed(4096));
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
    let (buf, result) = file.read_buf(blocks * 4096, buf);
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
            file.read_buf(pos, Buf::zeroed(512)).1.unwrap(),
            0,
            "at {pos}"
        );
    }
    assert_eq!(stage.disk().counters(), before);
}

/// Rule G12: if a part of the map is not in memory, NOWAIT gets EAGAIN and loads nothing; a request without it loads the map, and
/// then NOWAIT is served. A write past the end first needs zeros after the old end: EAGAIN too, and nothing happens.
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
        // Another queue uses the same map.
        let other = volume.queue(2).unwrap();
        let id = other.attach(&file).unwrap();
        let done = run_all(
            &other,
            vec![Request::read(id, pos, Buf::zeroed(512), 0).with_flags(NOWAIT)],
        );
        assert!(done[0].result.is_ok(), "{done:?}");
        let (size, before) = (file.size(), stage.disk().counters());
        let past =
            Request::write(id, size.next_multiple_of(512), Buf::zeroed(512), 0).with_flags(NOWAIT);
        assert!(matches!(
            run_all(&other, vec![past])[0].result,
            Err(Error::WouldBlock(Wait::Space))
        ));
        assert_eq!((file.size(), stage.disk().counters()), (size, before));
    }
}

/// Rule G12. A NOWAIT request passes that flag to the device if it is a single bio. With several bios, one could be refused after
/// another has been done.
#[test]
fn only_one_piece_asks_the_device_not_to_wait() {
    let _watchdog = Watchdog::new(LIMIT, "one piece");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/pieces", writable()).unwrap();
    // Loads the map.
    file.mappings(0, file.size()).unwrap();
    let queue = volume.queue(64).unwrap();
    let id = queue.attach(&file).unwrap();
    let asks = |request: Request| {
        let before = valve.not_to_wait();
        let done = run_all(&queue, vec![request]);
        assert!(done[0].result.is_ok(), "{done:?}");
        valve.not_to_wait() - before
    };
    // Two pieces of memory, which the fast attempt does not take.
    let halves = |len: usize| Buf::from_parts(vec![Buf::zeroed(len / 2), Buf::zeroed(len / 2)]);
    let requests = |len| {
        [
            Request::read(id, 0, halves(len), 0),
            Request::write(id, 0, halves(len), 0),
        ]
    };
    for (len, asked) in [(512, 1), (40 * 4096, 0)] {
        for request in requests(len) {
            assert_eq!(asks(request), 0, "{len} bytes, may wait");
        }
        for request in requests(len) {
            assert_eq!(asks(request.with_flags(NOWAIT)), asked, "{len} bytes");
        }
    }
}

/// Rules G5, G6: requests of many pieces, through queues with fewer slots than pieces: each completes exactly once, at every depth.
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
            let (queue, id) = attached(&volume, &file, depth);
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

/// A request whose file id belongs to another queue, or was detached, is refused and given back (rule G5).
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
            .filter(|d| matches!(d.result, Err(Error::NotAttached)))
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

/// Only regular files are opened for writing: directories and the volume's own inodes are not, by name or by number.
#[test]
fn only_files_are_opened_for_writing() {
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    for ino in [2, 7, 8, 11] {
        let file = volume.open_ino(diorite_format::Ino::new(ino), writable());
        let written = file.and_then(|f| f.write_buf(0, Buf::zeroed(512)).1);
        assert!(written.is_err(), "inode {ino} was overwritten");
    }
    volume.close().unwrap();
    stage.fsck();
}

/// After close, requests are refused with ShutDown, also by queues that still exist; requests that were in flight can be reaped.
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
        file.read_buf(0, Buf::zeroed(512)).1,
        Err(Error::ShutDown)
    ));
    assert!(matches!(volume.queue(1), Err(Error::ShutDown)));
    let done = run_all(&queue, vec![Request::write(id, 0, Buf::zeroed(512), 0)]);
    assert!(matches!(done[0].result, Err(Error::ShutDown)), "{done:?}");
}

/// Concurrent lookups in maps that the cache budget evicts repeatedly: every caller gets complete mappings.
#[test]
fn maps_fall_back_to_their_roots_under_walkers() {
    let _watchdog = Watchdog::new(LIMIT, "map budget");
    for recipe in [1, 2] {
        let (_dir, image, files) = made(recipe);
        let stage = Stage::mem(&image);
        let options = OpenOptions::default()
            .map_cache(0)
            .metadata_cache(0)
            .workers(2);
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

/// Two threads on one queue: one attaches and detaches files while the other submits requests with the ids that it gets from the
/// first.
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

/// A file with inline data is read from its inode, and its first write moves the data out to a block; both are counted.
#[test]
fn inline_data_is_read_and_moves_out() {
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
    assert_eq!(queue.counters().fallback_buffered, 1);
    assert!(stage.bytes() == before);
    let write = || Request::write(id, 512, Buf::zeroed(512), 0);
    assert_eq!(
        run_all(&queue, vec![write()])[0].result.clone().unwrap(),
        512
    );
    assert_eq!(
        run_all(&queue, vec![write()])[0].result.clone().unwrap(),
        512
    );
    assert_eq!(queue.counters().fallback_buffered, 2);
    let done = run_all(&queue, vec![Request::read(id, 0, Buf::zeroed(1024), 0)]);
    assert_eq!(done[0].result.clone().unwrap(), 1024);
    assert!(done[0].buf.as_slice()[..50] == bytes[..]);
    assert!(done[0].buf.as_slice()[50..].iter().all(|b| *b == 0));
    drop((queue, file));
    volume.close().unwrap();
}
