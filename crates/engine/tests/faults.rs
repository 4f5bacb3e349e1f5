//! A device that fails any request, answers EAGAIN, is full, read-only or gone: each error reaches exactly the requests that it
//! hit, and everything else goes on.

use crate::common::fixture::{LIMIT, attached, made, run_all, writable};
use crate::common::names::empty;
use crate::common::recipe::{RECIPES, bare};
use crate::common::stage::{Stage, faulty};
use crate::common::walk::open_and_walk;
use crate::common::watch::Watchdog;
use crate::common::{Rng, fsck, scratch};
use diorite::policy::PRESETS;
use diorite::{
    Completion, Error, File, FileId, OpenFlags, OpenOptions, Policy, Queue, Reason, Request,
    RequestFlags, Volume, Wait,
};
use diorite_block::{BioErrorKind, BioOp, Buf, Fault, FaultDevice, SimOptions, When};
use diorite_format::FsBlock;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

fn kind(done: &Completion) -> Option<BioErrorKind> {
    match &done.result {
        Ok(_) => None,
        Err(Error::Device { error, op, pos, .. }) => {
            assert_eq!(
                (*op, *pos),
                (done.op, done.pos),
                "the error names its request"
            );
            Some(error.kind)
        }
        Err(Error::DeviceFull(full)) => {
            assert_eq!((full.op, full.pos), (done.op, done.pos));
            Some(BioErrorKind::NoSpace)
        }
        // Rule G10: EAGAIN is not an I/O error.
        Err(Error::WouldBlock(Wait::Device)) => Some(BioErrorKind::WouldBlock),
        Err(other) => panic!("{other:?}"),
    }
}

fn over(below: Arc<FaultDevice>, options: OpenOptions) -> Volume {
    Volume::open_device(below, &options.workers(1)).unwrap()
}

/// The volume under this policy, its `/even` for writing, and a queue of this depth that has the file attached.
fn opened(below: Arc<FaultDevice>, policy: Policy, depth: u32) -> (Volume, File, Queue, FileId) {
    let options = OpenOptions::writable().policy(policy);
    let volume = over(below, options);
    let file = volume.open_path("/even", writable()).unwrap();
    let (queue, id) = attached(&volume, &file, depth);
    (volume, file, queue, id)
}

/// The first block of `/even`.
fn first_block(stage: &Stage) -> FsBlock {
    let probe = stage.open(&OpenOptions::default()).unwrap();
    let file = probe.open_path("/even", OpenFlags::default()).unwrap();
    match file.mappings(0, 4096).unwrap()[0].state {
        diorite::MappingState::Written(first) => first,
        _ => panic!("it was written"),
    }
}

/// Rules G6, G7, G9, G10, L4: one block of the device fails. Exactly the requests that touch it fail, the others return all their
/// data, file and queue stay usable; a worker handles a failed write, and each of its sectors is old or new.
#[test]
fn an_error_reaches_the_request_that_it_hit() {
    let (_dir, image, files) = made(0);
    let even = files.iter().find(|k| k.path == "/even").unwrap();
    for (name, policy) in PRESETS {
        for bad in [
            BioErrorKind::Io,
            BioErrorKind::NoSpace,
            BioErrorKind::WouldBlock,
            BioErrorKind::Gone,
        ] {
            let _watchdog = Watchdog::new(LIMIT, format!("{name}, {bad:?}"));
            let stage = Stage::mem(&image);
            let first = first_block(&stage);
            // One block of the file fails permanently.
            let at = (first.get() + 7) * 4096;
            let fault = Fault::new(bad, When::Every(1)).within(at..at + 4096);
            let device = faulty(stage.device.clone(), vec![fault]);
            let (_volume, file, queue, id) = opened(device.clone(), policy, 32);
            for write in [false, true] {
                let requests = (0..200u64)
                    .map(|n| {
                        let (pos, len) = (n % 100 * 2048, if n < 100 { 2048 } else { 6144 });
                        let buf = Buf::zeroed(len);
                        if write {
                            Request::write(id, pos, buf, n)
                        } else {
                            Request::read(id, pos, buf, n)
                        }
                    })
                    .collect();
                let mut failed = 0;
                for done in run_all(&queue, requests) {
                    let (from, to) = (done.pos, done.pos + done.buf.len() as u64);
                    let hit = from < 8 * 4096 && to > 7 * 4096;
                    assert_eq!(kind(&done), hit.then_some(bad), "{name}: {}", done.pos);
                    failed += u64::from(hit);
                    if !hit && !write {
                        assert!(done.buf.as_slice() == &even.bytes[from as usize..to as usize]);
                    }
                }
                assert!(failed > 2);
                let counted = queue.counters();
                assert_eq!(counted.failed, if write { 2 * failed } else { failed });
                if write {
                    assert_eq!(counted.deferred[Reason::Failed as usize], failed, "{name}");
                }
            }
            drop(file.quiesce());
            assert!(file.write_buf(0, Buf::zeroed(512)).1.is_ok());
            file.sync().unwrap();
            let mut bytes = vec![0; 4096];
            stage
                .open(&OpenOptions::default())
                .unwrap()
                .open_path("/even", OpenFlags::default())
                .unwrap()
                .read_bytes(7 * 4096, &mut bytes)
                .unwrap();
            assert!(
                bytes == even.bytes[7 * 4096..8 * 4096],
                "a failed write that never reached the device changed it"
            );
        }
    }
}

