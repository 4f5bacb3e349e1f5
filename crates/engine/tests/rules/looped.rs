//! The loop device: its last sector, its errors, its durability (rules L2, L4 to L8).
//!
//! Input: files of a volume as devices. Output: none. Invariant: counts are asserted, times never. Limits: one layer.

use crate::common::fixture::{LIMIT, filled, known, made, run_all, sim, writable};
use crate::common::nest::{nested, unnest};
use crate::common::stage::{Stage, faulty, one_worker};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{fsck, scratch};
use diorite::policy::PRESETS;
use diorite::{
    Fallocate, LoopDevice, Mapping, MappingState, OpenFlags, OpenOptions, Policy, Request, Volume,
};
use diorite_block::{
    Bio, BioErrorKind, BioFlags, BioList, BioOp, Buf, Device, Fault, QueueOptions, When,
};
use std::sync::Arc;
use std::time::Duration;

fn loop_over(stage: &Stage, path: &str, policy: Policy) -> (Volume, Arc<LoopDevice>) {
    let volume = stage.open(&one_worker(policy)).unwrap();
    let file = volume.open_path(path, writable()).unwrap();
    (volume, Arc::new(LoopDevice::new(file, "loop".into())))
}

pub(crate) fn bios(device: &dyn Device, depth: u32, bios: Vec<Bio>) -> Vec<Bio> {
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

/// Rule L2: the last partial sector of a loop device reads as its bytes followed by zeros; everything up to it is readable with any
/// size of request. Rule L4: refused requests carry the kind of error, and the queue remains usable.
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
                Bio::range(BioOp::Discard, 1, 4096, 4),
                Bio::read(0, Buf::zeroed(4096), 5),
                Bio::flush(6),
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
                Some(BioErrorKind::Invalid),
                None,
                None,
            ]
        );
        assert!(done[5].buf.as_slice() == &odd.bytes[..4096]);
        // Once written, it is a whole sector of the file.
        let mut full = Buf::zeroed(512);
        full.as_mut_slice().fill(0x3C);
        assert!(
            bios(&*device, 1, vec![Bio::write(last, full, 0)])[0]
                .result
                .is_ok()
        );
        let done = bios(&*device, 1, vec![Bio::read(last, Buf::zeroed(512), 0)]);
        assert!(done[0].result.is_ok() && done[0].buf.as_slice().iter().all(|b| *b == 0x3C));
        assert_eq!(device.geometry().size, geometry.size);
    }
}

/// FUA on a loop device is an O_DSYNC write of the backing file, and a flush is passed down layer by layer (rules L5, C13).
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
            let flags = BioFlags::default().fua(true);
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

/// The size of a loop device never leads to a read past the end of its backing file; an empty file is a device of size zero.
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

/// Rule L5: discard, and write-zeroes with unmap, punch a hole; write-zeroes without unmap keeps the blocks and zeroes them. None
/// of them changes the size. A file without extents does not offer write-zeroes, but its discards punch holes, too.
#[test]
fn ranges_of_a_loop_device() {
    let _watchdog = Watchdog::new(LIMIT, "loop ranges");
    for (recipe, extents) in [(0, true), (2, false)] {
        let (dir, image, files) = made(recipe);
        for (_, policy) in PRESETS {
            let stage = Stage::mem(&image);
            let (volume, device) = loop_over(&stage, "/even", policy);
            let geometry = device.geometry();
            assert!(geometry.discard);
            assert_eq!(geometry.write_zeroes, extents);
            let file = volume.open_path("/even", writable()).unwrap();
            let mut model = known(&files, "/even").bytes.clone();
            let (size, block) = (file.size(), u64::from(volume.superblock().block_size()));
            let at = |n: u64| 4 * n * block;
            let written = || file.mappings(0, size).unwrap();
            let before = file.metadata().blocks;
            let ops = [
                (BioOp::Discard, true),
                (BioOp::WriteZeroesUnmap, true),
                (BioOp::WriteZeroes, extents),
            ];
            for (n, (op, can)) in (0u64..).zip(ops) {
                let done = bios(&*device, 4, vec![Bio::range(op, at(n), 2 * block, n)]);
                let kind = done[0].result.err().map(|e| e.kind);
                assert_eq!((kind.is_none(), done[0].op), (can, op), "{kind:?}");
                let refused = Some(BioErrorKind::Unsupported);
                assert!(can || kind == refused, "{kind:?}");
                if can {
                    model[at(n) as usize..(at(n) + 2 * block) as usize].fill(0);
                }
            }
            let holes = written()
                .iter()
                .filter(|m| m.state == MappingState::Hole)
                .count();
            assert_eq!((holes, file.size()), (2, size));
            // Punching may need nodes of the map, which are counted, too.
            assert!(file.metadata().blocks < before);
            let unwritten = |m: &&Mapping| matches!(m.state, MappingState::Unwritten(_));
            let kept: u64 = written().iter().filter(unwritten).map(|m| m.len).sum();
            assert_eq!(kept, if extents { 2 } else { 0 });
            // An empty range causes no request of the file.
            let done = bios(&*device, 4, vec![Bio::range(BioOp::Discard, 0, 0, 0)]);
            assert!(done[0].result.is_ok());
            let mut bytes = vec![0xee; model.len()];
            assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
            assert!(bytes == model);
            // The punched ranges can be written, and then hold data.
            let full = |n: u64| Bio::write(at(n), filled(0x3C, block as usize), n);
            let done = bios(&*device, 4, vec![full(0), full(1), full(2)]);
            assert!(done.iter().all(|b| b.result.is_ok()));
            drop((device, file));
            volume.close().unwrap();
            let after = dir.path().join("after");
            std::fs::write(&after, stage.bytes()).unwrap();
            fsck(&after);
        }
    }
}

