//! A flush that failed: whose data it may have lost, who gets the error, and how often (rule D1).
//!
//! Input: a small volume on a simulated disk with a volatile cache, behind a valve that fails flushes. Output: none. Invariant: a
//! flush that succeeded after a failed one covers no data that is older than the failure. Limits: the simulated disk drops nothing
//! after a failed flush; that a real one might is the reason for these rules.

use crate::common::fixture::{DSYNC, LIMIT, filled, run_all, writable};
use crate::common::recipe::{RECIPES, Recipe, bare};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::rules::looped::bios;
use diorite::{
    Completion, Error, Fallocate, File, LoopDevice, OpenFlags, OpenOptions, Queue, Reason, Request,
    Volume,
};
use diorite_block::{
    Bio, BioError, BioErrorKind, BioFlags, BioList, Device, DeviceQueue, QueueOptions, SimOptions,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A disk with FUA, and one that needs a flush after each durable write.
pub(crate) const DISKS: [&str; 2] = ["0,cache=volatile,fua=yes", "0,cache=volatile,fua=no"];

pub(crate) struct Bed {
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) stage: Stage,
    pub(crate) valve: Valve,
    pub(crate) volume: Volume,
}

impl Bed {
    /// Opens the volume so that nothing commits by itself; one worker does the deferred work of requests.
    fn new(params: &str) -> Bed {
        Bed::of(&RECIPES[0], params)
    }

    pub(crate) fn of(recipe: &Recipe, params: &str) -> Bed {
        let dir = scratch();
        let path = bare(dir.path(), recipe);
        Bed::on(dir, path, params)
    }

    /// As `new`, with an existing image in that directory.
    pub(crate) fn on(dir: tempfile::TempDir, path: PathBuf, params: &str) -> Bed {
        let stage = Stage::sim(&path, SimOptions::parse(params).unwrap());
        let valve = Valve::new(stage.device.clone());
        let options = OpenOptions::writable()
            .commit_interval(Duration::from_secs(3600))
            .workers(1);
        let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
        Bed {
            _dir: dir,
            path,
            stage,
            valve,
            volume,
        }
    }

    pub(crate) fn open(&self, path: &str) -> File {
        self.volume.open_path(path, writable()).unwrap()
    }

    /// Opens the file and punches a hole at its beginning.
    fn open_with_hole(&self, path: &str) -> File {
        let file = self.open(path);
        file.fallocate(Fallocate::PunchHole, 0, 4096).unwrap();
        file.sync().unwrap();
        file
    }

    /// Makes a flush fail, in a sync of this file.
    pub(crate) fn lose(&self, by: &File) {
        self.valve.fail_flushes(1);
        assert_failed(by.sync_data(), "whose flush it was");
    }

    pub(crate) fn wait_for_held(&self) {
        while self.valve.holding() == 0 {
            thread::yield_now();
        }
    }
}

pub(crate) fn assert_failed(result: Result<(), Error>, who: &str) {
    let is_io =
        matches!(&result, Err(Error::Device { error, .. }) if error.kind == BioErrorKind::Io);
    assert!(is_io, "{who}: {result:?}");
}

fn put(file: &File, pos: u64) {
    assert_eq!(file.write_buf(pos, filled(7, 512)).1.unwrap(), 512);
}

/// The defect: after a failed flush, the next one succeeded, and callers were told that their data was durable, though it had been
/// written before the flush that failed. Every open file reports the failure once; a file that is opened later does not.
#[test]
fn a_failed_flush_is_told_to_every_open_file_once() {
    for params in DISKS {
        let _watchdog = Watchdog::new(LIMIT, params);
        let bed = Bed::new(params);
        let (other, overwritten) = (bed.open("/sparse"), bed.open("/odd"));
        // One of its times is uncommitted.
        let touched = bed.open("/odd");
        let (cloned, twice) = (overwritten.clone(), bed.open("/odd"));
        let root = bed.volume.open_path("/", OpenFlags::default()).unwrap();
        let device = LoopDevice::new(bed.open("/sparse"), "loop".into());
        let queue = bed.volume.queue(4).unwrap();
        let id = queue.attach(&twice).unwrap();
        put(&overwritten, 0);
        bed.lose(&other);
        let later = bed.open("/odd");
        other.sync_data().unwrap();
        other.sync().unwrap();
        assert_failed(overwritten.sync_data(), "a flush alone");
        cloned.sync_data().unwrap();
        assert_failed(touched.sync(), "a commit");
        touched.sync().unwrap();
        assert_failed(root.sync(), "a directory");
        root.sync().unwrap();
        let sync = || {
            run_all(&queue, vec![Request::sync(id, true, 0)])
                .pop()
                .unwrap()
        };
        assert_failed(sync().result.map(drop), "a queue");
        assert!(sync().result.is_ok());
        twice.sync().unwrap();
        let flush = || bios(&device, 2, vec![Bio::flush(0)])[0].result;
        assert_eq!(flush(), Err(BioError::new(BioErrorKind::Io)));
        assert_eq!(flush(), Ok(()));
        assert_failed(bed.volume.sync(), "the volume");
        bed.volume.sync().unwrap();
        later.sync().unwrap();
        // Later writes become durable as usual.
        assert_eq!(
            later
                .call(diorite::Op::Write, 0, filled(8, 512), DSYNC)
                .1
                .unwrap(),
            512
        );
        assert_eq!(bios(&device, 2, vec![fua(0, 8)])[0].result, Ok(()));
    }
}

