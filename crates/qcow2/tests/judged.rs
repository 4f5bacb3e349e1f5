//! Images of qemu-img, and its judgement of what we write.
#![allow(clippy::unwrap_used)]

mod common;

use common::{SEED, at, buf, open, qemu, qemu_says};
use diorite_block::locator::{ImageFormat, register_qcow2};
use diorite_block::{
    Bio, BioList, BioOp, Blocking, Buf, Locator, OpenOptions, QueueOptions, Stored, locator,
};
use std::fs;
use std::path::Path;
use std::time::Duration;
use xtask::rng::{Rng, seed_or};

/// Any requests leave what a plain memory would have, in images of every kind, and qemu-img finds nothing wrong and the same bytes.
#[test]
fn a_disk_is_what_was_written() {
    const SIZE: u64 = 6 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Rng::new(seed_or("judged", SEED));
    for options in [
        "cluster_size=64k",
        "cluster_size=512",
        "cluster_size=2M",
        "cluster_size=4k,refcount_bits=1",
        "cluster_size=4k,compat=0.10",
        "preallocation=metadata",
        "preallocation=full,refcount_bits=64",
        "",
    ] {
        let ((path, text), (_, raw)) = (at(&dir, "disk"), at(&dir, "raw"));
        let _ = fs::remove_file(&path);
        match options {
            "" => {
                fs::write(&path, []).unwrap();
                diorite_qcow2::create(&path, SIZE).unwrap();
            }
            _ => {
                let size = SIZE.to_string();
                let args = ["create", "-q", "-f", "qcow2", "-o", options, &text, &size];
                if qemu(&args).is_none() {
                    return;
                }
            }
        }
        let mut model = vec![0; SIZE as usize];
        for _ in 0..3 {
            let device = open(&path, "", false).unwrap();
            assert_eq!(device.geometry().size, SIZE);
            let blocking = Blocking::new(device.clone());
            for _ in 0..60 {
                let start = dice.below(SIZE / 512) * 512;
                let most = 1 << dice.below(12);
                let len = (1 + dice.below(most)) * 512;
                let len = len.min(SIZE - start);
                let range = start as usize..(start + len) as usize;
                match dice.below(5) {
                    0 => {
                        let read = blocking.read(start, Buf::zeroed(len as usize)).unwrap();
                        assert!(read.as_slice() == &model[range], "{options}: {start} {len}");
                    }
                    1 => {
                        let op =
                            [BioOp::WriteZeroes, BioOp::WriteZeroesUnmap][dice.below(2) as usize];
                        let done = blocking.run(Bio::range(op, start, len, 0));
                        done.result.unwrap();
                        model[range].fill(0);
                    }
                    2 => blocking.flush().unwrap(),
                    _ => {
                        let byte = 1 + dice.below(255) as u8;
                        let bio = blocking.run(Bio::write(start, buf(len as usize, byte), 0));
                        bio.result.unwrap();
                        model[range].fill(byte);
                    }
                }
            }
            let runs = device.stored(0..SIZE, usize::MAX).unwrap();
            let mut here = 0;
            for run in runs {
                let range = here as usize..(here + run.len) as usize;
                let is_zero = model[range].iter().all(|b| *b == 0);
                assert!(
                    run.stored == Stored::Data || is_zero,
                    "{options}: {here} {run:?}"
                );
                here += run.len;
            }
            assert_eq!(here, SIZE);
        }
        fs::write(&raw, &model).unwrap();
        if qemu(&["check", "-q", "-f", "qcow2", &text]).is_none() {
            return;
        }
        qemu(&["compare", "-q", "-f", "raw", "-F", "qcow2", &raw, &text]);
    }
}

