//! New blocks: which data is visible when, what is converted, what an error leaves (rules U1, U4, U11, U12, C2, C8, G7, G9, G12).
//!
//! Input: volumes whose free space is poison. Output: none. Invariants: counts are asserted, times never; e2fsck judges the end.
//! Limits: only some of the racing reads run by default; `DIORITE_POISON_READS=1000000` is the long form.

use crate::common::fixture::{LIMIT, NOWAIT, filled, made, run_all, writable};
use crate::common::recipe::{POISON, RECIPES, bare};
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scaled, scratch};
use crate::rules::bed::{Bed, all, bytes, collect, drain_until, submit_until};
use diorite::{Error, File, MappingState, OpenFlags, OpenOptions, Request, Volume, Wait};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rule U1. Free space is poison; reads race with fills of holes and appends, aligned and not, and find no poison.
#[test]
fn reads_that_race_with_new_blocks_find_no_poison() {
    let wanted = scaled("DIORITE_POISON_READS", 30_000);
    let mut rng = Rng::from_env("poison");
    for recipe in [&RECIPES[0], &RECIPES[1], &RECIPES[2]] {
        let (reads, mut round) = (AtomicU64::new(0), 0);
        while reads.load(Ordering::Relaxed) < wanted / 3 {
            let _watchdog = Watchdog::new(LIMIT, format!("{}, round {round}", recipe.name));
            let bed = Bed::new(recipe, &OpenOptions::writable());
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for path in ["/sparse", "/empty"] {
                    let (mut rng, bed, stop, reads) = (rng.fork(), &bed, &stop, &reads);
                    scope.spawn(move || race_reads(bed, path, stop, reads, &mut rng));
                }
                let (mut mine, bed) = (rng.fork(), &bed);
                let appends = scope.spawn(move || grow(bed, &mut mine));
                fill_holes(bed, &mut rng);
                appends.join().unwrap();
                stop.store(true, Ordering::Relaxed);
            });
            // Here reads deliberately overlap writes of the same bytes.
            bed.finish();
            round += 1;
        }
    }
}