/// Many discards among writes, as many in flight as the queue has slots: each completes exactly once.
#[test]
fn discards_among_writes() {
    let _watchdog = Watchdog::new(LIMIT, "discards among writes");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let (volume, device) = loop_over(&stage, "/even", Policy::DIORITE);
    let blocks = device.geometry().size / 4096;
    let all = (0..300u64).map(|n| {
        let pos = n % blocks * 4096;
        match n % 3 {
            0 => Bio::range(BioOp::Discard, pos, 4096, n),
            1 => Bio::range(BioOp::WriteZeroes, pos, 4096, n),
            _ => Bio::write(pos, filled(0x3C, 4096), n),
        }
    });
    let done = bios(&*device, 16, all.collect());
    let tokens: Vec<u64> = done.iter().map(|b| b.token).collect();
    assert_eq!(tokens, (0..300).collect::<Vec<u64>>());
    assert!(done.iter().all(|b| b.result.is_ok()));
    drop(device);
    volume.close().unwrap();
    stage.fsck();
}

/// Trimming the inner volume frees blocks of the file that it is in, and both volumes stay consistent. The image is a host file, so
/// that no flush fails.
#[test]
fn trimming_a_volume_in_a_volume() {
    let _watchdog = Watchdog::new(LIMIT, "trim");
    let dir = scratch();
    let nest = nested(dir.path());
    let (outer, inner) = nest.rsplit_once("!/").unwrap();
    let blocks = || {
        let volume = Volume::open(outer, &OpenOptions::default()).unwrap();
        let file = volume.open_path(inner, OpenFlags::default()).unwrap();
        file.metadata().blocks
    };
    let before = blocks();
    let volume = Volume::open(&nest, &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/data", writable()).unwrap();
    assert_eq!(file.size(), 2 << 20);
    file.truncate(4096).unwrap();
    volume.sync().unwrap();
    let trimmed = volume.trim(0..u64::MAX, 4096).unwrap();
    assert!(trimmed >= (2 << 20) - 4096, "{trimmed}");
    let mut data = [0; 4096];
    assert_eq!(file.read_bytes(0, &mut data).unwrap(), 4096);
    assert!(data.iter().any(|b| *b != 0));
    drop(file);
    volume.close().unwrap();
    // Includes the blocks that were allocated when the inner journal wrote into holes.
    let after = blocks();
    assert!(after < before / 4, "{before}, then {after}");
    unnest(dir.path(), &nest);
}

/// Rule L8: in a stack, queues with a single slot complete all requests: no layer waits for a slot that only itself can free.
#[test]
fn narrow_queues_of_a_stack_do_not_starve() {
    let _watchdog = Watchdog::new(LIMIT, "narrow queues");
    let dir = scratch();
    let nest = nested(dir.path());
    let volume = Volume::open(&nest, &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/data", writable()).unwrap();
    file.fallocate(Fallocate::PunchHole, 0, 1 << 20).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (volume, file) = (&volume, &file);
            scope.spawn(move || {
                let queue = volume.queue(1).unwrap();
                let id = queue.attach(file).unwrap();
                // Parts of new blocks, with zeros around them, and a sync now and then.
                let pos = |n: u64| (thread * 40 + n) * 4096 + 1024;
                let write = |n| Request::write(id, pos(n), filled(7, 1024), n);
                let sync = |n| Request::sync(id, n % 2 == 0, n);
                let requests = (0..40).map(|n| if n % 8 == 7 { sync(n) } else { write(n) });
                let done = run_all(&queue, requests.collect());
                assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
            });
        }
    });
    let mut bytes = vec![0xEE; 120 * 4096];
    file.read_bytes(0, &mut bytes).unwrap();
    for (block, bytes) in bytes.chunks(4096).enumerate() {
        let want = if block % 8 == 7 { 0 } else { 7 };
        assert!(bytes[1024..2048].iter().all(|b| *b == want), "{block}");
        let around = bytes[..1024].iter().chain(&bytes[2048..]);
        assert!(around.copied().all(|b| b == 0), "{block}");
    }
    drop(file);
    volume.close().unwrap();
    unnest(dir.path(), &nest);
}

