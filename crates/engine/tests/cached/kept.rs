//! Dirty pages that no open file stands for: of files without a name, of files that got one, at the end of the volume.

use crate::cached::alone;
use crate::common::fixture::writable;
use crate::common::names::{empty, empty_bytes, open};
use crate::common::stage::mem_of;
use crate::common::valve::Valve;
use crate::common::{fsck, scratch};
use diorite::{Buf, InodeFlags, OpenFlags, OpenOptions, RenameFlags, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn content(volume: &Volume, path: &str) -> Vec<u8> {
    let file = volume.open_path(path, OpenFlags::default()).unwrap();
    let mut bytes = vec![0; 1 << 20];
    let count = file.read_bytes(0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

/// A temporary file that was written before it got its name is written back by the volume's sync, and by its end.
#[test]
fn a_temporary_file_gets_a_name() {
    for by_sync in [false, true] {
        let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
        let cache = volume.page_cache().clone();
        let file = volume.temporary("/", 0o644).unwrap();
        file.write_bytes(0, &[7; 10_000]).unwrap();
        volume.link_file(&file, "/named").unwrap();
        drop(file);
        let dirty = cache.dirty_bytes();
        assert_eq!(dirty, 12_288);
        if by_sync {
            volume.sync().unwrap();
            assert_eq!(cache.dirty_bytes(), 0);
        }
        volume.close().unwrap();
        fsck(&image);
        assert_eq!(content(&open(&image, false), "/named"), [7; 10_000]);
    }
}

/// Data that was written before a rename over another name, and after it through the file that was open, is there.
#[test]
fn a_file_is_renamed_over_another() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let old = volume.create("/file", 0o644).unwrap();
    old.write_bytes(0, &[1; 5000]).unwrap();
    let new = volume.create("/file.new", 0o644).unwrap();
    new.write_bytes(0, &[2; 3000]).unwrap();
    let dirty = || volume.page_cache().dirty_bytes();
    assert_eq!(dirty(), 8192 + 4096);
    volume
        .rename("/file.new", "/file", RenameFlags::default())
        .unwrap();
    assert_eq!(dirty(), 8192, "what replaces a file is on the device");
    new.write_bytes(3000, &[3; 3000]).unwrap();
    // The other one is still a file for those who have it open.
    old.write_bytes(5000, &[4; 10]).unwrap();
    let mut end = [0; 20];
    assert_eq!(old.read_bytes(4990, &mut end).unwrap(), 20);
    assert_eq!((end[9], end[10]), (1, 4));
    drop((old, new));
    volume.close().unwrap();
    fsck(&image);
    let expected = [vec![2; 3000], vec![3; 3000]].concat();
    assert_eq!(content(&open(&image, false), "/file"), expected);
}

/// A file without a name is on the device before it replaces another; others wait for their write-back.
#[test]
fn a_file_without_a_name_replaces_another() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    volume.create("/file", 0o644).unwrap();
    let dirty = || volume.page_cache().dirty_bytes();
    let files = [0; 3].map(|_| volume.temporary("/", 0o644).unwrap());
    for file in &files {
        file.write_bytes(0, &[7; 4096]).unwrap();
    }
    volume.replace_file(&files[0], "/file").unwrap();
    assert_eq!(dirty(), 2 * 4096);
    volume.write_back(&[&files[1], &files[2]]);
    assert_eq!(dirty(), 0);
    files[1].write_back().unwrap();
    drop(files);
    volume.close().unwrap();
    fsck(&image);
    assert_eq!(content(&open(&image, false), "/file"), [7; 4096]);
}

/// A volume that is dropped without a close has its dirty pages on the device.
#[test]
fn a_dropped_volume_is_written_back() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[7; 10_000]).unwrap();
    drop(file);
    drop(volume);
    fsck(&image);
    assert_eq!(content(&open(&image, false), "/file"), [7; 10_000]);
}

/// The volume is closed while others write: each write that has succeeded is on the device, each later one is refused.
#[test]
fn a_close_takes_what_was_acknowledged() {
    let dir = scratch();
    let image = empty(dir.path(), "64M", &["-t", "ext4", "-b", "4096"]);
    for round in 0..20 {
        let volume = open(&image, true);
        let files: Vec<_> = (0..3)
            .map(|n| volume.create(&format!("/file{round}-{n}"), 0o644).unwrap())
            .collect();
        let acked: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (file, acked) in files.iter().zip(&acked) {
                scope.spawn(move || {
                    while acked.load(SeqCst) < 4 << 20 && file.append_bytes(&[9; 777]).is_ok() {
                        acked.fetch_add(777, SeqCst);
                    }
                });
            }
            while acked.iter().any(|n| n.load(SeqCst) < 10_000) {
                std::thread::yield_now();
            }
            volume.close().unwrap();
        });
        assert!(files[0].append_bytes(b"x").is_err(), "the volume is closed");
        drop(files);
        fsck(&image);
        let volume = open(&image, true);
        for (n, acked) in acked.iter().enumerate() {
            let path = format!("/file{round}-{n}");
            let file = volume.open_path(&path, OpenFlags::default()).unwrap();
            let acked = acked.load(SeqCst);
            assert!(
                file.size() >= acked,
                "{path}: {} of {acked} bytes",
                file.size()
            );
            let mut bytes = vec![0; acked as usize];
            file.read_bytes(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|b| *b == 9), "{path}");
            drop(file);
            volume.unlink(&path).unwrap();
        }
        volume.close().unwrap();
    }
}

