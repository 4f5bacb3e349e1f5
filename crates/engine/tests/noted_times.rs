//! The list of inodes whose times are only noted: it is bounded, and nobody is called for it who could do nothing.
//!
//! Input: a volume with many directories, and locks counted over the whole process: so these tests are one. Output: none. Invariants: none
//! of its own. Limits: what does not happen is looked for long enough to be seen, and no longer.
#![allow(clippy::unwrap_used)]

mod common;

use common::fixture::LIMIT;
use common::stage::Stage;
use common::valve::Valve;
use common::watch::Watchdog;
use common::{image, scratch};
use diorite::{AccessTimes, Error, OpenOptions, Volume};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const DIRECTORIES: usize = 4400;
/// So many may be in the list before who reads another one writes them.
const TOO_MANY: u64 = 4096;

/// No commit comes by itself.
fn options() -> OpenOptions {
    OpenOptions {
        commit_interval: Duration::from_secs(3600),
        access_times: AccessTimes::Always,
        ..OpenOptions::writable()
    }
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

/// The defects: who only reads directories made the list as long as they are many; in a group every further entry woke the keeper, who may
/// not commit.
#[test]
fn it_is_bounded_and_the_keeper_is_not_called_for_nothing() {
    let _watchdog = Watchdog::new(2 * LIMIT, "noted times");
    let dir = scratch();
    let tree = dir.path().join("tree");
    for n in 0..DIRECTORIES {
        std::fs::create_dir_all(tree.join(format!("d{n}"))).unwrap();
    }
    let args = "-t ext4 -b 4096 -N 8192".split(' ');
    let path = image(dir.path(), "64M", &args.collect::<Vec<_>>(), &tree);
    in_a_group(&Stage::mem(&path));
    without_one(&Stage::mem(&path));
}

fn in_a_group(stage: &Stage) {
    let volume = stage.open(&options()).unwrap();
    let group = volume.atomic().unwrap();
    let before = commits_asked_for();
    for n in 0..2000 {
        read(&volume, n);
        thread::yield_now();
    }
    assert_eq!(commits_asked_for(), before);
    assert_eq!(volume.usage().dirty_times, 2000);
    assert!(matches!(volume.sync(), Err(Error::InAtomic)));
    group.commit().unwrap();
    assert_eq!(volume.usage().dirty_times, 0);
}

fn without_one(stage: &Stage) {
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &options()).unwrap();
    // The superblock, whose block begins with zeros, comes before the first handle: the keeper cannot write any of them.
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
