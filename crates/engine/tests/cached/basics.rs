//! What a caller of `File` sees.

use crate::common::fixture::writable;
use crate::common::names::{fresh, open};
use crate::common::{fsck, scratch};
use diorite::{Buf, OpenFlags, PageCache, Seek};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

/// Bytes written anywhere are read back before and after they are on disk, and after the volume was opened again.
#[test]
fn a_file_works_like_a_file() {
    let (_dir, image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    let mut file = volume.create("/file", 0o644).unwrap();
    file.write_all(b"one").unwrap();
    file.write_all(b" two").unwrap();
    assert_eq!((file.size(), file.metadata().size), (7, 7));
    file.seek(SeekFrom::Start(10_000)).unwrap();
    file.write_all(b"far").unwrap();
    assert_eq!(file.append_bytes(b"!").unwrap(), 10_003);
    let whole = |file: &diorite::File| {
        let mut bytes = vec![9; 20_000];
        let count = file.read_bytes(0, &mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    };
    let mut expected = vec![0; 10_004];
    expected[..7].copy_from_slice(b"one two");
    expected[10_000..].copy_from_slice(b"far!");
    assert_eq!(whole(&file), expected);
    file.seek(SeekFrom::End(-4)).unwrap();
    let mut end = String::new();
    file.read_to_string(&mut end).unwrap();
    assert_eq!(end, "far!");
    file.sync().unwrap();
    assert_eq!(whole(&file), expected);
    assert!(file.seek(SeekFrom::Current(-20_000)).is_err());
    drop(file);
    volume.close().unwrap();
    fsck(&image);
    let volume = open(&image, false);
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    assert_eq!(whole(&file), expected);
    assert_eq!(file.read_bytes(10_004, &mut [0; 10]).unwrap(), 0);
    assert!(file.write_bytes(0, b"x").is_err(), "opened for reading");
}

/// Direct requests see what was written to the cache, and the cache what they have written; also behind the size on disk.
#[test]
fn direct_requests_and_the_cache_agree() {
    let (_dir, image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 100_000]).unwrap();
    let (buf, count) = file.read_buf(98_304, Buf::zeroed(8192));
    assert_eq!(count.unwrap(), 100_000 - 98_304);
    assert!(buf.as_slice()[..1696].iter().all(|b| *b == 1));
    let mut two = Buf::zeroed(4096);
    two.as_mut_slice().fill(2);
    file.write_buf(8192, two).1.unwrap();
    let mut seen = [0; 16];
    file.read_bytes(8192 - 8, &mut seen).unwrap();
    assert_eq!(seen, [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert!(volume.counters().written_back > 0);
    // An append of each kind behind the other.
    file.write_bytes(100_000, &[3; 102_400 - 100_000]).unwrap();
    assert_eq!(file.append_buf(Buf::zeroed(512)).1.unwrap(), 102_400);
    assert_eq!(file.append_bytes(b"end").unwrap(), 102_912);
    assert_eq!(file.size(), 102_915);
    // A direct read behind what is on disk finds what is dirty.
    let sparse = volume.create("/sparse", 0o644).unwrap();
    sparse.write_bytes(1 << 20, b"far").unwrap();
    let (buf, count) = sparse.read_buf(0, Buf::zeroed(4096));
    assert!(count.unwrap() == 4096 && buf.as_slice().iter().all(|b| *b == 0));
    drop((file, sparse));
    volume.close().unwrap();
    fsck(&image);
}

/// What has no place yet is data for SEEK_DATA and SEEK_HOLE, and has places in the list of mappings.
#[test]
fn delayed_blocks_are_data() {
    let (_dir, image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(40_960, &[1; 5000]).unwrap();
    file.write_bytes(1 << 20, &[1; 10]).unwrap();
    let look = || {
        let seek = |from, what| file.seek_next(from, what).unwrap();
        [
            seek(0, Seek::Data),
            seek(0, Seek::Hole),
            seek(40_961, Seek::Hole),
            seek(50_000, Seek::Data),
            seek(1 << 20, Seek::Hole),
            seek((1 << 20) + 10, Seek::Data),
        ]
    };
    let dirty = look();
    let expected = [
        Some(40_960),
        Some(0),
        Some(49_152),
        Some(1 << 20),
        Some((1 << 20) + 10),
        None,
    ];
    assert_eq!(dirty, expected);
    assert_eq!(volume.usage().map_segments, 0, "nothing is mapped yet");
    assert_eq!(file.mappings(0, 1 << 21).unwrap().len(), 5);
    assert_eq!(look(), expected);
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// A truncation takes pages with it: what was behind the new end is zeros when the file grows again.
#[test]
fn operations_on_the_map_take_pages_with_them() {
    let (_dir, image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    let byte = |at| {
        let mut one = [7];
        file.read_bytes(at, &mut one).unwrap();
        one[0]
    };
    file.write_bytes(0, &[1; 20_000]).unwrap();
    file.truncate(10_000).unwrap();
    assert_eq!(file.size(), 10_000);
    file.write_bytes(19_999, &[1]).unwrap();
    assert_eq!((byte(9_999), byte(10_000), byte(19_998)), (1, 0, 0));
    file.fallocate(diorite::Fallocate::PunchHole, 100, 8_000)
        .unwrap();
    assert_eq!(
        (byte(99), byte(100), byte(8_099), byte(8_100)),
        (1, 0, 0, 1)
    );
    file.write_bytes(4096, &[5; 4096]).unwrap();
    file.fallocate(diorite::Fallocate::CollapseRange, 0, 4096)
        .unwrap();
    assert_eq!((byte(0), byte(4095), file.size()), (5, 5, 20_000 - 4096));
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// A file that is removed while it is dirty costs no write, and gives its space back.
#[test]
fn what_is_removed_is_not_written_back() {
    let (_dir, image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    volume.create("/other", 0o644).unwrap();
    volume.unlink("/other").unwrap();
    volume.sync().unwrap();
    let before = volume.usage();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 1 << 20]).unwrap();
    assert!(volume.usage().claimed() >= 256, "space is reserved");
    volume.unlink("/file").unwrap();
    drop(file);
    volume.sync().unwrap();
    let after = volume.usage();
    assert_eq!((after.free, after.inodes), (before.free, before.inodes));
    volume.close().unwrap();
    fsck(&image);
}

/// With a budget of 1 MiB everything works, and the budget holds.
#[test]
fn a_small_budget_is_enough() {
    let dir = scratch();
    let image = crate::common::names::empty(dir.path(), "64M", &["-t", "ext4", "-b", "4096"]);
    let cache = PageCache::new(1 << 20);
    let options = diorite::OpenOptions::writable().page_cache(cache.clone());
    let volume = diorite::Volume::open(image.to_str().unwrap(), &options).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    let data: Vec<u8> = (0..16 << 20).map(|n: u32| (n >> 12) as u8).collect();
    for part in data.chunks(100_000) {
        file.append_bytes(part).unwrap();
        assert!(cache.used_bytes() <= 1 << 20);
    }
    let mut back = vec![0; data.len()];
    assert_eq!(file.read_bytes(0, &mut back).unwrap(), data.len());
    assert!(back == data && cache.used_bytes() <= 1 << 20);
    drop(file);
    volume.close().unwrap();
    assert_eq!((cache.used_bytes(), cache.dirty_bytes()), (0, 0));
    fsck(&image);
    let volume = open(&image, false);
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    let mut back = vec![0; data.len()];
    file.read_bytes(0, &mut back).unwrap();
    assert!(back == data);
}

/// Pages of a file that was closed are still there when it is opened again.
#[test]
fn pages_outlive_the_open_file() {
    let (_dir, _image, volume) = fresh("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 10_000]).unwrap();
    let ino = file.ino();
    drop(file);
    let file = volume.open_ino(ino, writable()).unwrap();
    let mut back = [0; 10_000];
    assert_eq!(
        (file.size(), file.read_bytes(0, &mut back).unwrap()),
        (10_000, 10_000)
    );
    assert_eq!(back, [1; 10_000]);
    drop(file);
    volume.close().unwrap();
}
