//! Preallocation promises that writes find space (posix_fallocate): on a full volume, after another open, in every order and by every way,
//! a write into preallocated blocks succeeds, also if the leaf of the map is full and no block is free for another. Rules U4, U5.

use crate::common::fixture::{LIMIT, every_block, filled, writable};
use crate::common::names::empty;
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{Rng, bytes, scaled, scratch, words};
use diorite::{Error, Fallocate, File, OpenOptions, PageCache, Request, Volume};
use diorite_block::Buf;
use diorite_format::InodeFlags;
use std::collections::{HashMap, VecDeque};

/// Arguments of mke2fs. Leaves of blocks of 1 KiB have room for 84 extents.
const KINDS: [&str; 4] = [
    "-t ext4 -b 1024 -J size=1 -m 0",
    "-t ext4 -b 1024 -O ^has_journal -m 0",
    "-t ext4 -b 4096 -m 0",
    "-t ext4 -b 1024 -J size=1 -m 0 -O bigalloc -C 4096",
];

/// Bytes that are preallocated.
const LEN: u64 = 4 << 20;

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Direct,
    Cache,
    Journal,
    /// By turns.
    All,
}

struct Full {
    _dir: tempfile::TempDir,
    stage: Stage,
}

fn opened(stage: &Stage) -> Volume {
    let options = every_block().page_cache(PageCache::new(8 << 20));
    stage.open(&options).unwrap()
}

impl Full {
    /// A volume without a free block, with a file that is preallocated.
    fn new(args: &str, keep_size: bool) -> Full {
        let dir = scratch();
        let stage = Stage::mem(&empty(dir.path(), "16M", &words(args)));
        let volume = opened(&stage);
        let file = volume.create("/file", 0o644).unwrap();
        file.write_bytes(0, &[1; 100]).unwrap();
        let between = volume.create("/between", 0o644).unwrap();
        let mode = Fallocate::Allocate { keep_size };
        // Behind the end in one piece; else in many, so that the map has leaves.
        let pieces = if keep_size { 1 } else { 8 };
        for n in 0..pieces {
            let len = LEN / pieces;
            file.fallocate(mode, n * len, len).unwrap();
            between.append_buf(Buf::zeroed(4096)).1.unwrap();
        }
        fill(&volume);
        drop((file, between));
        volume.close().unwrap();
        Full { _dir: dir, stage }
    }

    fn open(&self) -> (Volume, File) {
        let volume = opened(&self.stage);
        assert_eq!(volume.usage().free, 0);
        let file = volume.open_path("/file", writable()).unwrap();
        (volume, file)
    }

    fn end(&self, volume: Volume, file: File, model: &[u8], what: &str) {
        same(&file, model, what);
        drop(file);
        volume.close().unwrap();
        self.stage.fsck();
        let (volume, file) = self.open();
        same(&file, model, what);
        drop(file);
        volume.close().unwrap();
    }
}

/// Takes all free blocks.
fn fill(volume: &Volume) {
    let file = volume.create("/fill", 0o644).unwrap();
    // One block each, so that none needs a node.
    let one = |n| volume.create(&format!("/more {n}"), 0o644).unwrap();
    let more: Vec<File> = (0..20).map(one).collect();
    let mut len = 1 << 20;
    while len >= 1024 {
        match file.append_buf(Buf::zeroed(len)).1 {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => len /= 2,
            Err(other) => panic!("{other}"),
        }
    }
    volume.sync().unwrap();
    for file in more.iter().take_while(|_| volume.usage().free > 0) {
        file.write_bytes(0, &[1]).unwrap();
        file.sync().unwrap();
    }
    assert_eq!(volume.usage().free, 0);
}

fn same(file: &File, model: &[u8], what: &str) {
    let mut found = vec![0xee; file.size() as usize];
    file.read_bytes(0, &mut found).unwrap();
    assert_eq!(found.len(), model.len(), "{what}: size");
    let differs = found.iter().zip(model).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}");
}

/// Bytes before any write.
fn model_of(len: u64) -> Vec<u8> {
    let mut model = vec![0; len as usize];
    model[..100].fill(1);
    model
}

fn write(file: &File, by: By, n: u64, (pos, data): (u64, &[u8])) {
    let is_direct = by == By::Direct || by != By::Cache && n.is_multiple_of(2);
    let (wrote, len) = match is_direct {
        true => {
            let mut buf = Buf::zeroed(data.len());
            buf.copy_in(0, data);
            (file.write_buf(pos, buf).1, data.len())
        }
        false => (file.write_bytes(pos, data), data.len()),
    };
    let wrote = wrote.unwrap_or_else(|error| panic!("{by:?}, write {n} at {pos}: {error}"));
    assert_eq!(wrote, len);
}

