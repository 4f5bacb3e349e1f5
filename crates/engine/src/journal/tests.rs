//! The journal's state: which threads count as waiting, how large a handle may be, when a volume may be marked as clean.
//!
//! Input: journals without a volume, and one small volume. Output: none. Invariants: none of its own. Limits: what reaches a device is
//! looked at in `tests/journal.rs`.

use super::log::Places;
use super::transaction::{Crowd, State};
use super::{COMMIT_CREDITS, Journal, Medium};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::testing::small_volume;
use diorite_block::Buf;
use diorite_format::{FsBlock, Ino, Superblock, Tid};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Without a log, not marked as in use.
fn rounds() -> Journal {
    Journal::new(1, None, HOUR, Weak::<Fs>::new())
}

/// Two handles fit into a transaction, beside what the commit adds.
#[test]
fn a_handle_may_have_half_of_a_transaction() {
    assert_eq!(rounds().most_credits(), (4096 - 1) / 2);
    // A quarter of the log's 1,024 blocks, of which the superblock has one. As much of a large one as 20 MiB in memory hold twice.
    for (size, log, most) in [("16M", "size=1", 1023 / 4), ("112M", "size=48", 10_240)] {
        let volume = small_volume(size, &["-J", log]);
        let journal = volume.inner().journal().unwrap();
        let found = match &*journal.medium.lock() {
            Medium::Log(log) => log.most_blocks(),
            Medium::Rounds(_) => panic!("it has a log"),
        };
        assert_eq!(found, most);
        assert_eq!(journal.most_credits(), (most - COMMIT_CREDITS) / 2);
    }
}

/// The superblock says "clean" only where nothing is open, nothing was changed since the last commit, and it does not say so yet.
#[test]
fn only_a_quiet_volume_is_marked_clean() {
    let journal = rounds();
    assert!(!journal.begin_to_mark_clean(), "it is clean");
    journal.state.lock().marked = true;
    journal.state.lock().open = 1;
    assert!(!journal.begin_to_mark_clean(), "a handle is open");
    journal.state.lock().open = 0;
    let block = FsBlock::new(7);
    journal.state.lock().running.blocks.insert(block, false);
    assert!(!journal.begin_to_mark_clean(), "a block has changed");
    {
        let mut state = journal.state.lock();
        assert!(state.marked && !state.closing, "handles may begin");
        state.running.blocks.clear();
    }
    assert!(journal.begin_to_mark_clean());
    let state = journal.state.lock();
    assert!(!state.marked && state.closing, "handles wait");
}

/// Handles and commits show what is newest to those who ask without the lock.
#[test]
fn handles_and_commits_show_the_newest() {
    let volume = small_volume("16M", &["-J", "size=4"]);
    let fs = volume.inner();
    volume.sync().unwrap();
    let newest = || fs.journal().unwrap().newest_uncommitted();
    assert_eq!(newest(), None);
    let root = fs.inode(Ino::ROOT).unwrap();
    let mut tid = None;
    let changed = fs.in_handle(1, |handle| {
        tid = Some(handle.tid());
        assert_eq!(newest(), tid, "a handle has begun");
        root.change(handle, |disk| disk.ctime.secs += 1)
    });
    changed.unwrap();
    assert_eq!(newest(), tid, "it has ended");
    volume.sync().unwrap();
    assert_eq!(newest(), None, "it is committed");
}

/// What a sync has to wait for: the running transaction once a handle has begun, even if that has changed nothing yet, else the one
/// before it.
#[test]
fn the_newest_that_is_not_durable() {
    let journal = rounds();
    let newest = || {
        let state = journal.state.lock();
        journal.show_newest(&state);
        drop(state);
        journal.newest_uncommitted()
    };
    assert_eq!(newest(), None);
    journal.state.lock().open = 1;
    let first = journal.state.lock().running.tid;
    assert_eq!(newest(), Some(first));
    journal.state.lock().open = 0;
    journal
        .state
        .lock()
        .running
        .freed
        .push((FsBlock::new(7), 1));
    assert_eq!(newest(), Some(first));
    // It is closed and on its way.
    drop(journal.state.lock().take());
    assert_eq!(newest(), Some(first));
    assert!(!journal.is_committed(first));
    journal.state.lock().committed = first;
    assert_eq!(newest(), None);
    assert!(journal.is_committed(first));
}