/// Requests of one queue that are in flight together, and of several queues.
#[test]
fn many_requests_at_once() {
    const SIZE: u64 = 16 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    fs::write(&path, []).unwrap();
    diorite_qcow2::create(&path, SIZE).unwrap();
    let device = open(&path, "", false).unwrap();
    std::thread::scope(|scope| {
        for part in 0..3_u64 {
            let device = &device;
            scope.spawn(move || {
                let queue = device.open_queue(QueueOptions::new(32).unwrap()).unwrap();
                // Pieces of 8 KiB, of which each part takes every third: clusters are shared.
                let mut todo: BioList = (0..SIZE / 8192)
                    .filter(|n| n % 3 == part)
                    .map(|n| Bio::write(n * 8192, buf(8192, (n % 251) as u8), n))
                    .collect();
                let all = todo.len();
                let mut done = BioList::new();
                while done.len() < all {
                    queue.submit(&mut todo);
                    assert!(queue.in_flight() <= 32);
                    queue.wait(1, None);
                    queue.reap(&mut done);
                }
                assert!(done.iter().all(|bio| bio.result.is_ok()));
            });
        }
    });
    let blocking = Blocking::new(device.clone());
    blocking.flush().unwrap();
    for n in 0..SIZE / 8192 {
        let read = blocking.read(n * 8192, Buf::zeroed(8192)).unwrap();
        assert!(read.as_slice() == [(n % 251) as u8; 8192], "{n}");
    }
    // A queue that is dropped waits for its requests.
    let queue = device.open_queue(QueueOptions::new(8).unwrap()).unwrap();
    let mut todo: BioList = (0..8)
        .map(|n| Bio::write(n << 20, buf(65536, 9), n))
        .collect();
    queue.submit(&mut todo);
    drop(queue);
    let read = blocking.read(7 << 20, Buf::zeroed(65536)).unwrap();
    assert!(read.as_slice() == [9; 65536]);
    drop((blocking, device));
    qemu(&["check", "-q", "-f", "qcow2", &text]);
}

/// Threads that write and zero different parts of one new cluster lose nothing of each other. Zeros for a part of a cluster were once an
/// entry for all of it, if the rest of it had no data a moment ago.
#[test]
fn parts_of_one_cluster_side_by_side_are_all_there() {
    const THREADS: u64 = 4;
    const CLUSTERS: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    for (cluster, zeroes) in [(65536, true), (65536, false), (4096, true)] {
        let (part, size) = (cluster / (2 * THREADS), cluster * CLUSTERS + cluster / 2);
        let options = format!("cluster_size={cluster}");
        let _ = fs::remove_file(&path);
        let args = [
            "create",
            "-q",
            "-f",
            "qcow2",
            "-o",
            &options,
            &text,
            &size.to_string(),
        ];
        if qemu(&args).is_none() {
            return;
        }
        let device = open(&path, "", false).unwrap();
        let together = std::sync::Barrier::new(THREADS as usize);
        // Each second part is written, and each one between is zeroed, by the thread of the pair.
        let is_zero =
            |n: u64, pair: u64, second: bool| zeroes && second == (n + pair).is_multiple_of(2);
        std::thread::scope(|scope| {
            for pair in 0..THREADS {
                let (device, together) = (&device, &together);
                scope.spawn(move || {
                    let blocking = Blocking::new(device.clone());
                    for n in 0..=CLUSTERS {
                        together.wait();
                        for second in [false, true] {
                            let at = n * cluster + (2 * pair + u64::from(second)) * part;
                            if at >= size {
                                continue;
                            }
                            let bio = match is_zero(n, pair, second) {
                                true => Bio::range(BioOp::WriteZeroes, at, part, 0),
                                false => Bio::write(at, buf(part as usize, 1 + pair as u8), 0),
                            };
                            blocking.run(bio).result.unwrap();
                        }
                    }
                });
            }
        });
        let blocking = Blocking::new(device.clone());
        for at in (0..size).step_by(part as usize) {
            let (n, of) = (at / cluster, at % cluster / part);
            let want = match is_zero(n, of / 2, of % 2 == 1) {
                true => 0,
                false => 1 + of as u8 / 2,
            };
            let read = blocking.read(at, Buf::zeroed(part as usize)).unwrap();
            assert!(
                read.as_slice() == vec![want; part as usize],
                "{options} {zeroes}: {n} {of}"
            );
        }
        drop((blocking, device));
        qemu(&["check", "-q", "-f", "qcow2", &text]);
    }
}

