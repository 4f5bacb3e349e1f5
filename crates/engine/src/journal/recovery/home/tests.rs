//! The order in which a recovery writes and flushes, on two devices that report caches.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use super::*;
use crate::testing::{Notes, NotingDevice};
use diorite_block::MemDevice;
use diorite_format::journal::write::{NewJournal, init_super};

const SIZE: u32 = 4096;
/// Blocks of the journal's device, and the one with its superblock.
const LOG_BLOCKS: u32 = 64;
const SUPER_AT: u32 = 1;

/// The block with the superblock of a volume of so many KiB.
fn superblock_of(kib: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let args = ["-q", "-F", "-t", "ext4", "-b", "4096", path, kib];
    xtask::run::run("mke2fs", &args).unwrap();
    std::fs::read(image).unwrap()[..SIZE as usize].to_vec()
}

/// Brings a log home that has these blocks, of which `fast` come from fast commits; at home is the superblock `home`. Returns what the
/// devices got.
fn order(home: &[u8], blocks: &[(u64, &[u8])], fast: &[(u64, &[u8])]) -> Vec<String> {
    let notes = Notes::default();
    let device = |name, bytes: u64| NotingDevice::new(name, MemDevice::new(bytes), SIZE, &notes);
    let (volume, journal) = (
        device("home", 1 << 20),
        device("log", u64::from(LOG_BLOCKS * SIZE)),
    );
    volume.below.write_at(0, home);
    let mut raw = vec![0; SIZE as usize];
    let new = NewJournal {
        block_size: SIZE,
        maxlen: LOG_BLOCKS,
        first: SUPER_AT + 1,
        fc_blocks: 0,
        users: 1,
        uuid: [7; 16],
    };
    init_super(&new, &mut raw);
    let at = u64::from(SUPER_AT * SIZE);
    journal.below.write_at(at, &raw);
    let parsed = JournalSuper::parse(&raw, SIZE, u64::from(LOG_BLOCKS)).unwrap();
    let all = |of: &[(u64, &[u8])]| -> Blocks {
        let blocks = of
            .iter()
            .map(|(at, bytes)| (FsBlock::new(*at), (*bytes).into()));
        blocks.collect()
    };
    let (blocks, fast) = (all(blocks), all(fast));
    let end = LogEnd {
        at: 10,
        tid: Tid::new(5),
    };
    let after = After {
        journal: &parsed,
        log: &mut LogSource::on_device(journal, SIZE, SUPER_AT),
        next: Tid::new(6),
        fast: (!fast.is_empty()).then_some((&fast, end, Duration::ZERO)),
    };
    bring_home(&Blocking::new(volume), SIZE, &blocks, Some(after)).unwrap();
    notes.take()
}

/// The end of each recovery: an empty log, and a volume that needs none.
const END: [&str; 4] = ["log: write 1", "log: flush", "home: write 0", "home: flush"];

/// The log is durable before anything goes home, also on a device of its own, and what is at home before the log is emptied.
#[test]
fn a_log_is_flushed_before_blocks_go_home() {
    let (sb, data) = (superblock_of("1024"), [1; SIZE as usize]);
    let got = order(&sb, &[(5, &data), (6, &data), (9, &data)], &[]);
    let first = [
        "log: flush",
        "home: flush",
        "home: write 5",
        "home: write 9",
        "home: flush",
    ];
    assert_eq!(got, [&first[..], &END].concat());
}

/// A larger superblock counts descriptors that are home before it. A smaller one leaves out descriptors that are overwritten behind it.
#[test]
fn a_superblock_goes_home_last_or_first() {
    let (small, large, data) = (
        superblock_of("1024"),
        superblock_of("2048"),
        [1; SIZE as usize],
    );
    let grown = [
        "log: flush",
        "home: flush",
        "home: write 5",
        "home: flush",
        "home: write 0",
        "home: flush",
    ];
    let got = order(&small, &[(0, &large), (5, &data)], &[]);
    assert_eq!(got, [&grown[..], &END].concat());
    let shrunk = [
        "log: flush",
        "home: flush",
        "home: write 0",
        "home: flush",
        "home: write 5",
        "home: flush",
    ];
    let got = order(&large, &[(0, &small), (5, &data)], &[]);
    assert_eq!(got, [&shrunk[..], &END].concat());
}

/// What fast commits have changed is a transaction, whose commit block is written when the rest of it is durable, before it goes home.
#[test]
fn what_fast_commits_changed_is_committed_first() {
    let (sb, data) = (superblock_of("1024"), [1; SIZE as usize]);
    let got = order(&sb, &[(5, &data)], &[(7, &data)]);
    let first = [
        "log: flush",
        "home: flush",
        "home: write 5",
        "home: flush",
        "log: write 1",
        "log: flush",
        "log: write 10",
        "log: write 11",
        "log: write 12",
        "log: flush",
        "log: write 12",
        "log: flush",
        "home: write 7",
        "home: flush",
    ];
    assert_eq!(got, [&first[..], &END].concat());
}
