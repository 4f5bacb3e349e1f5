//! Range operations on a file against a byte array, with requests in flight; e2fsck judges each volume after it is closed.

use crate::common::stage::{Stage, faulty};
use crate::common::{Rng, bytes, fsck, image, scaled, scratch};
use diorite::{
    Error, Fallocate, File, MappingState, Op, OpenFlags, OpenOptions, Request, Seek, Volume,
};
use diorite_block::{BioErrorKind, BioOp, Buf, Fault, When};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const KINDS: [(&str, &[&str]); 5] = [
    ("ext4-4k", &["-t", "ext4", "-b", "4096"]),
    ("ext4-1k", &["-t", "ext4", "-b", "1024", "-J", "size=1"]),
    (
        "ext4-nojournal",
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    ),
    ("ext3-1k", &["-t", "ext3", "-b", "1024", "-J", "size=1"]),
    ("ext2-1k", &["-t", "ext2", "-b", "1024"]),
];

fn make(dir: &Path, size: &str, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![0x55; 100_001]).unwrap();
    image(dir, size, args, &tree)
}

fn open(image: &Path) -> (Volume, File) {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let flags = OpenFlags::writable();
    let file = volume.open_path("/file", flags).unwrap();
    (volume, file)
}

/// A new image, and its file.
fn fresh(size: &str, args: &[&str]) -> (tempfile::TempDir, PathBuf, Volume, File) {
    let dir = scratch();
    let image = make(dir.path(), size, args);
    let (volume, file) = open(&image);
    (dir, image, volume, file)
}

/// Closes the volume, and lets e2fsck judge it.
fn ended(volume: Volume, file: File, image: &Path) {
    drop(file);
    volume.close().unwrap();
    fsck(image);
}

fn same(what: &str, file: &File, model: &[u8]) {
    assert_eq!(file.size(), model.len() as u64, "{what}: size");
    let mut bytes = vec![0xee; model.len()];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    if let Some(at) = (0..bytes.len()).find(|i| bytes[*i] != model[*i]) {
        panic!(
            "{what}: byte {at} is {:#x}, not {:#x}",
            bytes[at], model[at]
        );
    }
}

fn write(file: &File, model: &mut Vec<u8>, pos: usize, data: &[u8]) {
    let mut buf = Buf::zeroed(data.len());
    buf.copy_in(0, data);
    assert_eq!(file.write_buf(pos as u64, buf).1.unwrap(), data.len());
    bytes::write(model, pos, data);
}

fn write_somewhere(file: &File, model: &mut Vec<u8>, rng: &mut Rng) {
    let mut data = vec![0; 512 * (1 + rng.below(40)) as usize];
    rng.fill(&mut data);
    write(file, model, 512 * rng.below(2000) as usize, &data);
}

/// Truncations up and down between writes: every byte is as expected, also past a former end.
#[test]
fn truncations() {
    let mut rng = Rng::from_env("truncations");
    for (name, args) in KINDS {
        let dir = scratch();
        let image = make(dir.path(), "32M", args);
        let mut model = vec![0x55; 100_001];
        for _ in 0..3 {
            let (volume, file) = open(&image);
            for n in 0..scaled("DIORITE_ROUNDS", 40) {
                if rng.below(2) == 0 {
                    write_somewhere(&file, &mut model, &mut rng);
                } else {
                    let size = rng.below(1_000_000);
                    file.truncate(size).unwrap();
                    model.resize(size as usize, 0);
                }
                same(&format!("{name}, round {n}"), &file, &model);
            }
            ended(volume, file, &image);
            let (_volume, file) = open(&image);
            same(name, &file, &model);
        }
    }
}

/// Truncating a file with many extents takes many handles of a small journal; all its space is freed.
#[test]
fn a_fragmented_file_goes_in_many_handles() {
    for (name, args) in KINDS {
        let (_dir, image, volume, file) = fresh("64M", args);
        file.truncate(0).unwrap();
        let mut model = Vec::new();
        for n in 0..3000usize {
            write(&file, &mut model, n * 8192, &[n as u8; 4096]);
        }
        for size in [3000 * 4096 + 17, 1_000_003, 0] {
            file.truncate(size).unwrap();
            model.truncate(size as usize);
            same(name, &file, &model);
        }
        assert_eq!(file.metadata().blocks, 0);
        ended(volume, file, &image);
    }
}