/// Rule G6: any bio of a request with several may fail, at every depth; the first error is returned, and the buffer comes back
/// complete.
#[test]
fn any_piece_may_fail() {
    let (_dir, image, files) = made(1);
    let pieces = files.iter().find(|k| k.path == "/pieces").unwrap();
    let len = 200 * 1024;
    for depth in [1, 2, 64] {
        for nth in (1..60).step_by(7) {
            let _watchdog = Watchdog::new(LIMIT, format!("depth {depth}, bio {nth}"));
            let stage = Stage::sim(
                &image,
                SimOptions::parse("0,latency=10us,jitter=20us").unwrap(),
            );
            let fault = Fault::new(BioErrorKind::Io, When::nth(nth)).on(BioOp::Write);
            let device = faulty(stage.device.clone(), vec![fault]);
            let volume = over(device.clone(), OpenOptions::writable());
            let file = volume.open_path("/pieces", writable()).unwrap();
            let (queue, id) = attached(&volume, &file, depth);
            let mut buf = Buf::zeroed(len);
            buf.copy_in(0, &pieces.bytes[..len]);
            let write = Request::write(id, 0, buf, 0);
            let read = Request::read(id, 0, Buf::zeroed(len), 1);
            let done = run_all(&queue, vec![write, read]);
            assert_eq!(
                done[0].result.is_err(),
                device.plan().failed() == 1,
                "{done:?}"
            );
            assert!(done[0].buf.as_slice() == &pieces.bytes[..len]);
            // The write has the old bytes, so its buffer equals the file either way.
            assert!(done[1].result.is_ok() && done[1].buf.as_slice() == &pieces.bytes[..len]);
        }
    }
}

/// Metadata: opening, walking and mapping with every nth read failing returns an error or data. The next attempt without the fault
/// returns everything: no wrong data was cached.
#[test]
fn metadata_reads_may_fail() {
    for recipe in [1, 2] {
        let (_dir, image, files) = made(recipe);
        let stage = Stage::mem(&image);
        let holed = files.iter().find(|k| k.path == "/holed").unwrap();
        for nth in 1..60 {
            let _watchdog = Watchdog::new(LIMIT, format!("read {nth}"));
            for when in [When::nth(nth), When::Every(nth), When::OneIn(nth)] {
                let fault = Fault::new(BioErrorKind::Io, when).on(BioOp::Read);
                open_and_walk(faulty(stage.device.clone(), vec![fault]));
            }
            let fault = Fault::new(BioErrorKind::Io, When::nth(nth)).on(BioOp::Read);
            let device = faulty(stage.device.clone(), vec![fault]);
            let mut failures = 0;
            let volume = loop {
                match Volume::open_device(device.clone(), &OpenOptions::default()) {
                    Ok(volume) => break volume,
                    Err(_) => failures += 1,
                }
                assert_eq!(failures, 1, "one fault, one failure");
            };
            let file = loop {
                match volume.open_path("/holed", OpenFlags::default()) {
                    Ok(file) => break file,
                    Err(_) => failures += 1,
                }
                assert_eq!(failures, 1, "one fault, one failure");
            };
            let mut out = vec![0; holed.bytes.len()];
            while file.read_bytes(0, &mut out).is_err() {
                failures += 1;
                assert_eq!(failures, 1, "one fault, one failure");
            }
            assert!(out == holed.bytes, "read {nth}");
        }
    }
}

