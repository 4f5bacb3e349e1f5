//! Panics below the engine's own threads, and below who calls it: what was being done fails, half a change is never committed, and nobody waits
//! for ever.
//!
//! Everything here runs under a watchdog: the defect that these tests look for is a wait that never ends.

use super::{judge, make, one, writable};
use crate::common::fixture::{DSYNC, filled};
use crate::common::stage::Stage;
use crate::common::watch::within;
use crate::common::{fsck, scratch};
use diorite::{Error, File, OpenFlags, OpenOptions, Request, Volume};
use diorite_block::{
    Bio, BioList, BioOp, Blocking, Device, DeviceError, DeviceQueue, DeviceReport, Geometry,
    QueueOptions,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a bio has to be for the device to panic, once.
type Fuse = Box<dyn Fn(&Bio) -> bool + Send>;

/// A device that panics when a bio comes that it was told of.
#[derive(Clone)]
struct Bomb {
    below: Arc<dyn Device>,
    fuse: Arc<Mutex<Option<Fuse>>>,
    /// It does nothing in the calling thread.
    queued: bool,
}

impl Bomb {
    fn new(stage: &Stage) -> Bomb {
        Bomb {
            below: stage.device.clone(),
            fuse: Arc::default(),
            queued: true,
        }
    }

    fn arm(&self, fuse: impl Fn(&Bio) -> bool + Send + 'static) {
        *self.fuse.lock().unwrap() = Some(Box::new(fuse));
    }

    /// A write that begins as blocks of the journal do.
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
        bios.iter().for_each(|bio| self.bomb.look(bio));
        self.below.submit(bios);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        self.below.reap(out)
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

/// Nothing may be changed any more, and all can be read, `/even` here; queues and the volume end.
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

/// Several wait for the commit that panics: each is told.
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

/// By a worker, for a request of a queue: first what is before the handle, then the commit.
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

/// A file whose map is in a node of its own.
fn with_a_node(stage: &Stage) {
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = open(&volume, "/empty");
    for n in 0..8 {
        file.write_at(n * 8192, filled(7, 4096)).1.unwrap();
    }
    drop(file);
    volume.close().unwrap();
}

/// A map that is being read changes nothing: only that request fails.
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

/// A call of the volume that panics in the middle of its handle takes the caller with it, and none of it is ever committed.
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

/// Nobody waits for the periodic commit: the next one who comes is told, and the volume can be dropped.
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

/// The bio of a blocking call, run in its own thread: its buffer is lost with it, and nothing else.
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