const POISON: u8 = 0xee;

/// An image with poison in its free blocks.
fn poisoned(dir: &Path, size: u64, args: &[&str]) -> PathBuf {
    std::fs::write(dir.join("image"), vec![POISON; size as usize]).unwrap();
    make(dir, &format!("{}k", size >> 10), args)
}

/// Makes one operation on the file and on the array.
fn operate(file: &File, model: &mut Vec<u8>, rng: &mut Rng, extents: bool) {
    let (pos, len) = (rng.below(600_000), 1 + rng.below(200_000));
    let size = model.len() as u64;
    let change = |model: &mut Vec<u8>, mode: Fallocate| {
        file.fallocate(mode, pos, len).unwrap();
        bytes::fallocate(model, mode, pos as usize, len as usize);
    };
    let keep_size = rng.below(2) == 0;
    match rng.below(if extents { 8 } else { 3 }) {
        0 => {
            let mut data = vec![0; 512 * (1 + rng.below(60)) as usize];
            data.fill(1 + rng.below(100) as u8);
            write(file, model, 512 * rng.below(1200) as usize, &data);
        }
        1 => {
            let size = rng.below(800_000);
            file.truncate(size).unwrap();
            model.resize(size as usize, 0);
        }
        2 => change(model, Fallocate::PunchHole),
        3 => change(model, Fallocate::Allocate { keep_size }),
        4 => change(model, Fallocate::ZeroRange { keep_size }),
        5 => change(model, Fallocate::WriteZeroes { keep_size }),
        6 => {
            let (pos, len) = (pos / BLOCK * BLOCK, BLOCK * (1 + rng.below(20)));
            let done = file.fallocate(Fallocate::CollapseRange, pos, len);
            assert_eq!(done.is_ok(), pos + len < size, "{done:?}");
            if done.is_ok() {
                let mode = Fallocate::CollapseRange;
                bytes::fallocate(model, mode, pos as usize, len as usize);
            }
        }
        _ => {
            let (pos, len) = (pos / BLOCK * BLOCK, BLOCK * (1 + rng.below(20)));
            let done = file.fallocate(Fallocate::InsertRange, pos, len);
            assert_eq!(done.is_ok(), pos < size, "{done:?}");
            if done.is_ok() {
                let mode = Fallocate::InsertRange;
                bytes::fallocate(model, mode, pos as usize, len as usize);
            }
        }
    }
}

/// A multiple of the block size of every kind.
const BLOCK: u64 = 4096;

/// Keeps reads in flight: all bytes that they return were written to this file.
fn read_meanwhile(volume: &Volume, file: &File, stop: &AtomicBool, mut rng: Rng) {
    let queue = volume.queue(16).unwrap();
    let id = queue.attach(file).unwrap();
    let (mut done, mut flying) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) || flying > 0 {
        let mut batch = VecDeque::new();
        while flying + batch.len() < 16 && !stop.load(Ordering::Relaxed) {
            let mut buf = Buf::zeroed(512 * (1 + rng.below(40)) as usize);
            buf.as_mut_slice().fill(0);
            batch.push_back(Request::read(id, 512 * rng.below(1600), buf, 0));
        }
        flying += batch.len();
        queue.submit(&mut batch);
        flying -= batch.len();
        queue.reap(&mut done, 1, None);
        flying -= done.len();
        for completion in done.drain(..) {
            let got = completion.result.unwrap();
            let seen = &completion.buf.as_slice()[..got];
            assert!(!seen.contains(&POISON), "stale data at {}", completion.pos);
        }
    }
    queue.detach(id);
}

