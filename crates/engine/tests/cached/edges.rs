//! Ends of files, largest sizes, and requests that nobody reaps.

use crate::cached::alone;
use crate::common::fixture::{attached, filled};
use crate::common::names::empty;
use crate::common::{fsck, scratch};
use diorite::{Buf, Caller, Error, OpenOptions, PageCache, Request, Seek, SetAttr, Volume};
use std::collections::BTreeSet;

/// A thread that has pushed a direct write and has not reaped it writes a part of the same block through the cache.
#[test]
fn a_thread_meets_its_own_request() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 8192]).unwrap();
    file.sync().unwrap();
    let (queue, id) = attached(&volume, &file, 4);
    for at in [0u64, 4096] {
        queue
            .push(Request::write(id, at, filled(9, 4096), at))
            .unwrap();
        file.write_bytes(at + 100, &[5; 10]).unwrap();
        file.append_bytes(&[6; 10]).unwrap();
        let mut block = [0; 4096];
        file.read_bytes(at, &mut block).unwrap();
        assert_eq!((block[99], block[100], block[110]), (9, 5, 9));
    }
    queue.push(Request::append(id, filled(7, 512), 1)).unwrap();
    // Its place is taken or not; the append through the cache has another one.
    let at = file.append_bytes(&[8; 10]).unwrap();
    let mut done = Vec::new();
    queue.reap(&mut done, 3, None);
    assert!(at == 8212 || at == 8192 + 20 + 512, "{at}: {done:?}");
    drop((queue, file));
    volume.close().unwrap();
    fsck(&image);
}

/// Records that many threads append, through the cache and directly: each is there once, whole, where its caller was told.
#[test]
fn appends_of_both_kinds() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "1024"]);
    for round in 0..5 {
        let file = volume.create(&format!("/{round}"), 0o644).unwrap();
        let placed: Vec<Vec<(u64, u8)>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (1..=4u8)
                .map(|n| {
                    let file = &file;
                    scope.spawn(move || {
                        let one = |k: u64| match n {
                            1 | 2 => file.append_bytes(&[n; 512]).unwrap(),
                            3 => file.append_buf(filled(3, 512)).1.unwrap(),
                            // Crosses blocks.
                            _ if k.is_multiple_of(2) => file.append_buf(filled(4, 1024)).1.unwrap(),
                            _ => file.append_bytes(&[4; 1024]).unwrap(),
                        };
                        (0..50).map(|k| (one(k), n)).collect()
                    })
                })
                .collect();
            let writers = writers.into_iter();
            writers.map(|w| w.join().unwrap()).collect()
        });
        let placed: BTreeSet<(u64, u8)> = placed.into_iter().flatten().collect();
        let mut end = 0;
        let mut bytes = vec![0; file.size() as usize];
        file.read_bytes(0, &mut bytes).unwrap();
        for (at, n) in placed {
            assert_eq!(at, end, "of writer {n}");
            let len = if n == 4 { 1024 } else { 512 };
            assert!(bytes[at as usize..][..len].iter().all(|b| *b == n));
            end += len as u64;
        }
        assert_eq!(file.size(), end);
        file.sync().unwrap();
        let direct = file.read_buf(0, Buf::zeroed(bytes.len())).0;
        assert!(direct.as_slice() == bytes);
    }
    volume.close().unwrap();
    fsck(&image);
}

