//! Interleavings of futures that are awaited, cancelled and dropped with the thread that completes them, on whole volumes in memory.
//!
//! Input: tasks of several threads. Output: assertions. Invariants: every buffer comes back once, to its task or to whoever takes those of
//! cancelled requests; when the last handle is gone nothing is left of the queue. Limits: no time passes, so no call by name is made.
#![cfg(feature = "_shuttle")]
#![allow(clippy::unwrap_used, missing_docs)]

use diorite::device::MemDevice;
use diorite::{Buf, OpenFlags, OpenOptions, Volume};
use diorite_async::{AsyncFile, AsyncVolume};
use diorite_block::sync::thread;
use futures_lite::future::poll_once;
use shuttle::Runner;
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const BLOCK: usize = 4096;
const SCHEDULES: usize = 400;

/// A volume with one file of a few written blocks.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, path) = (dir.path().join("source"), dir.path().join("image"));
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), vec![1; 8 * BLOCK]).unwrap();
        let made = std::process::Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-J", "size=1", "-d"])
            .args([&source, &path])
            .arg("4M")
            .status()
            .unwrap();
        assert!(made.success());
        std::fs::read(path).unwrap()
    })
}

fn opened() -> Volume {
    let device = MemDevice::new(image().len() as u64);
    device.write_at(0, image());
    Volume::open_device(Arc::new(device), &OpenOptions::writable()).unwrap()
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    image();
    let test = Arc::new(test);
    let again = test.clone();
    let mut config = shuttle::Config::new();
    // The engine's calls are deeper than shuttle's default expects.
    config.stack_size = 1 << 20;
    let random = RandomScheduler::new(SCHEDULES);
    Runner::new(random, config.clone()).run(move || test());
    Runner::new(PctScheduler::new(3, SCHEDULES / 3), config).run(move || again());
}

/// Asks for a write and drops its future, then waits for another one.
fn act(file: &AsyncFile, n: u64) {
    let pos = 2 * n * BLOCK as u64;
    let mut cancelled = Box::pin(file.write_at(pos, Buf::zeroed(BLOCK)));
    assert!(block_on(poll_once(cancelled.as_mut())).is_none());
    drop(cancelled);
    let pos = pos + BLOCK as u64;
    let (_, written) = block_on(file.write_at(pos, Buf::zeroed(BLOCK)));
    assert_eq!(written.unwrap(), BLOCK);
    block_on(file.sync_data()).unwrap();
}

/// More requests than the queue has room for, so some are withdrawn, some are submitted by whoever makes room.
#[test]
fn cancelled_requests_give_their_buffers_back_once() {
    check(|| {
        let volume = AsyncVolume::new(opened(), 1).unwrap();
        let back = Arc::new(AtomicUsize::new(0));
        let counted = back.clone();
        volume.on_cancelled(move |buf| {
            assert_eq!(buf.len(), BLOCK);
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let file = volume
            .blocking()
            .open_path("/file", OpenFlags::writable())
            .unwrap();
        let file = volume.attach(file).unwrap();
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let file = file.clone();
                thread::spawn(move || act(&file, n))
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        drop(file);
        let blocking = volume.blocking().clone();
        // Ends the thread, after what is under way.
        drop(volume);
        assert_eq!(back.load(Ordering::SeqCst), 3);
        blocking.close().unwrap();
    });
}

/// The last handle goes while a cancelled request is under way: the thread that completes it drops the file, and ends.
#[test]
fn the_thread_drops_the_last_file() {
    check(|| {
        let blocking = opened();
        let volume = AsyncVolume::new(blocking.clone(), 2).unwrap();
        let file = blocking.open_path("/file", OpenFlags::writable()).unwrap();
        let file = volume.attach(file).unwrap();
        drop(volume);
        let mut write = Box::pin(file.write_at(0, Buf::zeroed(BLOCK)));
        assert!(block_on(poll_once(write.as_mut())).is_none());
        drop(file);
        drop(write);
    });
}
