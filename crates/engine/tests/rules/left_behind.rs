//! What an error leaves behind: bytes past the end of a file, and claimed blocks (rules D9, D11, U9, U10).
//!
//! Input: volumes on a device that holds requests, fails them, or executes them and reports a failure. Output: none. Invariants: bytes
//! that were never written are never shown, and all free space can be used; e2fsck judges the end. Limits: the cases of a few requests.

use crate::common::fixture::{DSYNC, LIMIT, filled, known, made, run_all, writable};
use crate::common::recipe::RECIPES;
use crate::common::stage::Stage;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::rules::bed::{Bed, drain_until, push_out, quiet, without_caches};
use diorite::{Error, File, MappingState, OpenFlags, OpenOptions, Request, Volume};
use std::collections::VecDeque;
use std::sync::Arc;

/// What happens to a file after a write past its end has failed.
#[derive(Clone, Copy, Debug)]
enum After {
    Truncate,
    Write,
    /// A write further on that was in flight before.
    WriteBefore,
}

/// Rules D9, U9, U10. The defect: a write into the rest of the last block reached the device but was reported as failed. The note
/// that the bytes past the end are zeros stayed, and once the file became longer it showed the written bytes. They read as zeros,
/// whichever operation makes the file longer.
#[test]
fn what_a_failed_write_left_behind_the_end_is_not_shown() {
    let _watchdog = Watchdog::new(LIMIT, "behind the end");
    // In the second of each pair, the end of the last block was zeroed before. Until then, no write overtakes another.
    let cases = [
        (After::Truncate, false),
        (After::Truncate, true),
        (After::Write, false),
        (After::Write, true),
        (After::WriteBefore, true),
    ];
    for (after, first_zeroed) in cases {
        let bed = Bed::new(&RECIPES[0], &quiet());
        let (file, queue, id) = bed.open("/odd");
        let mut size = 100_001;
        if first_zeroed {
            size = 100_352;
            let done = run_all(&queue, vec![Request::write(id, 99_840, filled(5, 512), 0)]);
            assert!(done[0].result.is_ok(), "{done:?}");
        }
        assert_eq!(file.size(), size);
        bed.valve.lie(&[0xBD]);
        bed.valve.hold(&[7]);
        let behind = || Request::write(id, 1 << 20, filled(7, 512), 1);
        if matches!(after, After::WriteBefore) {
            queue.submit(&mut VecDeque::from([behind()]));
            drain_until(&queue, || bed.valve.holding() == 1);
        }
        let other = bed.volume.queue(4).unwrap();
        let other_id = other.attach(&file).unwrap();
        let bad = Request::write(other_id, 100_864, filled(0xBD, 512), 0);
        let failed = run_all(&other, vec![bad]).remove(0).result;
        assert!(matches!(failed, Err(Error::Device { .. })), "{failed:?}");
        assert_eq!(file.size(), size);
        bed.valve.hold(&[]);
        match after {
            After::Truncate => file.truncate(102_400).unwrap(),
            After::Write => {
                let done = run_all(&queue, vec![behind()]);
                assert!(done[0].result.is_ok(), "{done:?}");
            }
            After::WriteBefore => {
                let mut done = Vec::new();
                queue.reap(&mut done, 1, None);
                assert!(done[0].result.is_ok(), "{done:?}");
            }
        }
        let mut bytes = vec![0xEE; 102_400 - size as usize];
        file.read_bytes(size, &mut bytes).unwrap();
        let shown: Vec<u8> = bytes.into_iter().filter(|b| *b != 0).take(4).collect();
        assert!(shown.is_empty(), "{after:?}, {first_zeroed}: {shown:x?}");
        drop((queue, other));
        bed.judge();
    }
}