#[test]
fn an_abort_is_seen() {
    let journal = rounds();
    assert!(!journal.is_aborted() && journal.aborted().is_none());
    journal.state.lock().aborted = Some(Error::ShutDown);
    assert!(journal.is_aborted());
    assert!(matches!(journal.aborted(), Some(Error::ShutDown)));
}

/// One commits, and the commit is expected to serve as many again as it has served and found waiting behind it.
fn expecting(journal: &Journal, crowd: u32) {
    let mut state = journal.state.lock();
    state.crowd.arrived = crowd;
    state.crowd.freeze();
    state.crowd.end(Duration::ZERO);
    state.crowd.patience = HOUR;
}

/// Who commits waits for those who have lately come, not for one more, and not at all once nothing will ever be committed.
#[test]
fn a_commit_gathers_those_who_came_before() {
    let journal = rounds();
    expecting(&journal, 2);
    journal.state.lock().crowd.arrived = 1;
    thread::scope(|scope| {
        let gathers = scope.spawn(|| journal.gather());
        for _ in 0..50 {
            thread::sleep(Duration::from_millis(1));
            assert!(!gathers.is_finished(), "one of two is here");
        }
        journal.state.lock().crowd.arrived = 2;
        journal.arrived.notify_one();
    });
    // All are here: it does not wait for anybody.
    journal.gather();
    journal.state.lock().crowd.arrived = 1;
    journal.state.lock().aborted = Some(Error::ShutDown);
    journal.gather();
}

/// Each who commits is counted once, so that the next commit waits for as many as there were and for no more.
#[test]
fn each_who_commits_is_counted_once() {
    let volume = small_volume("16M", &[]);
    let journal = volume.inner().journal().unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    for n in 0..3 {
        file.write_buf(n * 4096, Buf::zeroed(4096)).1.unwrap();
        file.sync().unwrap();
        let mut state = journal.state.lock();
        assert_eq!(state.crowd.arrived, 0);
        assert!(!state.crowd.is_complete(), "nobody was counted");
        state.crowd.arrived = 1;
        assert!(state.crowd.is_complete(), "more than one was counted");
        state.crowd.arrived = 0;
        state.crowd.patience = Duration::ZERO;
    }
}

/// Who has arrived is served by the commit that freezes next; it is expected again, with those who came meanwhile. The patience is half of
/// what the last commit took, a millisecond at most.
#[test]
fn a_crowd_is_expected_again() {
    let mut crowd = Crowd::default();
    assert!(crowd.is_complete());
    crowd.arrived = 3;
    crowd.freeze();
    assert_eq!(crowd.arrived, 0);
    crowd.arrived = 2;
    crowd.end(Duration::from_micros(400));
    assert_eq!(crowd.patience, Duration::from_micros(200));
    for (arrived, complete) in [(4, false), (5, true), (6, true)] {
        crowd.arrived = arrived;
        assert_eq!(crowd.is_complete(), complete, "{arrived} of 5");
    }
    crowd.end(Duration::from_secs(1));
    assert_eq!(crowd.patience, Duration::from_millis(1));
}

/// Handles fit up to the last block; one that finds the transaction empty may have any size.
#[test]
fn the_room_of_a_transaction() {
    let mut state = State::new(Tid::new(1));
    assert!(state.has_room(1000, 10));
    state.credits = 6;
    assert!(state.has_room(4, 10) && !state.has_room(5, 10));
    for block in 0..2 {
        state.running.blocks.insert(FsBlock::new(block), false);
    }
    state.running.revoked.insert(FsBlock::new(9));
    assert_eq!(state.used(), 3);
    assert!(state.has_room(1, 10) && !state.has_room(2, 10));
    state.credits = 0;
    assert!(state.has_room(7, 10) && !state.has_room(8, 10));
}

