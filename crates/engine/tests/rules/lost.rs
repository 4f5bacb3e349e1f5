//! A flush that failed: whose data it may have lost, who is told, and how often (rule D1).
//!
//! Input: a small volume on a simulated disk with a volatile cache, behind a valve that fails flushes. Output: none. Invariant: no promise
//! is kept by a flush that succeeded behind one that failed, if the data is older than the failure. Limits: the disk keeps what it has;
//! that it might have dropped it is the reason, and not shown.

use crate::common::fixture::{DSYNC, LIMIT, filled, run_all, writable};
use crate::common::recipe::{RECIPES, bare};
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{fsck, scratch};
use crate::looped::bios;
use diorite::{
    Completion, Error, File, LoopDevice, OpenFlags, OpenOptions, Queue, Reason, Request, Volume,
};
use diorite_block::{Bio, BioError, BioErrorKind, BioFlags, SimOptions};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// With FUA; with a flush behind each write that has to be durable.
const DISKS: [&str; 2] = ["0,cache=volatile,fua=yes", "0,cache=volatile,fua=no"];

struct Bed {
    _dir: tempfile::TempDir,
    path: PathBuf,
    stage: Stage,
    valve: Valve,
    volume: Volume,
}

impl Bed {
    /// No commit comes by itself, and one worker does what ended requests owe.
    fn new(params: &str) -> Bed {
        let dir = scratch();
        let path = bare(dir.path(), &RECIPES[0]);
        let stage = Stage::sim(&path, SimOptions::parse(params).unwrap());
        let valve = Valve::new(stage.device.clone());
        let options = OpenOptions {
            commit_interval: Duration::from_secs(3600),
            workers: 1,
            ..OpenOptions::writable()
        };
        let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
        Bed {
            _dir: dir,
            path,
            stage,
            valve,
            volume,
        }
    }

    fn open(&self, path: &str) -> File {
        self.volume.open_path(path, writable()).unwrap()
    }

    /// Somebody's flush fails.
    fn lose(&self, by: &File) {
        self.valve.fail_flushes(1);
        assert_failed(by.sync_data(), "whose flush it was");
    }

    fn wait_for_held(&self) {
        while self.valve.holding() == 0 {
            thread::yield_now();
        }
    }
}

fn assert_failed(result: Result<(), Error>, who: &str) {
    let is_io =
        matches!(&result, Err(Error::Device { error, .. }) if error.kind == BioErrorKind::Io);
    assert!(is_io, "{who}: {result:?}");
}

fn put(file: &File, pos: u64) {
    assert_eq!(file.write_at(pos, filled(7, 512)).1.unwrap(), 512);
}

/// The defect: the next flush succeeded, and whoever asked for it was told that his data was durable, though it had been written before the
/// flush that failed. Everybody who had something open is told once; who opens it later is not.
#[test]
fn a_failed_flush_is_told_to_every_open_file_once() {
    for params in DISKS {
        let _watchdog = Watchdog::new(LIMIT, params);
        let bed = Bed::new(params);
        let (other, overwritten, grown) =
            (bed.open("/sparse"), bed.open("/odd"), bed.open("/empty"));
        let (cloned, twice) = (overwritten.clone(), bed.open("/odd"));
        let root = bed.volume.open_path("/", OpenFlags::default()).unwrap();
        let device = LoopDevice::new(bed.open("/sparse"), "loop".into());
        let queue = bed.volume.queue(4).unwrap();
        let id = queue.attach(&twice).unwrap();
        put(&overwritten, 0);
        put(&grown, 0);
        bed.lose(&other);
        let later = bed.open("/odd");
        other.sync_data().unwrap();
        other.sync().unwrap();
        assert_failed(overwritten.sync_data(), "a flush alone");
        cloned.sync_data().unwrap();
        assert_failed(grown.sync(), "a commit");
        grown.sync().unwrap();
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
        // What is written from now on is as durable as ever.
        assert_eq!(
            later
                .call(diorite::Op::Write, 0, filled(8, 512), DSYNC)
                .1
                .unwrap(),
            512
        );
        let fua = BioFlags {
            fua: true,
            nowait: false,
        };
        let write = Bio {
            flags: fua,
            ..Bio::write(0, filled(8, 512), 0)
        };
        assert_eq!(bios(&device, 2, vec![write])[0].result, Ok(()));
    }
}

/// Close tells of what no sync of the volume has told, and a group's end.
#[test]
fn the_volume_is_told_by_whatever_syncs_it() {
    let _watchdog = Watchdog::new(LIMIT, "close and groups");
    let bed = Bed::new(DISKS[0]);
    let file = bed.open("/odd");
    bed.lose(&file);
    let group = bed.volume.group().unwrap();
    bed.volume.create("/new", 0o644).unwrap();
    assert_failed(group.commit(), "the group");
    bed.volume.sync().unwrap();
    bed.lose(&file);
    drop(file);
    assert_failed(bed.volume.close(), "close");
    bed.stage.save();
    fsck(&bed.path);
}

/// An O_DSYNC write whose own flush fails tells its open file of it; the sync after it is not told again.
#[test]
fn a_failed_durable_write_has_told_its_file() {
    let _watchdog = Watchdog::new(LIMIT, "told by a write");
    let bed = Bed::new(DISKS[1]);
    let (file, other) = (bed.open("/odd"), bed.open("/sparse"));
    bed.valve.fail_flushes(1);
    let (_, done) = file.call(diorite::Op::Write, 0, filled(7, 512), DSYNC);
    assert_failed(done.map(drop), "the write");
    file.sync().unwrap();
    assert_failed(other.sync(), "another file");
}

fn reap_until(queue: &Queue, done: &mut Vec<Completion>, is: impl Fn(&[Completion]) -> bool) {
    while !is(done) {
        queue.reap(done, 0, None);
        thread::yield_now();
    }
}

/// The same for data of one epoch: a flush failed when it had ended, and before its own flush began or ended. Nor does it count that it
/// shares its flush with data that is younger than the failure.
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
    let owing = || bed.volume.counters().deferred[Reason::Flush as usize];
    bed.valve.hold_flushes(true);
    write(1);
    reap_until(&queue, &mut done, |_| bed.valve.holding() == 1);
    // The worker waits for the first one's flush; the second one's data has ended when another flush fails, the third one's ends behind
    // that.
    write(2);
    reap_until(&queue, &mut done, |_| owing() == 2);
    // A fourth one's may have ended before that, but it is seen later.
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

/// The same for what a commit has written to the log, and for a superblock at home. The defect: the commit's own flush succeeded, and the
/// transaction counted as durable, though the log's blocks were written before the flush that failed.
#[test]
fn a_commit_does_not_build_on_a_failed_flush() {
    // The first byte of what is held: a descriptor's magic number, the superblock's block.
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
                // A whole block of a hole: no zeros around it, which would be held.
                file.write_at(2 << 20, filled(7, 4096)).1?;
                file.sync()
            });
            bed.wait_for_held();
            bed.lose(&other);
            bed.valve.hold(&[]);
            syncer.join().unwrap().unwrap_err();
            let refused = other.write_at(0, filled(7, 512)).1;
            assert!(
                matches!(refused, Err(Error::Aborted(_))),
                "{params}, {held:#x}: {refused:?}"
            );
        }
    }
}
