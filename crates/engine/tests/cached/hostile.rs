//! Calls, and orders of calls, that broke a promise once: a hostile reader found them.

use crate::cached::alone;
use crate::common::fixture::{sim, writable};
use crate::common::names::{empty, empty_bytes};
use crate::common::stage::mem_of;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{fsck, scratch};
use diorite::{OpenFlags, OpenOptions, PageCache, RenameFlags, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

fn within<T: Send + 'static>(secs: u64, what: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let _ = tell.send(what());
    });
    told.recv_timeout(Duration::from_secs(secs))
        .expect("it hangs or has panicked")
}

/// Files of other volumes are written to their own device.
#[test]
fn write_back_of_another_volume_s_file() {
    let (_d1, image1, one) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let (_d2, image2, two) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let mine = one.create("/mine", 0o644).unwrap();
    mine.write_bytes(0, &[1; 8 << 20]).unwrap();
    one.sync().unwrap();
    let theirs = two.create("/theirs", 0o644).unwrap();
    theirs.write_bytes(0, &[2; 8 << 20]).unwrap();
    one.write_back(&[&theirs]);
    theirs.write_back().unwrap();
    drop((mine, theirs));
    one.close().unwrap();
    two.close().unwrap();
    let read = |image: &std::path::Path, path: &str, byte: u8| {
        let volume = crate::common::names::open(image, false);
        let file = volume.open_path(path, OpenFlags::default()).unwrap();
        let mut all = vec![0; 8 << 20];
        assert_eq!(file.read_bytes(0, &mut all).unwrap(), 8 << 20);
        all.iter().filter(|b| **b != byte).count()
    };
    let wrong = read(&image2, "/theirs", 2) + read(&image1, "/mine", 1);
    fsck(&image1);
    fsck(&image2);
    assert_eq!(wrong, 0);
}

/// Rule D7, for read-ahead.
#[test]
fn sequential_read_at_the_largest_position() {
    let (_d, _i, volume) = alone("64M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &vec![1; 16 << 20]).unwrap();
    file.sync().unwrap();
    file.truncate(16 << 20).unwrap();
    let file = volume.open_ino(file.ino(), OpenFlags::default()).unwrap();
    let mut out = vec![0; 16 << 10];
    for n in 0..16 {
        file.read_bytes(n * (16 << 10), &mut out).unwrap();
    }
    assert_eq!(file.read_bytes(u64::MAX, &mut out).unwrap(), 0);
    assert_eq!(file.read_bytes(u64::MAX, &mut out).unwrap(), 0);
}

/// Rule D7, for a bounced read of a file with pages.
#[test]
fn direct_read_at_the_largest_position() {
    let (_d, _i, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 4096]).unwrap();
    let direct = writable().direct(true);
    let file = volume.open_ino(file.ino(), direct).unwrap();
    let mut out = vec![0; 4096];
    assert_eq!(file.read_bytes(u64::MAX, &mut out).unwrap(), 0);
}