/// A failure that no sync of the volume has reported is reported by close, and by the end of an atomic change.
#[test]
fn the_volume_is_told_by_whatever_syncs_it() {
    let _watchdog = Watchdog::new(LIMIT, "close and atomic changes");
    let bed = Bed::new(DISKS[0]);
    let file = bed.open("/odd");
    bed.lose(&file);
    let atomic = bed.volume.atomic().unwrap();
    bed.volume.create("/new", 0o644).unwrap();
    assert_failed(atomic.commit(), "the atomic change");
    bed.volume.sync().unwrap();
    bed.lose(&file);
    drop(file);
    assert_failed(bed.volume.close(), "close");
    bed.stage.fsck();
}

/// If the flush of an O_DSYNC write fails, the write reports that for its own data only: the next sync reports it for the rest. So it is
/// where write and flush are one request, and the write succeeds without its flush.
#[test]
fn a_failed_durable_write_tells_nobody_else() {
    for in_one in [false, true] {
        let _watchdog = Watchdog::new(LIMIT, "told by a write");
        let bed = Bed::new(DISKS[1]);
        let (file, other) = (bed.open("/odd"), bed.open("/sparse"));
        let done = if in_one {
            bed.valve.fail_fua(1);
            let (_, done) = file.call(diorite::Op::Write, 0, filled(7, 512), DSYNC);
            done
        } else {
            bed.valve.fail_flushes(1);
            let queue = bed.volume.queue(4).unwrap();
            let id = queue.attach(&file).unwrap();
            let write = Request::write(id, 0, filled(7, 512), 0).with_flags(DSYNC);
            run_all(&queue, vec![write]).remove(0).result
        };
        assert_failed(done.map(drop), "the write");
        assert_failed(file.sync(), "a sync of the same file");
        file.sync().unwrap();
        assert_failed(other.sync(), "another file");
    }
}

/// Write and flush are one request, and beside it another flush fails: that may have dropped what was written before the flush behind it
/// began. A write whose request has ended well fails, too.
#[test]
fn a_flush_that_fails_beside_a_write_fails_it() {
    let _watchdog = Watchdog::new(LIMIT, "beside a write");
    let bed = Bed::new(DISKS[1]);
    let (file, other) = (bed.open("/odd"), bed.open("/sparse"));
    bed.valve.hold_fua(true);
    thread::scope(|scope| {
        let write = scope.spawn(|| file.call(diorite::Op::Write, 0, filled(7, 512), DSYNC).1);
        bed.wait_for_held();
        bed.lose(&other);
        bed.valve.hold_fua(false);
        assert_failed(write.join().unwrap().map(drop), "the write");
    });
}

/// The defect: a failed flush counted only from the moment at which its owner reaped it. The owner never did, and a later sync
/// succeeded.
#[test]
fn a_failed_flush_counts_before_it_is_reaped() {
    for params in DISKS {
        let _watchdog = Watchdog::new(LIMIT, params);
        let bed = Bed::new(params);
        let (file, other, third) = (bed.open("/odd"), bed.open("/sparse"), bed.open("/odd"));
        let queue = bed.volume.queue(4).unwrap();
        let id = queue.attach(&file).unwrap();
        put(&third, 0);
        bed.valve.fail_flushes(1);
        queue.push(Request::sync(id, true, 0)).unwrap();
        assert_failed(other.sync_data(), "a flush behind it, or beside it");
        assert_failed(third.sync(), "a commit behind it");
        let done = queue.reap_one(None).unwrap();
        assert_failed(done.result.map(drop), "who began it");
    }
}

