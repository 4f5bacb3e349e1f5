//! Many writers of one new block: the zeros around the data are written once, no writer's sectors are lost, and no two bios in
//! flight overlap (rules B4 to B9, G18).
//!
//! Input: volumes whose free space is poison. Output: none. Invariants: counts are asserted, times never; e2fsck judges the end.
//! Limits: only some rounds of the races run by default; `DIORITE_BLOCK_ROUNDS=100000` is the long form.

use crate::common::fixture::{LIMIT, filled, made, run_all, writable};
use crate::common::recipe::{POISON, RECIPES, Recipe, bare};
use crate::common::stage::Stage;
use crate::common::storm::storm;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scaled, scratch};
use crate::rules::bed::Bed;
use diorite::{Error, Fallocate, MappingState, OpenOptions, Request, Volume};
use std::collections::VecDeque;
use std::sync::{Arc, Barrier};

/// As [`RECIPES`], with blocks of 64 sectors or more.
const LARGE: Recipe = Recipe {
    name: "ext4-64k",
    args: &["-t", "ext4", "-b", "65536", "-O", "^has_journal"],
    size: "64M",
    block: 65536,
    cluster: 1,
    extents: true,
};

/// Rule B4. Several writers write distinct sectors of one new block: each sector ends with its writer's data, the others are zeros,
/// and only one writer wrote zeros.
#[test]
fn one_writer_pads_a_new_block() {
    let _watchdog = Watchdog::new(LIMIT, "pads");
    for (recipe, writers) in [(&RECIPES[0], 7), (&RECIPES[3], 5), (&LARGE, 64)] {
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), recipe));
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let file = volume.open_path("/sparse", writable()).unwrap();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (volume, file, start) = (&volume, &file, &start);
                scope.spawn(move || {
                    let queue = volume.queue(64).unwrap();
                    let id = queue.attach(file).unwrap();
                    let mine = (0..writers).filter(|n| n % 4 == thread);
                    let requests = mine
                        .map(|n| Request::write(id, n * 512, filled(n as u8 + 1, 512), n))
                        .collect();
                    start.wait();
                    let done = run_all(&queue, requests);
                    assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
                });
            }
        });
        assert_eq!(volume.counters().pads, 1, "{}", recipe.name);
        let mut block = vec![0xEE; recipe.block as usize];
        file.read_bytes(0, &mut block).unwrap();
        for (n, sector) in block.chunks(512).enumerate() {
            let want = if (n as u64) < writers { n as u8 + 1 } else { 0 };
            assert!(
                sector.iter().all(|b| *b == want),
                "{}: sector {n}",
                recipe.name
            );
        }
        drop(file);
        volume.close().unwrap();
        stage.fsck();
    }
}

/// Rules B4a, B6, G18. One writer writes a whole new block and another some of its sectors, at the same time; at times the first
/// one fails. Outside the second one's range the block holds the first one's data, or zeros if that failed; inside there is
/// either's data, in whole sectors.
#[test]
fn whole_and_part_of_a_new_block_together() {
    let rounds = scaled("DIORITE_BLOCK_ROUNDS", 2000);
    let mut rng = Rng::from_env("whole and part");
    for recipe in [&RECIPES[0], &RECIPES[3]] {
        let dir = scratch();
        for lap in 0..rounds.div_ceil(2 * 250) {
            let _watchdog = Watchdog::new(LIMIT, format!("{}, lap {lap}", recipe.name));
            let stage = Stage::mem(&bare(dir.path(), recipe));
            let valve = Valve::new(stage.device.clone());
            let volume =
                Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
            valve.fail(&[0xF0]);
            whole_and_part(&volume, &mut rng);
            volume.close().unwrap();
            assert_eq!(valve.overlaps(), [""; 0], "rule B9");
            stage.fsck();
        }
    }
}

fn whole_and_part(volume: &Volume, rng: &mut Rng) {
    let file = volume.open_path("/sparse", writable()).unwrap();
    let start = Barrier::new(2);
    let parts: Vec<(u64, u64)> = (0..250)
        .map(|_| {
            let first = rng.below(8);
            (first, 1 + rng.below(8 - first))
        })
        .collect();
    let fails = |block: u64| block % 5 == 3;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let queue = volume.queue(32).unwrap();
            let id = queue.attach(&file).unwrap();
            start.wait();
            for block in 0..250u64 {
                let byte = if fails(block) { 0xF0 } else { 1 };
                let done = run_all(
                    &queue,
                    vec![Request::write(id, block * 4096, filled(byte, 4096), 0)],
                );
                assert_eq!(done[0].result.is_err(), fails(block));
            }
        });
        let queue = volume.queue(32).unwrap();
        let id = queue.attach(&file).unwrap();
        start.wait();
        for (block, (first, count)) in (0..).zip(&parts) {
            let (pos, len) = (block * 4096 + first * 512, *count as usize * 512);
            let done = run_all(&queue, vec![Request::write(id, pos, filled(2, len), 0)]);
            assert!(done[0].result.is_ok());
        }
    });
    let mut bytes = vec![0xEE; 250 * 4096];
    file.read_bytes(0, &mut bytes).unwrap();
    for (n, sector) in (0u64..).zip(bytes.chunks(512)) {
        let (block, at) = (n / 8, n % 8);
        let (first, count) = parts[block as usize];
        let inside = (first..first + count).contains(&at);
        let byte = sector[0];
        assert!(sector.iter().all(|b| *b == byte), "sector {n} is torn");
        let outside = if fails(block) { 0 } else { 1 };
        let ok = if inside {
            byte == 2 || byte == 1 && !fails(block)
        } else {
            byte == outside
        };
        assert!(
            ok,
            "block {block}, sector {at}: {byte:#x}, part {first}+{count}"
        );
    }
}

