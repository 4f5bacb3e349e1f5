//! Files with inline data: truncations and holes that need no block are done inside the inode; the first direct write moves the
//! data out, in one handle. Every byte is compared with an array, also during reads; e2fsck judges the image, and the kernel reads
//! the same bytes.

use crate::common::fixture::writable;
use crate::common::recipe::debugfs;
use crate::common::{Rng, fsck, image, kernel, run, scratch, words};
use diorite::{
    Caller, Error, Fallocate, File, Op, OpenOptions, Request, RequestFlags, Seek, SetAttr, Volume,
    Wait,
};
use diorite_block::Buf;
use diorite_format::MapKind;
use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};

const SIZES: [usize; 7] = [0, 1, 59, 60, 61, 100, 150];

const KINDS: [&str; 6] = [
    "-b 4096 -I 256 -O inline_data",
    "-b 1024 -I 512 -O inline_data",
    "-b 1024 -I 256 -O inline_data,^has_journal",
    "-b 4096 -I 256 -O inline_data,^metadata_csum",
    "-b 4096 -I 256 -O inline_data,^extent,^64bit",
    "-b 1024 -I 256 -O inline_data,bigalloc",
];

fn contents(size: usize) -> Vec<u8> {
    (0..size).map(|n| 1 + (n % 250) as u8).collect()
}

fn make(dir: &Path, args: &str) -> PathBuf {
    std::fs::write(dir.join("image"), vec![0xee; 32 << 20]).unwrap();
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    for size in SIZES {
        std::fs::write(tree.join(format!("f{size}")), contents(size)).unwrap();
    }
    image(dir, "32768k", &words(&format!("-t ext4 {args}")), &tree)
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
    assert_eq!(file.write_buf(pos as u64, buf).1.unwrap(), 512);
    model.resize(model.len().max(pos + 512), 0);
    model[pos..pos + 512].fill(0xaa);
}

/// Returns false if the operation needs extents and the file has none.
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

fn is_inside(file: &File) -> bool {
    file.metadata().map_kind() == MapKind::Inline
}

/// Every operation on files of all sizes; asserts whether the data is still inline afterwards.
#[test]
fn what_needs_a_block_moves_data_out() {
    for args in KINDS {
        for (what, operation) in OPERATIONS {
            let dir = scratch();
            let image = make(dir.path(), args);
            let volume = open(&image);
            let mut models = Vec::new();
            for size in SIZES {
                let (file, mut model) = (file(&volume, size), contents(size));
                operation(&file, &mut model);
                let shown = format!("{size} bytes, {what}, {args:?}");
                assert_eq!(read_all(&file), model, "{shown}");
                // mke2fs makes no inline data for an empty file.
                let stays = ["a truncation to less", "a punch"].contains(&what);
                let refused = what == "an append" || args.contains("inline_data,^extent,^64bit");
                let inode: usize = words(args)[3].parse().unwrap();
                if !refused && (1..=60 + inode - 188).contains(&size) {
                    assert_eq!(is_inside(&file), stays, "{shown}");
                }
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

/// Inline data that is not written, and other attributes, stay as they are; so does a file after a refused request.
#[test]
fn what_is_not_written_stays_inside() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0]);
    let path = image.to_str().unwrap();
    run("debugfs", &["-w", "-R", "ea_set /f61 user.a b", path]);
    let volume = open(&image);
    let inside = file(&volume, 100);
    assert!(inside.write_buf(3, Buf::zeroed(512)).1.is_err());
    assert!(inside.truncate(u64::MAX).is_err());
    let nowait = RequestFlags::default().nowait(true);
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

/// A large inode has room for more than a sector: the second sector is read from there, with zeros after the end.
#[test]
fn more_than_a_sector_is_inside() {
    let dir = scratch();
    let image = make(dir.path(), "-b 4096 -I 1024 -O inline_data");
    let volume = open(&image);
    let inside = file(&volume, 0);
    let data = contents(700);
    assert!(inside.keep_inside(&data).unwrap() && is_inside(&inside));
    for (pos, len, got) in [
        (0, 512, 512),
        (512, 512, 188),
        (0, 1024, 700),
        (512, 1024, 188),
    ] {
        let (buf, done) = inside.read_buf(pos, crate::common::fixture::filled(0x77, len));
        assert_eq!(done.unwrap(), got, "{len} bytes at {pos}");
        let at = pos as usize;
        assert!(
            buf.as_slice()[..got] == data[at..at + got],
            "{len} bytes at {pos}"
        );
    }
    assert!(is_inside(&inside));
    drop(inside);
    volume.close().unwrap();
    fsck(&image);
}

/// Many first writes at once, with reads of the same bytes: each byte read is old or new.
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

/// Small new files are stored inline as far as the inode has room beside attributes; larger ones have to be written. Such data
/// moves out like any other inline data.
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
            // Only into an empty file, so a second call is refused.
            assert!(!inside || !file.keep_inside(b"again").unwrap());
            let read = Request::read(id, 0, Buf::zeroed(4096), 0);
            let done = crate::common::fixture::run_all(&queue, vec![read]).remove(0);
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
                0 => drop(file.write_buf(0, Buf::zeroed(4096)).1.unwrap()),
                1 => file.truncate(*size as u64 / 2).unwrap(),
                2 => {
                    drop(file);
                    volume.unlink(&path).unwrap();
                }
                _ => volume.set_xattr(file.ino(), b"user.b", &[2; 200]).unwrap(),
            }
        }
        // Stored inline and moved out again while the file is open.
        let file = volume.create("/both", 0o644).unwrap();
        assert!(file.keep_inside(&contents(50)).unwrap());
        file.write_buf(512, Buf::zeroed(512)).1.unwrap();
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