/// A failed flush fails the write that waited for it, and the next sync of its file or the sync that asked for it, and nothing else
/// (rule C4: not acknowledged).
#[test]
fn flushes_may_fail() {
    let (_dir, image, _) = made(0);
    for (name, policy) in PRESETS {
        for nth in 1..8u64 {
            let _watchdog = Watchdog::new(LIMIT, format!("{name}, flush {nth}"));
            let told = nth.next_multiple_of(3);
            let stage = Stage::sim(
                &image,
                SimOptions::parse("0,cache=volatile,fua=no").unwrap(),
            );
            let device = faulty(
                stage.device.clone(),
                vec![Fault::new(BioErrorKind::Io, When::nth(nth)).on(BioOp::Flush)],
            );
            let (_volume, file, queue, id) = opened(device.clone(), policy, 4);
            let dsync = RequestFlags::default().dsync(true);
            for n in 1..8u64 {
                let request = match n % 3 {
                    0 => Request::sync(id, true, n),
                    1 => Request::write(id, 512, Buf::zeroed(512), n).with_flags(dsync),
                    _ => Request::write(id, 0, Buf::zeroed(4096), n).with_flags(dsync),
                };
                let done = run_all(&queue, vec![request]);
                // A write reports the failure for its own data, the next sync for other data that the flush may have lost.
                let fails = n == nth || n == told;
                assert_eq!(done[0].result.is_err(), fails, "{name}: {done:?}");
            }
            assert_eq!(file.sync().is_err(), told > 7);
        }
    }
}

/// Rules G10, G11, L6: with many EAGAIN from below, to bios with and without NOWAIT, every request completes once; a request
/// without NOWAIT is retried or fails with that error, one with NOWAIT may fail.
#[test]
fn storms_of_eagain() {
    let mut rng = Rng::from_env("eagain");
    let (_dir, image, _) = made(0);
    for (name, policy) in PRESETS {
        for when in [When::Every(2), When::OneIn(3), When::Every(1)] {
            let _watchdog = Watchdog::new(LIMIT, format!("{name}, {when:?}"));
            let stage = Stage::mem(&image);
            let first = first_block(&stage);
            let start = first.get() * 4096;
            let fault = Fault::new(BioErrorKind::WouldBlock, when).within(start..start + (1 << 20));
            let (_volume, file, queue, id) =
                opened(faulty(stage.device.clone(), vec![fault]), policy, 16);
            let requests = (0..300u64)
                .map(|n| {
                    let (pos, len) = (rng.below(400) * 512, 512 * (1 + rng.below(16) as usize));
                    let flags = RequestFlags::none().nowait(n % 3 == 0).dsync(n % 5 == 0);
                    let buf = Buf::zeroed(len);
                    if n % 2 == 0 {
                        Request::write(id, pos, buf, n)
                    } else {
                        Request::read(id, pos, buf, n)
                    }
                    .with_flags(flags)
                })
                .collect();
            for done in run_all(&queue, requests) {
                let eagain = match &done.result {
                    Ok(n) => *n == done.buf.len(),
                    Err(Error::WouldBlock(Wait::Device)) => true,
                    Err(Error::WouldBlock(_)) => done.token % 3 == 0,
                    Err(_) => false,
                };
                assert!(eagain, "{name}: {done:?}");
            }
            drop(file.quiesce());
        }
    }
}

/// A device becomes read-only, or disappears, under an open volume: writes fail with that error, reads go on, close does not hang.
#[test]
fn a_device_turns_read_only() {
    let _watchdog = Watchdog::new(LIMIT, "read-only");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let device = faulty(stage.device.clone(), vec![]);
    let volume = over(device.clone(), OpenOptions::writable());
    let file = volume.open_path("/even", writable()).unwrap();
    let queue = volume.queue(64).unwrap();
    let id = queue.attach(&file).unwrap();
    device.hold(true);
    let mut batch: VecDeque<Request> = (0..32)
        .map(|n| Request::write(id, n * 4096, Buf::zeroed(4096), n))
        .collect();
    queue.submit(&mut batch);
    device.set_read_only(true);
    let mut batch: VecDeque<Request> = (32..64)
        .map(|n| Request::write(id, n * 4096, Buf::zeroed(4096), n))
        .collect();
    queue.submit(&mut batch);
    device.hold(false);
    let mut done = Vec::new();
    while done.len() < 64 {
        queue.reap(&mut done, 1, None);
    }
    for done in &done {
        let expect = (done.token >= 32).then_some(BioErrorKind::ReadOnly);
        assert_eq!(kind(done), expect);
    }
    assert!(file.read_buf(0, Buf::zeroed(4096)).1.is_ok());
    let _ = volume.close();
}

/// The volume is closed while the device holds requests: close waits for them, and no longer.
#[test]
fn close_waits_for_what_the_device_holds() {
    let _watchdog = Watchdog::new(LIMIT, "close");
    let (_dir, image, _) = made(0);
    for (_, policy) in PRESETS {
        let stage = Stage::mem(&image);
        let device = faulty(stage.device.clone(), vec![]);
        let (volume, _file, queue, id) = opened(device.clone(), policy, 16);
        device.hold(true);
        let mut batch: VecDeque<Request> = (0..16)
            .map(|n| Request::write(id, n * 512, Buf::zeroed(512 << (n % 2)), n))
            .collect();
        queue.submit(&mut batch);
        let closed = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                volume.close().unwrap();
                closed.store(true, std::sync::atomic::Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(
                !closed.load(std::sync::atomic::Ordering::SeqCst),
                "closed over requests in flight"
            );
            device.hold(false);
        });
        let mut done = Vec::new();
        assert_eq!(queue.reap(&mut done, 16, None), 16);
        assert!(done.iter().all(|d| d.result.is_ok()));
    }
}

