//! The list of inodes with noted times is bounded, and the keeper is not woken when it could do nothing.
//!
//! Input: a volume with many directories. Lock statistics are per process, so this file has a single test. Output: none.
//! Invariants: none of its own. Limits: that something does not happen is observed for a limited time only.

#![allow(clippy::unwrap_used)]

mod common;

use common::fixture::LIMIT;
use common::stage::Stage;
use common::valve::Valve;
use common::watch::Watchdog;
use common::{image, scratch, words};
use diorite::{AccessTimes, Error, OpenOptions, Volume};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const DIRECTORIES: usize = 4400;
/// At this length of the list, a thread that reads another directory writes the list first.
const TOO_MANY: u64 = 4096;

/// Options for a volume on which nothing commits by itself.
fn options() -> OpenOptions {
    OpenOptions::writable()
        .commit_interval(Duration::from_secs(3600))
        .access_times(AccessTimes::Always)
}

fn read(volume: &Volume, n: usize) {
    let ino = volume.resolve(&format!("/d{n}"), true).unwrap();
    assert_eq!(volume.read_dir(ino).unwrap().count(), 2);
}

fn commits_asked_for() -> u64 {
    let all = diorite::stats::lock_stats();
    let journal = all.iter().find(|(name, _)| *name == "journal");
    journal.unwrap().1.acquired
}

/// The defects: reading directories made the list as long as there were directories; in an atomic change, every further entry
/// woke the keeper, which may not commit then.
#[test]
fn it_is_bounded_and_the_keeper_is_not_called_for_nothing() {
    let _watchdog = Watchdog::new(2 * LIMIT, "noted times");
    let dir = scratch();
    let tree = dir.path().join("tree");
    for n in 0..DIRECTORIES {
        std::fs::create_dir_all(tree.join(format!("d{n}"))).unwrap();
    }
    let args = words("-t ext4 -b 4096 -N 8192");
    let path = image(dir.path(), "64M", &args, &tree);
    in_an_atomic_change(&Stage::mem(&path));
    without_one(&Stage::mem(&path));
}

fn in_an_atomic_change(stage: &Stage) {
    let volume = stage.open(&options()).unwrap();
    let atomic = volume.atomic().unwrap();
    let before = commits_asked_for();
    for n in 0..2000 {
        read(&volume, n);
        thread::yield_now();
    }
    assert_eq!(commits_asked_for(), before);
    assert_eq!(volume.usage().dirty_times, 2000);
    assert!(matches!(volume.sync(), Err(Error::InAtomic)));
    atomic.commit().unwrap();
    assert_eq!(volume.usage().dirty_times, 0);
}

fn without_one(stage: &Stage) {
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &options()).unwrap();
    // The superblock, whose block begins with zeros, is written before the first handle begins: while it is held, the keeper cannot
    // write any times.
    valve.hold(&[0]);
    let reader = {
        let volume = volume.clone();
        thread::spawn(move || (0..DIRECTORIES).for_each(|n| read(&volume, n)))
    };
    while volume.usage().dirty_times < TOO_MANY {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(200));
    let listed = volume.usage().dirty_times;
    valve.hold(&[]);
    reader.join().unwrap();
    assert_eq!(listed, TOO_MANY);
    volume.close().unwrap();
}