/// Rule D9. The defect: a truncation noted that the bytes past the new end are zeros before the size had moved. It failed, and the
/// bytes past the old end became visible when the file was made longer.
#[test]
fn a_truncation_that_fails_knows_nothing_of_the_old_end() {
    let _watchdog = Watchdog::new(LIMIT, "a truncation that fails");
    let (_dir, image, files) = made(0);
    let size = known(&files, "/pieces").bytes.len() as u64;
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let options = without_caches();
    // Garbage past the end, as a memory mapping of the last page may leave it.
    let peek = stage.open(&OpenOptions::default()).unwrap();
    let file = peek.open_path("/pieces", OpenFlags::default()).unwrap();
    let last = file.mappings(size - 1, 1).unwrap()[0];
    let MappingState::Written(place) = last.state else {
        panic!("{last:?}")
    };
    drop((file, peek));
    let sector = place.get() * 4096 + size.next_multiple_of(512) % 4096;
    let blocking = diorite_block::Blocking::new(stage.device.clone());
    let garbage = diorite_block::Bio::write(sector, filled(0xCC, 512), 0);
    blocking.run(garbage).result.unwrap();

    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/pieces", writable()).unwrap();
    // The node that the root's first entry points to: a leaf of the map, or a node above one.
    let node = leaf_of(&file) * 4096;
    // So that it has to be read from the device.
    push_out(&volume);
    valve.fail_reads(node..node + 4096);
    let cut = file.truncate(8192);
    valve.fail_reads(0..0);
    assert!(matches!(cut, Err(Error::Device { .. })), "{cut:?}");
    assert_eq!(file.size(), size, "it has changed nothing");
    file.truncate(size + 8192).unwrap();
    let mut bytes = [0xEE; 8192];
    file.read_bytes(size, &mut bytes).unwrap();
    let shown: Vec<u8> = bytes.into_iter().filter(|b| *b != 0).take(4).collect();
    assert!(shown.is_empty(), "{shown:x?}");
}

/// The block that the first entry in the root of a file's extent tree points to.
fn leaf_of(file: &File) -> u64 {
    let root = &file.metadata().i_block;
    assert!(root[6] > 0, "the tree has a node below its root");
    u64::from(u32::from_le_bytes(root[16..20].try_into().unwrap()))
}

/// Rule D11. The defect: a conversion that failed while it loaded its map kept the blocks claimed for it until the volume was
/// opened again. After many such failures, all space that is free on disk can be written.
#[test]
fn claims_of_failed_conversions_come_back() {
    let watchdog = Watchdog::new(LIMIT, "failed conversions");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let options = without_caches();
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/holed", writable()).unwrap();
    let leaf = leaf_of(&file) * 4096;
    let empty = volume.open_path("/empty", writable()).unwrap();
    empty
        .call(diorite::Op::Write, 0, filled(1, 4096), DSYNC)
        .1
        .unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    let mappings = file.mappings(0, file.size()).unwrap();
    let holes = mappings.iter().filter(|m| m.state == MappingState::Hole);
    let holes: Vec<u64> = holes.map(|m| m.start).collect();
    let mut failed = 0;
    for block in holes.iter().take(100).cycle().take(200) {
        watchdog.feed(format!("block {block}"));
        valve.hold(&[0xD7]);
        let write = Request::write(id, block * 4096, filled(0xD7, 4096), 0).with_flags(DSYNC);
        queue.submit(&mut VecDeque::from([write]));
        drain_until(&queue, || valve.holding() == 1);
        // Evict the map from the caches.
        push_out(&volume);
        valve.fail_reads(leaf..leaf + 4096);
        valve.hold(&[]);
        let mut done = Vec::new();
        queue.reap(&mut done, 1, None);
        valve.fail_reads(0..0);
        failed += u32::from(done[0].result.is_err());
    }
    assert!(failed > 150, "{failed} conversions failed");
    fill(&volume);
    drop((queue, file, empty));
    volume.close().unwrap();
    let again = stage.open(&quiet()).unwrap();
    assert_eq!(
        fill(&again),
        0,
        "blocks were free on disk that nobody could have"
    );
    again.close().unwrap();
    stage.fsck();
}

/// Writes until there is no space. Returns the number of blocks.
fn fill(volume: &Volume) -> u64 {
    let file = volume.open_path("/empty", writable()).unwrap();
    let from = file.size().next_multiple_of(4096);
    let mut pos = from;
    for len in [1 << 20, 64 << 10, 4096] {
        while file.write_buf(pos, filled(0x5A, len)).1.is_ok() {
            pos += len as u64;
        }
    }
    (pos - from) / 4096
}