/// Rules G13, G15, G16, U1: random operations against an array, with reads in flight.
#[test]
fn every_mode_against_an_array() {
    let mut rng = Rng::from_env("every mode");
    for (name, args) in KINDS {
        let dir = scratch();
        let image = poisoned(dir.path(), 32 << 20, args);
        let mut model = vec![0x55; 100_001];
        for part in 0..2 {
            let (volume, file) = open(&image);
            let (stop, reader) = (AtomicBool::new(false), rng.fork());
            std::thread::scope(|scope| {
                scope.spawn(|| read_meanwhile(&volume, &file, &stop, reader));
                let checks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    for n in 0..scaled("DIORITE_ROUNDS", 60) {
                        operate(&file, &mut model, &mut rng, name.starts_with("ext4"));
                        same(&format!("{name}, part {part}, round {n}"), &file, &model);
                    }
                }));
                stop.store(true, Ordering::Relaxed);
                checks.unwrap();
            });
            ended(volume, file, &image);
            let (_volume, file) = open(&image);
            same(name, &file, &model);
        }
    }
}

/// Writers, appenders and range operations at once: none hangs, no stale data is read, and the volume is consistent.
#[test]
fn writers_and_ranges_at_once() {
    let mut rng = Rng::from_env("writers and ranges");
    for (name, args) in KINDS {
        let dir = scratch();
        let image = poisoned(dir.path(), 32 << 20, args);
        let (volume, file) = open(&image);
        let (stop, reader) = (AtomicBool::new(false), rng.fork());
        let (volume_ref, file_ref, stop_ref) = (&volume, &file, &stop);
        std::thread::scope(|scope| {
            scope.spawn(|| read_meanwhile(volume_ref, file_ref, stop_ref, reader));
            for _ in 0..2 {
                let mut rng = rng.fork();
                scope.spawn(move || {
                    let queue = volume_ref.queue(8).unwrap();
                    let id = queue.attach(file_ref).unwrap();
                    let mut done = Vec::new();
                    while !stop_ref.load(Ordering::Relaxed) {
                        let mut batch = VecDeque::new();
                        for _ in 0..8 {
                            let mut buf = Buf::zeroed(512 * (1 + rng.below(20)) as usize);
                            buf.as_mut_slice().fill(0x11);
                            let append = file_ref.size() < 1 << 20 && rng.below(4) == 0;
                            batch.push_back(match append {
                                true => Request::append(id, buf, 0),
                                false => Request::write(id, 512 * rng.below(1600), buf, 0),
                            });
                        }
                        queue.submit(&mut batch);
                        while done.len() < 8 {
                            queue.reap(&mut done, 1, None);
                        }
                        for completion in done.drain(..) {
                            match (completion.op, completion.result) {
                                // Rule G1: after some of the truncations the size is not a multiple of a sector.
                                (Op::Append, Err(Error::Unaligned { .. })) => {}
                                (_, result) => assert!(result.is_ok(), "{result:?}"),
                            }
                        }
                    }
                    queue.detach(id);
                });
            }
            let checks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for _ in 0..scaled("DIORITE_ROUNDS", 60) {
                    let (pos, len) = (rng.below(600_000), 1 + rng.below(200_000));
                    let extents = name.starts_with("ext4");
                    match rng.below(if extents { 4 } else { 2 }) {
                        0 => file.truncate(pos).unwrap(),
                        1 => file.fallocate(Fallocate::PunchHole, pos, len).unwrap(),
                        2 => {
                            let mode = Fallocate::ZeroRange { keep_size: true };
                            file.fallocate(mode, pos, len).unwrap();
                        }
                        _ => {
                            let _past_end = file.fallocate(
                                Fallocate::CollapseRange,
                                pos / 4096 * 4096,
                                4096 * 3,
                            );
                        }
                    }
                }
            }));
            stop.store(true, Ordering::Relaxed);
            checks.unwrap();
        });
        ended(volume, file, &image);
    }
}

/// Rule G8: old data stays, and no space is allocated; the error has the number of blocks that the whole request needs.
#[test]
fn no_space_for_all_of_it() {
    let (_dir, image, volume, file) = fresh("16M", KINDS[0].1);
    let mode = Fallocate::Allocate { keep_size: false };
    let had = file.metadata().blocks;
    for mode in [mode, Fallocate::ZeroRange { keep_size: false }] {
        match file.fallocate(mode, 0, 64 << 20) {
            Err(Error::NoSpace { asked, free }) => {
                let block = u64::from(volume.superblock().block_size());
                assert_eq!(asked, (64 << 20) / block - 100_001u64.div_ceil(block));
                assert!(free < asked, "{free}");
            }
            other => panic!("{other:?}"),
        }
        same("after no space", &file, &[0x55; 100_001]);
    }
    assert_eq!(file.metadata().blocks, had);
    file.fallocate(mode, 0, 4 << 20).unwrap();
    assert_eq!(file.size(), 4 << 20);
    ended(volume, file, &image);
}

