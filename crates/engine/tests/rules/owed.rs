//! The deferred work of ended writes into new space: which thread does it, in how many handles, and what is left if half of it
//! fails (rules C2, C7, D5, D9, D11).
//!
//! Input: volumes on a device that holds and fails requests by their place. Output: none. Invariants: counts are asserted, times
//! never; e2fsck judges the end. Limits: the cases of a few requests, in maps with several leaves.

use crate::common::fixture::{DSYNC, LIMIT, filled, run_all, sim, writable};
use crate::common::recipe::{POISON, RECIPES, bare};
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::rules::bed::{Bed, all, bytes, drain_until, push_out, quiet};
use diorite::Volume;
use diorite::{Error, Fallocate, File, FileId, MappingState, Queue, Reason, Request};
use diorite_block::{Bio, Blocking};
use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

/// The number of blocks of `/sparse` as [`Striped`] makes it: every other one has data. In full leaves these are three, which the tests
/// want; in leaves that are half full they might be more than the root has entries.
const BLOCKS: u64 = 1400;

/// Fills of one file, and appends to another, that a caller makes while the worker is held.
const FILLS: u64 = 256;

/// A volume whose file `/sparse` has so many extents that its map has several leaves, none of which is in memory.
struct Striped {
    _dir: tempfile::TempDir,
    stage: Stage,
    valve: Valve,
    volume: Volume,
    file: File,
    queue: Queue,
    id: FileId,
}

impl Striped {
    fn new() -> Striped {
        Striped::made(|_| ())
    }

    /// With every other block preallocated instead, in the order of the file, so that the leaves of the map are full. The map of the first
    /// `most` blocks is in memory.
    fn ahead(most: u64) -> Striped {
        let bed = Striped::made(|file| {
            file.truncate(0).unwrap();
            let keep = Fallocate::Allocate { keep_size: true };
            let ahead = (1..BLOCKS).step_by(2);
            ahead.for_each(|n| file.fallocate(keep, n * 4096, 4096).unwrap());
        });
        bed.file.mappings(0, most * 4096).unwrap();
        bed
    }

    /// As `new`, calling `more` on the file before its leaves are evicted from memory.
    fn made(more: impl FnOnce(&File)) -> Striped {
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
        let volume = stage.open(&quiet()).unwrap();
        let file = volume.open_path("/sparse", writable()).unwrap();
        file.truncate(BLOCKS * 4096).unwrap();
        // One after the other, so that the leaves are full.
        for n in (1..BLOCKS).step_by(2) {
            let (_, done) = file.write_buf(n * 4096, filled(n as u8 | 1, 4096));
            assert_eq!(done.unwrap(), 4096);
        }
        more(&file);
        drop(file);
        volume.close().unwrap();
        let valve = Valve::new(stage.device.clone());
        let options = quiet().metadata_cache(0).workers(1);
        let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
        let file = volume.open_path("/sparse", writable()).unwrap();
        // The map stays in memory, the blocks that it was read from do not.
        file.mappings(0, file.size()).unwrap();
        let queue = volume.queue(64).unwrap();
        let id = queue.attach(&file).unwrap();
        Striped {
            _dir: dir,
            stage,
            valve,
            volume,
            file,
            queue,
            id,
        }
    }

    /// For each leaf: the first file block that it maps, and its location.
    fn leaves(&self) -> Vec<(u64, u64)> {
        let root = self.file.metadata().i_block;
        let word = |at: usize| u64::from(u32::from_le_bytes(root[at..at + 4].try_into().unwrap()));
        let (entries, depth) = (usize::from(root[2]), root[6]);
        assert!(depth == 1 && entries > 1, "{entries} of depth {depth}");
        let entry = |n| (word(12 + 12 * n), word(16 + 12 * n));
        (0..entries).map(entry).collect()
    }

    fn fail_reads_of(&self, leaf: u64) {
        self.valve.fail_reads(leaf * 4096..(leaf + 1) * 4096);
    }

