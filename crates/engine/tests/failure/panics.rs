//! Panics of a device while the engine changes metadata, in its own threads or in its caller's. The operation under way fails, half a
//! change is never committed, and no thread waits for ever.
//!
//! Everything here runs under a watchdog: the defect that these tests look for is a wait that never ends.

use super::bomb::{Bomb, quiet, staged};
use super::{judge, make, one};
use crate::common::fixture::{DSYNC, attached, filled, writable};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::within;
use diorite::{Error, File, OpenFlags, OpenOptions, Request, Volume};
use diorite_block::BioOp;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn open(volume: &Volume, path: &str) -> File {
    volume.open_path(path, writable()).unwrap()
}

pub(super) fn panicked<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(&result, Err(Error::Panicked)), "{result:?}");
}

fn aborted<T: std::fmt::Debug>(result: Result<T, Error>) {
    let by_panic = |e: &Error| matches!(e, Error::Aborted(why) if matches!(**why, Error::Panicked));
    assert!(result.as_ref().is_err_and(by_panic), "{result:?}");
}

/// Asserts that nothing can be changed any more, that files can be read (here `/even`), and that queue and volume end without a
/// hang.
pub(super) fn is_over(volume: Volume, file: File) {
    let (read, result) = file.read_buf(0, filled(0, 4096));
    assert_eq!(result.unwrap(), 4096);
    assert_eq!(read.as_slice(), [0x11; 4096]);
    aborted(file.write_buf(0, filled(9, 4096)).1);
    aborted(volume.sync());
    let (queue, id) = attached(&volume, &file, 4);
    aborted(one(&queue, Request::append(id, filled(9, 4096), 0)).result);
    drop((queue, file));
    assert!(volume.close().is_err());
}

/// Several threads wait for the commit that panics: each gets an error.
#[test]
fn a_commit_that_panics_is_told_to_all_who_wait() {
    let (_dir, stage) = staged();
    let bomb = Bomb::new(&stage);
    within("a commit that panics", || {
        let volume = bomb.open(&OpenOptions::writable());
        let even = open(&volume, "/even");
        let file = open(&volume, "/empty");
        file.write_buf(0, filled(7, 4096)).1.unwrap();
        bomb.arm_journal();
        let wait = || {
            let result = file.sync();
            let told = |e: &Error| matches!(e.root(), Error::Panicked | Error::Aborted(_));
            assert!(result.as_ref().is_err_and(told), "{result:?}");
        };
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(wait);
            }
        });
        is_over(volume, even);
    });
    judge(&stage, "EIO");
}

/// A panic in a worker, for a request of a queue: first before the handle begins, then in the commit.
#[test]
fn a_worker_that_panics_fails_what_it_was_at() {
    let before: fn(&Bomb) = |bomb| bomb.arm(|bio| bio.op == BioOp::Write && bio.pos < 4096);
    for arm in [before, Bomb::arm_journal] {
        let (_dir, stage) = staged();
        let bomb = Bomb::new(&stage);
        within("a completion that panics", || {
            let volume = bomb.open(&OpenOptions::writable());
            let even = open(&volume, "/even");
            let queue = volume.queue(4).unwrap();
            let id = queue.attach(&open(&volume, "/empty")).unwrap();
            arm(&bomb);
            let append = Request::append(id, filled(7, 4096), 0).with_flags(DSYNC);
            panicked(one(&queue, append).result);
            is_over(volume, even);
        });
        judge(&stage, "EIO");
    }
}

/// Makes a file whose map has a node of its own.
pub(super) fn with_a_node(stage: &Stage) {
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = open(&volume, "/empty");
    for n in 0..8 {
        file.write_buf(n * 8192, filled(7, 4096)).1.unwrap();
    }
    drop(file);
    volume.close().unwrap();
}

