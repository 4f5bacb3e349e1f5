//! Times of writes that overtake each other (rule C7).
//!
//! Input: a small volume in memory, and a clock that the test sets. Output: none. Invariant: an acknowledged O_SYNC write's time is not
//! taken back by a write that asked the clock before it and was noted after it. Limits: such a write is told apart from a clock that was
//! put back by a second.

use crate::common::fixture::{filled, writable};
use crate::common::recipe::{RECIPES, bare};
use crate::common::scratch;
use crate::common::stage::Stage;
use diorite::{Op, OpenOptions, RequestFlags};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static MILLIS: AtomicU64 = AtomicU64::new(0);

fn clock() -> Duration {
    Duration::from_millis(MILLIS.load(Ordering::SeqCst))
}

/// The defect: a queue asks the clock once for several requests, so of two queues one may note the earlier time last; the time of a file
/// went back by a tick, behind that of an acknowledged O_SYNC write.
#[test]
fn a_write_that_is_noted_late_takes_no_time_back() {
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let stage = Stage::mem(&path);
    let options = OpenOptions {
        clock,
        ..OpenOptions::writable()
    };
    let start = 2_000_000_000_000;
    MILLIS.store(start, Ordering::SeqCst);
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let sync = RequestFlags {
        sync: true,
        ..RequestFlags::default()
    };
    let write_at = |millis: u64| {
        MILLIS.store(millis, Ordering::SeqCst);
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