/// Collapse and insert range in front of many leaves take many handles of a small journal.
#[test]
fn shifting_many_leaves() {
    for (name, args) in &KINDS[..3] {
        let (_dir, image, volume, file) = fresh("64M", args);
        file.truncate(0).unwrap();
        let mut model = Vec::new();
        for n in 0..3000usize {
            write(&file, &mut model, n * 8192, &[n as u8; 4096]);
        }
        file.fallocate(Fallocate::InsertRange, 8192, 40_960)
            .unwrap();
        model.splice(8192..8192, std::iter::repeat_n(0, 40_960));
        same(name, &file, &model);
        file.fallocate(Fallocate::CollapseRange, 4096, 81_920)
            .unwrap();
        model.drain(4096..4096 + 81_920);
        same(name, &file, &model);
        ended(volume, file, &image);
    }
}

/// If a file's map fits into one transaction, however many leaves it has, a range is collapsed in one handle: a crash shows all of
/// that or nothing.
#[test]
fn a_shift_that_fits_is_one_handle() {
    let dir = scratch();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=16"];
    let image = make(dir.path(), "64M", &args);
    let options = OpenOptions::writable().commit_interval(std::time::Duration::from_secs(3600));
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let file = volume.create("/new", 0o600).unwrap();
    let mut model = Vec::new();
    // As many leaves as it takes with 84 extents each, or half of that.
    for n in 0..2000usize {
        write(&file, &mut model, n * 2048, &[n as u8; 1024]);
    }
    let before = volume.journal_stats().handles;
    file.fallocate(Fallocate::CollapseRange, 4096, 4096)
        .unwrap();
    let handles = volume.journal_stats().handles - before;
    assert_eq!(handles, 1);
    model.drain(4096..8192);
    same("collapsed", &file, &model);
}

/// Invalid arguments are refused and change nothing.
#[test]
fn refusals() {
    for (name, args) in KINDS {
        let (_dir, image, volume, file) = fresh("16M", args);
        let zero = Fallocate::ZeroRange { keep_size: false };
        let all = [
            (Fallocate::PunchHole, 0, 0),
            (Fallocate::CollapseRange, 1, 4096),
            (Fallocate::CollapseRange, 0, 106_496),
            (Fallocate::InsertRange, 4096, 1000),
            (Fallocate::InsertRange, 102_400, 4096),
            (zero, u64::MAX - 5, 5),
        ];
        for (mode, pos, len) in all {
            let done = file.fallocate(mode, pos, len);
            assert!(done.is_err(), "{name}: {mode:?} at {pos}");
        }
        assert!(matches!(file.truncate(u64::MAX), Err(Error::TooBig { .. })));
        if !name.starts_with("ext4") {
            let done = file.fallocate(zero, 0, 4096);
            assert!(matches!(done, Err(Error::NotSupported(_))));
        }
        same(name, &file, &[0x55; 100_001]);
        ended(volume, file, &image);
    }
}

/// A truncation to the size that the file has frees what was preallocated behind its end, as the kernel's ext4 does. The defect: only a
/// truncation to less did, so the space was kept until then.
#[test]
fn a_truncation_to_the_same_size_frees_what_lies_behind() {
    let extents = KINDS.iter().filter(|(name, _)| name.starts_with("ext4"));
    for (name, args) in extents {
        let (_dir, image, volume, file) = fresh("32M", args);
        let mut model = vec![0x55; 100_001];
        // The last size lies in a hole.
        for (size, len) in [
            (100_001, 102_400),
            (4096, 4096),
            (1, 4096),
            (0, 0),
            (99_999, 0),
        ] {
            model.resize(size, 0);
            file.truncate(size as u64).unwrap();
            let keep = Fallocate::Allocate { keep_size: true };
            // Two runs, with a hole before each.
            for pos in [200_704, 4_194_304] {
                file.fallocate(keep, pos, 1 << 20).unwrap();
            }
            let before = file.metadata().blocks;
            file.truncate(size as u64).unwrap();
            same(name, &file, &model);
            let behind = file.mappings(len, 8 << 20).unwrap();
            let is_free = behind.iter().all(|m| m.state == MappingState::Hole);
            assert!(is_free, "{name}: {size}: {behind:?}");
            let freed = before - file.metadata().blocks;
            assert!(freed >= 4096, "{name}: {size}: only {freed} sectors");
            let kept = file.metadata().blocks;
            file.truncate(size as u64).unwrap();
            assert_eq!(file.metadata().blocks, kept, "{name}: {size}: again");
            file.truncate(size as u64 + 70_000).unwrap();
            model.resize(size + 70_000, 0);
            same(name, &file, &model);
        }
        ended(volume, file, &image);
    }
}