    fn fill(&self, blocks: std::ops::Range<u64>, byte: u8) -> Request {
        let len = (blocks.end - blocks.start) as usize * 4096;
        Request::write(
            self.id,
            blocks.start * 4096,
            filled(byte, len),
            blocks.start,
        )
    }

    /// Submits these writes so that all end together when no leaf is in memory and this one cannot be read. Returns which
    /// succeeded.
    fn without(&self, leaf: u64, writes: &[std::ops::Range<u64>]) -> Vec<bool> {
        self.valve.hold(&[0xD7]);
        let requests = writes.iter().map(|w| self.fill(w.clone(), 0xD7));
        self.queue.submit(&mut requests.collect());
        // Blocks that are neighbours in the file are not neighbours on the device, so each is a bio.
        let bios: usize = writes.iter().map(|w| (w.end - w.start) as usize).sum();
        drain_until(&self.queue, || self.valve.holding() == bios);
        push_out(&self.volume);
        self.fail_reads_of(leaf);
        self.valve.hold(&[]);
        let mut done = Vec::new();
        while done.len() < writes.len() {
            self.queue.reap(&mut done, 0, None);
        }
        self.valve.fail_reads(0..0);
        done.sort_by_key(|d| d.token);
        done.iter().map(|d| d.result.is_ok()).collect()
    }

    /// Gives the only complete worker a conversion whose leaf of the map it has to read, and holds that read.
    fn hold_worker(&self) {
        let (_, leaf) = self.leaves()[0];
        self.valve.hold(&[0xD7]);
        self.queue.submit(&mut [self.fill(4..5, 0xD7)].into());
        drain_until(&self.queue, || self.valve.holding() == 1);
        push_out(&self.volume);
        self.valve.hold_reads(leaf * 4096..(leaf + 1) * 4096);
        self.valve.hold(&[]);
        let owes = || self.queue.counters().deferred[Reason::Map as usize] == 1;
        drain_until(&self.queue, || owes() && self.valve.holding() == 1);
    }

    fn let_worker_go(&self) {
        assert_eq!(self.valve.holding(), 1, "the worker is where it was");
        self.valve.hold_reads(0..0);
        let mut done = Vec::new();
        self.queue.reap(&mut done, 1, None);
        assert!(done[0].result.is_ok() && self.all_are(4..5, 0xD7));
    }

    fn all_are(&self, blocks: std::ops::Range<u64>, byte: u8) -> bool {
        let mut bytes = vec![0xEE; (blocks.end - blocks.start) as usize * 4096];
        self.file
            .read_bytes(blocks.start * 4096, &mut bytes)
            .unwrap();
        bytes.iter().all(|b| *b == byte)
    }

    fn finish(self) {
        drop((self.file, self.queue));
        assert_eq!(self.volume.journal_stats().uncredited, 0, "rule D5");
        self.volume.close().unwrap();
        self.stage.fsck();
    }
}

/// Rule C2. The only worker is busy with a conversion that waits for a block of the map. Other requests complete all the same: a
/// caller that would sleep until its own are complete maps them itself, and a blocking call does all its deferred work.
#[test]
fn who_would_sleep_needs_no_worker() {
    let _watchdog = Watchdog::new(LIMIT, "no worker");
    let bed = Striped::new();
    let other = bed.volume.open_path("/odd", writable()).unwrap();
    other.fallocate(Fallocate::PunchHole, 8192, 16_384).unwrap();
    let empty = bed.volume.open_path("/empty", writable()).unwrap();
    bed.hold_worker();

    let queue = bed.volume.queue(8).unwrap();
    let id = queue.attach(&other).unwrap();
    let fills = (2..6).map(|n| Request::write(id, n * 4096, filled(7, 4096), n));
    queue.submit(&mut fills.collect());
    let mut done = Vec::new();
    queue.reap(&mut done, 4, Some(Duration::from_secs(20)));
    assert_eq!(done.len(), 4, "they wait for the worker");
    assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
    let filled_in = other.mappings(8192, 16_384).unwrap();
    let written = |m: &diorite::Mapping| matches!(m.state, MappingState::Written(_));
    assert!(filled_in.iter().all(written), "{filled_in:?}");
    for n in 1..4 {
        let (_, result) = empty.write_buf(empty.size(), filled(8, 4096));
        assert_eq!((result.unwrap(), empty.size()), (4096, n * 4096));
    }
    bed.let_worker_go();
    drop((other, empty, queue));
    bed.finish();
}

