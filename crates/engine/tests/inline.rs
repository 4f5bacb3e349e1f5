//! Files whose data is in their inode: the first write, truncation or range operation moves it out, in a handle; every byte against an array, read
//! meanwhile too; e2fsck has nothing to say, and the kernel reads the same.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::fixture::writable;
use common::{Rng, fsck, image, kernel, run, scratch};
use diorite::{Error, Fallocate, File, Op, OpenOptions, Request, RequestFlags, Volume, Wait};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

const SIZES: [usize; 7] = [0, 1, 59, 60, 61, 100, 150];

const KINDS: [&[&str]; 6] = [
    &["-b", "4096", "-I", "256", "-O", "inline_data"],
    &["-b", "1024", "-I", "512", "-O", "inline_data"],
    &["-b", "1024", "-I", "256", "-O", "inline_data,^has_journal"],
    &[
        "-b",
        "4096",
        "-I",
        "256",
        "-O",
        "inline_data,^metadata_csum",
    ],
    &[
        "-b",
        "4096",
        "-I",
        "256",
        "-O",
        "inline_data,^extent,^64bit",
    ],
    &["-b", "1024", "-I", "256", "-O", "inline_data,bigalloc"],
];

fn contents(size: usize) -> Vec<u8> {
    (0..size).map(|n| 1 + (n % 250) as u8).collect()
}

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    std::fs::write(dir.join("image"), vec![0xee; 32 << 20]).unwrap();
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    for size in SIZES {
        std::fs::write(tree.join(format!("f{size}")), contents(size)).unwrap();
    }
    let args: Vec<&str> = ["-t", "ext4"].iter().chain(args).copied().collect();
    image(dir, "32768k", &args, &tree)
}

fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

fn file(volume: &Volume, size: usize) -> File {
    volume.open_path(&format!("/f{size}"), writable()).unwrap()
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0x77; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

type Operation = (&'static str, fn(&File, &mut Vec<u8>));

fn write(file: &File, model: &mut Vec<u8>, pos: usize) {
    let mut buf = Buf::zeroed(512);
    buf.as_mut_slice().fill(0xaa);
    assert_eq!(file.write_at(pos as u64, buf).1.unwrap(), 512);
    model.resize(model.len().max(pos + 512), 0);
    model[pos..pos + 512].fill(0xaa);
}

/// Those that need extents say so where there are none.
fn allocate(file: &File, mode: Fallocate, pos: u64, len: u64) -> bool {
    match file.fallocate(mode, pos, len) {
        Ok(()) => true,
        Err(Error::NotSupported(_)) => false,
        other => panic!("{other:?}"),
    }
}

const OPERATIONS: [Operation; 9] = [
    ("an overwrite", |f, m| write(f, m, 0)),
    ("a write behind the first sector", |f, m| write(f, m, 512)),
    ("a write far behind", |f, m| write(f, m, 300_032)),
    ("an append", |f, m| {
        let end = m.len();
        let done = f
            .call(Op::Append, 0, Buf::zeroed(512), RequestFlags::default())
            .1;
        match end {
            0 => {
                assert_eq!(done.unwrap(), 512);
                m.resize(512, 0);
            }
            _ => assert!(matches!(done, Err(Error::Unaligned { .. })), "{done:?}"),
        }
    }),
    ("a truncation to less", |f, m| {
        let size = m.len() / 2;
        f.truncate(size as u64).unwrap();
        m.truncate(size);
    }),
    ("a truncation to more", |f, m| {
        f.truncate(100_000).unwrap();
        m.resize(100_000, 0);
    }),
    ("a punch", |f, m| {
        f.fallocate(Fallocate::PunchHole, 10, 70).unwrap();
        let end = m.len().min(80);
        if end > 10 {
            m[10..end].fill(0);
        }
    }),
    ("an allocation", |f, m| {
        let mode = Fallocate::Allocate { keep_size: false };
        if allocate(f, mode, 0, 50_000) {
            m.resize(50_000, 0);
        }
    }),
    ("zeros", |f, m| {
        let mode = Fallocate::ZeroRange { keep_size: false };
        if allocate(f, mode, 20, 5_000) {
            m.resize(5_020, 0);
            m[20..].fill(0);
        }
    }),
];

#[test]
fn the_first_change_moves_data_out() {
    for args in KINDS {
        for (what, operation) in OPERATIONS {
            let dir = scratch();
            let image = make(dir.path(), args);
            let volume = open(&image);
            let mut models = Vec::new();
            for size in SIZES {
                let (file, mut model) = (file(&volume, size), contents(size));
                operation(&file, &mut model);
                assert_eq!(read_all(&file), model, "{size} bytes, {what}, {args:?}");
                models.push(model);
            }
            volume.close().unwrap();
            fsck(&image);
            kernel::mounted(&image, "ro", |at| {
                for (size, model) in SIZES.iter().zip(&models) {
                    let seen = std::fs::read(at.join(format!("f{size}"))).unwrap();
                    assert_eq!(seen, *model, "the kernel, {size} bytes, {what}, {args:?}");
                }
            });
            let volume = open(&image);
            for (size, model) in SIZES.iter().zip(&models) {
                assert_eq!(read_all(&file(&volume, *size)), *model);
                volume.unlink(&format!("/f{size}")).unwrap();
            }
            volume.close().unwrap();
            fsck(&image);
        }
    }
}

/// What stays is not touched: other attributes, and a file that only a failed check has seen.
#[test]
fn what_is_not_written_stays_inside() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0]);
    let path = image.to_str().unwrap();
    run("debugfs", &["-w", "-R", "ea_set /f61 user.a b", path]);
    let volume = open(&image);
    let inside = file(&volume, 100);
    assert!(inside.write_at(3, Buf::zeroed(512)).1.is_err());
    assert!(inside.truncate(u64::MAX).is_err());
    let nowait = RequestFlags {
        nowait: true,
        ..RequestFlags::default()
    };
    let done = inside.call(Op::Write, 0, Buf::zeroed(512), nowait).1;
    assert!(
        matches!(done, Err(Error::WouldBlock(Wait::Inode))),
        "{done:?}"
    );
    assert_eq!(inside.metadata().blocks, 0);
    let other = file(&volume, 61);
    write(&other, &mut contents(61), 0);
    let kept = volume.xattrs(other.ino()).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(
        (&kept[0].name[..], &kept[0].value[..]),
        (&b"user.a"[..], &b"b"[..])
    );
    drop((inside, other));
    volume.close().unwrap();
    fsck(&image);
}

