//! A host that gives no memory for pages.
//!
//! The test runs itself in a process of its own, since the limit applies to a whole process. In it, small pieces of memory are free, and
//! no large one: allocations for pages fail, and those that cannot fail are small.

use crate::common::fixture::{filled, writable};
use crate::common::limit::address_space;
use crate::common::names::empty;
use crate::common::stage::Stage;
use crate::common::watch::within;
use crate::common::{fsck, scratch};
use diorite::{Error, File, OpenFlags, OpenOptions, PageCache};
use std::process::Command;

const CHILD: &str = "DIORITE_WITHOUT_MEMORY";

/// Bytes of one call, and how many calls.
const PIECE: usize = 1 << 20;
const PIECES: u8 = 24;

/// Free memory in pieces of this size, so many of them.
const FREE: usize = 48 << 10;
const FREE_COUNT: usize = 400;

/// Bytes that the process may still map.
const LEFT: [u64; 4] = [0, 300 << 10, 3 << 20, 10 << 20];

#[test]
fn a_host_without_memory_fails_what_needs_it() {
    if let Ok(left) = std::env::var(CHILD) {
        let left = left.parse().unwrap();
        return within("a host without memory", || without_memory(left));
    }
    let name = "cached::memory::a_host_without_memory_fails_what_needs_it";
    for left in LEFT {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(CHILD, left.to_string())
            // One heap, which the limit covers.
            .env("MALLOC_ARENA_MAX", "1")
            .status()
            .unwrap();
        assert!(child.success(), "{left} bytes left: {child}");
    }
}

/// Leaves free memory in the heap, but no large piece of it.
fn fragments() -> Vec<Vec<u8>> {
    let all = (0..2 * FREE_COUNT).map(|_| vec![1; FREE]);
    let all: Vec<_> = all.collect();
    let kept = all.into_iter().step_by(2);
    kept.collect()
}

/// Did the call succeed, and not fail for lack of memory?
fn had_memory(done: &Result<usize, Error>) -> bool {
    match done {
        Ok(count) => {
            assert_eq!(*count, PIECE);
            true
        }
        Err(Error::NoMemory { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn is_all(bytes: &[u8], value: u8) -> bool {
    bytes.iter().all(|b| *b == value)
}

/// Reads each piece of a file. Returns how many there was no memory for.
fn read_all(file: &File, out: &mut [u8], value: impl Fn(u8) -> u8) -> u32 {
    let mut refused = 0;
    for n in 0..PIECES {
        let done = file.read_bytes(u64::from(n) * PIECE as u64, out);
        match had_memory(&done) {
            true => assert!(is_all(out, value(n)), "piece {n}"),
            false => refused += 1,
        }
    }
    refused
}

fn without_memory(left: u64) {
    let dir = scratch();
    let stage = Stage::mem(&empty(dir.path(), "128M", &["-t", "ext4", "-b", "4096"]));
    let options = || OpenOptions::writable().page_cache(PageCache::new(1 << 30));
    let volume = stage.open(&options()).unwrap();
    let old = volume.create("/old", 0o644).unwrap();
    for n in 0..PIECES {
        old.append_bytes(&[n; PIECE]).unwrap();
    }
    drop(old);
    volume.close().unwrap();
    let volume = stage.open(&options()).unwrap();
    let old = volume.open_path("/old", writable()).unwrap();
    let new = volume.create("/new", 0o644).unwrap();
    // Threads start, and queues come, before the limit.
    let warm = volume.create("/warm", 0o644).unwrap();
    warm.write_bytes(0, b"small").unwrap();
    warm.sync().unwrap();
    drop(warm);
    let (data, mut out) = (vec![0x5a; PIECE], vec![0; PIECE]);
    let direct = filled(0x6b, 4096);
    let mut written = Vec::with_capacity(PIECES.into());
    let kept = fragments();
    address_space(Some(left));
    for n in 0..PIECES {
        let done = new.write_bytes(u64::from(n) * PIECE as u64, &data);
        written.push(had_memory(&done));
    }
    let refused = read_all(&old, &mut out, |n| n);
    let small = new.write_bytes(u64::from(PIECES) * PIECE as u64, b"end");
    let synced = new.sync();
    let wrote = old.write_buf(0, direct).1;
    let again = volume.sync();
    address_space(None);
    drop(kept);
    eprintln!("{left} bytes left: {written:?}; {refused} reads refused; {small:?}");
    assert!(written.contains(&false), "{written:?}");
    synced.unwrap();
    again.unwrap();
    assert_eq!(wrote.unwrap(), 4096);
    let value = |n: u8| if written[usize::from(n)] { 0x5a } else { 0 };
    new.write_bytes(u64::from(PIECES) * PIECE as u64, b"end")
        .unwrap();
    assert_eq!(read_all(&new, &mut out, value), 0);
    drop((old, new));
    volume.close().unwrap();
    stage.save();
    fsck(&stage.image);
    let volume = stage.open(&options()).unwrap();
    let open = |path: &str| volume.open_path(path, OpenFlags::default()).unwrap();
    assert_eq!(read_all(&open("/new"), &mut out, value), 0);
    let old = open("/old");
    let mut start = [0; 4097];
    old.read_bytes(0, &mut start).unwrap();
    assert!(is_all(&start[..4096], 0x6b) && start[4096] == 0);
    drop(old);
}
