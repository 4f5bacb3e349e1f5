//! Direct writes in flight over blocks that others read and write through the cache.

use crate::common::fixture::{attached, filled};
use crate::common::names::empty_bytes;
use crate::common::stage::mem_of;
use crate::common::valve::Valve;
use diorite::{File, OpenOptions, PageCache, Request, Volume};
use std::sync::Arc;
use std::time::Duration;

/// A file of two blocks that are on the device, behind a valve.
fn two_blocks(image: &[u8]) -> (Valve, Volume, File) {
    let valve = Valve::new(Arc::new(mem_of(image)));
    let device = Arc::new(valve.clone());
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    (valve, volume, file)
}

/// Sector 1 of a block is written directly while sector 5 is written through the cache: both are there afterwards. A read meanwhile is
/// answered, and leaves nothing behind that is out of date.
#[test]
fn sectors_of_one_block_are_written_both_ways() {
    let bytes = empty_bytes("16M", &["-t", "ext4", "-b", "4096"]);
    for dirty in [false, true] {
        let (valve, volume, file) = two_blocks(&bytes);
        if dirty {
            file.write_bytes(3 * 512, &[3; 512]).unwrap();
        }
        let (queue, id) = attached(&volume, &file, 4);
        valve.hold(&[9]);
        queue
            .push(Request::write(id, 512, filled(9, 512), 0))
            .unwrap();
        while valve.holding() == 0 {
            queue.reap(&mut Vec::new(), 0, None);
        }
        let writer = {
            let file = file.clone();
            std::thread::spawn(move || file.write_bytes(5 * 512, &[5; 512]).unwrap())
        };
        for _ in 0..100 {
            let mut block = [0; 4096];
            file.read_bytes(0, &mut block).unwrap();
            assert!(
                block[0] == 1 && [1, 9].contains(&block[512]),
                "{}",
                block[512]
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!writer.is_finished(), "it waits for the end of the claim");
        valve.hold(&[]);
        let mut done = Vec::new();
        queue.reap(&mut done, 1, None);
        assert_eq!(*done[0].result.as_ref().unwrap(), 512);
        writer.join().unwrap();
        let expected = [1, 9, 1, if dirty { 3 } else { 1 }, 1, 5, 1, 1];
        let sectors = |file: &diorite::File| {
            let mut block = [0; 4096];
            file.read_bytes(0, &mut block).unwrap();
            [0, 1, 2, 3, 4, 5, 6, 7].map(|n| block[n * 512])
        };
        assert_eq!(sectors(&file), expected);
        file.sync().unwrap();
        assert_eq!(file.read_buf(0, filled(0, 4096)).0.as_slice()[512], 9);
        assert_eq!(sectors(&file), expected);
        // Rule B9; reads beside a write are the caller's.
        let of_writes = |overlap: &String| overlap.matches("(writes: true)").count() == 2;
        assert!(!valve.overlaps().iter().any(of_writes));
        drop((queue, file));
        volume.close().unwrap();
    }
}

/// Rule B9: a block that was changed while it is written back is written again when that has ended, and not before.
#[test]
fn a_block_is_written_back_once_at_a_time() {
    let bytes = empty_bytes("16M", &["-t", "ext4", "-b", "4096"]);
    let (valve, volume, file) = two_blocks(&bytes);
    valve.hold(&[8, 9]);
    let syncing = |value| {
        file.write_bytes(0, &[value; 4096]).unwrap();
        let file = file.clone();
        std::thread::spawn(move || file.sync().unwrap())
    };
    let first = syncing(8);
    while valve.holding() == 0 {
        std::thread::yield_now();
    }
    let second = syncing(9);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(valve.holding(), 1);
        assert!(!second.is_finished());
    }
    valve.hold(&[]);
    first.join().unwrap();
    second.join().unwrap();
    assert_eq!(valve.overlaps(), Vec::<String>::new());
    assert_eq!(file.read_buf(0, filled(0, 4096)).0.as_slice()[0], 9);
    drop(file);
    volume.close().unwrap();
}

/// The size never covers bytes that were not written: what is dirty before a direct write behind the end is on the device before it.
/// Otherwise it would be zeros inside the file after a power cut.
#[test]
fn a_direct_write_behind_the_end_has_written_what_is_dirty_before_it() {
    let bytes = empty_bytes("16M", &["-t", "ext4", "-b", "4096"]);
    let cache = PageCache::new(1 << 20);
    let options = OpenOptions::writable().page_cache(cache.clone());
    let volume = Volume::open_device(Arc::new(mem_of(&bytes)), &options).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 10_000]).unwrap();
    assert_eq!(cache.dirty_bytes(), 12_288);
    file.write_buf(32_768, filled(9, 4096)).1.unwrap();
    assert_eq!((cache.dirty_bytes(), file.size()), (0, 36_864));
    // Two runs, of which a direct read needs the second one.
    file.write_bytes(40_960, &[2; 4096]).unwrap();
    file.write_bytes(81_920, &[3; 4096]).unwrap();
    assert_eq!(cache.dirty_bytes(), 8192);
    assert_eq!(file.read_buf(81_920, filled(0, 4096)).0.as_slice()[0], 3);
    assert_eq!((cache.dirty_bytes(), file.size()), (0, 86_016));
}