/// Random sizes, holes and new contents, within the available room: the data stays inline, and the kernel and e2fsck find it there.
#[test]
fn sizes_change_inside() {
    let mut rng = Rng::from_env("sizes inside");
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        // After the inode's fields, 28 bytes of the attribute area are used for the header and the entry of the data.
        let inode: usize = words(args)[3].parse().unwrap();
        let room = (60 + inode - 128 - 32 - 28) as u64;
        let mut model = contents(100);
        for _ in 0..2 {
            let volume = open(&image);
            let file = file(&volume, 100);
            for _ in 0..40 {
                match rng.below(3) {
                    0 => {
                        let (pos, len) = (rng.below(room + 9), 1 + rng.below(room));
                        file.fallocate(Fallocate::PunchHole, pos, len).unwrap();
                        let end = model.len().min((pos + len) as usize);
                        model[end.min(pos as usize)..end].fill(0);
                    }
                    1 => {
                        let size = rng.below(room + 1);
                        file.truncate(size).unwrap();
                        model.resize(size as usize, 0);
                    }
                    _ => {
                        file.truncate(0).unwrap();
                        model = contents(1 + rng.below(room) as usize);
                        assert!(file.keep_inside(&model).unwrap());
                        assert!(!file.keep_inside(b"not over what is there").unwrap());
                    }
                }
                assert!(is_inside(&file));
                assert_eq!(
                    (file.size(), file.metadata().blocks),
                    (model.len() as u64, 0)
                );
                assert_eq!(read_all(&file), model);
            }
            drop(file);
            volume.close().unwrap();
            fsck(&image);
            // The kernel changes the inline data, too, and diorite continues with the result.
            kernel::mounted(&image, "rw", |at| {
                let path = at.join("f100");
                assert_eq!(std::fs::read(&path).unwrap(), model);
                let mut file = std::fs::File::options().append(true).open(path).unwrap();
                file.set_len(model.len().min(40) as u64).unwrap();
                file.write_all(b"the kernel's").unwrap();
                model.truncate(40);
                model.extend(b"the kernel's");
            });
            fsck(&image);
        }
        let volume = open(&image);
        let file = file(&volume, 100);
        file.truncate(room + 1).unwrap();
        model.resize(room as usize + 1, 0);
        assert!(!is_inside(&file));
        assert_eq!(read_all(&file), model);
        // An empty file has room for inline data again, wherever its data was.
        file.truncate(0).unwrap();
        assert!(file.keep_inside(&contents(30)).unwrap());
        write(&file, &mut model, 0);
        assert_eq!(read_all(&file)[..512], [0xaa; 512]);
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// On a full volume these changes succeed, since they need no block; they remove set-user-id as any change of data does; a sync
/// makes them durable.
#[test]
fn inside_on_a_full_volume() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0]);
    let volume = open(&image);
    let small = file(&volume, 100);
    let mode = SetAttr::default().permissions(0o4755);
    volume.set_attr(small.ino(), &mode).unwrap();
    let all = Fallocate::Allocate { keep_size: true };
    // The first file takes nearly all space; further ones take the rest block by block.
    let mut others = vec![volume.temporary("/", 0o600).unwrap()];
    assert!(others[0].fallocate(all, 0, 1 << 30).is_err());
    while others.last().unwrap().fallocate(all, 0, 4096).is_ok() {
        others.push(volume.temporary("/", 0o600).unwrap());
    }
    small.fallocate(Fallocate::PunchHole, 0, 10).unwrap();
    small.truncate(70).unwrap();
    small.truncate(120).unwrap();
    let mut model = contents(100);
    model.truncate(70);
    model.resize(120, 0);
    model[..10].fill(0);
    assert!(is_inside(&small));
    assert_eq!(read_all(&small), model);
    let kept = Caller::of_process().uid == 0;
    let mode = if kept { 0o4755 } else { 0o755 };
    assert_eq!(small.metadata().mode & 0o7777, mode);
    let more = small.truncate(5000);
    assert!(matches!(more, Err(Error::NoSpace { .. })), "{more:?}");
    assert_eq!(read_all(&small), model);
    small.sync().unwrap();
    let copy = dir.path().join("as it is on the device");
    std::fs::copy(&image, &copy).unwrap();
    let then = open(&copy);
    assert_eq!(read_all(&file(&then, 100)), model);
    then.close().unwrap();
    fsck(&copy);
    drop((small, others));
    volume.close().unwrap();
    fsck(&image);
}