fn loop_queue(device: &LoopDevice) -> Box<dyn DeviceQueue> {
    let options = QueueOptions::new(2).unwrap();
    device.open_queue(options).unwrap()
}

/// Waits for the only bio in the queue and returns its result.
fn end_of(queue: &dyn DeviceQueue) -> Result<(), BioError> {
    let mut out = BioList::new();
    while queue.reap(&mut out) == 0 {
        queue.wait(1, None);
    }
    out[0].result
}

fn fua(pos: u64, byte: u8) -> Bio {
    let flags = BioFlags::default().fua(true);
    Bio {
        flags,
        ..Bio::write(pos, filled(byte, 4096), 0)
    }
}

/// If a durable write to a loop device fails with a failed flush, only that bio gets the error; the next flush of the device, for
/// all its users, must fail, too. The defect: the write was taken for a sync of the device's file, which reports the failure only
/// once.
#[test]
fn a_failed_write_with_fua_does_not_stand_for_a_flush() {
    let _watchdog = Watchdog::new(LIMIT, "fua");
    let bed = Bed::new(DISKS[0]);
    let other = bed.open("/odd");
    let device = LoopDevice::new(bed.open_with_hole("/sparse"), "loop".into());
    let queue = loop_queue(&device);
    bed.valve.hold(&[4]);
    // A write into the hole: it owes a commit.
    queue.submit(&mut [fua(0, 4)].into());
    while bed.valve.holding() == 0 {
        // What a worker has prepared is submitted by the thread that reaps.
        assert_eq!(queue.reap(&mut BioList::new()), 0);
        thread::yield_now();
    }
    bed.lose(&other);
    bed.valve.hold(&[]);
    let io = Err(BioError::new(BioErrorKind::Io));
    assert_eq!(end_of(&*queue), io);
    for told in [io, Ok(())] {
        queue.submit(&mut [Bio::flush(0)].into());
        assert_eq!(end_of(&*queue), told);
    }
}

/// All concurrent syncs of one open file report the failure. The defect: one did, and the others succeeded.
#[test]
fn syncs_under_way_together_are_all_told() {
    let _watchdog = Watchdog::new(LIMIT, "together");
    let bed = Bed::new(DISKS[0]);
    let other = bed.open("/odd");
    for owes_commit in [true, false] {
        let device = LoopDevice::new(bed.open_with_hole("/sparse"), "loop".into());
        let queues = [loop_queue(&device), loop_queue(&device)];
        bed.lose(&other);
        if owes_commit {
            queues[0].submit(&mut [Bio::write(0, filled(7, 4096), 0)].into());
            assert_eq!(end_of(&*queues[0]), Ok(()));
        }
        // No sync ends before both have begun.
        bed.valve.hold_flushes(true);
        for queue in &queues {
            queue.submit(&mut [Bio::flush(0)].into());
        }
        bed.valve.hold_flushes(false);
        let ends = queues.each_ref().map(|queue| end_of(&**queue));
        assert_eq!(ends, [Err(BioError::new(BioErrorKind::Io)); 2]);
    }
}

/// The same for syncs of the volume. The defect: the second began after the first had been given the error, and succeeded.
#[test]
fn syncs_of_the_volume_under_way_together_are_all_told() {
    let _watchdog = Watchdog::new(LIMIT, "volume");
    let bed = Bed::new(DISKS[0]);
    let (other, written) = (bed.open("/sparse"), bed.open("/odd"));
    let queue = bed.volume.queue(4).unwrap();
    put(&written, 0);
    bed.lose(&other);
    bed.valve.hold_flushes(true);
    queue.push(Request::sync_volume(1)).unwrap();
    bed.wait_for_held();
    queue.push(Request::sync_volume(2)).unwrap();
    bed.valve.hold_flushes(false);
    let mut done = Vec::new();
    queue.reap(&mut done, 2, None);
    for completion in done.drain(..) {
        let what = format!("sync {}", completion.token);
        assert_failed(completion.result.map(|_| ()), &what);
    }
    queue.push(Request::sync_volume(3)).unwrap();
    queue.reap(&mut done, 1, None);
    assert!(done[0].result.is_ok(), "told once");
}