/// Defect: a write into preallocated space was refused with ENOSPC, if the extent had to be split and the leaf of the map was full.
#[test]
fn every_write_finds_its_space() {
    let mut rng = Rng::from_env("preallocated");
    for args in KINDS {
        for by in [By::Direct, By::Cache, By::Journal, By::All] {
            if by == By::Journal && args.contains("^has_journal") {
                continue;
            }
            let what = format!("{args}, {by:?}");
            let _watchdog = Watchdog::new(4 * LIMIT, what.clone());
            let full = Full::new(args, false);
            let (volume, file) = full.open();
            if by == By::Journal {
                let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
                file.set_flags(flags).unwrap();
            }
            let mut model = model_of(LEN);
            for n in 0..scaled("DIORITE_STEPS", 400) {
                let len = 512 * (1 + rng.below(8));
                let pos = 512 * rng.below((LEN - len) / 512);
                let data = vec![rng.next() as u8; len as usize];
                write(&file, by, n, (pos, &data));
                bytes::write(&mut model, pos as usize, &data);
                if rng.below(100) == 0 {
                    volume.sync().unwrap();
                    same(&file, &model, &what);
                }
            }
            full.end(volume, file, &model, &what);
        }
    }
}

/// Rule U5. Writes are in flight in the extents that are written with zeros for others: none of them is lost, and none fails.
#[test]
fn writes_side_by_side_find_their_space() {
    let mut rng = Rng::from_env("preallocated, side by side");
    for args in KINDS {
        let _watchdog = Watchdog::new(4 * LIMIT, args);
        let full = Full::new(args, false);
        let (volume, file) = full.open();
        let mut model = model_of(LEN);
        // Each block is written once, so the order does not matter.
        let count = LEN / 4096;
        let mut order: Vec<u64> = (0..count).collect();
        for n in (1..count).rev() {
            order.swap(n as usize, rng.below(n + 1) as usize);
        }
        let (mine, theirs) = order.split_at(order.len() / 2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in theirs.iter().step_by(2) {
                    let wrote = file.write_bytes(n * 4096 + 100, &[3; 1000]);
                    assert_eq!(wrote.unwrap(), 1000);
                }
            });
            in_flight(&volume, &file, mine.iter().step_by(2).copied().collect());
        });
        for n in theirs.iter().step_by(2) {
            bytes::write(&mut model, (n * 4096 + 100) as usize, &[3; 1000]);
        }
        for n in mine.iter().step_by(2) {
            bytes::write(&mut model, (n * 4096) as usize, &[2; 1024]);
        }
        full.end(volume, file, &model, args);
    }
}

/// Writes a part of each of these pieces of 4 KiB, many at a time.
fn in_flight(volume: &Volume, file: &File, pieces: Vec<u64>) {
    let queue = volume.queue(32).unwrap();
    let id = queue.attach(file).unwrap();
    let request = |n: u64| Request::write(id, n * 4096, filled(2, 1024), n);
    let (count, mut ended) = (pieces.len(), HashMap::new());
    let mut batch: VecDeque<Request> = pieces.into_iter().map(request).collect();
    let mut done = Vec::new();
    while ended.len() < count {
        queue.submit(&mut batch);
        queue.reap(&mut done, 1, None);
        ended.extend(done.drain(..).map(|d| (d.token, d.result.unwrap())));
    }
    queue.detach(id);
}

/// What is preallocated behind the end, without a larger size, takes writes that move the end: one after the other, with gaps.
#[test]
fn behind_the_end_writes_find_their_space() {
    for args in KINDS {
        for by in [By::Direct, By::Cache] {
            let what = format!("{args}, {by:?}");
            let _watchdog = Watchdog::new(4 * LIMIT, what.clone());
            let full = Full::new(args, true);
            let (volume, file) = full.open();
            let mut model = model_of(100);
            for n in 0..LEN / 8192 {
                let pos = n * 8192 + 4096;
                write(&file, by, n, (pos, &[5; 4096]));
                bytes::write(&mut model, pos as usize, &[5; 4096]);
            }
            full.end(volume, file, &model, &what);
        }
    }
}

/// A write that is refused for a hole changes nothing of what is preallocated around it.
#[test]
fn a_refused_write_changes_no_extent() {
    for by in [By::Direct, By::Cache, By::Journal] {
        let full = Full::new(KINDS[0], false);
        let (volume, file) = full.open();
        if by == By::Journal {
            let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
            file.set_flags(flags).unwrap();
        }
        file.write_bytes(64 << 10, &[4; 1024]).unwrap();
        file.truncate(LEN + (64 << 10)).unwrap();
        file.sync().unwrap();
        let before = file.mappings(0, 2 * LEN).unwrap();
        let refused = match by {
            By::Direct => file.write_buf(LEN, filled(5, 4096)).1,
            _ => file.write_bytes(LEN, &[5; 4096]),
        };
        let is_full = |e: &Error| matches!(e.root(), Error::NoSpace { .. });
        assert!(refused.as_ref().is_err_and(is_full), "{by:?}: {refused:?}");
        assert_eq!(file.mappings(0, 2 * LEN).unwrap(), before, "{by:?}");
        let mut model = model_of(LEN + (64 << 10));
        bytes::write(&mut model, 64 << 10, &[4; 1024]);
        full.end(volume, file, &model, &format!("{by:?}"));
    }
}

