//! Direct I/O and a mapping of one file at the same time, by two processes.
//!
//! Input: a volume whose free space holds one byte, which nobody writes to the file. Output: nothing, or the place where a reader saw what
//! nobody had written there. Invariant: what the two write is one byte each, so whatever order they come in, a reader sees one of them or
//! zero. Limits: which of them wins is not said by anybody; a process that maps what is being cut off gets SIGBUS, and starts again.

use crate::bed::{Bed, has, within};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the free space holds.
const POISON: u8 = 0xEE;
const DIRECT: u8 = 0x11;
const MAPPED: u8 = 0x22;
const SIZE: u64 = 1 << 20;

/// Reads and writes a mapping, so many times; ends with 3 at a byte that nobody writes.
const SCRIPT: &str = r"
import mmap, os, random, sys
path, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
known = bytes([0, 0x11, 0x22])
fd = os.open(path, os.O_RDWR)
while rounds > 0:
    size = os.fstat(fd).st_size
    if size < 4096:
        continue
    try:
        m = mmap.mmap(fd, size)
    except ValueError:
        # It has become shorter meanwhile.
        continue
    with m:
        for _ in range(min(rounds, 50)):
            rounds -= 1
            at = random.randrange(size)
            n = random.randrange(1, 30000)
            if random.random() < 0.5:
                part = m[at:at + n]
                m[at:at + len(part)] = b'\x22' * len(part)
            seen = m[at:at + n].translate(None, known)
            if seen:
                print('in the mapping near', at, seen[:16].hex())
                sys.exit(3)
            if random.random() < 0.05:
                m.flush()
";

/// Fills the free space with the poison.
fn poison(bed: &Bed) {
    bed.mount(&[]);
    let file = File::create(bed.path("poison")).unwrap();
    let mut at = 0;
    while let Ok(count) = file.write_at(&[POISON; 1 << 20], at) {
        at += count as u64;
    }
    file.sync_all().unwrap();
    drop(file);
    assert!(at > 40 << 20, "{at}");
    fs::remove_file(bed.path("poison")).unwrap();
    bed.unmount();
}

fn is_known(bytes: &[u8]) -> Result<(), usize> {
    let foreign = |byte: &u8| ![0, DIRECT, MAPPED].contains(byte);
    bytes.iter().position(foreign).map_or(Ok(()), Err)
}

/// Reads, writes, punches and perhaps cuts the file, past the cache, until it is told to end.
fn direct(bed: &Bed, mut seed: u64, cuts: bool, end: &AtomicBool) {
    let mut how = File::options();
    how.read(true).write(true).custom_flags(libc::O_DIRECT);
    let file = how.open(bed.path("file")).unwrap();
    let mut below = |n: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    while !end.load(Relaxed) {
        let unit = [512, 4096][below(2) as usize];
        let at = below(SIZE / unit) * unit;
        let len = ((1 + below(32)) * unit).min(SIZE - at);
        match below(8) {
            0..4 => {
                let data = vec![DIRECT; len as usize];
                file.write_all_at(&data, at).unwrap();
            }
            4 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, punch, at, len).unwrap();
            }
            5 if cuts => {
                file.set_len(at).unwrap();
                file.set_len(SIZE).unwrap();
            }
            _ => {
                let mut seen = vec![0; len as usize];
                let count = file.read_at(&mut seen, at).unwrap();
                let known = is_known(&seen[..count]);
                assert!(known.is_ok(), "read directly: {:?} behind {at}", known);
            }
        }
    }
}

/// Tells the others to end.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn run(options: &str, block: &str, cuts: bool) {
    if !has("python3") {
        return;
    }
    let Some(bed) = Bed::new(&["-b", block, "-m", "0"]) else {
        return;
    };
    poison(&bed);
    bed.mount(&["-o", options]);
    let path = bed.path("file");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if this thread panics, as the others would go on.
        let ends = End(&end);
        for seed in [1, 2] {
            let (bed, end) = (&bed, &end);
            scope.spawn(move || direct(bed, seed, cuts, end));
        }
        let place = path.to_str().unwrap();
        for seed in ["1", "2", "3", "4"] {
            let done = within("python3", &["-c", SCRIPT, place, seed, "500"]);
            let (out, err) = crate::bed::texts(&done);
            let by_signal = (
                done.status.signal(),
                done.status.code().map(|code| code - 128),
            );
            let is_cut = by_signal.0.or(by_signal.1) == Some(libc::SIGBUS);
            assert!(
                done.status.success() || cuts && is_cut,
                "{}: {out}{err}",
                done.status
            );
        }
        drop(ends);
    });
    let known = is_known(&fs::read(&path).unwrap());
    assert!(known.is_ok(), "{options}: {known:?}");
    bed.unmount();
    bed.check();
    bed.mount(&[]);
    let known = is_known(&fs::read(&path).unwrap());
    assert!(known.is_ok(), "{options}, after a mount: {known:?}");
    bed.end();
}

#[test]
fn direct_and_mapped() {
    run("rw", "1024", false);
}

#[test]
fn direct_and_mapped_while_it_is_cut() {
    run("rw", "4096", true);
}

#[test]
fn direct_and_mapped_with_write_back() {
    run("writeback_cache", "1024", true);
}

#[test]
fn direct_and_mapped_of_a_direct_mount() {
    run("direct_io", "4096", false);
}
