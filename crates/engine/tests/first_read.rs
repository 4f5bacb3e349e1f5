//! Reads and overwrites one file of a real image with many requests in flight, and compares every byte.

#![allow(clippy::unwrap_used)]

mod common;

use common::names::empty;
use common::{Rng, fsck, image, scratch};
use diorite::{OpenFlags, OpenOptions, Request, Volume};
use diorite_block::{Buf, Locator, locator};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Lock statistics are per process, so only one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_real_image_is_read_and_overwritten() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = Rng::from_env("first_read");
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("sub/deep")).unwrap();
    let mut bytes = vec![0; 3_000_001];
    rng.fill(&mut bytes);
    std::fs::write(source.join("sub/deep/file"), &bytes).unwrap();
    std::os::unix::fs::symlink("deep/file", source.join("sub/link")).unwrap();
    let image = image(dir.path(), "32M", &["-t", "ext4", "-b", "4096"], &source);

    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume
        .open_path("/sub/link", OpenFlags::writable().direct(true))
        .unwrap();
    assert_eq!(file.size(), bytes.len() as u64);
    let mut out = vec![0; bytes.len()];
    assert_eq!(file.read_bytes(0, &mut out).unwrap(), bytes.len());
    assert!(out == bytes);

    let queue = volume.queue(256).unwrap();
    let id = queue.attach(&file).unwrap();
    let mut batch: VecDeque<Request> = VecDeque::new();
    for n in 0..300u64 {
        let mut buf = Buf::zeroed(2048);
        rng.fill(buf.as_mut_slice());
        let pos = n * 2048;
        bytes[pos as usize..pos as usize + 2048].copy_from_slice(buf.as_slice());
        batch.push_back(Request::write(id, pos, buf, n));
    }
    let mut done = Vec::new();
    while done.len() < 300 {
        queue.submit(&mut batch);
        queue.reap(&mut done, 1, None);
    }
    assert!(
        done.iter().all(|c| matches!(c.result, Ok(2048))),
        "{:?}",
        done.iter().find(|c| c.result.is_err())
    );
    assert_eq!(queue.counters().inline, 300);
    drop(queue);
    file.sync().unwrap();
    drop(file);
    volume.close().unwrap();
    fsck(&image);

    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let file = volume
        .open_path("sub/deep/file", OpenFlags::default())
        .unwrap();
    assert_eq!(file.read_bytes(0, &mut out).unwrap(), bytes.len());
    assert!(out == bytes);
    assert!(
        volume
            .open_path("sub/nowhere", OpenFlags::default())
            .is_err()
    );
}

/// Rules U6, C2: neither a read nor the completion of an overwrite takes the inode lock, according to the lock statistics.
#[test]
fn readers_and_completions_take_no_inode_lock() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("file"), vec![7; 1 << 20]).unwrap();
    let image = image(dir.path(), "16M", &["-t", "ext4", "-b", "4096"], &source);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let flags = OpenFlags::writable();
    let file = volume.open_path("/file", flags).unwrap();
    let queue = volume.queue(64).unwrap();
    let id = queue.attach(&file).unwrap();
    let taken = || {
        let all = diorite::stats::lock_stats();
        let inode = all.iter().find(|(name, _)| *name == "inode");
        inode.unwrap().1.acquired
    };
    let run = |write: bool, count: u64| {
        let before = taken();
        // The last requests reach past the end, and are not a multiple of a block.
        let requests = (0..count).map(|n| match write {
            true => Request::write(id, n * 4096, Buf::zeroed(4096), n),
            false => Request::read(id, n * 5632, Buf::zeroed(5632), n),
        });
        let (mut batch, mut done) = (requests.collect::<VecDeque<_>>(), Vec::new());
        while !batch.is_empty() {
            queue.submit(&mut batch);
            queue.reap(&mut done, 0, None);
        }
        let submitted = taken() - before;
        while (done.len() as u64) < count {
            queue.reap(&mut done, 1, None);
        }
        assert!(done.iter().all(|d| d.result.is_ok()));
        (submitted, taken() - before)
    };
    run(false, 200);
    assert_eq!(run(false, 200), (0, 0), "reads");
    // Each is counted: a lock is shared by slots of threads, which nobody counts, when 100 have shared the lock itself.
    let (_, all) = run(true, 90);
    assert_eq!(all, 90, "a write takes it once, to be submitted");
    drop(queue);
    drop(file);
    volume.close().unwrap();
}

/// The defect: opening for reading made a ring only to name the I/O engine, and the journal's superblock was read by a queue with a second
/// ring and a thread.
#[test]
fn opening_for_reading_looks_for_no_engine() {
    let dir = scratch();
    let image = empty(dir.path(), "16M", &["-t", "ext4"]);
    let options = diorite_block::OpenOptions::default().read_only(true);
    let device = locator::open(&Locator::file(&image), &options).unwrap();
    let volume = Volume::open_device(device.clone(), &OpenOptions::default()).unwrap();
    let journal = volume.journal_superblock().unwrap().unwrap();
    assert_eq!(journal.block_size, volume.superblock().block_size());
    assert_eq!(device.report_so_far().engine, "");
    assert_ne!(device.report().engine, "");
    assert_eq!(device.report_so_far().engine, device.report().engine);
}
