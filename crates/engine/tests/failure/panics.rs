//! Panics of a device, in the engine's own threads or in its caller's. The operation under way fails, half a change is never
//! committed, and no thread waits for ever.
//!
//! Everything here runs under a watchdog: the defect that these tests look for is a wait that never ends.

use super::{judge, make, one, writable};
use crate::common::fixture::{DSYNC, filled};
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::within;
use crate::common::{fsck, scratch};
use diorite::{Error, File, OpenFlags, OpenOptions, Request, Volume};
use diorite_block::{
    Bio, BioList, BioOp, Blocking, Device, DeviceError, DeviceQueue, DeviceReport, Geometry,
    QueueOptions,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A test for bios: the device panics, once, at the first bio for which it returns true.
type Fuse = Box<dyn Fn(&Bio) -> bool + Send>;

/// A device that panics at a bio of the test's choice.
#[derive(Clone)]
struct Bomb {
    below: Arc<dyn Device>,
    fuse: Arc<Mutex<Option<Fuse>>>,
    /// It runs no bio in the calling thread.
    queued: bool,
    /// Bios submitted together with such a bio are lost in the panic.
    eats: bool,
    /// It panics in reap, when the bio comes back, instead of in submit.
    at_reap: bool,
    /// The number of bios that it accepts at a time.
    most: Arc<AtomicUsize>,
}

impl Bomb {
    fn new(stage: &Stage) -> Bomb {
        Bomb::over(stage.device.clone())
    }

    fn over(below: Arc<dyn Device>) -> Bomb {
        Bomb {
            below,
            fuse: Arc::default(),
            queued: true,
            eats: false,
            at_reap: false,
            most: Arc::new(usize::MAX.into()),
        }
    }

    fn arm(&self, fuse: impl Fn(&Bio) -> bool + Send + 'static) {
        *self.fuse.lock().unwrap() = Some(Box::new(fuse));
    }

    /// Panics at a write that begins like a block of the log.
    fn arm_journal(&self) {
        let magic = |b: &[u8]| b.starts_with(&0xC03B_3998u32.to_be_bytes());
        self.arm(move |bio| bio.op == BioOp::Write && bio.buf.parts().next().is_some_and(magic));
    }

    fn look(&self, bio: &Bio) {
        let hit = {
            let mut fuse = self.fuse.lock().unwrap();
            let hit = fuse.as_ref().is_some_and(|fuse| fuse(bio));
            hit.then(|| fuse.take())
        };
        assert!(hit.is_none(), "the device panics, as it was told to");
    }

    fn open(&self, options: &OpenOptions) -> Volume {
        Volume::open_device(Arc::new(self.clone()), options).unwrap()
    }
}

impl Device for Bomb {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn report(&self) -> DeviceReport {
        self.below.report()
    }

    fn level(&self) -> u8 {
        self.below.level()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(BombQueue {
            below: self.below.open_queue(options)?,
            bomb: self.clone(),
        }))
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        if self.queued {
            return Err(bio);
        }
        self.look(&bio);
        Ok(Blocking::new(self.below.clone()).run(bio))
    }
}

struct BombQueue {
    below: Box<dyn DeviceQueue>,
    bomb: Bomb,
}

impl DeviceQueue for BombQueue {
    fn submit(&self, bios: &mut BioList) {
        if self.bomb.at_reap {
            return self.below.submit(bios);
        }
        let mut mine = BioList::new();
        if self.bomb.eats {
            mine.append(bios);
        }
        mine.iter()
            .chain(&*bios)
            .for_each(|bio| self.bomb.look(bio));
        bios.append(&mut mine);
        let most = self.bomb.most.load(Ordering::SeqCst);
        let room = most.saturating_sub(self.below.in_flight() as usize);
        let mut later = bios.split_off(room.min(bios.len()));
        self.below.submit(bios);
        bios.append(&mut later);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        if !self.bomb.at_reap {
            return self.below.reap(out);
        }
        let mut mine = BioList::new();
        self.below.reap(&mut mine);
        mine.iter().for_each(|bio| self.bomb.look(bio));
        let count = mine.len();
        out.append(&mut mine);
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        self.below.wait(min, timeout);
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight()
    }

    fn signal_waker(&self) {
        self.below.signal_waker();
    }
}

/// Options for a volume on which only a test's own requests commit.
fn quiet() -> OpenOptions {
    OpenOptions {
        commit_interval: Duration::from_secs(3600),
        ..OpenOptions::writable()
    }
}

fn open(volume: &Volume, path: &str) -> File {
    volume.open_path(path, writable()).unwrap()
}