/// What an image names is opened only if that is allowed, and its name is said.
#[test]
fn other_files_are_not_opened_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let ((base, base_text), (path, text)) = (at(&dir, "base"), at(&dir, "disk"));
    fs::write(&base, vec![5; 1 << 20]).unwrap();
    let create = |args: &[&str]| {
        let _ = fs::remove_file(&path);
        qemu(&[&["create", "-q", "-f", "qcow2"], args].concat()).is_some()
    };
    if !create(&["-F", "raw", "-b", &base_text, &text]) {
        return;
    }
    for read_only in [true, false] {
        let before = fs::read(&path).unwrap();
        let error = open(&path, "", read_only).err().unwrap().to_string();
        assert!(
            error.contains("it has the backing file") && error.contains(&base_text),
            "{error}"
        );
        assert!(fs::read(&path).unwrap() == before, "nothing was written");
    }
    let blocking = Blocking::new(open(&path, "&backing", false).unwrap());
    assert!(blocking.read(4096, Buf::zeroed(4096)).unwrap().as_slice() == [5; 4096]);
    blocking
        .run(Bio::write(4096, buf(512, 6), 0))
        .result
        .unwrap();
    drop(blocking);
    qemu(&["check", "-q", "-f", "qcow2", &text]);
    assert!(
        fs::read(&base).unwrap() == vec![5; 1 << 20],
        "it is only read"
    );
    // A backing file whose format would have to be guessed.
    qemu(&[
        "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", &base_text, &text,
    ]);
    let mut bytes = fs::read(&path).unwrap();
    let kind = 0xe279_2aca_u32.to_be_bytes();
    let named = bytes.windows(4).position(|four| four == kind).unwrap();
    bytes[named..named + 4].copy_from_slice(&[1, 2, 3, 4]);
    fs::write(&path, bytes).unwrap();
    let error = open(&path, "&backing", true).err().unwrap().to_string();
    assert!(error.contains("does not say the format"), "{error}");
}

/// The defect: the library opened a file for the data by its name, without a lock on it; it could be the image itself, or its backing file.
#[test]
fn data_in_another_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ((path, text), (data, data_text)) = (at(&dir, "disk"), at(&dir, "data"));
    let option = format!("data_file={data_text},data_file_raw=on");
    if qemu(&["create", "-q", "-f", "qcow2", "-o", &option, &text, "1M"]).is_none() {
        return;
    }
    let ((over, over_text), was) = (at(&dir, "over"), fs::read(&path).unwrap());
    let backing = ["-b", &text, "-F", "qcow2", &over_text];
    qemu(&[&["create", "-q", "-f", "qcow2"][..], &backing].concat());
    // The image itself is its file for the data.
    fs::remove_file(&data).unwrap();
    std::os::unix::fs::symlink(&path, &data).unwrap();
    for (path, params) in [(&path, ""), (&path, "&backing"), (&over, "&backing")] {
        for read_only in [true, false] {
            let error = open(path, params, read_only).err().unwrap().to_string();
            let words = ["has its data in the file", &data_text, "qemu-img convert"];
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
    assert!(fs::read(&path).unwrap() == was, "it was changed");
}

/// What is not understood is refused before anything is written.
#[test]
fn what_is_not_understood_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    if qemu(&["create", "-q", "-f", "qcow2", &text, "1G"]).is_none() {
        return;
    }
    let good = fs::read(&path).unwrap();
    let huge = u64::MAX.to_be_bytes();
    for (at, bytes, why) in [
        (0, &b"QFI\xfa"[..], "it is no qcow2 image"),
        (4, &[0, 0, 0, 4], "version 4"),
        (20, &[0, 0, 0, 8], "clusters of 2^8"),
        (20, &[0, 0, 0, 40], "clusters of 2^40"),
        (24, &huge[..], "a disk of"),
        (24, &[0, 0, 0, 0, 0, 0, 2, 1], "no multiple of 512"),
        (32, &[0, 0, 0, 2], "encrypted"),
        (36, &huge[..4], "table of clusters"),
        (40, &huge[..], "table of clusters"),
        (48, &huge[..], "table of reference counts"),
        (56, &huge[..4], "table of reference counts"),
        (60, &[0, 0, 0, 1], "internal snapshots"),
        (79, &[8], "compression"),
        (79, &[16], "with a table of 2 entries"),
        (72, &[128], "unknown feature 63"),
        (100, &huge[..4], "extensions"),
        (8, &huge[..], "its backing file"),
        (8, &[0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0], "its backing file"),
    ] {
        let mut odd = good.clone();
        odd[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(&path, &odd).unwrap();
        let error = open(&path, "", false).err().unwrap().to_string();
        assert!(error.contains(why), "{why:?} is not in {error:?}");
        assert!(
            fs::read(&path).unwrap() == odd,
            "{why}: nothing was written"
        );
    }
    fs::write(&path, &good[..90]).unwrap();
    assert!(open(&path, "", false).is_err());
    let error = open(&path, "&format=raw", true).err().unwrap().to_string();
    assert!(error.contains("twice"), "{error}");
}

/// The defect: a file whose writer was killed had tables that no count knew, and the next writer put its data over them.
#[test]
fn a_file_that_was_not_closed_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ((path, text), (cut, cut_text)) = (at(&dir, "disk"), at(&dir, "cut"));
    if qemu(&["create", "-q", "-f", "qcow2", &text, "4G"]).is_none() {
        return;
    }
    let dirty = |path: &Path| fs::read(path).unwrap()[79];
    let device = open(&path, "", false).unwrap();
    let blocking = Blocking::new(device.clone());
    let pos = |n: u64| n * (600 << 20);
    let write = |n: u64| blocking.run(Bio::write(pos(n), buf(65536, 7), 0)).result;
    assert_eq!(dirty(&path), 0, "nothing was written yet");
    for n in 0..6 {
        write(n).unwrap();
    }
    // The tables are linked, and their counts are in memory.
    fs::copy(&path, &cut).unwrap();
    assert_eq!(dirty(&cut), 1);
    // It can be read, and reading repairs nothing.
    let read = Blocking::new(open(&cut, "", true).unwrap());
    for n in 0..6 {
        let there = read.read(pos(n), Buf::zeroed(65536)).unwrap();
        // What was not made durable may be gone.
        let all = |byte: u8| there.as_slice() == [byte; 65536];
        assert!(all(7) || all(0), "{n}");
    }
    drop(read);
    assert_eq!(dirty(&cut), 1);
    let wrong = qemu_says(&["check", "-f", "qcow2", &cut_text]);
    assert!(wrong.contains("errors were found"), "{wrong}");
    drop(open(&cut, "", false).unwrap());
    assert_eq!(dirty(&cut), 0);
    qemu(&["check", "-q", "-f", "qcow2", &cut_text]);
    let again = Blocking::new(open(&cut, "", false).unwrap());
    let written = again.run(Bio::write(pos(6), buf(65536, 8), 0)).result;
    written.unwrap();
    drop(again);
    // Who is done for now says so, and the next write sets the bit again.
    device.rest().unwrap();
    assert_eq!(dirty(&path), 0);
    write(0).unwrap();
    assert_eq!(dirty(&path), 1);
    drop((blocking, device));
    for (path, text) in [(&path, &text), (&cut, &cut_text)] {
        assert_eq!(dirty(path), 0, "it was closed");
        qemu(&["check", "-q", "-f", "qcow2", text]);
    }
    let whole = Blocking::new(open(&path, "", true).unwrap());
    assert!(whole.read(pos(5), Buf::zeroed(65536)).unwrap().as_slice() == [7; 65536]);
}

