//! The log's free blocks, transaction numbers after reopening, and the error number of an aborted journal.
//!
//! Input: a small volume, and transactions that consist of revokes only, which can have any number of blocks. Output: none. Invariants:
//! none of its own. Limits: `tests/recovery` tests the recovery of a log.

use super::super::transaction::State;
use super::super::{Journal, Medium};
use super::*;
use crate::mkfs::{MkfsOptions, NewJournal, mkfs, mkfs_journal_device, set_journal_user};
use crate::options::JournalDevice;
use crate::testing::{Notes, NotingDevice, small_volume};
use crate::{OpenOptions, Volume};
use diorite_block::{Device, MemDevice};
use diorite_format::features::{Features, Incompat};
use std::sync::Arc;
use std::time::Duration;

/// Blocks of the smallest log but its superblock.
const CAPACITY: u32 = 1023;

fn volume() -> Volume {
    small_volume("16M", &["-J", "size=1"])
}

fn journal(volume: &Volume) -> &Journal {
    volume.inner().journal().unwrap()
}

fn with_log<T>(volume: &Volume, look: impl FnOnce(&mut Log) -> T) -> T {
    match &mut *journal(volume).medium.lock() {
        Medium::Log(log) => look(log),
        Medium::Rounds(_) => panic!("it has a log"),
    }
}

/// Commits a transaction that takes so many blocks of the log, past the journal.
fn commit(volume: &Volume, blocks: u32) -> Result<(), Error> {
    with_log(volume, |log| {
        let mut state = State::new(log.next);
        let revoked = u64::from(blocks - 1) * write::revokes_per_block(&log.journal) as u64;
        state.running.revoked = (0..revoked).map(FsBlock::new).collect();
        let frozen = Frozen {
            transaction: state.take(),
            blocks: Vec::new(),
        };
        log.commit(volume.inner(), &frozen)
    })
}

/// Blocks that hold what is not home, and how often it was emptied, as is told.
fn fill(volume: &Volume) -> (u32, u64) {
    let told = journal(volume).stats().checkpoints;
    (with_log(volume, |log| log.used), told)
}

#[test]
fn a_transaction_may_fill_the_log_and_no_more() {
    let volume = volume();
    assert_eq!(with_log(&volume, |log| log.capacity()), CAPACITY);
    let refused = commit(&volume, CAPACITY + 1);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(fill(&volume), (0, 0), "nothing was written");
    commit(&volume, CAPACITY).unwrap();
    assert_eq!(fill(&volume), (0, 1));
}

/// A transaction never goes over one that is not home: what was there before is brought home first if there is no room, and behind it
/// where more than a half is taken.
#[test]
fn the_log_is_emptied_before_it_overruns_itself() {
    let volume = volume();
    let half = CAPACITY / 2;
    commit(&volume, half).unwrap();
    assert_eq!(fill(&volume), (half, 0), "no more than a half");
    commit(&volume, CAPACITY - half).unwrap();
    assert_eq!(fill(&volume), (0, 1), "just what was left");
    commit(&volume, half + 1).unwrap();
    assert_eq!(fill(&volume), (0, 2), "more than a half");
    commit(&volume, half).unwrap();
    assert_eq!(fill(&volume), (half, 2));
    commit(&volume, CAPACITY - half + 1).unwrap();
    assert_eq!(fill(&volume), (0, 4), "before it, and behind it");
    // Nothing is there to be brought home.
    with_log(&volume, |log| log.checkpoint(volume.inner())).unwrap();
    assert_eq!(fill(&volume), (0, 4));
}

/// The next session's transactions have the numbers that follow. If they began anew, recovery would go on from the last of them into
/// those of an earlier session that are still in the log.
#[test]
fn numbers_go_on_in_the_next_session() {
    let volume = volume();
    for n in 0..3 {
        volume.create(&format!("/{n}"), 0o644).unwrap();
        volume.sync().unwrap();
    }
    let (device, used) = (
        volume.inner().device.clone(),
        with_log(&volume, |log| log.next),
    );
    volume.close().unwrap();
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    let next = with_log(&volume, |log| log.next);
    assert!(next == used || next.is_after(used));
    assert_eq!(journal(&volume).state.lock().running.tid, next);
}

/// Recovery reads the log's superblock before anything else: it says by what error the journal was aborted.
#[test]
fn an_abort_is_written_into_the_log() {
    let volume = volume();
    let (inner, journal) = (volume.inner(), journal(&volume));
    let errno = || {
        let Medium::Log(log) = &*journal.medium.lock() else {
            panic!("it has a log");
        };
        let pos = log.places.of(log.super_at).get() * u64::from(log.journal.block_size);
        let raw = inner.blocking.read(pos, Buf::zeroed(1024)).unwrap();
        let parsed = JournalSuper::parse(raw.as_slice(), 1024, u64::from(CAPACITY) + 1);
        parsed.unwrap().errno
    };
    assert_eq!(errno(), 0);
    journal.abort(inner, &Error::Damaged("by a test".to_owned()));
    // Or the keeper has done it already.
    journal.write_failure_down(inner);
    assert_eq!(errno(), -117);
}

/// A transaction makes data visible that is in the cache of the volume's device. Where the log is on another one, the flush of the log
/// says nothing of that, so the volume's device is flushed before anything of the transaction is written; and the log's is flushed before
/// the commit block.
#[test]
fn a_log_on_another_device_follows_the_volumes_data() {
    let notes = Notes::default();
    let device = |name, bytes| NotingDevice::new(name, MemDevice::new(bytes), 1024, &notes);
    let home: Arc<dyn Device> = device("home", 16 << 20);
    let log: Arc<dyn Device> = device("log", 2 << 20);
    let (uuid, journal_uuid) = ([3; 16], [5; 16]);
    let mut options = MkfsOptions::new(journal_uuid, [4; 16], 1_700_000_000);
    options.block_size = Some(1024);
    options.features = Features {
        incompat: Features::default().incompat.with(Incompat::JOURNAL_DEV),
        ..Features::default()
    };
    mkfs_journal_device(&log, &options).unwrap();
    options.uuid = uuid;
    options.features = MkfsOptions::ext4();
    options.journal = NewJournal::External {
        uuid: journal_uuid,
        block_size: 1024,
        device: 0,
    };
    mkfs(&home, &options).unwrap();
    set_journal_user(&log, &uuid).unwrap();
    let options = OpenOptions {
        journal_device: Some(JournalDevice(log)),
        commit_interval: Duration::from_secs(3600),
        ..OpenOptions::writable()
    };
    let volume = Volume::open_device(home, &options).unwrap();
    let order = |name: &str| {
        volume.create(name, 0o644).unwrap();
        notes.take();
        volume.sync().unwrap();
        notes.take()
    };
    // Where recovery would begin is written first.
    let first = [
        "log: write 2",
        "log: flush",
        "home: flush",
        "log: write 3",
        "log: flush",
        "log: write 10",
        "log: flush",
    ];
    assert_eq!(order("/first"), first);
    let second = [
        "home: flush",
        "log: write 11",
        "log: flush",
        "log: write 18",
        "log: flush",
    ];
    assert_eq!(order("/second"), second);
}
