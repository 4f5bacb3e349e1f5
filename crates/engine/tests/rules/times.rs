//! Times of writes that overtake each other, and of what is only noted (rules C7, D1).
//!
//! Input: a small volume in memory, and a clock that the test sets. Output: none. Invariant: an acknowledged O_SYNC write's time is not
//! taken back by a write that asked the clock before it and was noted after it. Limits: such a write is told apart from a clock that was
//! put back by a second.

use crate::common::fixture::{filled, writable};
use crate::common::recipe::{RECIPES, bare};
use crate::common::scratch;
use crate::common::stage::{Stage, mem_of};
use diorite::{AccessTimes, File, Op, OpenFlags, OpenOptions, RequestFlags, Volume};
use diorite_format::Inode;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static MILLIS: Cell<u64> = const { Cell::new(0) };
}

/// Of the test's thread: its calls ask the clock in it.
fn clock() -> Duration {
    Duration::from_millis(MILLIS.get())
}

/// No commit comes by itself.
fn options() -> OpenOptions {
    OpenOptions {
        clock,
        commit_interval: Duration::from_secs(3600),
        access_times: AccessTimes::Relative,
        ..OpenOptions::writable()
    }
}

const START: u64 = 2_000_000_000_000;

/// The defect: a queue asks the clock once for several requests, so of two queues one may note the earlier time last; the time of a file
/// went back by a tick, behind that of an acknowledged O_SYNC write.
#[test]
fn a_write_that_is_noted_late_takes_no_time_back() {
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let stage = Stage::mem(&path);
    MILLIS.set(START);
    let start = START;
    let volume = stage.open(&options()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let sync = RequestFlags {
        sync: true,
        ..RequestFlags::default()
    };
    let write_at = |millis: u64| {
        MILLIS.set(millis);
        file.call(Op::Write, 0, filled(1, 512), sync).1.unwrap();
        let time = file.metadata().mtime;
        u64::try_from(time.secs).unwrap() * 1000 + u64::from(time.nanos) / 1_000_000
    };
    assert_eq!(write_at(start + 8), start + 8);
    assert_eq!(write_at(start + 4), start + 8, "it was overtaken");
    assert_eq!(write_at(start + 12), start + 12);
    assert_eq!(
        write_at(start - 5000),
        start - 5000,
        "the clock was put back"
    );
}

/// The inode of a file as a power cut leaves it.
fn behind_a_cut(stage: &Stage, path: &str) -> Arc<Inode> {
    let cut = Arc::new(mem_of(&stage.bytes()));
    let volume = Volume::open_device(cut, &OpenOptions::default()).unwrap();
    let file = volume.open_path(path, OpenFlags::default()).unwrap();
    file.metadata()
}

/// Rules C7, D1. The defect: an fsync took a noted time of a write for something to be committed, and one of a read not.
#[test]
fn an_fsync_commits_the_time_of_a_read() {
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    MILLIS.set(START);
    let volume = stage.open(&options()).unwrap();
    for path in ["/odd", "/"] {
        let file = volume.open_path(path, OpenFlags::default()).unwrap();
        match path {
            "/" => drop(volume.read_dir(file.ino()).unwrap().count()),
            _ => drop(file.read_bytes(0, &mut [0; 512]).unwrap()),
        }
        file.sync().unwrap();
        let secs = behind_a_cut(&stage, path).atime.secs;
        assert_eq!(secs, START as i64 / 1000, "{path}");
    }
}

/// The defect: the time of a write that was only noted was written later than that of a truncation which came after it, and took it back.
#[test]
fn a_noted_write_takes_no_later_time_back() {
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    type Change = fn(&File);
    let changes: [(&str, Change); 3] = [
        ("shorter", |file| file.truncate(90_000).unwrap()),
        ("longer", |file| file.truncate(95_000).unwrap()),
        ("as long", |file| file.truncate(95_000).unwrap()),
    ];
    let volume = stage.open(&options()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    for (at, (what, change)) in (0..).zip(changes) {
        MILLIS.set(START + 20_000 * at);
        file.write_at(0, filled(1, 512)).1.unwrap();
        MILLIS.set(START + 20_000 * at + 10_000);
        change(&file);
        file.sync().unwrap();
        let secs = behind_a_cut(&stage, "/odd").mtime.secs;
        assert_eq!(secs, (START + 20_000 * at + 10_000) as i64 / 1000, "{what}");
    }
}