/// An extent that goes on behind the end takes writes before the end.
#[test]
fn an_extent_across_the_end_takes_writes() {
    for args in KINDS {
        let full = Full::new(args, true);
        let (volume, file) = full.open();
        file.truncate(LEN / 2).unwrap();
        let mut model = model_of(LEN / 2);
        for n in 0..LEN / 2 / 8192 {
            write(&file, By::All, n, (n * 8192, &[6; 4096]));
            bytes::write(&mut model, (n * 8192) as usize, &[6; 4096]);
        }
        full.end(volume, file, &model, args);
    }
}

/// Defect: a write of which each block needed the map's last room committed once for each of them.
#[test]
fn block_by_block_is_not_commit_by_commit() {
    let _watchdog = Watchdog::new(4 * LIMIT, "block by block");
    let full = Full::new(KINDS[0], true);
    let (volume, file) = full.open();
    let before = volume.journal_stats().commits;
    let wrote = file.write_bytes(4096, &[5; 1 << 20]).unwrap();
    assert_eq!(wrote, 1 << 20);
    let commits = volume.journal_stats().commits - before;
    assert!(commits < 30, "{commits} commits");
    let mut model = model_of(4096);
    model.resize(4096 + (1 << 20), 5);
    full.end(volume, file, &model, "block by block");
}

/// Defect: a write that found space for its first blocks only changed them, and returned an error without their number.
#[test]
fn a_short_write_says_how_short() {
    let dir = scratch();
    let stage = Stage::mem(&empty(dir.path(), "16M", &words(KINDS[0])));
    let volume = opened(&stage);
    let file = volume.create("/file", 0o644).unwrap();
    // The root has room for two extents more: for one block that splits one of these, and then not for another.
    let mode = Fallocate::Allocate { keep_size: true };
    for (n, (start, len)) in [(4, 2), (6, 8)].into_iter().enumerate() {
        let between = volume.create(&format!("/between {n}"), 0o644).unwrap();
        between.fallocate(mode, 0, 1024).unwrap();
        file.fallocate(mode, start * 1024, len * 1024).unwrap();
    }
    fill(&volume);
    let asked = 3 * 1024;
    let wrote = file.write_bytes(5 * 1024, &[5; 3 * 1024]);
    let count = wrote.expect("there is room for a part");
    assert!(count > 0 && count < asked, "{count}");
    let mut model = vec![0; 5 * 1024];
    model.resize(5 * 1024 + count, 5);
    same(&file, &model, "at once");
    drop(file);
    volume.close().unwrap();
    stage.fsck();
    let volume = opened(&stage);
    let file = volume.open_path("/file", writable()).unwrap();
    same(&file, &model, "after another open");
    drop(file);
    volume.close().unwrap();
}

/// Defect: a write into what is preallocated behind the end was refused on a full volume, if the leaf of the map was full: zeros cannot
/// stand for a split behind the end.
#[test]
fn behind_the_end_a_full_leaf_finds_a_node() {
    for by in [By::Direct, By::Cache] {
        let what = format!("{by:?}");
        let _watchdog = Watchdog::new(4 * LIMIT, what.clone());
        let dir = scratch();
        let stage = Stage::mem(&empty(dir.path(), "16M", &words(KINDS[0])));
        let options = || OpenOptions::writable().page_cache(PageCache::new(8 << 20));
        let volume = stage.open(&options()).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        let between = volume.create("/between", 0o644).unwrap();
        // One leaf of 84 extents, each of eight blocks behind the end.
        let mode = Fallocate::Allocate { keep_size: true };
        for n in 0..84 {
            file.fallocate(mode, n * 16 * 1024, 8 * 1024).unwrap();
            between.append_buf(Buf::zeroed(1024)).1.unwrap();
        }
        let fill = volume.create("/fill", 0o644).unwrap();
        for len in [1 << 16, 1024] {
            while fill.append_buf(Buf::zeroed(len)).1.is_ok() {}
        }
        let refused = volume
            .create("/more", 0o644)
            .unwrap()
            .append_buf(Buf::zeroed(1024))
            .1;
        assert!(matches!(refused.unwrap_err().root(), Error::NoSpace { .. }));
        let mut model = Vec::new();
        for n in 0..84 {
            let pos = n * 16 * 1024 + 3 * 1024;
            write(&file, by, n, (pos, &[7; 1024]));
            bytes::write(&mut model, pos as usize, &[7; 1024]);
        }
        same(&file, &model, &what);
        drop((file, between, fill));
        volume.close().unwrap();
        stage.fsck();
        let volume = stage.open(&options()).unwrap();
        let file = volume.open_path("/file", writable()).unwrap();
        same(&file, &model, &what);
        drop(file);
        volume.close().unwrap();
    }
}
