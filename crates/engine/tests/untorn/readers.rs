//! Readers beside atomic writers, and requests that change the map meanwhile: no reader finds a mix of old and new.
//!
//! Input: threads that write units, each of one byte, and threads that read them directly and through the page cache. Output: none.
//! Invariant: all bytes of a unit are equal, or zeros where a hole was punched. Limits: `DIORITE_UNTORN_READS` reads; the full length is
//! 1,000,000.

use super::{FOUR_K, ONE_K, atomic, made, opened};
use crate::common::fixture::{filled, sim, writable};
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scaled, scratch};
use diorite::{Fallocate, File, OpenFlags, Volume};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const UNITS: u64 = 4;
const LEN: u64 = 16384;

fn check(bytes: &[u8], what: &str) {
    let other = bytes.iter().position(|b| *b != bytes[0]);
    assert_eq!(other, None, "{what}: {} and others", bytes[0]);
}

fn read_until(volume: &Volume, through_cache: bool, left: &AtomicU64, mut rng: Rng) {
    let flags = OpenFlags::default().direct(!through_cache);
    let file = volume.open_path("/file", flags).unwrap();
    let mut bytes = vec![0; LEN as usize];
    while left
        .fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1))
        .is_ok()
    {
        let pos = rng.below(UNITS) * LEN;
        if through_cache {
            assert_eq!(file.read_bytes(pos, &mut bytes).unwrap(), bytes.len());
            check(&bytes, "through the cache");
        } else {
            let (buf, got) = file.read_buf(pos, filled(0, LEN as usize));
            assert_eq!(got.unwrap() as u64, LEN);
            check(buf.as_slice(), "direct");
        }
    }
}

fn write_until(file: &File, over: &AtomicBool, mut rng: Rng) {
    while !over.load(Relaxed) {
        let pos = rng.below(UNITS) * LEN;
        let byte = 1 + rng.below(250) as u8;
        assert_eq!(atomic(file, pos, byte, LEN).unwrap() as u64, LEN);
    }
}

/// Whole units are punched and written back, so that holes are filled, and other blocks change meanwhile.
fn change_until(file: &File, over: &AtomicBool, mut rng: Rng) {
    while !over.load(Relaxed) {
        let pos = rng.below(UNITS) * LEN;
        match rng.below(4) {
            0 => file.fallocate(Fallocate::PunchHole, pos, LEN).unwrap(),
            1 => file.sync().unwrap(),
            2 => {
                let at = UNITS * LEN + rng.below(8) * 4096;
                file.write_bytes(at, &[3; 1000]).unwrap();
            }
            _ => file.truncate(UNITS * LEN + rng.below(100_000)).unwrap(),
        }
        thread::sleep(Duration::from_micros(300));
    }
}

fn beside(stage: &Stage, reads: u64, rng: &mut Rng) {
    let (volume, file) = opened(stage);
    file.truncate(UNITS * LEN).unwrap();
    (0..UNITS).for_each(|n| {
        assert_eq!(atomic(&file, n * LEN, 9, LEN).unwrap() as u64, LEN);
    });
    // Other files take what is free again: a block that is used too early shows.
    let other = volume.open_path("/filler", writable()).unwrap();
    let (over, left) = (AtomicBool::new(false), AtomicU64::new(reads));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|n| {
                let (rng, volume, left) = (rng.fork(), &volume, &left);
                scope.spawn(move || read_until(volume, n == 0, left, rng))
            })
            .collect();
        for _ in 0..2 {
            let (rng, file, over) = (rng.fork(), &file, &over);
            scope.spawn(move || write_until(file, over, rng));
        }
        let (rng, file, over) = (rng.fork(), &file, &over);
        scope.spawn(move || change_until(file, over, rng));
        scope.spawn(|| {
            let mut n = 0u64;
            while !over.load(Relaxed) {
                let mix: Vec<u8> = (0..65536).map(|at| (at / 512) as u8).collect();
                other.write_bytes(n % 64 * 65536, &mix).unwrap();
                if n % 16 == 15 {
                    other.sync().unwrap();
                    other.truncate(0).unwrap();
                }
                n += 1;
                thread::sleep(Duration::from_millis(1));
            }
        });
        let ended: Vec<_> = readers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        over.store(true, Relaxed);
        ended.into_iter().for_each(|r| r.unwrap());
    });
    drop((file, other));
    volume.close().unwrap();
    stage.fsck();
}

/// Several slices are read as if they were one, directly and through the page cache.
#[test]
fn slices_are_not_from_two_versions() {
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), &FOUR_K, "16M"));
    let (volume, file) = opened(&stage);
    let size = file.size() as usize;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (rng, file, over) = (Rng::from_env("untorn-slices"), &file, &over);
        assert_eq!(atomic(file, 0, 1, LEN).unwrap() as u64, LEN);
        scope.spawn(move || write_until(file, over, rng));
        let read = |direct| {
            let flags = OpenFlags::default().direct(direct);
            let file = volume.open_path("/file", flags).unwrap();
            let (mut a, mut b) = (vec![0; 5000], vec![0; LEN as usize - 5000]);
            for _ in 0..2000 {
                let mut out = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
                let got = file.read_vectored_at(&mut out, 0).unwrap();
                assert_eq!(got as u64, LEN);
                check(&[&a[..], &b].concat(), "in two slices");
            }
            // Over the end, and over more than one piece.
            let (mut a, mut b) = (vec![0; 70_001], vec![0; 2 << 20]);
            let mut out = [
                IoSliceMut::new(&mut a),
                IoSliceMut::new(&mut []),
                IoSliceMut::new(&mut b),
            ];
            assert_eq!(file.read_vectored_at(&mut out, 7).unwrap(), size - 7);
            let rest = size - 7 - a.len();
            assert!(a[65536..].iter().chain(&b[..rest]).all(|c| *c == 0x55));
            assert!(b[rest..].iter().all(|c| *c == 0));
        };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            read(true);
            read(false);
        }));
        over.store(true, Relaxed);
        ended.unwrap();
    });
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// `DIORITE_UNTORN_READS=1000000 cargo test --release -p diorite --test engine untorn::readers` is the full length.
#[test]
fn no_reader_sees_a_mix() {
    let _watchdog = Watchdog::new(Duration::from_secs(600), "untorn readers");
    let mut rng = Rng::from_env("untorn-readers");
    let reads = scaled("DIORITE_UNTORN_READS", 6000);
    let dir = scratch();
    let small = Stage::mem(&made(dir.path(), &ONE_K, "8M"));
    beside(&small, reads / 2, &mut rng);
    let dir = scratch();
    let slow = "latency=60us,jitter=200us,cache=volatile,fua=no";
    beside(
        &sim(&made(dir.path(), &FOUR_K, "16M"), slow),
        reads / 2,
        &mut rng,
    );
}