/// Whatever fails while files grow: every request completes once; after the journal was aborted, later writes report that; and
/// after e2fsck the volume is consistent and holds what was acknowledged as durable (rules G7, U10).
#[test]
fn bios_fail_while_files_grow() {
    for recipe in [0, 1, 2, 3] {
        for nth in [2, 9, 40, 133] {
            let _watchdog = Watchdog::new(LIMIT, format!("{}, write {nth}", RECIPES[recipe].name));
            let dir = scratch();
            let stage = Stage::mem(&bare(dir.path(), &RECIPES[recipe]));
            let fault = Fault::new(BioErrorKind::Io, When::Every(nth)).on(BioOp::Write);
            let volume = over(
                faulty(stage.device.clone(), vec![fault]),
                OpenOptions::writable(),
            );
            let durable = grow_and_fail(&volume);
            let _ = volume.close();
            stage.save();
            // e2fsck recovers the image and may correct counts; a second run finds nothing.
            let image = stage.image.to_str().unwrap();
            let mended = xtask::run::tool("e2fsck").args(["-fy", image]).output();
            assert!(mended.unwrap().status.code().is_some_and(|c| c < 4));
            fsck(&stage.image);
            let again = Stage::mem(&stage.image);
            let volume = again.open(&OpenOptions::default()).unwrap();
            for (path, pos, byte, len) in durable {
                let file = volume.open_path(path, OpenFlags::default()).unwrap();
                let mut bytes = vec![0; len];
                assert_eq!(
                    file.read_bytes(pos, &mut bytes).unwrap(),
                    len,
                    "{path} at {pos}"
                );
                assert!(bytes.iter().all(|b| *b == byte), "{path} at {pos}: lost");
            }
        }
    }
}

/// Appends and fills of holes, every third one durable. Returns those that were acknowledged as durable: path, position, content,
/// length.
fn grow_and_fail(volume: &Volume) -> Vec<(&'static str, u64, u8, usize)> {
    let paths = ["/empty", "/sparse"];
    let files = paths.map(|path| volume.open_path(path, writable()).unwrap());
    let queue = volume.queue(16).unwrap();
    let ids = [0, 1].map(|n| queue.attach(&files[n]).unwrap());
    let (mut durable, mut aborted) = (Vec::new(), false);
    for round in 0..24u64 {
        let requests = (0..8u64).map(|n| {
            let len = 512 * (1 + (round * 5 + n * 3) as usize % 17);
            let mut buf = Buf::zeroed(len);
            buf.as_mut_slice().fill(1 + (round * 8 + n) as u8);
            let request = match n % 2 {
                0 => Request::append(ids[0], buf, n),
                _ => Request::write(ids[1], (round * 8 + n) * 5120, buf, n),
            };
            request.with_flags(RequestFlags::default().dsync(n % 3 == 0))
        });
        for done in run_all(&queue, requests.collect()) {
            match done.result.as_ref().map_err(Error::root) {
                Ok(len) => {
                    assert_eq!(*len, done.buf.len(), "rule G7");
                    if done.token % 3 == 0 {
                        let path = paths[done.token as usize % 2];
                        durable.push((path, done.pos, done.buf.as_slice()[0], *len));
                    }
                }
                Err(Error::Device { .. }) => {}
                Err(Error::Aborted(_)) => aborted = true,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    if aborted {
        let (_, result) = files[1].write_buf(900 << 10, Buf::zeroed(4096));
        assert!(matches!(result, Err(Error::Aborted(_))), "{result:?}");
    }
    durable
}

/// Defect: after an error on a volume without a journal every later change was refused "since its journal was aborted".
#[test]
fn an_error_names_no_journal_that_is_not_there() {
    let dir = scratch();
    let image = empty(dir.path(), "16M", &["-t", "ext4", "-O", "^has_journal"]);
    let stage = Stage::mem(&image);
    let device = faulty(stage.device.clone(), Vec::new());
    let volume = over(device.clone(), OpenOptions::writable());
    volume.mkdir("/before", 0o755).unwrap();
    device.set_read_only(true);
    volume.sync().unwrap_err();
    let refused = volume.mkdir("/after", 0o755).unwrap_err();
    assert!(matches!(refused, Error::Aborted(_)), "{refused:?}");
    assert!(!refused.to_string().contains("journal"), "{refused}");
    volume.close().unwrap_err();
}