/// The length of a file allocates nothing: it may be a hole. What its tables say twice, or of other places, is left as it is.
#[test]
fn what_cannot_be_repaired_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (path, text) = at(&dir, "disk");
    let options = "cluster_size=512";
    if qemu(&["create", "-q", "-f", "qcow2", "-o", options, &text, "1M"]).is_none() {
        return;
    }
    let blocking = Blocking::new(open(&path, "", false).unwrap());
    for n in 0..4 {
        let written = blocking.run(Bio::write(n * 65536, buf(512, 7), 0)).result;
        written.unwrap();
    }
    drop(blocking);
    let mut good = fs::read(&path).unwrap();
    good[79] = 1;
    let first = u64::from_be_bytes(good[40..48].try_into().unwrap()) as usize;
    let mut twice = good.clone();
    twice.copy_within(first..first + 8, first + 8);
    let mut outside = good.clone();
    outside[first + 2] = 1;
    for (bytes, why) in [(&twice, "used twice"), (&outside, "out of the file")] {
        fs::write(&path, bytes).unwrap();
        let error = open(&path, "", false).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
        assert!(fs::read(&path).unwrap() == *bytes);
    }
    fs::write(&path, &good).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    if file.set_len(1 << 43).is_ok() {
        let error = open(&path, "", false).err().unwrap().to_string();
        assert!(error.contains("too many clusters"), "{error}");
        file.set_len(good.len() as u64).unwrap();
    }
    drop(open(&path, "", false).unwrap());
    qemu(&["check", "-q", "-f", "qcow2", &text]);
}

