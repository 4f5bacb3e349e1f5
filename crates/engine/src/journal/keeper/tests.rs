//! When the keeper starts, waits and stops.
//!
//! Input: a small volume whose interval is an hour. Output: none. Invariants: none of its own. Limits: `tests/keeping.rs` tests that a
//! transaction is committed when the interval has passed.

use super::*;
use crate::Volume;
use crate::journal::Journal;
use crate::testing::small_volume;

const HOUR: Duration = Duration::from_secs(3600);

fn journal(volume: &Volume) -> &Journal {
    volume.inner().journal().unwrap()
}

/// Looks for a while whether this stays so.
fn stays(what: &str, so: impl Fn() -> bool) {
    for _ in 0..50 {
        assert!(so(), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Behind a commit it waits for another interval before it empties the log: each block would go down twice otherwise.
#[test]
fn what_was_committed_goes_home_after_another_interval() {
    let volume = small_volume("16M", &[]);
    volume.create("/file", 0o644).unwrap();
    assert_eq!(journal(&volume).stats().commits, 0);
    journal(&volume).hurry_commit();
    while journal(&volume).stats().commits == 0 {
        thread::yield_now();
    }
    stays("the log was emptied", || {
        journal(&volume).stats().checkpoints == 0
    });
}

/// Who lets go of it waits until its thread has ended, which may be in the middle of a commit; and it ends without waiting for the
/// interval.
#[test]
fn its_thread_ends_with_it() {
    let volume = small_volume("16M", &[]);
    let keeper = Keeper::new(1, HOUR, volume.inner().hooks());
    let shared = Arc::downgrade(&keeper.shared);
    let medium = journal(&volume).medium.lock();
    keeper.hurry();
    while keeper.shared.orders.lock().now {
        thread::yield_now();
    }
    std::thread::scope(|scope| {
        let lets_go = scope.spawn(move || drop(keeper));
        // It wants the medium for its commit.
        stays("it has gone before its thread", || !lets_go.is_finished());
        drop(medium);
    });
    assert!(shared.upgrade().is_none(), "its thread is still there");
}

/// A thread that sleeps is woken to end.
#[test]
fn an_idle_thread_ends_with_it() {
    let volume = small_volume("16M", &[]);
    let keeper = Keeper::new(1, HOUR, volume.inner().hooks());
    let shared = Arc::downgrade(&keeper.shared);
    keeper.wake();
    drop(keeper);
    assert!(shared.upgrade().is_none(), "its thread is still there");
}