/// A file without a name that has the number of a deleted one is written back, too.
#[test]
fn a_nameless_inode_number_is_used_again() {
    let (_d, _i, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let mut same = false;
    for _ in 0..200 {
        let a = volume.temporary("/", 0o644).unwrap();
        a.write_bytes(0, &[1; 8192]).unwrap();
        let ino = a.ino();
        drop(a);
        // Deletes what has no user; commits.
        volume.create("/x", 0o644).unwrap().sync().unwrap();
        volume.unlink("/x").unwrap();
        let b: Vec<_> = (0..4)
            .map(|_| volume.temporary("/", 0o644).unwrap())
            .collect();
        let Some(b) = b.into_iter().find(|b| b.ino() == ino) else {
            continue;
        };
        same = true;
        b.write_bytes(0, &[2; 8192]).unwrap();
        volume.sync().unwrap();
        assert_eq!(
            volume.page_cache().dirty_bytes(),
            0,
            "volume.sync overlooks it"
        );
    }
    assert!(same, "no number was used again");
}

/// Rule D8: no inode is kept for pages that it does not have.
#[test]
fn inodes_without_pages_are_let_go() {
    let (_d, _i, volume) = alone("64M", &["-t", "ext4", "-b", "4096"]);
    for n in 0..600 {
        let file = volume.create(&format!("/f{n}"), 0o644).unwrap();
        file.write_bytes(0, &[1; 4096]).unwrap();
        file.truncate(0).unwrap();
    }
    volume.sync().unwrap();
    assert!(
        volume.usage().inodes < 100,
        "{} inodes",
        volume.usage().inodes
    );
}

/// A file whose data was lost, and nobody told, does not replace another.
#[test]
fn rename_after_a_failed_write_back() {
    let bytes = empty_bytes("16M", &["-t", "ext4", "-b", "4096"]);
    let valve = Arc::new(Valve::new(Arc::new(mem_of(&bytes))));
    let volume = Volume::open_device(valve.clone(), &OpenOptions::writable()).unwrap();
    let old = volume.create("/file", 0o644).unwrap();
    old.write_bytes(0, &[1; 4096]).unwrap();
    volume.sync().unwrap();
    let new = volume.create("/new", 0o644).unwrap();
    new.write_bytes(0, &[0xd1; 4096]).unwrap();
    valve.fail(&[0xd1]);
    volume.write_back(&[&new]); // stands for the flusher
    valve.fail(&[]);
    let renamed = volume.rename("/new", "/file", RenameFlags::default());
    let mut out = [7; 4096];
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    let n = file.read_bytes(0, &mut out).unwrap();
    assert!(renamed.is_err() && n == 4096);
}

/// Nor if nobody had the file open when its write-back failed: the failure went with its last page once.
#[test]
fn rename_after_a_failed_write_back_of_a_closed_file() {
    let bytes = empty_bytes("16M", &["-t", "ext4", "-b", "4096"]);
    let valve = Arc::new(Valve::new(Arc::new(mem_of(&bytes))));
    let cache = PageCache::new(64 << 20);
    let options = OpenOptions::writable()
        .page_cache(cache.clone())
        .write_back_age(Duration::from_millis(10));
    let volume = Volume::open_device(valve.clone(), &options).unwrap();
    let old = volume.create("/file", 0o644).unwrap();
    old.write_bytes(0, &[1; 4096]).unwrap();
    volume.sync().unwrap();
    valve.fail(&[0xd1]);
    let new = volume.create("/new", 0o644).unwrap();
    new.write_bytes(0, &[0xd1; 4096]).unwrap();
    drop(new);
    let _watchdog = Watchdog::new(Duration::from_secs(30), "the flusher writes back");
    while cache.stats().failed == 0 || cache.dirty_bytes() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    valve.fail(&[]);
    // A commit: until then the inode stays in memory for its times.
    volume.create("/other", 0o644).unwrap().sync().unwrap();
    volume
        .rename("/new", "/file", RenameFlags::default())
        .unwrap_err();
    let mut out = [7; 4096];
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    assert_eq!(
        (file.read_bytes(0, &mut out).unwrap(), out),
        (4096, [1; 4096])
    );
    // Whoever was told may do with the file as he likes, and nobody who opens it now is told again.
    let new = volume.open_path("/new", writable()).unwrap();
    new.sync().unwrap();
    volume
        .rename("/new", "/file", RenameFlags::default())
        .unwrap();
}

/// An append into a block that is being written comes before what lies behind that block. The size moved over it once, and a power cut
/// then showed zeros in the middle of a file that is only appended to.
#[test]
fn appends_into_a_block_that_is_being_written() {
    let bytes = empty_bytes("16M", &["-t", "ext4", "-b", "1024"]);
    let valve = Arc::new(Valve::new(Arc::new(mem_of(&bytes))));
    let volume = Volume::open_device(valve.clone(), &OpenOptions::writable()).unwrap();
    let file = volume.create("/log", 0o644).unwrap();
    volume.sync().unwrap();
    let _watchdog = Watchdog::new(Duration::from_secs(30), "the appends are synced");
    valve.hold(&[0xa1, 0xa2]);
    std::thread::scope(|scope| {
        file.append_bytes(&[0xa1; 512]).unwrap();
        let first = scope.spawn(|| file.sync_data());
        while valve.holding() == 0 {
            std::thread::yield_now();
        }
        file.append_bytes(&[0xa2; 1024]).unwrap();
        let second = scope.spawn(|| file.sync_data());
        // Time in which the second block could go down. If it is too short the test sees less, but never fails for that.
        std::thread::sleep(Duration::from_millis(100));
        let went = valve.holding();
        valve.hold(&[]);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        assert_eq!(went, 1, "the second block went down first");
    });
    let mut all = vec![0; 2048];
    assert_eq!(file.read_bytes(0, &mut all).unwrap(), 1536);
    volume.close().unwrap();
}

/// A thread that keeps requests out of one file writes another one while memory is short: it waited for its own guard once.
#[test]
fn a_guard_of_one_file_and_a_write_of_another() {
    let dir = scratch();
    let image = empty(dir.path(), "32M", &["-t", "ext4", "-b", "4096"]);
    let options = OpenOptions::writable().page_cache(PageCache::new(128 << 10));
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    within(30, move || {
        let one = volume.create("/one", 0o644).unwrap();
        let others: Vec<_> = (0..64)
            .map(|n| volume.create(&format!("/{n}"), 0o644).unwrap())
            .collect();
        // No flusher is at work at the moment of the guard: less than a quarter of the budget is dirty.
        one.write_bytes(0, &[1; 16 << 10]).unwrap();
        let guard = one.quiesce();
        // Each writes back its own page at most, and then those of all others.
        for other in &others {
            other.write_bytes(0, &[2; 4096]).unwrap();
        }
        drop(guard);
        volume.sync().unwrap();
        let mut out = [0; 4096];
        assert_eq!(one.read_bytes(12 << 10, &mut out).unwrap(), 4096);
        assert_eq!(out, [1; 4096]);
        drop((one, others));
        volume.close().unwrap();
    });
    fsck(&image);
}

/// Every byte of a cold file is read once by a sequential reader, also those of the last window.
#[test]
fn a_sequential_reader_reads_each_byte_once() {
    let (_d, image, volume) = alone("128M", &["-t", "ext4", "-b", "4096"]);
    let len: u64 = (40 << 20) + 12_288;
    let file = volume.create("/file", 0o644).unwrap();
    let piece = vec![5; 1 << 20];
    for at in (0..len).step_by(piece.len()) {
        let part = piece.len().min((len - at) as usize);
        file.write_bytes(at, &piece[..part]).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    let cache = PageCache::new(256 << 20);
    let options = OpenOptions::default().page_cache(cache.clone());
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    let mut out = vec![0; 128 << 10];
    let mut at = 0;
    loop {
        let n = file.read_bytes(at, &mut out).unwrap();
        if n == 0 {
            break;
        }
        assert!(out[..n].iter().all(|b| *b == 5));
        at += n as u64;
    }
    let stats = cache.stats();
    assert_eq!((at, stats.filled_bytes + stats.ahead_bytes), (len, len));
    // What was read ahead is all in folios: none of it is still on its way.
    assert_eq!(cache.used_bytes(), len);
}

/// A failed O_SYNC write of several slices reports the failure, whatever was written before.
#[test]
fn slices_of_a_file_that_is_synced() {
    let bytes = empty_bytes("128M", &["-t", "ext4", "-b", "4096"]);
    let valve = Arc::new(Valve::new(Arc::new(mem_of(&bytes))));
    let volume = Volume::open_device(
        valve.clone(),
        &OpenOptions::writable().page_cache(PageCache::new(256 << 20)),
    )
    .unwrap();
    let ino = volume.create("/file", 0o644).unwrap().ino();
    let synced = writable().sync(true);
    let file = volume.open_ino(ino, synced).unwrap();
    // The longest run of one write-back, and another one.
    let (good, bad) = (vec![1; 32 << 20], vec![0xd1; 2 << 20]);
    valve.fail(&[0xd1]);
    let slices = [std::io::IoSlice::new(&good), std::io::IoSlice::new(&bad)];
    file.write_vectored_at(&slices, 0).unwrap_err();
    valve.fail(&[]);
    file.sync().unwrap();
}

/// Rule G2.
#[test]
fn odd_slices_of_a_direct_file() {
    let (_d, _i, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    let direct = writable().direct(true);
    let file = volume.open_ino(file.ino(), direct).unwrap();
    let (a, b) = (vec![1; (1 << 20) + 256], vec![2; 256]);
    let slices = [std::io::IoSlice::new(&a), std::io::IoSlice::new(&b)];
    let done = file.write_vectored_at(&slices, 0);
    assert_eq!(done.unwrap(), (1 << 20) + 512);
}

/// A closed volume serves nothing, not even what is cached.
#[test]
fn reads_after_close() {
    let (_d, _i, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 4096]).unwrap();
    volume.close().unwrap();
    let mut out = [0; 4096];
    file.read_bytes(0, &mut out)
        .expect_err("the volume is closed");
}

/// Rule G14: threads that write back one file wait for each other, and both end.
#[test]
fn two_threads_write_back_a_scattered_file() {
    for _ in 0..4 {
        let (_d, image, volume) = alone("64M", &["-t", "ext4", "-b", "1024"]);
        drop(volume);
        let options = OpenOptions::writable().page_cache(PageCache::new(64 << 20));
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        for n in 0..3000u64 {
            file.write_bytes(n * 2048, &[1; 1024]).unwrap();
        }
        within(20, move || {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let file = file.clone();
                    std::thread::spawn(move || file.write_back().unwrap())
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            drop(file);
        });
        volume.close().unwrap();
    }
}

/// Nothing holds the device once the last handle has gone.
#[test]
fn an_image_is_free_once_its_volume_is_dropped() {
    let dir = scratch();
    let image = empty(dir.path(), "64M", &["-t", "ext4", "-b", "4096"]);
    let options = OpenOptions::writable()
        .page_cache(PageCache::new(16 << 20))
        .write_back_age(Duration::ZERO);
    for n in 0..150 {
        let volume =
            Volume::open(image.to_str().unwrap(), &options).unwrap_or_else(|e| panic!("{n}: {e}"));
        let file = volume.create(&format!("/f{n}"), 0o644).unwrap();
        file.write_bytes(0, &[1; 300_000]).unwrap();
        drop(file);
        std::thread::sleep(Duration::from_micros(10_000 + 20 * n));
        volume
            .create(&format!("/g{n}"), 0o644)
            .unwrap()
            .write_bytes(0, &[1; 4096])
            .unwrap();
        drop(volume);
    }
}

/// A file that outlives its volume, and is written to while that goes, is written back by its age as before.
#[test]
fn a_file_outlives_its_volume() {
    let _watchdog = Watchdog::new(Duration::from_secs(60), "a file that outlives its volume");
    let dir = scratch();
    let image = empty(dir.path(), "64M", &["-t", "ext4", "-b", "4096"]);
    let stage = sim(&image, "latency=2ms");
    let cache = PageCache::new(64 << 20);
    let options = OpenOptions::writable()
        .page_cache(cache.clone())
        .write_back_age(Duration::from_millis(100));
    for n in 0..3 {
        let volume = stage.open(&options).unwrap();
        let file = volume.create(&format!("/{n}"), 0o644).unwrap();
        file.write_bytes(0, &[1; 4096]).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (writes, stopped) = (file.clone(), stop.clone());
        let writer = std::thread::spawn(move || {
            for n in (0..64).cycle() {
                writes.write_bytes(n * 4096, &[7; 4096]).unwrap();
                std::thread::sleep(Duration::from_micros(100));
                if stopped.load(SeqCst) {
                    break;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(30));
        drop(volume);
        std::thread::sleep(Duration::from_millis(20));
        stop.store(true, SeqCst);
        writer.join().unwrap();
        while cache.dirty_bytes() > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Inline data that a write moves out has its block before the write is acknowledged.
#[test]
fn inline_data_on_a_full_volume() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "4096",
        "-I",
        "256",
        "-O",
        "inline_data,^has_journal",
    ];
    let (_d, image, volume) = alone("16M", &args);
    let small = volume.create("/small", 0o644).unwrap();
    assert!(small.keep_inside(&[9; 50]).unwrap());
    volume.sync().unwrap();
    let fill = volume.create("/fill", 0o644).unwrap();
    let mut at = 0;
    while fill.write_bytes(at, &[1; 4096]).is_ok() {
        at += 4096;
    }
    fill.sync().unwrap();
    let left = 8 * 4096;
    fill.truncate(at - left).unwrap();
    volume.sync().unwrap();
    let mut n = 0u64;
    while n < 30 && small.write_bytes((5 + n) * 4096, &[3; 4096]).is_ok() {
        n += 1;
    }
    let synced = small.sync();
    let mut one = [0; 1];
    let lost = (0..n)
        .filter(|n| small.read_bytes((5 + n) * 4096, &mut one).unwrap() != 1 || one != [3])
        .count();
    drop((small, fill));
    volume.close().unwrap();
    fsck(&image);
    assert!(synced.is_ok() && lost == 0);
}

/// Rule D7, for a request of a file with pages.
#[test]
fn a_queue_reads_at_the_largest_position() {
    let (_d, _i, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 4096]).unwrap();
    let (_, done) = file.read_buf(u64::MAX - 511, diorite::Buf::zeroed(512));
    assert_eq!(done.unwrap(), 0);
}

/// The flusher and a sync, through public calls only, on memory.
#[test]
fn a_sync_beside_the_flusher() {
    let bytes = empty_bytes("64M", &["-t", "ext4", "-b", "1024"]);
    for _ in 0..8 {
        let volume = Volume::open_device(
            Arc::new(mem_of(&bytes)),
            &OpenOptions::writable().page_cache(PageCache::new(64 << 20)),
        )
        .unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        for n in 0..3000u64 {
            file.write_bytes(n * 2048, &[1; 1024]).unwrap();
        }
        within(20, move || {
            let other = file.clone();
            let one = std::thread::spawn(move || other.sync_data().unwrap());
            file.sync_data().unwrap();
            one.join().unwrap();
        });
    }
}