/// Numbers go up by one and wrap; a transaction with nothing but freed or revoked blocks is one.
#[test]
fn the_numbers_of_transactions() {
    let mut state = State::new(Tid::new(u32::MAX));
    assert_eq!(state.committed, Tid::new(u32::MAX - 1));
    assert!(state.running.is_empty());
    state.running.freed.push((FsBlock::new(1), 1));
    assert!(!state.running.is_empty());
    let taken = state.take();
    assert_eq!(taken.tid, Tid::new(u32::MAX));
    assert_eq!(state.running.tid, Tid::new(0));
    state.running.revoked.insert(FsBlock::new(1));
    assert!(!state.running.is_empty());
    state.take();
    state.running.blocks.insert(FsBlock::new(1), true);
    assert!(!state.running.is_empty());
    assert_eq!(State::new(Tid::new(0)).committed, Tid::new(u32::MAX));
}

/// The log's blocks are found in the runs in which its file lies.
#[test]
fn the_places_of_a_log() {
    let run = |first, at, len| (first, FsBlock::new(at), len);
    let places = Places {
        runs: vec![run(0, 100, 4), run(4, 50, 2), run(6, 200, 10)],
    };
    for (block, at) in [(0, 100), (3, 103), (4, 50), (5, 51), (6, 200), (15, 209)] {
        assert_eq!(places.of(block), FsBlock::new(at), "block {block}");
    }
}

/// Handles are counted while they are open, with the blocks that they may still add; what goes beyond that is counted apart.
#[test]
fn what_handles_take_they_give_back() {
    let volume = small_volume("16M", &[]);
    let volume: &Fs = volume.inner();
    let journal = volume.journal().unwrap();
    let open = || {
        let state = journal.state.lock();
        (state.open, state.credits, state.running.blocks.len())
    };
    let before = journal.stats();
    let (block, next) = (FsBlock::new(8000), FsBlock::new(8001));
    let first = journal.begin(volume, 1).unwrap();
    assert_eq!(open(), (1, 1, 0));
    let second = journal.begin_at_once(volume, 5).unwrap();
    assert_eq!(open(), (2, 6, 0));
    first.create(block, Kind::Map, |_| ());
    first.create(block, Kind::Map, |_| ());
    assert_eq!(
        (open(), first.credits_left()),
        ((2, 5, 1), 0),
        "one block, once"
    );
    first.create(next, Kind::Map, |_| ());
    assert_eq!(
        (open(), first.credits_left()),
        ((2, 5, 2), 0),
        "beyond its credits"
    );
    assert_eq!(journal.stats().uncredited, before.uncredited + 1);
    assert_eq!(journal.stats().handles, before.handles + 2);
    first.forget(next);
    assert_eq!(open(), (2, 5, 1));
    assert!(journal.state.lock().running.revoked.contains(&next));
    assert_eq!(
        (first.tid(), journal.newest_uncommitted()),
        (second.tid(), Some(first.tid()))
    );
    drop(first);
    assert_eq!(open(), (1, 5, 1));
    let last = journal.last_handle(volume, second.tid());
    assert_eq!(open(), (2, 5 + COMMIT_CREDITS, 1));
    drop((last, second));
    assert_eq!(open(), (0, 0, 1));
    // Nothing of this is to reach the device.
    journal.state.lock().aborted = Some(Error::ShutDown);
    assert!(journal.begin_at_once(volume, 1).is_none());
}

/// A handle that would have to wait is not begun: for room, for a commit, for the superblock that is to say that the volume is in use.
#[test]
fn a_handle_at_once_waits_for_nothing() {
    let volume = small_volume("16M", &[]);
    let volume: &Fs = volume.inner();
    let journal = volume.journal().unwrap();
    assert!(
        journal.begin_at_once(volume, 1).is_none(),
        "it is marked clean"
    );
    drop(journal.begin(volume, 1).unwrap());
    assert!(journal.begin_at_once(volume, 1).is_some());
    journal.state.lock().closing = true;
    assert!(
        journal.begin_at_once(volume, 1).is_none(),
        "a commit begins"
    );
    journal.state.lock().closing = false;
    let all = journal.begin(volume, journal.most).unwrap();
    assert!(journal.begin_at_once(volume, 1).is_none(), "it is full");
    drop(all);
    assert!(journal.begin_at_once(volume, 1).is_some());
}

