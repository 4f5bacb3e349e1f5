//! Rule D1: an account of flushes never says that data is durable whose flush began before the data had ended.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use super::*;
use crate::bio::BioErrorKind;
use crate::{Blocking, Buf, SimDevice, SimOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::channel;
use std::thread;

/// The defect: a flush that began before the data ended counted for it, because it ended afterwards.
#[test]
fn a_flush_that_began_before_covers_nothing() {
    let account = Flushes::new();
    let early = account.begin();
    let epoch = account.now();
    account.ended(early);
    assert!(!account.covers(epoch));
    let late = account.begin();
    assert!(!account.covers(epoch), "it has not ended");
    account.ended(late);
    assert!(account.covers(epoch));
}

#[test]
fn the_newest_that_ended_counts_whatever_the_order() {
    let account = Flushes::new();
    let before = account.now();
    let first = account.begin();
    let between = account.now();
    let second = account.begin();
    account.ended(second);
    assert!(account.covers(before) && account.covers(between));
    account.ended(first);
    assert!(account.covers(between));
    assert!(!account.covers(account.now()));
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

/// One that began too early is not waited for, one that began later is, and no third one is made.
#[test]
fn only_a_later_flush_is_shared() {
    let account = Arc::new(Flushes::new());
    let made = Arc::new(AtomicU32::new(0));
    let (begun, has_begun) = channel();
    let mut ends = Vec::new();
    let mut threads = Vec::new();
    let mut flush = |epoch: Epoch| {
        let (end, may_end) = channel::<Result<(), BioError>>();
        let (account, made, begun) = (account.clone(), made.clone(), begun.clone());
        ends.push(end);
        threads.push(thread::spawn(move || {
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
    for end in &ends[..2] {
        end.send(Ok(())).unwrap();
    }
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

/// A flush that fails, or whose thread panics, covers nothing; the next one is made anew.
#[test]
fn a_failed_flush_covers_nothing() {
    let account = Flushes::new();
    let epoch = account.now();
    let error = BioError::new(BioErrorKind::Io);
    assert_eq!(account.make_durable(epoch, || Err(error)), Err(error));
    assert!(!account.covers(epoch));
    let panics = || account.make_durable(epoch, || panic!("in the device"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
    assert!(caught.is_err() && !account.covers(epoch));
    account.make_durable(epoch, || Ok(())).unwrap();
    assert!(account.covers(epoch));
}

/// Who waited for a flush that failed is told, and does not take its end for a success.
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
    let error = BioError::new(BioErrorKind::Io);
    // It fails by the leader's error, or, if it comes too late for that, by its own.
    let follows = thread::spawn(move || follower.make_durable(epoch, || Err(error)));
    end.send(Err(error)).unwrap();
    assert_eq!(leads.join().unwrap(), Err(error));
    assert_eq!(follows.join().unwrap(), Err(error));
    assert!(!account.covers(epoch));
}

/// The defect: what the host flushes behind a write with FUA was not counted, or FUA by itself was taken for a flush of everything.
#[test]
fn a_durable_write_counts_as_a_flush_where_it_is_one() {
    for (fua, flushes) in [("yes", false), ("no", true)] {
        let options = format!("1M,cache=volatile,fua={fua},clock=auto");
        let device = Arc::new(SimDevice::new(SimOptions::parse(&options).unwrap()).unwrap());
        let blocking = Blocking::new(device.clone());
        let epoch = blocking.flushes().now();
        blocking.write_durably(0, Buf::zeroed(512)).unwrap();
        let did = device.counters();
        assert_eq!((did.fua_writes, did.flushes), (1, 0), "fua={fua}: {did:?}");
        assert_eq!(blocking.flushes().covers(epoch), flushes, "fua={fua}");
        blocking.flush().unwrap();
        assert!(blocking.flushes().covers(epoch));
    }
}
