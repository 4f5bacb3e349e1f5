//! What the journal writes, looked at write by write on a recording device.

use crate::common::fixture::{LIMIT, filled, writable};
use crate::common::log::Log;
use crate::common::recipe::{RECIPES, bare};
use crate::common::stage::{Stage, mem_of};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{fsck, image, scratch};
use diorite::{Op, OpenFlags, OpenOptions, RequestFlags, Volume};
use diorite_block::record::{Data, Event};
use diorite_block::{Buf, MemDevice, RecordDevice, SimOptions};
use diorite_format::journal::write::{LogPosition, set_position};
use diorite_format::{Superblock, Tid};
use std::sync::Arc;
use std::time::Duration;

const BLOCK: usize = 1024;
/// A commit block begins with the log's magic number and its kind, big-endian.
const COMMIT: [u8; 8] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2];

/// Transaction numbers wrap, and 0 follows 2^32 - 1: a change in transaction 0 is not durable before its commit, as any other.
#[test]
fn what_transaction_0_changed_is_committed_by_a_sync() {
    let _watchdog = Watchdog::new(LIMIT, "transaction 0");
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = Log::of(dir.path(), &bytes).byte_of(0);
    let position = LogPosition {
        start: 0,
        sequence: Tid::new(u32::MAX - 1),
    };
    set_position(&mut bytes[at..at + 1024], position);
    std::fs::write(&path, &bytes).unwrap();
    let stage = Stage::mem(&path);
    let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    for n in 1..6 {
        file.append_buf(filled(1, 4096)).1.unwrap();
        file.sync_data().unwrap();
        let cut = Arc::new(mem_of(&stage.bytes()));
        let volume = Volume::open_device(cut, &OpenOptions::default()).unwrap();
        let file = volume.open_path("/empty", OpenFlags::default()).unwrap();
        assert_eq!(file.size(), n * 4096);
    }
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// The defect: a commit block that a power cut tore between its sectors, over a block of an earlier lap, had the head of the new
/// block and the tail of the old one. Its checksum was wrong, and e2fsck, the kernel and diorite all took the log for damaged.
#[test]
fn a_commit_block_goes_where_nothing_but_zeros_is() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), b"").unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let path = image(dir.path(), "16M", &args, &tree);
    let before = std::fs::read(&path).unwrap();
    let mem = Arc::new(MemDevice::try_new(before.len() as u64).unwrap());
    mem.write_at(0, &before);
    let device = RecordDevice::with_volatile_cache(mem.clone());
    append_and_commit(&device, 300);
    let mut bytes = before;
    let mut commits = 0;
    for event in device.log() {
        let Event::Write { pos, data, .. } = event else {
            continue;
        };
        let at = usize::try_from(pos).unwrap();
        match data {
            Data::Bytes(data) => {
                if data.len() == BLOCK && data.starts_with(&COMMIT) {
                    let tail = &bytes[at + 512..at + BLOCK];
                    assert!(tail.iter().all(|b| *b == 0), "commit {commits} at {at}");
                    assert!(data[512..].iter().all(|b| *b == 0));
                    commits += 1;
                }
                bytes[at..at + data.len()].copy_from_slice(&data);
            }
            Data::Zeros(len) => bytes[at..at + len].fill(0),
        }
    }
    // More than one lap of the log of 1,024 blocks.
    assert!(commits >= 300, "{commits}");
    std::fs::write(&path, &bytes).unwrap();
    fsck(&path);
}

fn append_and_commit(device: &RecordDevice, times: usize) {
    let volume = Volume::open_device(Arc::new(device.clone()), &OpenOptions::writable()).unwrap();
    let write = OpenFlags::writable();
    let file = volume.open_path("/file", write).unwrap();
    let dsync = RequestFlags::default().dsync(true);
    for _ in 0..times {
        let (_, result) = file.call(Op::Append, 0, Buf::zeroed(BLOCK), dsync);
        result.unwrap();
    }
    drop(file);
    volume.close().unwrap();
}

/// An fsync also covers changes that were made through an earlier handle of the file, which was dropped. The defect: the newly
/// loaded inode knew of no change, so nothing was committed.
#[test]
fn an_fsync_covers_what_was_done_before_the_file_was_opened() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for name in ["file", "other"] {
        std::fs::write(tree.join(name), [1; BLOCK]).unwrap();
    }
    let path = image(dir.path(), "16M", &["-t", "ext4", "-b", "1024"], &tree);
    let bytes = std::fs::read(&path).unwrap();
    let mem = Arc::new(MemDevice::try_new(bytes.len() as u64).unwrap());
    mem.write_at(0, &bytes);
    let options = OpenOptions::writable().commit_interval(std::time::Duration::from_secs(3600));
    let volume = Volume::open_device(mem, &options).unwrap();
    let write = OpenFlags::writable();
    let commits = || volume.journal_stats().commits;
    let before = commits();
    volume.create("/new", 0o644).unwrap().sync().unwrap();
    assert_eq!(commits(), before + 1, "a file that was made");
    let file = volume.open_path("/file", write).unwrap();
    file.truncate(1 << 20).unwrap();
    drop(file);
    let other = volume.open_path("/other", OpenFlags::default()).unwrap();
    other.read_buf(0, Buf::zeroed(512)).1.unwrap();
    let file = volume.open_path("/file", write).unwrap();
    file.sync().unwrap();
    assert_eq!(commits(), before + 2, "a file that was changed");
    file.sync().unwrap();
    assert_eq!(commits(), before + 2, "nothing more to commit");
    drop((file, other));
    volume.close().unwrap();
}

/// The last handle of a volume is dropped while another thread changes a file of it. The defect: in the middle of that the
/// superblock was marked as clean, with fields that no commit had.
#[test]
fn a_volume_that_is_being_changed_is_not_marked_clean() {
    let _watchdog = Watchdog::new(LIMIT, "marked clean");
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let disk = SimOptions::parse("0,cache=volatile,fua=yes").unwrap();
    let stage = Stage::sim(&path, disk);
    let valve = Valve::new(stage.device.clone());
    let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/sparse", writable()).unwrap();
    file.write_buf(0, filled(1, 4096)).1.unwrap();
    volume.sync().unwrap();
    let needs_recovery = || {
        let bytes = stage.bytes()[1024..2048].try_into().unwrap();
        Superblock::parse(&bytes).unwrap().needs_recovery()
    };
    assert!(needs_recovery());
    // Everything is committed, so the next write with FUA is that of the log's superblock, after the checkpoint.
    valve.hold_fua(true);
    let last = std::thread::spawn(move || drop(volume));
    while valve.holding() == 0 {
        std::thread::yield_now();
    }
    file.truncate(4096).unwrap();
    valve.hold_fua(false);
    last.join().unwrap();
    assert!(
        needs_recovery(),
        "clean, with a change that is not committed"
    );
    drop((file, valve));
    assert!(!needs_recovery());
    stage.fsck();
}