/// A reader sees the data before or after a change of size, never a mix, whether the data moves in or out.
#[test]
fn read_while_sizes_change() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[1]);
    let volume = open(&image);
    let file = file(&volume, 150);
    let full = contents(150);
    let reads = |got: &[u8]| match got.len() {
        0 | 10 => got == &full[..got.len()],
        150 => *got == full[..] || got[10..].iter().all(|b| *b == 0),
        1000 => got[10..].iter().all(|b| *b == 0),
        _ => false,
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..400 {
                    let (buf, got) = file.read_buf(0, Buf::zeroed(1024));
                    let got = &buf.as_slice()[..got.unwrap()];
                    assert!(reads(got), "{got:?}");
                }
            });
        }
        for round in 0..80 {
            let sizes: &[u64] = if round % 8 == 7 {
                &[10, 1000, 0]
            } else {
                &[10, 150, 0]
            };
            for size in sizes {
                file.truncate(*size).unwrap();
            }
            assert!(file.keep_inside(&full).unwrap());
        }
    });
    assert_eq!(read_all(&file), full);
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// SEEK_DATA and SEEK_HOLE: inline data is data to its last byte; the rest up to the size is a hole, and so is the end.
#[test]
fn where_data_is() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0]);
    debugfs(&image, dir.path(), "sif /f60 size 140\n");
    let volume = open(&image);
    for (name, size) in [(1, 1), (59, 59), (100, 100), (60, 140)] {
        let (file, end) = (file(&volume, name), name as u64);
        assert!(is_inside(&file) && file.size() == size);
        for from in [0, end - 1, end, size - 1, size, size + 1] {
            let data = (from < end).then_some(from);
            let hole = (from < size).then_some(from.max(end));
            let found = [Seek::Data, Seek::Hole].map(|what| file.seek_next(from, what).unwrap());
            assert_eq!(found, [data, hole], "{name}: from {from}");
        }
    }
}