/// Rules B5, B7. Two writers past the end, in the block in which the file ends: the second waits for the first. Afterwards the data
/// of both is there, with the old bytes before them and zeros between.
#[test]
fn writers_behind_the_end_share_its_block() {
    let _watchdog = Watchdog::new(LIMIT, "end block");
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    let valve = Valve::new(stage.device.clone());
    let volume = Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    // The file ends in the fourth sector of its last block.
    let last = 100_001 / 4096 * 4096;
    valve.hold(&[1]);
    let first = Request::write(id, last + 5 * 512, filled(1, 512), 1);
    let second = Request::write(id, last + 7 * 512, filled(2, 512), 2);
    queue.submit(&mut VecDeque::from([first, second]));
    let mut done = Vec::new();
    while queue.counters().parked_for_range == 0 {
        queue.reap(&mut done, 0, None);
    }
    assert!(done.is_empty() && file.size() == 100_001);
    valve.hold(&[]);
    while done.len() < 2 {
        queue.reap(&mut done, 1, None);
    }
    assert!(done.iter().all(|d| d.result.is_ok()));
    assert_eq!(file.size(), last + 4096);
    let mut bytes = vec![0xEE; file.size() as usize];
    file.read_bytes(0, &mut bytes).unwrap();
    assert!(bytes[..100_001].iter().all(|b| *b == 0x55));
    assert!(
        bytes[100_001..last as usize + 5 * 512]
            .iter()
            .all(|b| *b == 0)
    );
    for (sector, byte) in [(5, 1), (6, 0), (7, 2)] {
        let at = last as usize + sector * 512;
        assert!(
            bytes[at..at + 512].iter().all(|b| *b == byte),
            "sector {sector}"
        );
    }
    drop((file, queue));
    volume.close().unwrap();
    assert_eq!(valve.overlaps(), [""; 0], "rule B9");
    stage.fsck();
}

/// Rule B9. Many requests that do not overlap, over holes, unwritten runs and the end: no two bios in flight overlap of which one
/// writes, those of the journal included.
#[test]
fn no_two_bios_in_flight_overlap() {
    let mut rng = Rng::from_env("overlaps");
    for (n, recipe) in RECIPES[..4].iter().enumerate() {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let (_dir, image, files) = made(n);
        let stage = Stage::mem(&image);
        let valve = Valve::new(stage.device.clone());
        let volume =
            Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
        std::thread::scope(|scope| {
            for known in files
                .iter()
                .filter(|k| ["/holed", "/sparse", "/tiny"].contains(&k.path.as_str()))
            {
                let (volume, mut rng) = (&volume, rng.fork());
                scope.spawn(move || {
                    let file = volume.open_path(&known.path, writable()).unwrap();
                    let end = known.bytes.len() as u64 + 40 * known.block;
                    storm(volume, &file, known, 0..end, 400, &mut rng);
                });
            }
        });
        volume.close().unwrap();
        assert_eq!(valve.overlaps(), [""; 0], "{}", recipe.name);
        stage.fsck();
    }
}

/// Rules B5, B7, U11. A write into the file's last block zeroes what lies past the end. A second write far past the end waits for
/// that, and does not zero these bytes again while the first is in flight.
#[test]
fn who_writes_far_behind_the_end_waits_for_its_block() {
    let _watchdog = Watchdog::new(LIMIT, "far behind");
    let options = OpenOptions::writable().workers(2);
    let bed = Bed::new(&RECIPES[0], &options);
    let (file, queue, id) = bed.open("/odd");
    let last = 100_001 / 4096 * 4096;
    // Holds the write of the sector in which the file ends, with zeros past the end.
    bed.valve.hold(&[0x55]);
    queue.submit(&mut VecDeque::from([
        Request::write(id, last + 5 * 512, filled(1, 512), 1),
        Request::write(id, last + 16 * 4096, filled(2, 4096), 2),
    ]));
    let mut done = Vec::new();
    while queue.counters().parked_for_range == 0 && queue.counters().prepared < 2 {
        queue.reap(&mut done, 0, None);
    }
    assert_eq!(queue.counters().parked_for_range, 1, "it waits");
    bed.valve.hold(&[]);
    while done.len() < 2 {
        queue.reap(&mut done, 1, None);
    }
    assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
    let mut bytes = vec![0xEE; file.size() as usize];
    file.read_bytes(0, &mut bytes).unwrap();
    let last = last as usize;
    let runs = [
        (0, 0x55),
        (100_001, 0),
        (last + 5 * 512, 1),
        (last + 6 * 512, 0),
        (last + 16 * 4096, 2),
        (last + 17 * 4096, 9),
    ];
    for run in runs.windows(2) {
        let (from, to) = (run[0].0, run[1].0);
        assert!(bytes[from..to].iter().all(|b| *b == run[0].1), "{from}");
    }
    drop((file, queue));
    bed.judge();
}