fn race_reads(bed: &Bed, path: &str, stop: &AtomicBool, reads: &AtomicU64, rng: &mut Rng) {
    let (file, queue, id) = bed.open(path);
    while !stop.load(Ordering::Relaxed) {
        let span = (file.size() / 512 + 8).max(16);
        let requests: Vec<Request> = (0..32)
            .map(|n| {
                let (pos, len) = (rng.below(span) * 512, 512 * (1 + rng.below(12) as usize));
                Request::read(id, pos, Buf::zeroed(len), n)
            })
            .collect();
        for done in run_all(&queue, requests) {
            let got = done.result.unwrap();
            let poison = done.buf.as_slice()[..got].contains(&POISON);
            assert!(!poison, "{path}: poison at {}+{got}", done.pos);
            reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// All sectors of `/sparse`, in random order.
fn fill_holes(bed: &Bed, rng: &mut Rng) {
    let (_file, queue, id) = bed.open("/sparse");
    let mut places: Vec<u64> = (0..(1 << 20) / 2048).collect();
    for n in (1..places.len()).rev() {
        places.swap(n, rng.below(n as u64 + 1) as usize);
    }
    for batch in places.chunks(16) {
        let write = |place: &u64| Request::write(id, place * 2048, filled(0x11, 2048), 0);
        let done = run_all(&queue, batch.iter().map(write).collect());
        assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
    }
}

fn grow(bed: &Bed, rng: &mut Rng) {
    let (_file, queue, id) = bed.open("/empty");
    for _ in 0..40 {
        let requests = (0..8)
            .map(|n| Request::append(id, filled(0x22, 512 * (1 + rng.below(12) as usize)), n))
            .collect();
        let done = run_all(&queue, requests);
        assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
    }
}

/// Rule U4. A write into the middle of an unwritten run makes exactly its range written; a second write changes nothing; once its
/// neighbours are written, too, it is one extent, in memory and on disk.
#[test]
fn conversion_takes_what_was_written_and_no_more() {
    let _watchdog = Watchdog::new(LIMIT, "conversion");
    let (_dir, image, files) = made(0);
    let holed = files.iter().find(|k| k.path == "/holed").unwrap();
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path("/holed", writable()).unwrap();
    let unwritten =
        |m: &&diorite::Mapping| matches!(m.state, MappingState::Unwritten(_)) && m.len >= 3;
    let mappings = file.mappings(0, file.size()).unwrap();
    let run = *mappings
        .iter()
        .find(unwritten)
        .expect("the recipe has some");
    let state = |file: &File, block: u64| file.mappings(block * 4096, 4096).unwrap()[0].state;
    for _ in 0..2 {
        assert_eq!(
            file.write_at((run.start + 1) * 4096, filled(1, 4096))
                .1
                .unwrap(),
            4096
        );
        assert!(matches!(
            state(&file, run.start),
            MappingState::Unwritten(_)
        ));
        assert!(matches!(
            state(&file, run.start + 1),
            MappingState::Written(_)
        ));
        assert!(matches!(
            state(&file, run.start + 2),
            MappingState::Unwritten(_)
        ));
        assert!(all(&bytes(&file, run.start * 4096, 4096), 0));
        assert!(all(&bytes(&file, (run.start + 2) * 4096, 4096), 0));
    }
    for block in (0..run.len).filter(|b| *b != 1) {
        file.write_at((run.start + block) * 4096, filled(1, 4096))
            .1
            .unwrap();
    }
    volume.close().unwrap();
    let again = stage.open(&OpenOptions::default()).unwrap();
    let file = again.open_path("/holed", OpenFlags::default()).unwrap();
    let after = file.mappings(run.start * 4096, run.len * 4096).unwrap();
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(all(
        &bytes(&file, run.start * 4096, run.len as usize * 4096),
        1
    ));
    assert_eq!(file.size(), holed.bytes.len() as u64);
    drop((file, again));
    stage.fsck();
}

/// Rule U11. The bytes past the end in its block, and in the blocks between, read as zeros once the size has moved over them.
#[test]
fn the_gap_behind_the_old_end_reads_zeros() {
    let _watchdog = Watchdog::new(LIMIT, "gap");
    for recipe in &RECIPES[..4] {
        for skip in [0, 512, 3 * 4096] {
            let dir = scratch();
            let stage = Stage::mem(&bare(dir.path(), recipe));
            let last = 100_001 / recipe.block * recipe.block;
            let probe = stage.open(&OpenOptions::default()).unwrap();
            let file = probe.open_path("/odd", OpenFlags::default()).unwrap();
            let MappingState::Written(at) = file.mappings(last, 1).unwrap()[0].state else {
                panic!("the last block holds data")
            };
            drop((file, probe));
            // The last block again, with poison past the end.
            let mut block = vec![POISON; recipe.block as usize];
            block[..(100_001 - last) as usize].fill(0x55);
            let device = &stage.device;
            let blocking = diorite_block::Blocking::new(device.clone());
            let mut buf = Buf::zeroed(block.len());
            buf.copy_in(0, &block);
            let bio = diorite_block::Bio::write(at.get() * recipe.block, buf, 0);
            blocking.run(bio).result.unwrap();
            let volume = stage.open(&OpenOptions::writable()).unwrap();
            let file = volume.open_path("/odd", writable()).unwrap();
            let pos = 100_001u64.next_multiple_of(512) + skip;
            assert_eq!(file.write_at(pos, filled(7, 512)).1.unwrap(), 512);
            let found = bytes(&file, 0, pos as usize + 512);
            assert!(all(&found[..100_001], 0x55));
            assert!(
                all(&found[100_001..pos as usize], 0),
                "{}: +{skip}",
                recipe.name
            );
            assert!(all(&found[pos as usize..], 7));
            drop(file);
            volume.close().unwrap();
            stage.fsck();
        }
    }
}

/// Rules U12, C8. A hole that is being filled reads as a hole until the request has completed, and as data from then on.
#[test]
fn a_fill_shows_when_it_has_completed() {
    let _watchdog = Watchdog::new(LIMIT, "fill");
    for recipe in &RECIPES[..3] {
        let bed = Bed::new(recipe, &OpenOptions::writable());
        let (file, queue, id) = bed.open("/sparse");
        bed.valve.hold(&[9]);
        let write = Request::write(id, 8192, filled(9, 512), 0);
        submit_until(&queue, vec![write], |_| bed.valve.holding() == 1);
        for _ in 0..50 {
            queue.reap(&mut Vec::new(), 0, None);
            assert!(all(&bytes(&file, 4096, 16384), 0));
            assert_eq!(
                file.mappings(8192, 1024).unwrap()[0].state,
                MappingState::Hole
            );
        }
        assert_eq!(queue.counters().pads, 1);
        bed.valve.hold(&[]);
        assert!(collect(&queue, 1)[0].result.is_ok());
        assert!(all(&bytes(&file, 8192, 512), 9) && all(&bytes(&file, 8704, 4096), 0));
        drop((file, queue));
        bed.judge();
    }
}

/// Rules G9, G7. If a write into a hole or an unwritten run fails, the range stays what it was and reads as zeros, never as what
/// the blocks held before.
#[test]
fn a_failed_fill_changes_nothing() {
    let _watchdog = Watchdog::new(LIMIT, "failed fill");
    let (_dir, image, files) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/holed", writable()).unwrap();
    let holed = files.iter().find(|k| k.path == "/holed").unwrap();
    let before = file.mappings(0, file.size()).unwrap();
    let blocks = file.metadata().blocks;
    valve.fail(&[3]);
    let new = before
        .iter()
        .filter(|m| !matches!(m.state, MappingState::Written(_)));
    for mapping in new.take(60) {
        for (pos, len) in [
            (mapping.start * 4096, 4096),
            (mapping.start * 4096 + 1024, 512),
        ] {
            let (_, result) = file.write_at(pos, filled(3, len));
            assert!(matches!(result, Err(Error::Device { .. })), "{result:?}");
        }
    }
    assert_eq!(file.mappings(0, file.size()).unwrap(), before);
    assert_eq!(file.metadata().blocks, blocks);
    assert!(bytes(&file, 0, holed.bytes.len()) == holed.bytes);
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// Rule G12. NOWAIT on new space, where the request would have to read, claim or wait: EAGAIN, which names the reason, and nothing
/// has happened; no gap is left in the order of appends.
#[test]
fn nowait_in_new_space_has_no_side_effect() {
    let _watchdog = Watchdog::new(LIMIT, "nowait in new space");
    for recipe in &RECIPES[..3] {
        let bed = Bed::new(recipe, &OpenOptions::writable());
        let (file, queue, id) = bed.open("/sparse");
        let before = (file.metadata().blocks, file.size(), file.metadata().mtime);
        let nowait = |n| Request::write(id, 65536, filled(1, 4096), n).with_flags(NOWAIT);
        let done = run_all(&queue, vec![nowait(0)]);
        assert!(
            matches!(
                done[0].result,
                Err(Error::WouldBlock(Wait::Space | Wait::Map))
            ),
            "{done:?}"
        );
        assert_eq!(
            (file.metadata().blocks, file.size(), file.metadata().mtime),
            before
        );
        assert!(all(&bytes(&file, 0, 1 << 20), 0));
        // While another request has the range.
        bed.valve.hold(&[2]);
        queue.submit(&mut VecDeque::from([Request::write(
            id,
            65536,
            filled(2, 4096),
            1,
        )]));
        while queue.counters().prepared == 0 {
            queue.reap(&mut Vec::new(), 0, None);
        }
        let mut refused = Vec::new();
        queue.submit(&mut VecDeque::from([nowait(2)]));
        while refused.is_empty() {
            queue.reap(&mut refused, 1, None);
        }
        assert!(
            matches!(refused[0].result, Err(Error::WouldBlock(Wait::Range))),
            "{refused:?}"
        );
        bed.valve.hold(&[]);
        assert!(collect(&queue, 1)[0].result.is_ok());
        assert!(all(&bytes(&file, 65536, 4096), 2));
        drop((file, queue));
        let (file, queue, id) = bed.open("/empty");
        for _ in 0..4 {
            let appends = vec![
                Request::append(id, filled(1, 4096), 0).with_flags(NOWAIT),
                Request::append(id, filled(2, 4096), 1),
            ];
            run_all(&queue, appends);
        }
        let end = file.size();
        let content = bytes(&file, 0, end as usize);
        assert!(
            content.chunks(4096).all(|c| all(c, 1) || all(c, 2)),
            "a gap"
        );
        drop((file, queue));
        bed.judge();
    }
}

/// Rules G12, C2. A submitter does not wait while a bitmap is read for another request of the same file. The defect: a lock of the
/// file was held meanwhile.
#[test]
fn a_claim_does_not_wait_for_a_bitmap_that_another_reads() {
    let _watchdog = Watchdog::new(LIMIT, "a bitmap that is being read");
    let bed = Bed::new(&RECIPES[0], &OpenOptions::writable());
    let (file, queue, id) = bed.open("/empty");
    file.truncate(1 << 20).unwrap();
    let bitmap = bed.volume.groups()[0].block_bitmap.get() * 4096;
    bed.valve.hold_reads(bitmap..bitmap + 4096);
    let write = |id, pos| Request::write(id, pos, filled(1, 4096), pos);
    queue.push(write(id, 0)).unwrap();
    drain_until(&queue, || bed.valve.holding() == 1);
    let other = bed.volume.queue(4).unwrap();
    let there = other.attach(&file).unwrap();
    let done = run_all(&other, vec![write(there, 1 << 16).with_flags(NOWAIT)]);
    assert!(
        matches!(&done[0].result, Err(Error::WouldBlock(Wait::Space))),
        "{done:?}"
    );
    assert_eq!(bed.valve.holding(), 1);
    bed.valve.hold_reads(0..0);
    collect(&queue, 1)[0].result.as_ref().unwrap();
    let done = run_all(&other, vec![write(there, 1 << 16)]);
    assert!(done[0].result.is_ok(), "{done:?}");
    drop((queue, other, file));
    bed.finish();
}