fn panicked<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(&result, Err(Error::Panicked)), "{result:?}");
}

fn aborted<T: std::fmt::Debug>(result: Result<T, Error>) {
    let by_panic = |e: &Error| matches!(e, Error::Aborted(why) if matches!(**why, Error::Panicked));
    assert!(result.as_ref().is_err_and(by_panic), "{result:?}");
}

/// Asserts that nothing can be changed any more, that files can be read (here `/even`), and that queue and volume end without a
/// hang.
fn is_over(volume: Volume, file: File) {
    let (read, result) = file.read_at(0, filled(0, 4096));
    assert_eq!(result.unwrap(), 4096);
    assert_eq!(read.as_slice(), [0x11; 4096]);
    aborted(file.write_at(0, filled(9, 4096)).1);
    aborted(volume.sync());
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    aborted(one(&queue, Request::append(id, filled(9, 4096), 0)).result);
    drop((queue, file));
    assert!(volume.close().is_err());
}

/// Several threads wait for the commit that panics: each gets an error.
#[test]
fn a_commit_that_panics_is_told_to_all_who_wait() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    let bomb = Bomb::new(&stage);
    within("a commit that panics", || {
        let volume = bomb.open(&OpenOptions::writable());
        let even = open(&volume, "/even");
        let file = open(&volume, "/empty");
        file.write_at(0, filled(7, 4096)).1.unwrap();
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
        let dir = scratch();
        let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
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
pub(crate) fn with_a_node(stage: &Stage) {
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = open(&volume, "/empty");
    for n in 0..8 {
        file.write_at(n * 8192, filled(7, 4096)).1.unwrap();
    }
    drop(file);
    volume.close().unwrap();
}

/// A panic while a map is read leaves nothing half-changed: only that request fails.
#[test]
fn a_panic_outside_a_handle_is_that_request_s_alone() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    with_a_node(&stage);
    let bomb = Bomb::new(&stage);
    for by_worker in [true, false] {
        within("a map that is being read", || {
            let volume = bomb.open(&OpenOptions::writable());
            let file = open(&volume, "/empty");
            let queue = volume.queue(4).unwrap();
            let id = queue.attach(&file).unwrap();
            let read = || match by_worker {
                true => one(&queue, Request::read(id, 8192, filled(0, 4096), 0)).result,
                false => file.read_at(8192, filled(0, 4096)).1,
            };
            bomb.arm(|bio| bio.op == BioOp::Read);
            panicked(read());
            assert_eq!(read().unwrap(), 4096);
            file.write_at(4096, filled(7, 4096)).1.unwrap();
            drop((queue, file));
            volume.close().unwrap();
        });
    }
    stage.save();
    fsck(&stage.image);
}

/// If a call of the volume panics inside its handle, the caller panics, too, and nothing of the change is ever committed.
#[test]
fn half_a_handle_is_not_committed() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
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
        let dir = scratch();
        let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
        within("a caller's panic", || {
            let panics = || {
                let volume = stage.open(&quiet()).unwrap();
                let file = volume.create("/new", 0o644).unwrap();
                let queue = volume.queue(4).unwrap();
                let id = queue.attach(&file).unwrap();
                let _volume = (!volume_first).then_some(volume);
                let written = one(&queue, Request::append(id, filled(7, 4096), 0));
                assert!(written.result.is_err(), "the caller's own panic");
            };
            catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        });
        stage.save();
        fsck(&stage.image);
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let file = open(&volume, "/new");
        let (read, result) = file.read_at(0, filled(0, 4096));
        assert_eq!(result.unwrap(), 4096);
        assert_eq!(read.as_slice(), [7; 4096]);
        drop(file);
        volume.close().unwrap();
    }
}

/// If the periodic commit panics, no caller waits for it: the next one gets an error, and the volume can be dropped.
#[test]
fn a_keeper_that_panics_ends_all_changes() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    let bomb = Bomb::new(&stage);
    within("the keeper", || {
        let options = OpenOptions {
            commit_interval: Duration::from_millis(10),
            ..OpenOptions::writable()
        };
        let volume = bomb.open(&options);
        let even = open(&volume, "/even");
        let file = open(&volume, "/empty");
        bomb.arm_journal();
        while file.write_at(0, filled(7, 4096)).1.is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(file);
        is_over(volume, even);
    });
    judge(&stage, "EIO");
}