/// Rule B6. One part of a write into a new block fails: the zeros before the data, the data, or the zeros after it. The other parts
/// are written all the same. The write has failed, and the block never shows any of it, also after a later write to the block.
#[test]
fn a_part_of_a_new_block_fails() {
    let _watchdog = Watchdog::new(LIMIT, "a part fails");
    let bed = Bed::new(&RECIPES[0], &OpenOptions::writable());
    let (file, queue, _) = bed.open("/sparse");
    let keep_size = true;
    let mode = Fallocate::Allocate { keep_size };
    file.fallocate(mode, 0, 3 * 4096).unwrap();
    let place = |pos| match file.mappings(pos, 4096).unwrap()[0].state {
        MappingState::Unwritten(at) => at.get() * 4096,
        other => panic!("{other:?}"),
    };
    let parts = [(0..1024, 0), (1024..2560, 7), (2560..4096, 0)];
    for (n, (failing, _)) in (0..).zip(parts.clone()) {
        let (pos, at) = (n * 4096, place(n * 4096));
        bed.valve.fail_at(at + failing.start..at + failing.end);
        let (_, result) = file.write_buf(pos + 1024, filled(7, 1536));
        assert!(matches!(result, Err(Error::Device { .. })), "{result:?}");
        bed.valve.fail_at(0..0);
        assert_eq!(place(pos), at, "it stays unwritten");
        let mut block = [0xEE; 4096];
        file.read_bytes(pos, &mut block).unwrap();
        assert_eq!(block, [0; 4096]);
        let below = bed.stage.bytes();
        for (part, byte) in parts.clone() {
            let want = if part == failing { POISON } else { byte };
            let range = (at + part.start) as usize..(at + part.end) as usize;
            let same = below[range].iter().all(|b| *b == want);
            assert!(same, "{part:?} where {failing:?} fails");
        }
        file.write_buf(pos + 2048, filled(8, 512)).1.unwrap();
        file.read_bytes(pos, &mut block).unwrap();
        for (sector, bytes) in block.chunks(512).enumerate() {
            let want = if sector == 4 { 8 } else { 0 };
            assert!(bytes.iter().all(|b| *b == want), "sector {sector}");
        }
    }
    drop((file, queue));
    bed.judge();
}

/// Rules G18, B9. A write that makes a file longer has the bytes past the old end zeroed, in the sector of the end and after it. An
/// overwrite of other sectors of that block neither waits for that nor is undone by it.
#[test]
fn zeros_behind_the_end_undo_no_overwrite() {
    let _watchdog = Watchdog::new(LIMIT, "beside the end");
    let bed = Bed::new(&RECIPES[0], &OpenOptions::writable());
    let (file, queue, id) = bed.open("/odd");
    let (_, overwrites, over_id) = bed.open("/odd");
    let (last, end) = (100_001 / 4096 * 4096, 100_001 / 512 * 512);
    // The bytes before the end are written together with the zeros after it.
    bed.valve.hold(&[0x55]);
    queue.submit(&mut [Request::write(id, last + 2 * 4096, filled(1, 4096), 0)].into());
    while bed.valve.holding() == 0 {
        queue.reap(&mut Vec::new(), 0, None);
        std::thread::yield_now();
    }
    let before_the_end = (last..end).step_by(512);
    let overwrite = |pos: u64| Request::write(over_id, pos, filled(3, 512), pos);
    let done = run_all(&overwrites, before_the_end.map(overwrite).collect());
    assert!(done.len() == 3 && done.iter().all(|d| d.result.is_ok()));
    assert_eq!((bed.valve.holding(), overwrites.counters().parked), (1, 0));
    bed.valve.hold(&[]);
    let mut done = Vec::new();
    while done.is_empty() {
        queue.reap(&mut done, 1, None);
    }
    let mut bytes = vec![0xEE; 3 * 4096];
    assert_eq!(file.read_bytes(last, &mut bytes).unwrap(), bytes.len());
    let runs = [(last, 3), (end, 0x55), (100_001, 0), (last + 8192, 1)];
    for (at, byte) in (last..).zip(bytes) {
        let run = runs.iter().rfind(|(from, _)| *from <= at).unwrap();
        assert_eq!(byte, run.1, "byte {at}");
    }
    drop((file, queue, overwrites));
    bed.judge();
}