/// Many first writes at once, with reads of the same bytes: each byte is what it was or what was written.
#[test]
fn first_writes_and_reads_at_once() {
    let mut rng = Rng::from_env("first writes");
    for _ in 0..30 {
        let dir = scratch();
        let image = make(dir.path(), KINDS[(rng.below(2)) as usize]);
        let volume = open(&image);
        let file = file(&volume, 150);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (volume, file) = (&volume, &file);
                scope.spawn(move || {
                    let queue = volume.queue(8).unwrap();
                    let id = queue.attach(file).unwrap();
                    let mut batch = VecDeque::new();
                    for n in 0..4 {
                        batch.push_back(Request::read(id, 0, Buf::zeroed(512), 0));
                        let pos = 512 * (1 + 4 * thread + n);
                        let mut buf = Buf::zeroed(512);
                        buf.as_mut_slice().fill(0xaa);
                        batch.push_back(Request::write(id, pos, buf, 1));
                    }
                    let (count, mut done) = (batch.len(), Vec::new());
                    assert_eq!(queue.submit(&mut batch), count);
                    while done.len() < count {
                        queue.reap(&mut done, 1, None);
                    }
                    for completion in done {
                        let got = completion.result.unwrap();
                        if completion.token == 0 {
                            assert!(got >= 150);
                            assert_eq!(completion.buf.as_slice()[..150], contents(150));
                        }
                    }
                    queue.detach(id);
                });
            }
        });
        let mut model = contents(150);
        model.resize(512, 0);
        model.resize(512 * 17, 0xaa);
        assert_eq!(read_all(&file), model);
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Small files made here stay in their inodes as far as these have room, beside attributes; larger ones are left to be written. What was put there
/// moves out as any other.
#[test]
fn small_files_are_put_inside() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image);
        let mut kept = Vec::new();
        for size in 0..420 {
            let path = format!("/new{size}");
            let file = volume.create(&path, 0o644).unwrap();
            if size % 7 == 3 {
                volume.set_xattr(file.ino(), b"user.a", &[1; 30]).unwrap();
            }
            let queue = volume.queue(4).unwrap();
            let id = queue.attach(&file).unwrap();
            let inside = file.keep_inside(&contents(size)).unwrap();
            assert_eq!(file.size(), if inside { size as u64 } else { 0 });
            // Once, and not over what is there.
            assert!(!inside || !file.keep_inside(b"again").unwrap());
            let read = Request::read(id, 0, Buf::zeroed(4096), 0);
            let done = common::fixture::run_all(&queue, vec![read]).remove(0);
            let len = done.result.unwrap();
            assert_eq!(len as u64, file.size());
            assert_eq!(done.buf.as_slice()[..len], contents(size)[..len]);
            if inside {
                kept.push(size);
            }
        }
        assert!(
            kept.contains(&1) && kept.contains(&60) && kept.contains(&90),
            "{kept:?}"
        );
        assert!(!kept.contains(&0) && !kept.contains(&419));
        volume.close().unwrap();
        fsck(&image);
        kernel::mounted(&image, "ro", |at| {
            for size in &kept {
                let found = std::fs::read(at.join(format!("new{size}"))).unwrap();
                assert_eq!(found, contents(*size));
            }
        });
        let volume = open(&image);
        for (n, size) in kept.iter().enumerate() {
            let path = format!("/new{size}");
            let file = volume.open_path(&path, writable()).unwrap();
            assert_eq!(file.size(), *size as u64);
            match n % 4 {
                0 => drop(file.write_at(0, Buf::zeroed(4096)).1.unwrap()),
                1 => file.truncate(*size as u64 / 2).unwrap(),
                2 => {
                    drop(file);
                    volume.unlink(&path).unwrap();
                }
                _ => volume.set_xattr(file.ino(), b"user.b", &[2; 200]).unwrap(),
            }
        }
        // Put inside and moved out again while it is open.
        let file = volume.create("/both", 0o644).unwrap();
        assert!(file.keep_inside(&contents(50)).unwrap());
        file.write_at(512, Buf::zeroed(512)).1.unwrap();
        let mut bytes = vec![0; 2048];
        assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), 1024);
        assert_eq!(bytes[..50], contents(50));
        assert!(bytes[50..1024].iter().all(|b| *b == 0));
        assert!(!file.keep_inside(b"x").unwrap());
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}
