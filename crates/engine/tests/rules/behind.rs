//! The bytes past the end of a file, in its last block: which request zeroes them, which others touch them, and what is known of
//! them after a failure (rules B5, B9, D9, U9, U11).
//!
//! Input: volumes on a device that holds requests, fails them, or executes them and reports a failure. Output: none. Invariants:
//! counts are asserted, times never; e2fsck judges the end. Limits: the cases of a few requests.

use crate::common::fixture::{LIMIT, filled, run_all};
use crate::common::recipe::{RECIPES, Recipe};
use crate::common::watch::Watchdog;
use crate::rules::bed::{Bed, drain_until, push_out, quiet};
use diorite::{Completion, Error, File, FileId, MappingState, Queue, Reason, Request};
use std::ops::Range;

/// The start of the 4 KiB block in which `/odd` ends.
const LAST: u64 = 100_001 / 4096 * 4096;

fn sector(id: FileId, pos: u64, byte: u8) -> Request {
    Request::write(id, pos, filled(byte, 512), 0)
}

/// Makes `/odd` end at a sector boundary, with zeros after it in the block.
fn to_a_sector(file: &File, queue: &Queue, id: FileId) {
    let done = run_all(queue, vec![sector(id, 99_840, 5)]);
    assert!(done[0].result.is_ok(), "{done:?}");
    assert_eq!(file.size(), 100_352);
}

fn next(queue: &Queue) -> Completion {
    let mut done = Vec::new();
    while done.is_empty() {
        queue.reap(&mut done, 1, None);
    }
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0)
}

fn failed(done: &Completion) -> bool {
    matches!(done.result, Err(Error::Device { .. }))
}

fn all_are(file: &File, bytes: Range<u64>, byte: u8) -> bool {
    let mut read = vec![0xEE; (bytes.end - bytes.start) as usize];
    assert_eq!(file.read_bytes(bytes.start, &mut read).unwrap(), read.len());
    read.iter().all(|b| *b == byte)
}

/// The range on the device of the file's block with this byte.
fn place(file: &File, pos: u64) -> Range<u64> {
    let MappingState::Written(at) = file.mappings(pos, 1).unwrap()[0].state else {
        panic!("it holds data")
    };
    at.get() * 4096..(at.get() + 1) * 4096
}

/// Rule D9, in the first block of a file.
#[test]
fn what_failed_in_the_first_block_is_not_shown() {
    let _watchdog = Watchdog::new(LIMIT, "the first block");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/empty");
    let done = run_all(&queue, vec![sector(id, 0, 5)]);
    assert!(done[0].result.is_ok(), "{done:?}");
    bed.valve.lie(&[0xBD]);
    assert!(failed(&run_all(&queue, vec![sector(id, 1024, 0xBD)])[0]));
    file.truncate(4096).unwrap();
    assert!(all_are(&file, 0..512, 5) && all_are(&file, 512..4096, 0));
    drop((file, queue));
    bed.judge();
}

/// Rule D9. A write past the end fails, and so does the zeroing of what it left there. Then nothing is known of these bytes, and
/// the next write past the end zeroes them.
#[test]
fn zeros_that_failed_are_written_again() {
    let _watchdog = Watchdog::new(LIMIT, "zeros that failed");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    to_a_sector(&file, &queue, id);
    bed.valve.lie(&[0xBD]);
    bed.valve.hold(&[0xBD]);
    queue.submit(&mut [sector(id, 100_864, 0xBD)].into());
    drain_until(&queue, || bed.valve.holding() == 1);
    bed.valve.fail_at(place(&file, LAST));
    bed.valve.hold(&[]);
    assert!(failed(&next(&queue)));
    bed.valve.fail_at(0..0);
    let done = run_all(&queue, vec![sector(id, 1 << 20, 7)]);
    assert!(done[0].result.is_ok(), "{done:?}");
    assert!(all_are(&file, 100_352..LAST + 8192, 0));
    drop((file, queue));
    bed.judge();
}