/// The memory of a job that a worker converts is written by two threads (docs/scaling.md). So while the only worker is held, many fills
/// and appends in batches are converted by their caller, in as many handles as a batch needs: the appends of a batch are published
/// together, and none is held for another.
#[test]
fn batches_of_fills_and_appends_need_no_worker() {
    let watchdog = Watchdog::new(LIMIT, "no worker for batches");
    let bed = Striped::new();
    let filled_in = bed.volume.create("/filled", 0o644).unwrap();
    filled_in.truncate(FILLS * 4096).unwrap();
    let grown = bed.volume.create("/grown", 0o644).unwrap();
    bed.hold_worker();
    let queue = bed.volume.queue(64).unwrap();
    let (fills, appends) = (queue.attach(&filled_in), queue.attach(&grown));
    let (fills, appends) = (fills.unwrap(), appends.unwrap());
    for first in (0..FILLS).step_by(32) {
        watchdog.feed(format!("from {first}"));
        // In no order of the file: 7 and the number of blocks have no common divisor.
        let fill = |n| Request::write(fills, n * 7 % FILLS * 4096, filled(n as u8, 4096), n);
        let append = |n| Request::append(appends, filled(n as u8, 4096), n);
        for batch in [
            (first..first + 32).map(fill).collect::<VecDeque<_>>(),
            (first..first + 32).map(append).collect(),
        ] {
            let mut batch = batch;
            assert_eq!(queue.submit(&mut batch), 32);
            let mut done = Vec::new();
            queue.reap(&mut done, 32, Some(Duration::from_secs(20)));
            assert_eq!(done.len(), 32, "from {first}: they wait for the worker");
            assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
        }
    }
    assert_eq!(queue.counters().held_for_size, 0);
    bed.let_worker_go();
    assert_eq!(grown.size(), FILLS * 4096);
    for n in 0..FILLS {
        let byte = n as u8;
        assert!(all(&bytes(&grown, n * 4096, 4096), byte), "append {n}");
        let at = n * 7 % FILLS * 4096;
        assert!(all(&bytes(&filled_in, at, 4096), byte), "fill {n}");
    }
    drop((filled_in, grown, queue));
    bed.finish();
}

/// Rules D11, G9. If a leaf of the map cannot be read, only the writes that need it fail, not others that ended with them. Blocks
/// that a failed write has mapped already stay in the file; those that it has not are free again.
#[test]
fn a_conversion_that_fails_takes_nobody_with_it() {
    let watchdog = Watchdog::new(LIMIT, "half a conversion");
    for case in 0..4 {
        let bed = Striped::new();
        let leaves = bed.leaves();
        let ((_, first), (at, second)) = (leaves[0], leaves[1]);
        assert!(at % 2 == 1, "the second leaf begins with data");
        watchdog.feed(format!("case {case}, {leaves:?}"));
        let (lost, writes, well) = match case {
            // The ranges meet where the leaves do: in the hole before the first block of the second leaf, and in the hole after it.
            0 => (
                second,
                vec![at - 1..at + 1, at + 1..at + 2],
                vec![true, false],
            ),
            1 => (first, vec![at - 1..at, at..at + 2], vec![false, true]),
            // One write with a block in each leaf.
            2 => (second, iter::once(at - 1..at + 2).collect(), vec![false]),
            _ => (first, iter::once(at - 1..at + 2).collect(), vec![false]),
        };
        assert_eq!(bed.without(lost, &writes), well, "case {case}");
        for (blocks, well) in writes.iter().zip(&well) {
            if *well {
                assert!(bed.all_are(blocks.clone(), 0xD7), "case {case}");
                continue;
            }
            // An unmapped block reads as zeros, a mapped one as the written data.
            for block in blocks.clone().filter(|b| *b != at) {
                let seen = bed.all_are(block..block + 1, 0) || bed.all_are(block..block + 1, 0xD7);
                assert!(seen, "case {case}: block {block}");
            }
        }
        bed.volume.sync().unwrap();
        let usage = bed.volume.usage();
        let known = (usage.pending, usage.free + usage.waiting);
        assert_eq!(known, (0, usage.free_on_disk), "case {case}");
        for blocks in writes {
            let done = run_all(&bed.queue, vec![bed.fill(blocks.clone(), 0x11)]);
            assert!(done[0].result.is_ok(), "case {case}: {done:?}");
            assert!(bed.all_are(blocks, 0x11), "case {case}");
        }
        bed.finish();
    }
}