/// Two syncs of the volume that wait for the same failed write both report it.
#[test]
fn syncs_under_way_together_are_all_told() {
    let bytes = empty_bytes("16M", &["-t", "ext4", "-b", "4096"]);
    let valve = Valve::new(Arc::new(mem_of(&bytes)));
    let volume = Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    file.sync().unwrap();
    file.write_bytes(0, &[0xd1; 4096]).unwrap();
    valve.hold(&[0xd1]);
    valve.lie(&[0xd1]);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| volume.sync());
        let other = scope.spawn(|| volume.sync());
        while valve.holding() == 0 {
            std::thread::yield_now();
        }
        // Both wait for the write now, or find later that it has failed.
        std::thread::sleep(std::time::Duration::from_millis(20));
        valve.hold(&[]);
        let told = [one.join().unwrap(), other.join().unwrap()];
        assert!(told.iter().all(Result::is_err), "{told:?}");
    });
    volume.sync().expect("it was reported");
    file.sync().expect_err("not through the file");
    drop(file);
    volume.close().unwrap();
}

/// A file whose data becomes journalled while it is dirty keeps what was written, on a full volume too.
#[test]
fn a_dirty_file_becomes_journalled() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "1024"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 30_000]).unwrap();
    file.sync().unwrap();
    let filler = volume.create("/filler", 0o644).unwrap();
    let mut at = 0;
    for step in [1 << 20, 1 << 10] {
        while let Ok(done @ 1..) = filler.write_bytes(at, &vec![2; step]) {
            at += done as u64;
        }
    }
    file.write_bytes(100, &[3; 29_000]).unwrap();
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    file.write_bytes(200, &[4; 100]).unwrap();
    let mut expected = vec![1; 30_000];
    expected[100..29_100].fill(3);
    expected[200..300].fill(4);
    let back = file.read_buf(0, Buf::zeroed(30_720)).0;
    assert_eq!(back.as_slice()[..30_000], expected);
    drop((file, filler));
    volume.close().unwrap();
    fsck(&image);
    assert_eq!(content(&open(&image, false), "/file"), expected);
}

/// Dirty pages of files without a name are written back when others need the memory, and by the volume's sync.
#[test]
fn files_without_a_name_give_way() {
    let dir = scratch();
    let image = empty(dir.path(), "16M", &["-t", "ext4", "-b", "4096"]);
    let options = OpenOptions::writable().page_cache(diorite::PageCache::new(8192));
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let other = volume.create("/other", 0o644).unwrap();
    let temporary = volume.temporary("/", 0o644).unwrap();
    let unlinked = volume.create("/unlinked", 0o644).unwrap();
    for n in 0..4 {
        temporary.write_bytes(n * 4096, &[1; 4096]).unwrap();
        unlinked.write_bytes(n * 4096, &[2; 4096]).unwrap();
        if n == 0 {
            volume.unlink("/unlinked").unwrap();
        }
        other.write_bytes(n * 4096, &[3; 4096]).unwrap();
    }
    temporary.write_bytes(0, &[1; 4096]).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.page_cache().dirty_bytes(), 0);
    for (file, byte) in [(&temporary, 1), (&unlinked, 2), (&other, 3)] {
        let mut bytes = vec![0; 16_384];
        assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), 16_384);
        assert!(bytes.iter().all(|b| *b == byte));
    }
    drop((temporary, unlinked, other));
    volume.close().unwrap();
    fsck(&image);
}

/// Pages of a file that is deleted while it is open go with its last user, dirty or not, and so does their space.
#[test]
fn a_deleted_file_leaves_nothing() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    volume.create("/first", 0o644).unwrap();
    volume.unlink("/first").unwrap();
    volume.sync().unwrap();
    let (before, cache) = (volume.usage(), volume.page_cache().clone());
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 100_000]).unwrap();
    let second = volume.open_ino(file.ino(), writable()).unwrap();
    volume.unlink("/file").unwrap();
    file.write_bytes(100_000, &[2; 100_000]).unwrap();
    drop(file);
    let mut bytes = vec![0; 200_000];
    assert_eq!(second.read_bytes(0, &mut bytes).unwrap(), 200_000);
    assert!(bytes[..100_000].iter().all(|b| *b == 1) && bytes[100_000..].iter().all(|b| *b == 2));
    second.sync().unwrap();
    second.write_bytes(0, &[3; 4096]).unwrap();
    drop(second);
    volume.sync().unwrap();
    assert_eq!(cache.dirty_bytes(), 0);
    let after = volume.usage();
    assert_eq!((after.free, after.inodes), (before.free, before.inodes));
    volume.close().unwrap();
    fsck(&image);
}

/// Rule D8: a read that brings no page keeps no inode in memory.
#[test]
fn a_file_without_pages_is_not_kept() {
    let bytes = empty_bytes("64M", &["-t", "ext4", "-b", "4096"]);
    let valve = Arc::new(Valve::new(Arc::new(mem_of(&bytes))));
    let volume = Volume::open_device(valve.clone(), &OpenOptions::writable()).unwrap();
    for n in 0..600 {
        let file = volume.create(&format!("/f{n}"), 0o644).unwrap();
        file.write_buf(0, Buf::zeroed(4096)).1.unwrap();
        valve.fail_reads(0..u64::MAX);
        file.read_bytes(0, &mut [0; 4096]).unwrap_err();
        valve.fail_reads(0..0);
    }
    volume.sync().unwrap();
    let kept = volume.usage().inodes;
    assert!(kept < 100, "{kept} inodes");
    volume.close().unwrap();
}