/// Bios with the same token and the same position complete separately, each with its own result.
#[test]
fn bios_with_one_token_are_told_apart() {
    let _watchdog = Watchdog::new(LIMIT, "bios with one token");
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    let image = crate::common::image(dir.path(), "16M", &["-t", "ext4"], &tree);
    let stage = Stage::mem(&image);
    let (_volume, device) = loop_over(&stage, "/sparse", Policy::DIORITE);
    let done = bios(
        &*device,
        8,
        vec![
            Bio::range(BioOp::Discard, 0, 4096, 7),
            // There is not enough space for this one.
            Bio::range(BioOp::WriteZeroes, 0, 50 << 20, 7),
            Bio::range(BioOp::Discard, 0, 8192, 7),
            Bio::range(BioOp::WriteZeroes, 0, 4096, 7),
            Bio::write(0, Buf::zeroed(4096), 7),
            Bio::read(0, Buf::zeroed(8192), 7),
        ],
    );
    assert_eq!(done.len(), 6);
    for bio in &done {
        assert_eq!((bio.token, bio.pos), (7, 0));
        let too_large = bio.len == 50 << 20;
        let kind = bio.result.err().map(|e| e.kind);
        let want = too_large.then_some(BioErrorKind::NoSpace);
        assert_eq!(kind, want, "{:?} of {} bytes", bio.op, bio.len);
    }
    let count = |op, len| done.iter().filter(|b| b.op == op && b.len == len).count();
    assert_eq!(count(BioOp::Discard, 4096) + count(BioOp::Discard, 8192), 2);
    assert_eq!(count(BioOp::WriteZeroes, 4096), 1);
    assert_eq!(count(BioOp::Write, 4096) + count(BioOp::Read, 8192), 2);
}

/// Rule L2: if the backing file shrank, a read returns its bytes followed by zeros, whatever was in the buffer; a read wholly past
/// its end is an error.
#[test]
fn a_backing_that_shrank_reads_as_zeros() {
    let _watchdog = Watchdog::new(LIMIT, "shrank");
    let (_dir, image, files) = made(0);
    let even = known(&files, "/even");
    let stage = Stage::mem(&image);
    let (volume, device) = loop_over(&stage, "/even", Policy::DIORITE);
    let queue = device.open_queue(QueueOptions::new(2).unwrap()).unwrap();
    volume
        .open_path("/even", writable())
        .unwrap()
        .truncate(10_000)
        .unwrap();
    let (mut todo, mut out) = (BioList::new(), BioList::new());
    for (token, pos) in [(0, 8192), (1, 16384)] {
        todo.push_back(Bio::read(pos, filled(0xEE, 8192), token));
    }
    while out.len() < 2 {
        queue.submit(&mut todo);
        queue.reap(&mut out);
    }
    for bio in out {
        let got = bio.buf.as_slice();
        if bio.token == 0 {
            assert_eq!(bio.result, Ok(()));
            assert!(got[..1808] == even.bytes[8192..10_000]);
            assert!(got[1808..].iter().all(|b| *b == 0), "behind the end");
        } else {
            assert_eq!(bio.result.map_err(|e| e.kind), Err(BioErrorKind::Io));
            assert!(got.iter().all(|b| *b == 0), "wholly behind the end");
        }
    }
}

/// Rule L6: a bio that is retried is as durable as was requested.
#[test]
fn what_is_done_again_is_still_durable() {
    let _watchdog = Watchdog::new(LIMIT, "again");
    let (_dir, image, _) = made(0);
    let stage = sim(&image, "cache=volatile,fua=yes");
    let fault = Fault::new(BioErrorKind::WouldBlock, When::nth(1)).on(BioOp::Write);
    let device = faulty(stage.device.clone(), vec![fault]);
    let options = one_worker(Policy::DIORITE).commit_interval(Duration::from_secs(3600));
    let volume = Volume::open_device(device.clone(), &options).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let looped = LoopDevice::new(file, "loop".into());
    let before = stage.disk().counters();
    let flags = BioFlags::default().fua(true);
    let bio = Bio {
        flags,
        ..Bio::write(0, Buf::zeroed(4096), 0)
    };
    assert_eq!(bios(&looped, 2, vec![bio])[0].result, Ok(()));
    assert_eq!(device.plan().failed(), 1, "it was told to wait once");
    let did = stage.disk().counters().since(&before);
    assert_eq!((did.writes, did.fua_writes), (1, 1));
}

/// Rule L7: bios without NOWAIT are never tried with it; bios with NOWAIT are passed down with it.
#[test]
fn nothing_is_tried_without_waiting() {
    let _watchdog = Watchdog::new(LIMIT, "waiting");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let volume =
        Volume::open_device(Arc::new(valve.clone()), &one_worker(Policy::DIORITE)).unwrap();
    let file = volume.open_path("/sparse", writable()).unwrap();
    let device = LoopDevice::new(file, "loop".into());
    // A hole, data, and both.
    let write = |n: u64| Bio::write(n * 8192, Buf::zeroed(8192), n);
    assert!(
        bios(&device, 8, (0..64).map(write).collect())
            .iter()
            .all(|b| b.result.is_ok())
    );
    assert_eq!(valve.not_to_wait(), 0);
    let flags = BioFlags::default().nowait(true);
    let done = bios(&device, 8, vec![Bio { flags, ..write(0) }]);
    assert_eq!((done[0].result, valve.not_to_wait()), (Ok(()), 1));
}