/// Rules U9, G9. A write that extends the file and fails because a part of its map cannot be read leaves no written block past the
/// size. The defect: the blocks that it had mapped stayed there, and a later truncation made them visible.
#[test]
fn what_is_mapped_of_a_failed_write_is_inside_the_size() {
    const MORE: u64 = BLOCKS + 8;
    let _watchdog = Watchdog::new(LIMIT, "behind the size");
    let bed = Striped::ahead(MORE);
    let (at, leaf) = bed.leaves()[1];
    assert!(at % 2 == 1, "the leaf begins with a preallocated block");
    assert_eq!(
        bed.without(leaf, std::slice::from_ref(&(at - 1..at + 2))),
        [false]
    );
    let size = bed.file.size();
    let behind = bed.file.mappings(size, MORE * 4096 - size).unwrap();
    let written = |m: &diorite::Mapping| matches!(m.state, MappingState::Written(_));
    assert!(!behind.iter().any(written), "{size}: {behind:?}");
    bed.file.truncate(MORE * 4096).unwrap();
    assert!(bed.all_are(at..MORE, 0));
    bed.finish();
}

/// Rules D11, U9. Of several extending writes that end together, one fails while it is mapped, past the end or next to another: the
/// others succeed and their data is there.
#[test]
fn a_failed_write_over_the_end_takes_nobody_with_it() {
    const MORE: u64 = BLOCKS + 8;
    let watchdog = Watchdog::new(LIMIT, "one of several");
    for case in 0..3 {
        let bed = Striped::ahead(MORE);
        let leaves = bed.leaves();
        let ((_, first), (at, second)) = (leaves[0], leaves[1]);
        watchdog.feed(format!("case {case}, {leaves:?}"));
        let (lost, writes, well) = match case {
            0 => (second, [at - 1..at + 2, MORE - 2..MORE - 1], [false, true]),
            1 => (second, [at - 1..at, at..at + 1], [true, false]),
            _ => (first, [at - 1..at, at..at + 1], [false, true]),
        };
        assert_eq!(bed.without(lost, &writes), well, "case {case}");
        let there = writes.into_iter().zip(well).filter(|(_, well)| *well);
        for (blocks, _) in there {
            assert!(bed.all_are(blocks, 0xD7), "case {case}");
        }
        bed.finish();
    }
}

