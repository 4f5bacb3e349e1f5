//! Atomic writes beside requests that the device holds: what each of them may see, step by step.
//!
//! Input: a volume on a device that holds what a test names. Output: none. Invariants: none of its own. Limits: one request is held at a
//! time.

use super::full::fill;
use super::{FOUR_K, atomic, made, opened, read_direct, same};
use crate::common::fixture::{LIMIT, filled, run_all, writable};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use diorite::{File, MappingState, OpenFlags, OpenOptions, Request, Volume};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LEN: u64 = 16384;

struct Bed {
    stage: Stage,
    valve: Valve,
    volume: Volume,
    file: File,
    _dir: tempfile::TempDir,
    _watchdog: Watchdog,
}

fn bed(what: &str) -> Bed {
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), &FOUR_K, "16M"));
    let (volume, file) = opened(&stage);
    // So that all of it lies in one run.
    assert_eq!(atomic(&file, 0, 1, LEN).unwrap() as u64, LEN);
    drop(file);
    volume.close().unwrap();
    let valve = Valve::new(stage.device.clone());
    let options = OpenOptions::writable().keep_for_maps(false);
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    Bed {
        stage,
        valve,
        volume,
        file,
        _dir: dir,
        _watchdog: Watchdog::new(LIMIT, what),
    }
}

impl Bed {
    /// Where a range of the file is on the device.
    fn place(&self, bytes: Range<u64>) -> Range<u64> {
        let mappings = self
            .file
            .mappings(bytes.start, bytes.end - bytes.start)
            .unwrap();
        let MappingState::Written(at) = mappings[0].state else {
            panic!("{mappings:?}");
        };
        assert_eq!(mappings[0].len, (bytes.end - bytes.start) / 4096);
        at.get() * 4096..at.get() * 4096 + (bytes.end - bytes.start)
    }

    fn wait_for_held(&self) {
        while self.valve.holding() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self) {
        drop(self.file);
        self.volume.close().unwrap();
        self.stage.fsck();
    }
}

/// Rules G16, G17: a read that has looked up the old blocks gets the old bytes, however long it takes; nobody else gets these blocks
/// before.
#[test]
fn who_reads_old_blocks_reads_old_bytes() {
    let bed = bed("old blocks");
    let place = bed.place(0..LEN);
    bed.valve.hold_reads(place);
    let file = bed.file.clone();
    let reader = thread::spawn(move || file.read_buf(0, filled(0, LEN as usize)));
    bed.wait_for_held();
    assert_eq!(atomic(&bed.file, 0, 2, LEN).unwrap() as u64, LEN);
    bed.volume.sync().unwrap();
    // All free blocks get other bytes.
    let filler = fill(&bed.volume);
    bed.volume.sync().unwrap();
    bed.valve.hold_reads(0..0);
    let (buf, got) = reader.join().unwrap();
    assert_eq!(got.unwrap() as u64, LEN);
    same("the reader", buf.as_slice(), &[1; LEN as usize]);
    same(
        "the file",
        &read_direct(&bed.file)[..LEN as usize],
        &[2; LEN as usize],
    );
    // Afterwards they are as free as any.
    drop(filler);
    bed.end();
}

/// A cached read that is put together from parts, with an atomic write between them, is read again.
#[test]
fn a_read_in_parts_is_not_from_two_versions() {
    let bed = bed("two parts");
    let half = LEN / 2;
    let mut first = vec![0; half as usize];
    // Elsewhere before, so that nothing is read ahead.
    bed.file.read_bytes(200_000, &mut first[..100]).unwrap();
    assert_eq!(bed.file.read_bytes(0, &mut first).unwrap() as u64, half);
    bed.valve.hold_reads(bed.place(0..LEN));
    let file = bed.file.clone();
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; LEN as usize];
        let got = file.read_bytes(0, &mut bytes);
        (bytes, got)
    });
    bed.wait_for_held();
    assert_eq!(atomic(&bed.file, 0, 2, LEN).unwrap() as u64, LEN);
    bed.valve.hold_reads(0..0);
    let (bytes, got) = reader.join().unwrap();
    assert_eq!(got.unwrap() as u64, LEN);
    same("the reader", &bytes, &vec![bytes[0]; LEN as usize]);
    bed.end();
}

