//! Bios that a device loses in a panic: their requests fail, and no others do.
//!
//! Everything here runs under a watchdog: the defect that these tests look for is a wait that never ends.

use super::bomb::{Bomb, quiet, staged};
use super::one;
use super::panics::{open, with_a_node};
use crate::common::fixture::{attached, filled};
use crate::common::valve::Valve;
use crate::common::watch::within;
use diorite::{Completion, Error, FileId, OpenOptions, Queue, Request};
use diorite_block::BioOp;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A panic of the device while a blocking call runs its only bio in the caller's thread: the buffer is lost, and nothing else.
#[test]
fn a_bio_that_panics_in_its_caller_fails() {
    let (_dir, stage) = staged();
    let bomb = Bomb {
        queued: false,
        ..Bomb::new(&stage)
    };
    within("a bio of a blocking call", || {
        let volume = bomb.open(&OpenOptions::writable());
        let file = open(&volume, "/even");
        for (pos, len) in [(0, 4096), (512, 8192)] {
            bomb.arm(|bio| bio.op == BioOp::Read);
            assert!(file.read_buf(pos, filled(0, len)).1.is_err());
            assert_eq!(file.read_buf(pos, filled(0, len)).1.unwrap(), len);
            bomb.arm(|bio| bio.op == BioOp::Write);
            assert!(file.write_buf(pos, filled(0x11, len)).1.is_err());
            assert_eq!(file.write_buf(pos, filled(0x11, len)).1.unwrap(), len);
        }
        drop(file);
        volume.close().unwrap();
    });
    stage.fsck();
}

/// If a device panics in submit or reap, the requests concerned fail. The defect: the bios were forgotten, and a thread that waited
/// for them, as every thread does that drops a queue, waited for ever.
#[test]
fn what_a_device_loses_in_a_panic_fails() {
    for (eats, at_reap) in [(false, false), (true, false), (false, true)] {
        let (_dir, stage) = staged();
        let bomb = Bomb {
            eats,
            at_reap,
            ..Bomb::new(&stage)
        };
        with_a_node(&stage);
        within("a device that panics", || {
            let volume = bomb.open(&quiet());
            let queue = volume.queue(8).unwrap();
            let gone = |result: Result<usize, Error>| {
                assert!(matches!(result, Err(Error::Device { .. })), "{result:?}");
            };
            // The last request consists of several bios.
            for (path, op, len) in [
                ("/even", BioOp::Read, 4096),
                ("/even", BioOp::Write, 4096),
                ("/empty", BioOp::Read, 15_360),
            ] {
                let file = open(&volume, path);
                let id = queue.attach(&file).unwrap();
                let request = || match op {
                    BioOp::Read => Request::read(id, 512, filled(0, len), 0),
                    _ => Request::write(id, 512, filled(0x11, len), 0),
                };
                let call = || match op {
                    BioOp::Read => file.read_buf(512, filled(0, len)).1,
                    _ => file.write_buf(512, filled(0x11, len)).1,
                };
                assert_eq!(call().unwrap(), len);
                bomb.arm(move |bio| bio.op == op);
                gone(one(&queue, request()).result);
                assert_eq!(one(&queue, request()).result.unwrap(), len);
                bomb.arm(move |bio| bio.op == op);
                gone(call());
                assert_eq!(call().unwrap(), len);
                queue.detach(id);
            }
            // A write into new space: its claimed blocks are given back.
            let new = volume.create("/new", 0o644).unwrap();
            new.write_buf(0, filled(7, 4096)).1.unwrap();
            let id = queue.attach(&new).unwrap();
            bomb.arm(|bio| bio.op == BioOp::Write);
            gone(one(&queue, Request::append(id, filled(7, 8192), 0)).result);
            assert_eq!(new.size(), 4096);
            bomb.arm(|bio| bio.op == BioOp::Read);
            let read = Request::read(id, 0, filled(0, 4096), 0);
            queue.push(read).unwrap();
            drop((queue, new));
            volume.close().unwrap();
        });
        stage.fsck();
    }
}