/// Rules U11, D9. An extending write that fails while it is mapped has left its bytes past the end. A write further on, still in
/// flight, had left that block to the first one: zeros must be there when it moves the size. The defect: the bytes of the failed
/// write showed.
#[test]
fn a_failed_conversion_leaves_zeros_behind_the_end() {
    const SIZE: u64 = (BLOCKS - 1) * 4096 + 512;
    let _watchdog = Watchdog::new(LIMIT, "behind the end");
    let bed = Striped::made(|file| file.truncate(SIZE).unwrap());
    let (_, leaf) = *bed.leaves().last().unwrap();
    bed.valve.hold(&[0xD7, 0xB1]);
    let over = Request::write(bed.id, SIZE, filled(0xD7, 3584 + 4096), 0);
    bed.queue.push(over).unwrap();
    drain_until(&bed.queue, || bed.valve.holding() > 0);
    let first = bed.valve.holding();
    bed.queue
        .push(bed.fill(BLOCKS + 8..BLOCKS + 9, 0xB1))
        .unwrap();
    drain_until(&bed.queue, || bed.valve.holding() > first);
    push_out(&bed.volume);
    bed.fail_reads_of(leaf);
    bed.valve.hold(&[0xB1]);
    let mut done = Vec::new();
    bed.queue.reap(&mut done, 1, None);
    assert!(done[0].result.is_err(), "{done:?}");
    bed.valve.fail_reads(0..0);
    bed.valve.hold(&[]);
    bed.queue.reap(&mut done, 1, None);
    assert!(done[1].result.is_ok(), "{done:?}");
    assert_eq!(bed.file.size(), (BLOCKS + 9) * 4096);
    let mut bytes = vec![0xEE; 3584 + 8 * 4096];
    bed.file.read_bytes(SIZE, &mut bytes).unwrap();
    assert_eq!(bytes.iter().position(|b| *b != 0), None);
    bed.finish();
}

/// Rule D5. A write into hundreds of holes is mapped in parts, each with credits for what it changes, whether a worker does it, a
/// caller that waits in a queue, or a blocking call; also if the running transaction is empty and could hold all of it.
#[test]
fn a_write_into_many_holes_goes_in_parts() {
    let watchdog = Watchdog::new(LIMIT, "many holes");
    for (by, min) in [
        ("a worker", Some(0)),
        ("who waits", Some(1)),
        ("a call", None),
    ] {
        watchdog.feed(by);
        let bed = Striped::new();
        // Marks the volume as in use; without that, nothing is mapped inline.
        let first = run_all(&bed.queue, vec![bed.fill(0..1, 0x3C)]);
        assert!(first[0].result.is_ok(), "{by}: {first:?}");
        bed.volume.sync().unwrap();
        let before = bed.volume.journal_stats().handles;
        let all = bed.fill(0..BLOCKS, 0x3C);
        if let Some(min) = min {
            bed.queue.submit(&mut [all].into());
            let mut done = Vec::new();
            while done.is_empty() {
                bed.queue.reap(&mut done, min, None);
            }
            assert!(done[0].result.is_ok(), "{by}: {done:?}");
        } else {
            bed.file.write_buf(0, all.buf).1.unwrap();
        }
        let handles = bed.volume.journal_stats().handles - before;
        assert!(handles > 2, "{by}: {handles} handles");
        assert!(bed.all_are(0..BLOCKS, 0x3C), "{by}");
        bed.finish();
    }
}

/// Rule D5. Fills of single blocks that end together are mapped in as few handles as have the credits for them. A block far inside
/// a large file needs no more credits than what it changes.
#[test]
fn fills_that_end_together_share_handles() {
    const FAR: u64 = 200_000;
    const COUNT: u64 = 16;
    let _watchdog = Watchdog::new(LIMIT, "shared handles");
    for recipe in [&RECIPES[0], &RECIPES[3]] {
        let bed = Bed::new(recipe, &quiet());
        let (file, queue, id) = bed.open("/sparse");
        file.truncate(1 << 30).unwrap();
        bed.valve.hold(&[9]);
        let fill = |n| Request::write(id, (FAR + 2 * n) * 4096, filled(9, 4096), n);
        queue.submit(&mut (0..COUNT).map(fill).collect());
        drain_until(&queue, || bed.valve.holding() as u64 == COUNT);
        let before = bed.volume.journal_stats().handles;
        bed.valve.hold(&[]);
        let mut done = Vec::new();
        while done.len() as u64 != COUNT {
            queue.reap(&mut done, 0, None);
        }
        assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
        let handles = bed.volume.journal_stats().handles - before;
        assert!(handles <= 4, "{}: {handles} handles", recipe.name);
        drop((file, queue));
        bed.judge();
    }
}