/// A panic of the device while a blocking call runs its only bio in the caller's thread: the buffer is lost, and nothing else.
#[test]
fn a_bio_that_panics_in_its_caller_fails() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    let bomb = Bomb {
        queued: false,
        ..Bomb::new(&stage)
    };
    within("a bio of a blocking call", || {
        let volume = bomb.open(&OpenOptions::writable());
        let file = open(&volume, "/even");
        for (pos, len) in [(0, 4096), (512, 8192)] {
            bomb.arm(|bio| bio.op == BioOp::Read);
            assert!(file.read_at(pos, filled(0, len)).1.is_err());
            assert_eq!(file.read_at(pos, filled(0, len)).1.unwrap(), len);
            bomb.arm(|bio| bio.op == BioOp::Write);
            assert!(file.write_at(pos, filled(0x11, len)).1.is_err());
            assert_eq!(file.write_at(pos, filled(0x11, len)).1.unwrap(), len);
        }
        drop(file);
        volume.close().unwrap();
    });
    stage.save();
    fsck(&stage.image);
}

/// The bytes that a failed append left are zeroed by the thread that completes it. The defect: a panic there lost the request, and
/// all others with it.
#[test]
fn a_tail_that_cannot_be_zeroed_fails_its_append() {
    for by_worker in [true, false] {
        let dir = scratch();
        let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
        let valve = Valve::new(stage.device.clone());
        let bomb = Bomb::over(Arc::new(valve.clone()));
        within("a tail behind a failed append", || {
            let volume = bomb.open(&quiet());
            let file = open(&volume, "/empty");
            file.write_at(0, filled(1, 512)).1.unwrap();
            let queue = volume.queue(4).unwrap();
            let id = queue.attach(&file).unwrap();
            valve.fail(&[7]);
            let zeros = |b: &[u8]| b.iter().all(|b| *b == 0);
            bomb.arm(move |bio| bio.op == BioOp::Write && bio.buf.parts().all(zeros));
            let append = match by_worker {
                true => one(&queue, Request::append(id, filled(7, 512), 0)).result,
                false => file.append(filled(7, 512)).1.map(|_| 0),
            };
            assert!(matches!(append, Err(Error::Device { .. })), "{append:?}");
            assert!(bomb.fuse.lock().unwrap().is_none(), "it has not panicked");
            valve.fail(&[]);
            assert_eq!(file.size(), 512);
            one(&queue, Request::append(id, filled(2, 512), 0))
                .result
                .unwrap();
            drop((queue, file));
            volume.close().unwrap();
        });
        stage.save();
        fsck(&stage.image);
    }
}

