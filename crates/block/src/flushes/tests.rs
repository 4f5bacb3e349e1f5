//! Rule D1: an account of flushes never says that data is durable whose flush began before the data had ended.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use super::*;
use crate::bio::BioErrorKind;
use crate::{Blocking, Buf, SimDevice, SimOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::channel;
use std::thread;

/// The two halves of a flush.
fn begin(account: &Flushes) -> FlushNumber {
    account.begin(&mut account.shared.lock())
}

fn ended(account: &Flushes, flush: FlushNumber, result: Result<(), BioError>) {
    account.ended(&mut account.shared.lock(), flush, result);
    account.ended.notify_all();
}

/// Blocks until that thread of the process sleeps.
fn until_asleep(thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let is_asleep = || {
        let stat = std::fs::read_to_string(&path).unwrap();
        // The state is after the name, which is in parentheses.
        stat.rsplit(") ").next().unwrap().starts_with('S')
    };
    while !is_asleep() {
        thread::yield_now();
    }
}

/// Defect: a flush that began before the data ended counted for it, because it ended afterwards.
#[test]
fn a_flush_that_began_before_covers_nothing() {
    let account = Flushes::new();
    let early = begin(&account);
    let epoch = account.now();
    ended(&account, early, Ok(()));
    assert!(!account.covers(epoch));
    let late = begin(&account);
    assert!(!account.covers(epoch), "it has not ended");
    ended(&account, late, Ok(()));
    assert!(account.covers(epoch));
}

/// A successful flush next to an older one that may have failed: the host reports a failure once, and may have reported it to
/// that one.
#[test]
fn a_flush_counts_when_those_before_it_have_ended() {
    let account = Flushes::new();
    let before = account.now();
    let first = begin(&account);
    let between = account.now();
    let second = begin(&account);
    ended(&account, second, Ok(()));
    assert!(!account.covers(before) && !account.covers(between));
    ended(&account, first, Ok(()));
    assert!(account.covers(before) && account.covers(between));
    assert!(!account.covers(account.now()));
    // Flushes that began later are not waited for.
    let (epoch, older) = (account.now(), begin(&account));
    let younger = begin(&account);
    ended(&account, older, Ok(()));
    assert!(account.covers(epoch));
    ended(&account, younger, Ok(()));
    let (first, second) = (begin(&account), begin(&account));
    let epoch = account.now();
    let third = begin(&account);
    ended(&account, third, Ok(()));
    ended(&account, second, Ok(()));
    ended(&account, first, Err(BioError::new(BioErrorKind::Io)));
    assert!(!account.covers(epoch) && account.check(epoch).is_err());
}

#[test]
fn what_is_covered_is_not_flushed_again() {
    let account = Flushes::new();
    let epoch = account.now();
    let flushed = AtomicU32::new(0);
    let flush = || {
        flushed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    account.make_durable(epoch, flush).unwrap();
    account.make_durable(epoch, flush).unwrap();
    assert_eq!(flushed.load(Ordering::SeqCst), 1);
    account.make_durable(account.now(), flush).unwrap();
    assert_eq!(flushed.load(Ordering::SeqCst), 2);
}

/// A flush that began too early is not waited for, a later one is, and no third flush is made.
#[test]
fn only_a_later_flush_is_shared() {
    let account = Arc::new(Flushes::new());
    let made = Arc::new(AtomicU32::new(0));
    let (begun, has_begun) = channel();
    let (came, has_come) = channel();
    let mut ends = Vec::new();
    let mut threads = Vec::new();
    let mut flush = |epoch: Epoch| {
        let (end, may_end) = channel::<Result<(), BioError>>();
        let (account, made, begun) = (account.clone(), made.clone(), begun.clone());
        let came = came.clone();
        ends.push(end);
        threads.push(thread::spawn(move || {
            came.send(rustix::thread::gettid()).unwrap();
            account.make_durable(epoch, || {
                made.fetch_add(1, Ordering::SeqCst);
                begun.send(()).unwrap();
                may_end.recv().unwrap()
            })
        }));
    };
    flush(account.now());
    has_begun.recv().unwrap();
    // It ended after the first flush had begun.
    let epoch = account.now();
    flush(epoch);
    has_begun.recv().unwrap();
    flush(epoch);
    until_asleep(has_come.iter().nth(2).unwrap());
    for end in ends {
        // The third flush does not run, if all is well.
        let _told = end.send(Ok(()));
    }
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

/// A flush that fails, or whose thread panics, covers nothing, nor does any later flush for older data. Defect: the next
/// successful flush covered it, though the device may have dropped it.
#[test]
fn a_failed_flush_covers_nothing() {
    let account = Flushes::new();
    let epoch = account.now();
    let error = BioError::new(BioErrorKind::Io);
    assert_eq!(account.make_durable(epoch, || Err(error)), Err(error));
    assert!(!account.covers(epoch));
    let unwanted = || panic!("what is lost is not flushed");
    assert_eq!(account.make_durable(epoch, unwanted), Err(error));
    let panics = || account.make_durable(account.now(), || panic!("in the device"));
    let (lost, caught) = (
        account.now(),
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)),
    );
    assert!(caught.is_err() && !account.covers(lost));
    let later = account.now();
    account.make_durable(later, || Ok(())).unwrap();
    assert!(account.covers(later));
    for lost in [epoch, lost] {
        assert!(!account.covers(lost) && account.check(lost).is_err());
    }
}

/// Data that ended while a flush was running that failed is lost with it; data that ended after its end is not. A flush that
/// never ran loses nothing.
#[test]
fn a_failure_counts_from_its_end() {
    let account = Flushes::new();
    let error = BioError::new(BioErrorKind::Io);
    let failing = begin(&account);
    let (epoch, failures) = (account.now(), account.failures());
    ended(&account, failing, Err(error));
    assert_ne!(account.failures(), failures);
    let behind = account.now();
    let well = begin(&account);
    let failures = account.failures();
    ended(&account, well, Ok(()));
    assert_eq!(account.failures(), failures);
    assert_eq!(account.check(epoch), Err(error));
    assert!(!account.covers(epoch) && account.covers(behind));
    let refused = BioError::new(BioErrorKind::WouldBlock);
    ended(&account, begin(&account), Err(refused));
    assert!(account.covers(behind) && account.check(behind).is_ok());
}

/// A flush that runs next to a failing one does not count for older data, whichever ends first.
#[test]
fn a_flush_beside_one_that_fails_keeps_no_promise() {
    let account = Flushes::new();
    let error = BioError::new(BioErrorKind::Io);
    let (epoch, failing) = (account.now(), begin(&account));
    let made = account.make_durable(epoch, || {
        ended(&account, failing, Err(error));
        Ok(())
    });
    assert_eq!(made, Err(error));
}

/// The same if the failing one is reported last: the successful flush waits for it.
#[test]
fn a_flush_waits_for_those_that_began_before() {
    let error = BioError::new(BioErrorKind::Io);
    for older in [Ok(()), Err(error)] {
        let account = Arc::new(Flushes::new());
        let (epoch, first) = (account.now(), begin(&account));
        let (came, has_come) = channel();
        let threads = [false, true].map(|shares| {
            let (account, came) = (account.clone(), came.clone());
            thread::spawn(move || {
                came.send(rustix::thread::gettid()).unwrap();
                match shares {
                    true => account.make_durable(epoch, || Ok(())),
                    false => account.run(|| (Ok(()), account.clone())).check(epoch),
                }
            })
        });
        has_come.iter().take(2).for_each(until_asleep);
        assert!(!account.covers(epoch));
        ended(&account, first, older);
        for thread in threads {
            assert_eq!(thread.join().unwrap(), older);
        }
        assert_eq!(account.covers(epoch), older.is_ok());
    }
}

/// Each object is told once of each failure, and of none before its creation.
#[test]
fn a_failure_is_told_once() {
    let account = Flushes::new();
    let (io, full) = (BioErrorKind::Io, BioErrorKind::NoSpace);
    let (io, full) = (BioError::new(io), BioError::new(full));
    let tell = |told: &Told| account.tell(told, told.since());
    let early = account.all_told();
    tell(&early).unwrap();
    ended(&account, begin(&account), Err(io));
    let late = account.all_told();
    assert_eq!(tell(&early), Err(io));
    assert_eq!((tell(&early), tell(&late)), (Ok(()), Ok(())));
    let (first, second) = (begin(&account), begin(&account));
    ended(&account, second, Err(io));
    assert_eq!(tell(&late), Err(io));
    // The flush that began first ends last: that is another failure.
    ended(&account, first, Err(full));
    for told in [&early, &late] {
        assert_eq!(tell(told), Err(full));
        tell(told).unwrap();
    }
}

/// Defect: of two concurrent syncs of one file, one was told and the other acknowledged.
#[test]
fn a_failure_is_told_to_all_who_ask_at_that_time() {
    let account = Flushes::new();
    let io = BioError::new(BioErrorKind::Io);
    let told = account.all_told();
    let (one, other) = (told.since(), told.since());
    ended(&account, begin(&account), Err(io));
    let third = told.since();
    for since in [one, other, third] {
        assert_eq!(account.tell(&told, since), Err(io));
    }
    account.tell(&told, told.since()).unwrap();
}

/// A caller that waited for a failing flush is told, and does not take its end for a success.
#[test]
fn a_shared_failure_reaches_all_who_waited() {
    let account = Arc::new(Flushes::new());
    let epoch = account.now();
    let (begun, has_begun) = channel();
    let (end, may_end) = channel();
    let leader = account.clone();
    let leads = thread::spawn(move || {
        leader.make_durable(epoch, || {
            begun.send(()).unwrap();
            may_end.recv().unwrap()
        })
    });
    has_begun.recv().unwrap();
    let follower = account.clone();
    let (came, has_come) = channel();
    let follows = thread::spawn(move || {
        came.send(rustix::thread::gettid()).unwrap();
        follower.make_durable(epoch, || Ok(()))
    });
    until_asleep(has_come.recv().unwrap());
    let error = BioError::new(BioErrorKind::Io);
    end.send(Err(error)).unwrap();
    assert_eq!(leads.join().unwrap(), Err(error));
    assert_eq!(follows.join().unwrap(), Err(error));
    assert!(!account.covers(epoch));
}

/// Defect: the flush by which the host follows a write with FUA was not counted, or FUA alone was taken for a flush of
/// everything.
#[test]
fn a_durable_write_counts_as_a_flush_where_it_is_one() {
    for (cache, fua, did, covers) in [
        ("volatile", "yes", (1, 0), false),
        ("volatile", "no", (1, 0), true),
        ("none", "yes", (0, 0), false),
        ("none", "no", (0, 0), false),
    ] {
        let options = format!("1M,cache={cache},fua={fua},clock=auto");
        let device = Arc::new(SimDevice::new(SimOptions::parse(&options).unwrap()).unwrap());
        let blocking = Blocking::new(device.clone());
        let epoch = blocking.flushes().now();
        blocking.write_durably(0, Buf::zeroed(512)).unwrap();
        let counted = device.counters();
        assert_eq!((counted.fua_writes, counted.flushes), did, "{options}");
        assert_eq!(blocking.flushes().covers(epoch), covers, "{options}");
        blocking.flush().unwrap();
        assert_eq!(blocking.flushes().covers(epoch), cache == "volatile");
    }
}