/// Rule C7. An O_DSYNC overwrite of a block that has just been mapped waits for the commit under way that has the map, and not for
/// another one with its time.
#[test]
fn a_time_is_nothing_that_o_dsync_waits_for() {
    let _watchdog = Watchdog::new(LIMIT, "a time");
    let dir = scratch();
    let stage = sim(&bare(dir.path(), &RECIPES[0]), "cache=volatile,fua=yes");
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &quiet()).unwrap();
    let file = volume.open_path("/sparse", writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    // The first round marks the volume as in use.
    for (n, sync) in [(2, true), (0, false)] {
        file.write_buf(n * 4096, filled(1, 4096)).1.unwrap();
        if sync {
            file.sync().unwrap();
        }
    }
    let before = volume.journal_stats().commits;
    valve.hold_fua(true);
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| file.sync_data().unwrap());
        while valve.holding() == 0 {
            std::thread::yield_now();
        }
        let overwrite = Request::write(id, 0, filled(2, 512), 0).with_flags(DSYNC);
        queue.submit(&mut [overwrite].into());
        let owes = || queue.counters().deferred[Reason::Commit as usize] == 1;
        drain_until(&queue, owes);
        valve.hold_fua(false);
        committer.join().unwrap();
        queue.reap(&mut done, 1, None);
    });
    assert_eq!(done[0].result.clone().unwrap(), 512);
    assert_eq!(volume.journal_stats().commits - before, 1);
}

/// Rule D9. A write inside a file says nothing about the bytes past its end: they are zeroed when the file becomes longer.
#[test]
fn a_fill_inside_says_nothing_of_the_end() {
    let _watchdog = Watchdog::new(LIMIT, "inside");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    let last = 100_001 / 4096 * 4096;
    let MappingState::Written(at) = file.mappings(last, 1).unwrap()[0].state else {
        panic!("the last block holds data")
    };
    let sector = at.get() * 4096 + 100_352 - last;
    let behind = Bio::write(sector, filled(POISON, 512), 0);
    let device = Blocking::new(bed.stage.device.clone());
    device.run(behind).result.unwrap();
    file.fallocate(Fallocate::PunchHole, 8192, 4096).unwrap();
    let done = run_all(&queue, vec![Request::write(id, 8192, filled(1, 4096), 0)]);
    assert!(done[0].result.is_ok(), "{done:?}");
    file.truncate(last + 4096).unwrap();
    let mut bytes = [0xEE; 4096];
    file.read_bytes(last, &mut bytes).unwrap();
    let end = (100_001 - last) as usize;
    assert!(bytes[..end].iter().all(|b| *b == 0x55));
    assert!(bytes[end..].iter().all(|b| *b == 0), "{bytes:x?}");
    drop((file, queue));
    bed.finish();
}

/// Rules D9, U11. After a success it is known that the bytes past the new end are zeros: appends of sectors to one block need
/// preparation once, and again only after a failure.
#[test]
fn the_end_is_looked_at_once() {
    let _watchdog = Watchdog::new(LIMIT, "the end");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/empty");
    let append = |byte| {
        let before = queue.counters().prepared;
        let done = run_all(&queue, vec![Request::append(id, filled(byte, 512), 0)]);
        let device = matches!(done[0].result, Err(Error::Device { .. }));
        assert_eq!(device, byte == 3, "{done:?}");
        queue.counters().prepared - before
    };
    // The first append has to claim a block.
    assert_eq!(append(1), 1);
    for _ in 0..3 {
        assert_eq!(append(1), 0);
    }
    bed.valve.lie(&[3]);
    append(3);
    bed.valve.lie(&[]);
    let looked: Vec<u64> = (0..3).map(|_| append(1)).collect();
    assert_eq!(looked[1..], [0, 0]);
    assert_eq!(file.size(), 7 * 512);
    let mut bytes = [0xEE; 7 * 512];
    file.read_bytes(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 1));
    drop((file, queue));
    bed.judge();
}