/// The credits of a conversion are computed before its handle begins, which may read the map. The defects: as above; and if the
/// read failed, the failure was not counted.
#[test]
fn a_conversion_whose_cost_cannot_be_told_fails() {
    for by_worker in [true, false] {
        let dir = scratch();
        let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
        with_a_node(&stage);
        let before = stage.open(&OpenOptions::writable()).unwrap();
        open(&before, "/empty")
            .write_at(1 << 20, filled(1, 4096))
            .1
            .unwrap();
        before.close().unwrap();
        let valve = Valve::new(stage.device.clone());
        let bomb = Bomb::over(Arc::new(valve.clone()));
        within("the cost of a conversion", || {
            let volume = bomb.open(&OpenOptions {
                metadata_cache: 0,
                map_cache: 0,
                ..quiet()
            });
            let file = open(&volume, "/empty");
            let queue = volume.queue(4).unwrap();
            let id = queue.attach(&file).unwrap();
            valve.hold(&[7]);
            let written = std::thread::scope(|s| {
                let write = s.spawn(|| match by_worker {
                    true => {
                        let write = Request::write(id, 1 << 19, filled(7, 8192), 0);
                        one(&queue, write.with_flags(DSYNC)).result
                    }
                    false => file.write_at(1 << 19, filled(7, 8192)).1,
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
            assert!(bomb.fuse.lock().unwrap().is_none(), "it has not panicked");
            panicked(written);
            // All claimed blocks were given back, and the file can be written as before.
            file.write_at(1 << 19, filled(8, 8192)).1.unwrap();
            drop((queue, file));
            volume.sync().unwrap();
            assert_eq!(volume.usage().claimed(), 0, "rule D11");
            volume.close().unwrap();
        });
        stage.save();
        fsck(&stage.image);
    }
}

/// If a device panics in submit or reap, the requests concerned fail. The defect: the bios were forgotten, and a thread that waited
/// for them, as every thread does that drops a queue, waited for ever.
#[test]
fn what_a_device_loses_in_a_panic_fails() {
    for (eats, at_reap) in [(false, false), (true, false), (false, true)] {
        let dir = scratch();
        let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
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
                    BioOp::Read => file.read_at(512, filled(0, len)).1,
                    _ => file.write_at(512, filled(0x11, len)).1,
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
            new.write_at(0, filled(7, 4096)).1.unwrap();
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
        stage.save();
        fsck(&stage.image);
    }
}

/// Bios that come later and find no room in the device wait, as with any device. The defect: they failed if anything was in flight.
#[test]
fn what_waits_for_room_behind_a_panic_goes_down() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    let valve = Valve::new(stage.device.clone());
    let bomb = Bomb {
        eats: true,
        most: Arc::new(2.into()),
        ..Bomb::over(Arc::new(valve.clone()))
    };
    within("room behind a panic", || {
        let volume = bomb.open(&quiet());
        let file = volume.create("/new", 0o644).unwrap();
        file.write_at(0, filled(1, 32_768)).1.unwrap();
        let queue = volume.queue(8).unwrap();
        let id = queue.attach(&file).unwrap();
        let write = |n: u64, byte| Request::write(id, n * 4096, filled(byte, 4096), n);
        valve.hold(&[0x11]);
        queue.push(write(0, 0x11)).unwrap();
        bomb.arm(|bio| bio.op == BioOp::Read);
        let lost = Request::read(id, 4096, filled(0, 4096), 1);
        queue.push(lost).unwrap();
        (2..6).for_each(|n| queue.push(write(n, 0x22)).unwrap());
        valve.hold(&[]);
        let mut done = Vec::new();
        queue.reap(&mut done, 6, None);
        for completion in done {
            let is_well = completion.result.is_ok();
            assert_eq!(is_well, completion.token != 1, "{completion:?}");
        }
        drop((file, queue));
        volume.close().unwrap();
    });
    stage.save();
    fsck(&stage.image);
}

/// As above, if there is still no room when nothing of this queue is in flight any more, because of other queues of the device: the
/// waiting bio does not fail with the lost ones, and is submitted later.
#[test]
fn what_waits_for_room_is_not_lost_with_others() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    let valve = Valve::new(stage.device.clone());
    let bomb = Bomb {
        eats: true,
        ..Bomb::over(Arc::new(valve.clone()))
    };
    within("room for nothing behind a panic", || {
        let volume = bomb.open(&quiet());
        let file = volume.create("/new", 0o644).unwrap();
        file.write_at(0, filled(1, 32_768)).1.unwrap();
        let queue = volume.queue(8).unwrap();
        let id = queue.attach(&file).unwrap();
        let write = |n: u64, byte| Request::write(id, n * 4096, filled(byte, 4096), n);
        valve.hold(&[0x11]);
        queue.push(write(0, 0x11)).unwrap();
        bomb.arm(|bio| bio.op == BioOp::Read);
        let lost = Request::read(id, 4096, filled(0, 4096), 1);
        queue.push(lost).unwrap();
        bomb.most.store(0, Ordering::SeqCst);
        queue.push(write(2, 0x22)).unwrap();
        valve.hold(&[]);
        let first = queue.reap_one(None).unwrap();
        assert!(first.token == 0 && first.result.is_ok(), "{first:?}");
        let next = queue.reap_one(Some(Duration::ZERO));
        assert!(next.is_none(), "{next:?}");
        bomb.most.store(8, Ordering::SeqCst);
        let mut done = Vec::new();
        queue.reap(&mut done, 2, None);
        for completion in done {
            let is_well = completion.result.is_ok();
            assert_eq!(is_well, completion.token != 1, "{completion:?}");
        }
        drop((file, queue));
        volume.close().unwrap();
    });
    stage.save();
    fsck(&stage.image);
}

/// A blocking call of more bios than its queue takes at once: the caller runs the last one itself, and the device panics as it
/// returns the others. The call ends only when that last bio has ended, too, and later calls are not affected.
#[test]
fn a_part_that_its_caller_runs_is_waited_for_behind_a_panic() {
    const PARTS: u64 = 33;
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
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
            file.write_at(n * 8192, part).1.unwrap();
        }
        let len = (PARTS * 8192 - 4096) as usize;
        let read = || file.read_at(0, filled(0xEE, len));
        for _ in 0..2 {
            bomb.arm(|bio| bio.op == BioOp::Read);
            let (_, result) = read();
            assert!(matches!(result, Err(Error::Device { .. })), "{result:?}");
            assert!(bomb.fuse.lock().unwrap().is_none(), "it has not panicked");
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
    stage.save();
    fsck(&stage.image);
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
        panicked(file.write_at(4096, filled(9, 4096)).1);
        assert_eq!(volume.usage().free, free);
        file.write_at(4096, filled(9, 4096)).1.unwrap();
        drop(file);
        volume.close().unwrap();
    });
    stage.save();
    fsck(&stage.image);
}