/// A commit waits for the handles that are open, and holds what they change to their end; the last one wakes it.
#[test]
fn a_commit_waits_for_open_handles() {
    let volume = small_volume("16M", &[]);
    let inner: &Fs = volume.inner();
    let journal = inner.journal().unwrap();
    thread::scope(|scope| {
        let (handle, other) = (journal.begin(inner, 1).unwrap(), journal.begin(inner, 1));
        handle.edit_super(|edit| edit.set_mount_time(1)).unwrap();
        let commits = scope.spawn(|| journal.commit_running(inner));
        while !journal.state.lock().closing && !commits.is_finished() {
            thread::yield_now();
        }
        drop(other);
        for _ in 0..50 {
            thread::sleep(Duration::from_millis(1));
            assert!(!commits.is_finished(), "in the middle of a handle");
        }
        handle.edit_super(|edit| edit.set_mount_count(7)).unwrap();
        let tid = handle.tid();
        drop(handle);
        commits.join().unwrap().unwrap();
        assert!(journal.is_committed(tid));
    });
    assert_eq!(journal.newest_uncommitted(), None, "all of it is there");
}

/// Damage is met on a volume that nobody changes, and the superblock says to go on. What is committed is the record of that, which
/// recovery finds only where the superblock asks for it.
#[test]
fn a_failure_alone_marks_the_volume_as_in_use() {
    let volume = small_volume("16M", &["-e", "continue"]);
    let inner: &Fs = volume.inner();
    let journal = inner.journal().unwrap();
    let needs_recovery = || {
        let raw = inner.blocking.read(1024, Buf::zeroed(1024)).unwrap();
        let raw = raw.as_slice().try_into().unwrap();
        Superblock::parse(raw).unwrap().needs_recovery()
    };
    journal.commit_running(inner).unwrap();
    assert!(!journal.is_marked() && !needs_recovery(), "nothing is owed");
    let damage: Result<(), _> = Err(Error::Damaged("by a test".to_owned()));
    assert!(inner.watched(damage).is_err() && inner.owes_record());
    journal.commit_running(inner).unwrap();
    assert!(!inner.owes_record() && journal.stats().commits == 1);
    assert!(journal.is_marked() && needs_recovery());
}

/// The same where the failure falls due behind the moment at which a commit has looked whether one is owed: it is left to the next commit,
/// since the superblock does not ask for recovery yet.
#[test]
fn a_failure_during_a_commit_waits_for_the_mark() {
    let volume = small_volume("16M", &["-e", "continue"]);
    let inner: &Fs = volume.inner();
    let journal = inner.journal().unwrap();
    let mut medium = journal.medium.lock();
    assert!(!inner.owes_record(), "this commit does not mark the volume");
    journal.begin_to_close().unwrap();
    let damage: Result<(), _> = Err(Error::Damaged("by a test".to_owned()));
    assert!(inner.watched(damage).is_err());
    assert!(journal.close(inner).unwrap().is_none(), "nothing to write");
    assert!(inner.owes_record() && !journal.is_marked());
    journal.commit(inner, &mut medium).unwrap();
    assert!(!inner.owes_record() && journal.is_marked());
}

/// A journal that is aborted in the middle of an atomic change ends it: nobody waits for its end any more, and times that were noted are
/// let go of. The defect: they held the volume, and its device, for ever.
#[test]
fn an_abort_ends_the_group() {
    let volume = small_volume("16M", &[]);
    let gone = Arc::downgrade(volume.inner());
    let atomic = volume.atomic().unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_buf(0, Buf::zeroed(1024)).1.unwrap();
    file.write_buf(0, Buf::zeroed(1024)).1.unwrap();
    file.truncate(100).unwrap();
    let journal = volume.inner().journal().unwrap();
    journal.abort(volume.inner(), &Error::Damaged("by a test".to_owned()));
    assert!(!journal.has_atomic());
    // What the atomic change has cut off was committed before, and is nobody's to zero.
    assert!(journal.check_tail(file.ino(), 0).is_err());
    drop((atomic, file, volume));
    // The keeper may have it for a moment.
    for _ in 0..10_000 {
        if gone.strong_count() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{} still have the volume", gone.strong_count());
}