/// Rule B9. A write far past the end fails while another request has the block with the end: the failed one zeroes nothing in that
/// block.
#[test]
fn who_fails_far_behind_the_end_leaves_its_block_alone() {
    let _watchdog = Watchdog::new(LIMIT, "failed far behind");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    to_a_sector(&file, &queue, id);
    let other = bed.volume.queue(4).unwrap();
    let there = other.attach(&file).unwrap();
    bed.valve.hold(&[7]);
    queue.submit(&mut [sector(id, 100_864, 7)].into());
    drain_until(&queue, || bed.valve.holding() == 1);
    bed.valve.fail(&[3]);
    assert!(failed(&run_all(&other, vec![sector(there, 1 << 20, 3)])[0]));
    assert_eq!(bed.valve.holding(), 1);
    bed.valve.hold(&[]);
    assert!(next(&queue).result.is_ok());
    assert!(all_are(&file, 100_352..100_864, 0) && all_are(&file, 100_864..101_376, 7));
    drop((file, queue, other));
    bed.judge();
}

/// Rule B9. A write past the end begins while the size is about to move over it, because of a write further on in the file that has
/// ended already; then the first write fails. The bytes that it left will be inside the file in a moment, where any request may
/// write: the failed write must not zero them.
#[test]
fn who_fails_while_the_size_moves_leaves_the_old_end_alone() {
    let _watchdog = Watchdog::new(LIMIT, "the size moves");
    // Without a journal, synced metadata is written home, and need not stay in the cache.
    let recipe = Recipe {
        args: &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
        ..RECIPES[0]
    };
    let options = quiet().metadata_cache(0);
    let bed = Bed::new(&recipe, &options);
    let (file, queue, id) = bed.open("/odd");
    to_a_sector(&file, &queue, id);
    bed.volume.sync().unwrap();
    let left = place(&file, LAST).start + (100_352 - LAST);
    // The data of the write further on has ended, but the block with the inode cannot be read, so the size cannot move yet.
    bed.valve.hold(&[7]);
    queue.submit(&mut [sector(id, 204_800, 7)].into());
    drain_until(&queue, || bed.valve.holding() == 1);
    push_out(&bed.volume);
    let table = bed.volume.groups()[0].inode_table.get() * 4096;
    bed.valve.hold_reads(table..table + 4096);
    bed.valve.hold(&[]);
    let before = queue.counters().deferred[Reason::Map as usize];
    let owes = || queue.counters().deferred[Reason::Map as usize] == before + 1;
    drain_until(&queue, || owes() && bed.valve.holding() == 1);
    // This thread does the work itself, as the only worker is busy with the held request.
    bed.valve.lie(&[0xBD]);
    let (_, result) = file.write_buf(100_352, filled(0xBD, 512));
    assert!(matches!(result, Err(Error::Device { .. })), "{result:?}");
    assert_eq!(file.size(), 100_352);
    let is_there = bed.stage.bytes()[left as usize];
    bed.valve.hold_reads(0..0);
    assert!(next(&queue).result.is_ok());
    assert_eq!((file.size(), is_there), (205_312, 0xBD));
    let done = run_all(&queue, vec![sector(id, 100_352, 9)]);
    assert!(done[0].result.is_ok(), "{done:?}");
    assert!(all_are(&file, 100_352..100_864, 9) && all_are(&file, 204_800..205_312, 7));
    drop((file, queue));
    bed.judge();
}

/// Rules U9, B8. A file that ends at a block boundary needs no zeros past its end: a write far past it does not keep others from
/// the blocks between.
#[test]
fn who_writes_far_behind_a_whole_block_is_alone_there() {
    let _watchdog = Watchdog::new(LIMIT, "behind a whole block");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/sparse");
    assert_eq!(file.size(), 1 << 20);
    bed.valve.hold(&[7]);
    let writes = [sector(id, 2 << 20, 7), sector(id, 3 << 19, 7)];
    queue.submit(&mut writes.into());
    let waits = || queue.counters().parked_for_range;
    drain_until(&queue, || bed.valve.holding() == 2 || waits() > 0);
    assert_eq!(waits(), 0);
    bed.valve.hold(&[]);
    let mut done = Vec::new();
    while done.len() < 2 {
        queue.reap(&mut done, 1, None);
    }
    assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
    drop((file, queue));
    bed.judge();
}