/// A panic while a map is read leaves nothing half-changed: only that request fails.
#[test]
fn a_panic_outside_a_handle_is_that_request_s_alone() {
    let (_dir, stage) = staged();
    with_a_node(&stage);
    let bomb = Bomb::new(&stage);
    for by_worker in [true, false] {
        within("a map that is being read", || {
            let volume = bomb.open(&OpenOptions::writable());
            let file = open(&volume, "/empty");
            let (queue, id) = attached(&volume, &file, 4);
            let read = || match by_worker {
                true => one(&queue, Request::read(id, 8192, filled(0, 4096), 0)).result,
                false => file.read_buf(8192, filled(0, 4096)).1,
            };
            bomb.arm(|bio| bio.op == BioOp::Read);
            panicked(read());
            assert_eq!(read().unwrap(), 4096);
            file.write_buf(4096, filled(7, 4096)).1.unwrap();
            drop((queue, file));
            volume.close().unwrap();
        });
    }
    stage.fsck();
}

/// If a call of the volume panics inside its handle, the caller panics, too, and nothing of the change is ever committed.
#[test]
fn half_a_handle_is_not_committed() {
    let (_dir, stage) = staged();
    let bomb = Bomb::new(&stage);
    within("half a handle", || {
        let volume = bomb.open(&OpenOptions::writable());
        let even = open(&volume, "/even");
        let bitmap = volume.groups()[0].inode_bitmap.get() * 4096;
        bomb.arm(move |bio| bio.op == BioOp::Read && bio.pos == bitmap);
        let made = catch_unwind(AssertUnwindSafe(|| volume.create("/new", 0o644)));
        assert!(made.is_err());
        is_over(volume, even);
    });
    judge(&stage, "EIO");
    let volume = stage.open(&OpenOptions::default()).unwrap();
    assert!(volume.open_path("/new", OpenFlags::default()).is_err());
}

/// A caller that panics drops its volume, file and queue on the way: what they have changed is committed, and no error is recorded. The
/// defect: such a commit counted as one that had panicked, so the volume was refused until e2fsck had looked at it.
#[test]
fn a_caller_that_panics_leaves_a_clean_volume() {
    for volume_first in [false, true] {
        let (_dir, stage) = staged();
        within("a caller's panic", || {
            let panics = || {
                let volume = stage.open(&quiet()).unwrap();
                let file = volume.create("/new", 0o644).unwrap();
                let (queue, id) = attached(&volume, &file, 4);
                let _volume = (!volume_first).then_some(volume);
                let written = one(&queue, Request::append(id, filled(7, 4096), 0));
                assert!(written.result.is_err(), "the caller's own panic");
            };
            catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        });
        stage.fsck();
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let file = open(&volume, "/new");
        let (read, result) = file.read_buf(0, filled(0, 4096));
        assert_eq!(result.unwrap(), 4096);
        assert_eq!(read.as_slice(), [7; 4096]);
        drop(file);
        volume.close().unwrap();
    }
}

/// If the periodic commit panics, no caller waits for it: the next one gets an error, and the volume can be dropped.
#[test]
fn a_keeper_that_panics_ends_all_changes() {
    let (_dir, stage) = staged();
    let bomb = Bomb::new(&stage);
    within("the keeper", || {
        let options = OpenOptions::writable().commit_interval(Duration::from_millis(10));
        let volume = bomb.open(&options);
        let even = open(&volume, "/even");
        let file = open(&volume, "/empty");
        bomb.arm_journal();
        while file.write_buf(0, filled(7, 4096)).1.is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(file);
        is_over(volume, even);
    });
    judge(&stage, "EIO");
}

/// The bytes that a failed append left are zeroed by the thread that completes it. The defect: a panic there lost the request, and
/// all others with it.
#[test]
fn a_tail_that_cannot_be_zeroed_fails_its_append() {
    for by_worker in [true, false] {
        let (_dir, stage) = staged();
        let valve = Valve::new(stage.device.clone());
        let bomb = Bomb::over(Arc::new(valve.clone()));
        within("a tail behind a failed append", || {
            let volume = bomb.open(&quiet());
            let file = open(&volume, "/empty");
            file.write_buf(0, filled(1, 512)).1.unwrap();
            let (queue, id) = attached(&volume, &file, 4);
            valve.fail(&[7]);
            let zeros = |b: &[u8]| b.iter().all(|b| *b == 0);
            bomb.arm(move |bio| bio.op == BioOp::Write && bio.buf.parts().all(zeros));
            let append = match by_worker {
                true => one(&queue, Request::append(id, filled(7, 512), 0)).result,
                false => file.append_buf(filled(7, 512)).1.map(|_| 0),
            };
            assert!(matches!(append, Err(Error::Device { .. })), "{append:?}");
            assert!(bomb.has_panicked());
            valve.fail(&[]);
            assert_eq!(file.size(), 512);
            one(&queue, Request::append(id, filled(2, 512), 0))
                .result
                .unwrap();
            drop((queue, file));
            volume.close().unwrap();
        });
        stage.fsck();
    }
}