/// Rule G13: a truncation waits for an atomic write whose data is under way; until then readers see what was there.
#[test]
fn a_truncation_waits_for_the_write() {
    let bed = bed("truncation");
    let queue = bed.volume.queue(8).unwrap();
    let id = queue.attach(&bed.file).unwrap();
    bed.valve.hold(&[7]);
    let mut batch = VecDeque::from([
        Request::write(id, 0, filled(7, LEN as usize), 0).atomic(),
        Request::truncate(id, 4096, 1),
    ]);
    assert_eq!(queue.submit(&mut batch), 2);
    let mut done = Vec::new();
    while bed.valve.holding() == 0 {
        queue.reap(&mut done, 0, Some(Duration::from_millis(1)));
    }
    queue.reap(&mut done, 0, Some(Duration::from_millis(20)));
    assert!(done.is_empty(), "{done:?}");
    assert_eq!(bed.file.size(), 300_000);
    bed.valve.hold(&[]);
    while done.len() < 2 {
        queue.reap(&mut done, 1, None);
    }
    let results = done.iter().map(|d| d.result.as_ref().unwrap());
    assert_eq!(results.copied().max(), Some(LEN as usize));
    same("the file", &read_direct(&bed.file), &[7; 4096]);
    // And one that begins afterwards makes it longer again.
    let request = Request::write(id, LEN, filled(8, LEN as usize), 2).atomic();
    assert!(run_all(&queue, vec![request])[0].result.is_ok());
    assert_eq!(bed.file.size(), 2 * LEN);
    queue.detach(id);
    drop(queue);
    bed.end();
}

/// The device fails while the new blocks are written, or the commit fails: what the volume has after it is opened again is whole.
#[test]
fn after_a_failed_commit_the_old_unit_is_there() {
    let bed = bed("failed commit");
    assert_eq!(atomic(&bed.file, 0, 2, LEN).unwrap() as u64, LEN);
    bed.volume.sync().unwrap();
    assert_eq!(atomic(&bed.file, 0, 3, LEN).unwrap() as u64, LEN);
    bed.valve.fail_flushes(1);
    let failed = bed.volume.sync();
    // Whether or not the device has a cache to be flushed, the file has one of the two.
    let Bed {
        stage,
        volume,
        file,
        _dir,
        ..
    } = bed;
    if failed.is_err() {
        assert!(atomic(&file, LEN, 4, LEN).is_err(), "it is read-only");
    }
    drop(file);
    let _failed = volume.close();
    let (volume, file) = opened(&stage);
    let found = read_direct(&file);
    assert!([2, 3].contains(&found[0]), "{}", found[0]);
    same(
        "the unit",
        &found[..LEN as usize],
        &[found[0]; LEN as usize],
    );
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// The defect: a direct read that the end of the file had cut short went on behind that by a second request. So it saw the rest of an
/// atomic write that had moved the end meanwhile, and of that write's beginning the old bytes.
#[test]
fn a_read_that_ends_early_does_not_go_on() {
    let bed = bed("a read that ends early");
    bed.file.truncate(4096).unwrap();
    bed.valve.hold_reads(bed.place(0..4096));
    let flags = OpenFlags::default().direct(true);
    let reader = bed.volume.open_path("/file", flags).unwrap();
    thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut out = vec![0; LEN as usize];
            let got = reader.read_bytes(0, &mut out).unwrap();
            out.truncate(got);
            out
        });
        bed.wait_for_held();
        assert_eq!(atomic(&bed.file, 0, 2, LEN).unwrap() as u64, LEN);
        bed.valve.hold_reads(0..0);
        same("the old file", &read.join().unwrap(), &[1; 4096]);
    });
    drop(reader);
    bed.end();
}