/// Tables with other bits: errors or other bytes, but every request ends.
#[test]
fn tables_that_lie() {
    const SIZE: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = at(&dir, "disk");
    fs::write(&path, []).unwrap();
    diorite_qcow2::create(&path, SIZE).unwrap();
    let device = open(&path, "", false).unwrap();
    let blocking = Blocking::new(device.clone());
    for n in 0..20 {
        blocking
            .run(Bio::write(n * 131_072, buf(4096, 7), 0))
            .result
            .unwrap();
    }
    blocking.flush().unwrap();
    drop((blocking, device));
    let good = fs::read(&path).unwrap();
    let mut dice = Rng::new(seed_or("judged", SEED));
    for round in 0..80 {
        let mut odd = good.clone();
        for _ in 0..=dice.below(6) {
            // The header, tables, or anywhere.
            let at = match dice.below(4) {
                0 => dice.below(112),
                1 => dice.below(5) * 65536 + dice.below(64),
                2 => dice.below(odd.len() as u64 / 65536) * 65536 + dice.below(256),
                _ => dice.below(odd.len() as u64),
            };
            odd[at as usize] = dice.below(256) as u8;
        }
        fs::write(&path, &odd).unwrap();
        for read_only in [true, false] {
            let Ok(device) = open(&path, "", read_only) else {
                continue;
            };
            let size = device.geometry().size.min(SIZE);
            let _ = device.stored(0..size, 100);
            let queue = device.open_queue(QueueOptions::new(64).unwrap()).unwrap();
            let mut todo = BioList::new();
            for n in 0..40 {
                let start = dice.below(size / 512 + 1) * 512;
                let bio = match (read_only, dice.below(3)) {
                    (false, 0) => Bio::write(start, buf(512, 1), n),
                    (false, 1) => Bio::range(BioOp::WriteZeroes, start, 65536, n),
                    _ => Bio::read(start, Buf::zeroed(4096), n),
                };
                todo.push_back(bio);
            }
            let mut done = BioList::new();
            while done.len() < 40 {
                queue.submit(&mut todo);
                queue.wait(1, None);
                queue.reap(&mut done);
            }
            let len = fs::metadata(&path).unwrap().len();
            assert!(len < 1 << 40, "round {round}: the file has {len} bytes");
        }
    }
}

/// The name decides, if nothing is said, and contents never do.
#[test]
fn contents_do_not_decide() {
    assert_eq!(
        ImageFormat::of_name(Path::new("a.qcow2")),
        ImageFormat::Qcow2
    );
    let dir = tempfile::tempdir().unwrap();
    let ((path, text), (named, named_text)) = (at(&dir, "disk.img"), at(&dir, "disk.qcow2"));
    fs::write(&path, []).unwrap();
    diorite_qcow2::create(&path, 1 << 20).unwrap();
    fs::copy(&path, &named).unwrap();
    register_qcow2(diorite_qcow2::open);
    let size = |text: &str| {
        let device = locator::open(&Locator::parse(text).unwrap(), &OpenOptions::default());
        device.unwrap().geometry().size
    };
    let bytes = fs::metadata(&path).unwrap().len().next_multiple_of(4096);
    assert!(bytes < 1 << 20);
    assert_eq!(size(&text).next_multiple_of(4096), bytes);
    assert_eq!(size(&format!("{text}?format=qcow2")), 1 << 20);
    assert_eq!(size(&named_text), 1 << 20);
    let locator = Locator::parse(&format!("{text}?backing")).unwrap();
    let error = locator::open(&locator, &OpenOptions::default())
        .err()
        .unwrap();
    assert!(error.what.contains("only a qcow2 image"), "{error}");
    assert_eq!(
        size(&format!("{named_text}?format=raw")).next_multiple_of(4096),
        bytes
    );
    assert_eq!(
        size(&format!("{named_text}?offset=64K&size=128K")),
        128 << 10
    );
}

/// The defect: one large request allocated its clusters before it wrote the first one, so those of another one were too far behind the end.
#[test]
fn large_requests_at_once() {
    const APART: u64 = 512 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = at(&dir, "disk");
    fs::write(&path, []).unwrap();
    diorite_qcow2::create(&path, 2 * APART).unwrap();
    let device = open(&path, "", false).unwrap();
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (device, bytes) = (&device, buf(160 << 20, 1));
            scope.spawn(move || {
                // The second one begins while the first one is under way, often.
                std::thread::sleep(Duration::from_millis(part * 60));
                let bio = device.run_here(Bio::write(part * APART, bytes, 0));
                bio.unwrap().result.unwrap();
            });
        }
    });
}