/// At the largest size a write is cut, and one behind it refused, with nothing changed.
#[test]
fn the_largest_size() {
    for args in [["-t", "ext4", "-b", "1024"], ["-t", "ext2", "-b", "1024"]] {
        let (_dir, image, volume) = alone("16M", &args);
        let file = volume.create("/file", 0o644).unwrap();
        let (mut low, mut high) = (0, 1 << 60);
        // The largest size that a truncation gives is that of writes.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match file.truncate(middle) {
                Ok(()) => low = middle,
                Err(_) => high = middle,
            }
        }
        file.truncate(low - 600).unwrap();
        for pos in [low - 10, low, low + 5, u64::MAX - 10, u64::MAX] {
            let before = file.size();
            let refused = file.write_bytes(pos, &[1; 20]).unwrap_err();
            assert!(matches!(refused.root(), Error::TooBig { .. }), "{refused}");
            assert_eq!(file.size(), before);
        }
        file.write_bytes(low - 10, &[2; 10]).unwrap();
        assert_eq!(file.size(), low);
        assert!(file.append_bytes(b"x").is_err());
        let mut end = [0; 30];
        assert_eq!(file.read_bytes(low - 20, &mut end).unwrap(), 20);
        assert_eq!((end[9], end[10]), (0, 2));
        file.sync().unwrap();
        file.truncate(0).unwrap();
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Defect: write-back was taken for a write by somebody without privileges, and cleared set-user-id that the file had got after its data
/// was written to the cache.
#[test]
fn write_back_takes_no_rights_away() {
    let dir = scratch();
    let image = empty(dir.path(), "8M", &["-t", "ext4"]);
    let options = OpenOptions::writable().caller(Caller {
        uid: 1000,
        gids: vec![1000],
    });
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let file = volume.create("/tool", 0o755).unwrap();
    file.write_bytes(0, b"a program").unwrap();
    let set = SetAttr::default().permissions(0o6755);
    volume.set_attr(file.ino(), &set).unwrap();
    file.sync().unwrap();
    assert_eq!(file.metadata().mode & 0o7777, 0o6755);
    file.write_bytes(0, b"another").unwrap();
    assert_eq!(file.metadata().mode & 0o7777, 0o755);
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// Defect: the end of a written block behind the size on disk was taken for a hole, while pages behind it were dirty.
#[test]
fn no_part_of_a_written_block_is_a_hole() {
    let (_dir, image, volume) = alone("32M", &["-t", "ext4", "-b", "4096"]);
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; 4601]).unwrap();
    file.sync().unwrap();
    file.write_bytes(8192, &[2; 10]).unwrap();
    let seek = |from, what| file.seek_next(from, what).unwrap();
    for is_synced in [false, true] {
        for from in [0, 4600, 4601, 5000, 8191, 8192, 8201] {
            let what = format!("from {from}, synced: {is_synced}");
            assert_eq!(seek(from, Seek::Hole), Some(8202), "{what}");
            assert_eq!(seek(from, Seek::Data), Some(from), "{what}");
        }
        file.sync().unwrap();
    }
    // A block that nobody has written is one.
    file.write_bytes(16_384, &[3; 10]).unwrap();
    for _ in 0..2 {
        assert_eq!(seek(0, Seek::Hole), Some(12_288));
        assert_eq!(seek(12_288, Seek::Data), Some(16_384));
        assert_eq!(seek(12_288, Seek::Hole), Some(12_288));
        file.sync().unwrap();
    }
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// A budget of nothing, and one of a byte: files are written and read all the same, at any position. Defect: every write failed with
/// `NoMemory`.
#[test]
fn the_least_budget_is_enough() {
    for bytes in [0, 1] {
        for block in ["1024", "4096", "65536"] {
            let dir = scratch();
            let image = empty(dir.path(), "64M", &["-t", "ext4", "-b", block]);
            let options = OpenOptions::writable().page_cache(PageCache::new(bytes));
            let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
            let file = volume.create("/file", 0o644).unwrap();
            let mut model = vec![0; 300_000];
            for n in 0..40u8 {
                let at = 7001 * usize::from(n);
                model[at..at + 9000].fill(n);
                file.write_bytes(at as u64, &model[at..at + 9000]).unwrap();
            }
            volume.page_cache().set_cache_bytes(0);
            file.append_bytes(&[9; 5000]).unwrap();
            model.truncate(39 * 7001 + 9000);
            model.extend([9; 5000]);
            let mut found = vec![0xee; model.len() + 1];
            assert_eq!(file.read_bytes(0, &mut found).unwrap(), model.len());
            assert!(found[..model.len()] == model, "{bytes}, {block}");
            drop(file);
            volume.close().unwrap();
            fsck(&image);
        }
    }
}