#[test]
fn data_and_holes() {
    let (_dir, _image, volume, file) = fresh("16M", KINDS[0].1);
    file.fallocate(Fallocate::PunchHole, 8192, 8192).unwrap();
    file.truncate(200_000).unwrap();
    let find = |from, what| file.seek_next(from, what).unwrap();
    assert_eq!(find(0, Seek::Data), Some(0));
    assert_eq!(find(5, Seek::Hole), Some(8192));
    assert_eq!(find(9000, Seek::Data), Some(16_384));
    assert_eq!(find(9000, Seek::Hole), Some(9000));
    assert_eq!(find(16_384, Seek::Hole), Some(102_400));
    assert_eq!(find(102_400, Seek::Data), None);
    assert_eq!(find(200_000, Seek::Hole), None);
    drop(file);
    volume.close().unwrap();
}

/// Rule G17: only free space is discarded, and none that an uncommitted transaction freed.
#[test]
fn trimming() {
    let (_dir, image, volume, file) = fresh("16M", KINDS[0].1);
    let mut model = vec![0x55; 100_001];
    write(&file, &mut model, 1 << 20, &[3; 1 << 20]);
    volume.sync().unwrap();
    let before = volume.trim(0..u64::MAX, 4096).unwrap();
    file.truncate(100_001).unwrap();
    assert_eq!(volume.trim(0..u64::MAX, 4096).unwrap(), before);
    volume.sync().unwrap();
    assert_eq!(volume.trim(0..u64::MAX, 4096).unwrap(), before + (1 << 20));
    same("trimmed", &file, &model[..100_001]);
    ended(volume, file, &image);
}

/// Trimming a part of the volume discards the whole blocks inside it; consecutive parts together discard the same as the whole.
#[test]
fn trimming_in_parts() {
    let (_dir, image, volume, file) = fresh("16M", KINDS[0].1);
    let whole = volume.trim(0..u64::MAX, 4096).unwrap();
    let parts = [0, 6 << 20, 10 << 20, 16 << 20];
    let trim = |part: &[u64]| volume.trim(part[0]..part[1], 4096).unwrap();
    let each: Vec<u64> = parts.windows(2).map(trim).collect();
    assert!(each[1..].iter().all(|bytes| *bytes > 0), "{each:?}");
    assert_eq!(each.iter().sum::<u64>(), whole);
    let block = (12 << 20) + 4096;
    for (range, bytes) in [
        (block..block + 8192, 8192),
        (block - 1..block + 8193, 8192),
        (block + 1..block + 8191, 0),
        (block..block + 4095, 0),
    ] {
        assert_eq!(volume.trim(range.clone(), 1).unwrap(), bytes, "{range:?}");
    }
    ended(volume, file, &image);
}

/// A device that reports only in answer to a discard that it does not support it counts as one without discard.
#[test]
fn trimming_what_cannot_discard() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "16M", KINDS[0].1));
    for kind in [BioErrorKind::Unsupported, BioErrorKind::Io] {
        let fault = Fault::new(kind, When::Every(1)).on(BioOp::Discard);
        let device = faulty(stage.device.clone(), vec![fault]);
        let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
        let free = volume.usage().free;
        let error = volume.trim(0..u64::MAX, 4096).unwrap_err();
        let unsupported = matches!(error, Error::NotSupported(_));
        assert_eq!(unsupported, kind == BioErrorKind::Unsupported, "{error}");
        assert_eq!(volume.usage().free, free, "rule D11");
        volume.close().unwrap();
    }
}