fn reap_until(queue: &Queue, done: &mut Vec<Completion>, is: impl Fn(&[Completion]) -> bool) {
    while !is(done) {
        queue.reap(done, 0, None);
        thread::yield_now();
    }
}

/// A durable write fails if any flush failed after its data had ended, whether before its own flush began or before that ended. It
/// also fails if it shares its flush with data that is younger than the failure.
#[test]
fn a_durable_write_is_not_acknowledged_behind_a_failed_flush() {
    let _watchdog = Watchdog::new(LIMIT, "a durable write");
    let bed = Bed::new(DISKS[1]);
    let (file, other) = (bed.open("/odd"), bed.open("/sparse"));
    let queue = bed.volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let (mut done, mut submit) = (Vec::new(), VecDeque::new());
    let mut write = |n: u8| {
        let (pos, token) = (u64::from(n) * 512, u64::from(n));
        let write = Request::write(id, pos, filled(n, 512), token);
        submit.push_back(write.with_flags(DSYNC));
        queue.submit(&mut submit);
    };
    let owing = || queue.counters().deferred[Reason::Flush as usize];
    bed.valve.hold_flushes(true);
    write(1);
    reap_until(&queue, &mut done, |_| bed.valve.holding() == 1);
    // The worker waits for the flush of the first write. The data of the second has ended when another flush fails; the data of the
    // third ends after the failure.
    write(2);
    reap_until(&queue, &mut done, |_| owing() == 2);
    // The data of a fourth may have ended before the failure, but its end is seen later.
    bed.valve.hold(&[4]);
    write(4);
    bed.lose(&other);
    write(3);
    bed.valve.hold(&[]);
    reap_until(&queue, &mut done, |_| owing() == 4);
    bed.valve.hold_flushes(false);
    reap_until(&queue, &mut done, |done| done.len() == 4);
    done.sort_by_key(|d| d.token);
    let well: Vec<bool> = done.iter().map(|d| d.result.is_ok()).collect();
    assert_eq!(well, [false, false, true, false], "{done:?}");
}

/// A failed flush may also lose blocks that a commit has written to the log, and a superblock written home. The defect: the
/// commit's own flush succeeded, and the transaction counted as durable, though its blocks had been written before the flush that
/// failed.
#[test]
fn a_commit_does_not_build_on_a_failed_flush() {
    // The first byte of the held write: of a descriptor's magic number, and of the block with the superblock.
    for (held, has_committed) in [(0xC0, true), (0, false)] {
        for params in DISKS {
            let _watchdog = Watchdog::new(LIMIT, format!("{params}, {held:#x}"));
            let bed = Bed::new(params);
            let (file, other) = (bed.open("/sparse"), bed.open("/odd"));
            if has_committed {
                put(&file, 1 << 20);
                file.sync().unwrap();
            }
            bed.valve.hold(&[held]);
            let syncer = thread::spawn(move || {
                // A whole block inside a hole, so that no zeros are written around it: those would be held.
                file.write_buf(2 << 20, filled(7, 4096)).1?;
                file.sync()
            });
            bed.wait_for_held();
            bed.lose(&other);
            bed.valve.hold(&[]);
            syncer.join().unwrap().unwrap_err();
            let refused = other.write_buf(0, filled(7, 512)).1;
            assert!(
                matches!(refused, Err(Error::Aborted(_))),
                "{params}, {held:#x}: {refused:?}"
            );
        }
    }
}

/// Rule M4. The defect: where write and flush are one request, a place that cannot be written failed the syncs of all files, and a commit
/// beside it aborted the journal.
#[test]
fn a_place_that_cannot_be_written_concerns_its_writer() {
    let _watchdog = Watchdog::new(LIMIT, "a bad place");
    let bed = Bed::new(DISKS[1]);
    let (file, other) = (bed.open("/odd"), bed.open("/sparse"));
    bed.valve.fail(&[66]);
    let bad = || {
        file.call(diorite::Op::Write, 0, filled(66, 512), DSYNC)
            .1
            .map(drop)
    };
    assert_failed(bad(), "the write");
    other.sync().unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                assert_failed(bad(), "the write");
            }
        });
        let commit = |n: u64| {
            other
                .truncate(4096 * (n % 7 + 1))
                .and_then(|()| other.sync())
        };
        let done = (0..300).try_for_each(commit);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        done.unwrap();
    });
    bed.volume.close().unwrap();
    bed.stage.fsck();
}