/// Rules B5, B9. A write far past the end of a file with clusters begins while another request takes care of the bytes past that
/// end. When it is prepared, nothing is known of these bytes any more: a third request zeroes them, the one that holds their
/// cluster.
#[test]
fn zeros_are_written_by_who_has_the_cluster() {
    let _watchdog = Watchdog::new(LIMIT, "the cluster with the end");
    let options = quiet().workers(2);
    let bed = Bed::new(&RECIPES[4], &options);
    let (file, queue, id) = bed.open("/odd");
    to_a_sector(&file, &queue, id);
    let tail = place(&file, LAST);
    bed.valve.lie(&[0xBD]);
    bed.valve.hold(&[0xBD]);
    queue.submit(&mut [sector(id, 100_864, 0xBD)].into());
    drain_until(&queue, || bed.valve.holding() == 1);
    // The block is in another cluster, where nothing can be claimed until the bitmap is read.
    let bitmap = bed.volume.groups()[0].block_bitmap.get() * 4096;
    bed.valve.hold_reads(bitmap..bitmap + 4096);
    let far = bed.volume.queue(4).unwrap();
    let there = far.attach(&file).unwrap();
    far.submit(&mut [Request::write(there, 40 * 4096, filled(7, 4096), 0)].into());
    drain_until(&far, || bed.valve.holding() == 2);
    bed.valve.fail_at(tail);
    bed.valve.hold(&[0]);
    assert!(failed(&next(&queue)));
    bed.valve.fail_at(0..0);
    queue.submit(&mut [sector(id, 100_864, 9)].into());
    drain_until(&queue, || bed.valve.holding() == 2);
    bed.valve.hold_reads(0..0);
    let overlaps = || !bed.valve.overlaps().is_empty();
    drain_until(&far, || far.counters().held_for_size == 1 || overlaps());
    bed.valve.hold(&[]);
    assert!(next(&queue).result.is_ok() && next(&far).result.is_ok());
    assert!(all_are(&file, 100_352..100_864, 0) && all_are(&file, 100_864..101_376, 9));
    assert!(all_are(&file, 101_376..40 * 4096, 0));
    drop((file, queue, far));
    bed.judge();
}

/// Rule U9. An append that has reserved its place waits for a block, and a later write waits for the append; then the append fails.
/// Requests that wait for a failed one go on.
#[test]
fn who_waits_for_an_append_that_fails_goes_on() {
    let _watchdog = Watchdog::new(LIMIT, "behind a failure");
    let bed = Bed::new(&RECIPES[0], &quiet());
    let (file, queue, id) = bed.open("/odd");
    to_a_sector(&file, &queue, id);
    bed.valve.hold(&[7]);
    bed.valve.fail(&[3]);
    queue.submit(&mut [sector(id, 100_352, 7)].into());
    drain_until(&queue, || bed.valve.holding() == 1);
    // It reaches from the block of the first write into that of the last.
    let append = Request::append(id, filled(3, 8192), 1);
    let behind = Request {
        token: 2,
        ..sector(id, 100_864 + 8192, 9)
    };
    queue.submit(&mut [append, behind].into());
    assert_eq!(queue.counters().parked_for_range, 2);
    bed.valve.hold(&[]);
    let mut done = Vec::new();
    while done.len() < 3 {
        queue.reap(&mut done, 1, None);
    }
    done.sort_by_key(|d| d.token);
    assert!(done[0].result.is_ok() && failed(&done[1]), "{done:?}");
    assert_eq!(done[1].pos, 100_864);
    assert!(done[2].result.is_ok(), "{done:?}");
    assert!(all_are(&file, 100_352..100_864, 7) && all_are(&file, 100_864..109_056, 0));
    assert!(all_are(&file, 109_056..109_568, 9) && file.size() == 109_568);
    drop((file, queue));
    bed.judge();
}