/// The credits of a conversion are computed before its handle begins, which may read the map. The defects: as above; and if the
/// read failed, the failure was not counted.
#[test]
fn a_conversion_whose_cost_cannot_be_told_fails() {
    for by_worker in [true, false] {
        let (_dir, stage) = staged();
        with_a_node(&stage);
        let before = stage.open(&OpenOptions::writable()).unwrap();
        open(&before, "/empty")
            .write_buf(1 << 20, filled(1, 4096))
            .1
            .unwrap();
        before.close().unwrap();
        let valve = Valve::new(stage.device.clone());
        let bomb = Bomb::over(Arc::new(valve.clone()));
        within("the cost of a conversion", || {
            let volume = bomb.open(&quiet().metadata_cache(0).map_cache(0));
            let file = open(&volume, "/empty");
            let (queue, id) = attached(&volume, &file, 4);
            valve.hold(&[7]);
            let written = std::thread::scope(|s| {
                let write = s.spawn(|| match by_worker {
                    true => {
                        let write = Request::write(id, 1 << 19, filled(7, 8192), 0);
                        one(&queue, write.with_flags(DSYNC)).result
                    }
                    false => file.write_buf(1 << 19, filled(7, 8192)).1,
                });
                while valve.holding() == 0 {
                    std::thread::yield_now();
                }
                (1..6144).step_by(16).for_each(|n| {
                    drop(volume.open_ino(diorite_format::Ino::new(n), OpenFlags::default()));
                });
                // From here on, only blocks of this file are read.
                bomb.arm(|bio| bio.op == BioOp::Read);
                valve.hold(&[]);
                write.join().unwrap()
            });
            assert!(bomb.has_panicked());
            panicked(written);
            // All claimed blocks were given back, and the file can be written as before.
            file.write_buf(1 << 19, filled(8, 8192)).1.unwrap();
            drop((queue, file));
            volume.sync().unwrap();
            assert_eq!(volume.usage().claimed(), 0, "rule D11");
            volume.close().unwrap();
        });
        stage.fsck();
    }
}

/// Claimed blocks on which the device works are free again if it panics. The defect: they were lost until the volume was opened
/// again.
#[test]
fn a_panic_leaks_no_blocks() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &["-O", "inline_data"]));
    let bomb = Bomb::new(&stage);
    within("a claim whose owner unwinds", || {
        let volume = bomb.open(&quiet());
        let file = open(&volume, "/empty");
        assert!(file.keep_inside(&[7; 40]).unwrap());
        volume.sync().unwrap();
        let free = volume.usage().free;
        bomb.arm(|bio| bio.op == BioOp::Discard);
        let trim = || volume.trim(0..64 << 20, 0);
        assert!(catch_unwind(AssertUnwindSafe(trim)).is_err());
        assert_eq!(volume.usage().free, free);
        assert_eq!(trim().unwrap(), free * 4096);
        // Inline data is moved out of the inode before the first write.
        let sevens = |b: &[u8]| b.starts_with(&[7; 40]);
        bomb.arm(move |bio| bio.op == BioOp::Write && bio.buf.parts().next().is_some_and(sevens));
        panicked(file.write_buf(4096, filled(9, 4096)).1);
        assert_eq!(volume.usage().free, free);
        file.write_buf(4096, filled(9, 4096)).1.unwrap();
        drop(file);
        volume.close().unwrap();
    });
    stage.fsck();
}