/// In a queue there are a write that is held (token 0) and a read that was lost in a panic (token 1). `test` pushes more writes into it,
/// releases the held one and reaps: only the read has failed. The device accepts `most` bios at a time.
fn behind_a_panic(
    most: usize,
    test: impl FnOnce(&Bomb, &Valve, &Queue, FileId) -> Vec<Completion>,
) {
    let (_dir, stage) = staged();
    let valve = Valve::new(stage.device.clone());
    let bomb = Bomb {
        eats: true,
        most: Arc::new(most.into()),
        ..Bomb::over(Arc::new(valve.clone()))
    };
    within("room behind a panic", || {
        let volume = bomb.open(&quiet());
        let file = volume.create("/new", 0o644).unwrap();
        file.write_buf(0, filled(1, 32_768)).1.unwrap();
        let (queue, id) = attached(&volume, &file, 8);
        valve.hold(&[0x11]);
        queue.push(write(id, 0, 0x11)).unwrap();
        bomb.arm(|bio| bio.op == BioOp::Read);
        let lost = Request::read(id, 4096, filled(0, 4096), 1);
        queue.push(lost).unwrap();
        for completion in test(&bomb, &valve, &queue, id) {
            let is_well = completion.result.is_ok();
            assert_eq!(is_well, completion.token != 1, "{completion:?}");
        }
        drop((file, queue));
        volume.close().unwrap();
    });
    stage.fsck();
}

/// A write of block `n`, which is also its token.
fn write(id: FileId, n: u64, byte: u8) -> Request {
    Request::write(id, n * 4096, filled(byte, 4096), n)
}

/// Bios that come later and find no room in the device wait, as with any device. The defect: they failed if anything was in flight.
#[test]
fn what_waits_for_room_behind_a_panic_goes_down() {
    behind_a_panic(2, |_, valve, queue, id| {
        (2..6).for_each(|n| queue.push(write(id, n, 0x22)).unwrap());
        valve.hold(&[]);
        let mut done = Vec::new();
        queue.reap(&mut done, 6, None);
        done
    });
}

/// As above, if there is still no room when nothing of this queue is in flight any more, because of other queues of the device: the
/// waiting bio does not fail with the lost ones, and is submitted later.
#[test]
fn what_waits_for_room_is_not_lost_with_others() {
    behind_a_panic(usize::MAX, |bomb, valve, queue, id| {
        bomb.most.store(0, Ordering::SeqCst);
        queue.push(write(id, 2, 0x22)).unwrap();
        valve.hold(&[]);
        let first = queue.reap_one(None).unwrap();
        assert!(first.token == 0 && first.result.is_ok(), "{first:?}");
        let next = queue.reap_one(Some(Duration::ZERO));
        assert!(next.is_none(), "{next:?}");
        bomb.most.store(8, Ordering::SeqCst);
        let mut done = Vec::new();
        queue.reap(&mut done, 2, None);
        done
    });
}

/// A blocking call of more bios than its queue takes at once: the caller runs the last one itself, and the device panics as it
/// returns the others. The call ends only when that last bio has ended, too, and later calls are not affected.
#[test]
fn a_part_that_its_caller_runs_is_waited_for_behind_a_panic() {
    const PARTS: u64 = 33;
    let (_dir, stage) = staged();
    let bomb = Bomb {
        queued: false,
        at_reap: true,
        ..Bomb::new(&stage)
    };
    within("a part that its caller runs", || {
        let volume = bomb.open(&quiet());
        let file = open(&volume, "/empty");
        for n in 0..PARTS {
            let part = filled(n as u8 + 1, 4096);
            file.write_buf(n * 8192, part).1.unwrap();
        }
        let len = (PARTS * 8192 - 4096) as usize;
        let read = || file.read_buf(0, filled(0xEE, len));
        for _ in 0..2 {
            bomb.arm(|bio| bio.op == BioOp::Read);
            let (_, result) = read();
            assert!(matches!(result, Err(Error::Device { .. })), "{result:?}");
            assert!(bomb.has_panicked());
            let (bytes, result) = read();
            assert_eq!(result.unwrap(), len);
            for (n, block) in (0..).zip(bytes.as_slice().chunks(4096)) {
                let want = if n % 2 == 0 { n / 2 + 1 } else { 0 };
                assert!(block.iter().all(|b| *b == want), "block {n}");
            }
        }
        drop(file);
        volume.close().unwrap();
    });
    stage.fsck();
}
