//! File systems that grow, offline and under writers: e2fsck and the kernel accept them, their numbers are those of resize2fs, and a power
//! cut at any point leaves the old size or the new one.

mod kernel;
mod moved;
mod shrink;

use crate::common::stage::mem_of;
use crate::common::{Rng, debugfs_script, fsck, image, run, scaled, scratch};
use diorite::device::{
    BioErrorKind, BioOp, Device, Fault, FaultDevice, FaultPlan, MemDevice, When,
};
use diorite::{Buf, Error, OpenFlags, OpenOptions, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::{PowerCuts, plan};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

const MIB: u64 = 1 << 20;

/// A kind of volume: words for mke2fs, its MiB before, and after.
struct Kind {
    words: &'static str,
    from: u64,
    to: u64,
}

const fn kind(words: &'static str, from: u64, to: u64) -> Kind {
    Kind { words, from, to }
}

const KINDS: [Kind; 18] = [
    kind("-t ext4 -b 4096", 64, 300),
    kind("-t ext4 -b 4096", 200, 1000),
    kind("-t ext4 -b 1024", 20, 33),
    kind("-t ext4 -b 1024", 12, 400),
    kind("-t ext4 -b 2048 -I 128 -O ^flex_bg", 40, 333),
    kind("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", 30, 200),
    kind(
        "-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg,^64bit",
        30,
        200,
    ),
    kind("-t ext4 -b 1024 -O meta_bg,^resize_inode", 30, 500),
    kind("-t ext4 -b 1024 -O ^resize_inode", 30, 100),
    kind("-t ext4 -b 1024 -O bigalloc -C 16384", 60, 300),
    kind("-t ext4 -b 4096 -O bigalloc", 300, 5000),
    kind("-t ext4 -b 1024 -O ^has_journal", 30, 200),
    kind("-t ext4 -b 1024 -g 1024 -G 4", 10, 60),
    kind("-t ext4 -b 1024 -O sparse_super2", 30, 100),
    kind("-t ext3 -b 1024", 20, 300),
    kind("-t ext2 -b 1024", 20, 300),
    kind("-t ext2 -b 4096 -O ^sparse_super,^resize_inode", 60, 900),
    kind("-t ext4 -b 65536", 300, 1200),
];

fn words(kind: &Kind) -> Vec<&str> {
    kind.words.split_whitespace().collect()
}

/// An image with a few files, and their names with their contents.
fn made(dir: &Path, kind: &Kind) -> (PathBuf, Vec<(String, Vec<u8>)>) {
    let tree = dir.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let mut files = Vec::new();
    for n in 0..20usize {
        let bytes: Vec<u8> = (0..n * 3000).map(|i| (i * 7 + n) as u8).collect();
        std::fs::write(tree.join(format!("f{n}")), &bytes).unwrap();
        files.push((format!("/f{n}"), bytes));
    }
    let path = image(dir, &format!("{}M", kind.from), &words(kind), &tree);
    (path, files)
}

/// The same in a directory of its own; says of which kind.
fn fresh(kind: &Kind) -> (tempfile::TempDir, PathBuf, Vec<(String, Vec<u8>)>) {
    eprintln!("{} from {} to {} MiB", kind.words, kind.from, kind.to);
    let dir = scratch();
    let (path, files) = made(dir.path(), kind);
    (dir, path, files)
}

fn open(path: &Path) -> Volume {
    Volume::open(path.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

fn extend(path: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

fn contents(volume: &Volume, name: &str) -> Vec<u8> {
    let file = volume.open_path(name, OpenFlags::default()).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn check_files(volume: &Volume, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        assert!(contents(volume, name) == *bytes, "{name}");
    }
}

/// e2fsck repairs the volume, and its files are there.
fn e2fsck_keeps(path: &Path, files: &[(String, Vec<u8>)], label: &str) {
    let done = xtask::run::tool("e2fsck").arg("-fy").arg(path).output();
    let code = done.unwrap().status.code();
    assert!(code.is_some_and(|code| code < 4), "{label}");
    check_files(&open(path), files);
}

/// As root: the kernel shows the files. It mounts no blocks that are larger than its pages.
fn by_kernel(path: &Path, files: &[(String, Vec<u8>)]) {
    if Volume::open(path.to_str().unwrap(), &OpenOptions::default())
        .unwrap()
        .superblock()
        .block_size()
        > 4096
    {
        return;
    }
    crate::common::kernel::mounted(path, "ro", |at| {
        for (name, bytes) in files {
            let found = std::fs::read(at.join(&name[1..])).unwrap();
            assert!(found == *bytes, "{name}");
        }
    });
}

/// What dumpe2fs says of sizes.
fn numbers(path: &Path) -> Vec<String> {
    let kept = [
        "Inode count:",
        "Block count:",
        "Reserved block count:",
        "Reserved GDT blocks:",
        "Free inodes:",
        "Filesystem features:",
        "First meta block group:",
    ];
    let said = run("dumpe2fs", &["-h", path.to_str().unwrap()]);
    let lines = said
        .lines()
        .filter(|l| kept.iter().any(|k| l.starts_with(k)));
    lines.map(str::to_owned).collect()
}

/// Fills the volume through the page cache, and returns how many bytes went in.
fn fill(volume: &Volume) -> u64 {
    let file = volume.create("/filler", 0o600).unwrap();
    let piece = vec![0xA5; 1 << 20];
    let mut at = 0;
    loop {
        match file.write_bytes(at, &piece).and_then(|_| file.sync()) {
            Ok(()) => at += piece.len() as u64,
            Err(Error::NoSpace { .. }) => return at,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn it_grows_to_what_resize2fs_makes() {
    for kind in &KINDS {
        let (dir, path, files) = fresh(kind);
        let theirs = dir.path().join("theirs");
        std::fs::copy(&path, &theirs).unwrap();
        extend(&path, kind.to * MIB);
        let volume = open(&path);
        let before = volume.space();
        let bytes = volume.grow(kind.to * MIB).unwrap();
        assert!(bytes > kind.from * MIB && bytes <= kind.to * MIB);
        let after = volume.space();
        assert!(after.free > before.free && after.free_inodes >= before.free_inodes);
        check_files(&volume, &files);
        let more = volume.create("/more", 0o644).unwrap();
        more.write_bytes(0, b"more").unwrap();
        drop(more);
        volume.close().unwrap();
        fsck(&path);
        extend(&theirs, kind.to * MIB);
        run("e2fsck", &["-fp", theirs.to_str().unwrap()]);
        run("resize2fs", &["-f", theirs.to_str().unwrap()]);
        let unlink = open(&path);
        unlink.unlink("/more").unwrap();
        unlink.close().unwrap();
        assert_eq!(numbers(&path), numbers(&theirs), "{}", kind.words);
        by_kernel(&path, &files);
        let volume = open(&path);
        check_files(&volume, &files);
        if kind.to <= 400 {
            let filled = fill(&volume);
            assert!(filled > (kind.to - kind.from) * MIB * 8 / 10, "{filled}");
        }
        volume.close().unwrap();
        fsck(&path);
    }
}

/// Growth of a part of a group, then of some groups, then by blocks that are no group: many times, with the volume open.
#[test]
fn writers_go_on_while_it_grows() {
    for words in [
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -O bigalloc -C 4096",
        "-t ext2 -b 1024",
    ] {
        let mut rng = Rng::from_env("growing under writers");
        let dir = scratch();
        let kind = kind(words, 9, 0);
        let (path, files) = made(dir.path(), &kind);
        extend(&path, 120 * MIB);
        let volume = open(&path);
        let ends = AtomicBool::new(false);
        // It may be large before a thread runs for the first time.
        let begun = Barrier::new(4);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3u8)
                .map(|n| {
                    let (volume, ends, begun) = (volume.clone(), &ends, &begun);
                    scope.spawn(move || {
                        begun.wait();
                        let mut count = 0u32;
                        while count == 0 || !ends.load(Ordering::SeqCst) {
                            let name = format!("/w{n}-{count}");
                            match write_one(&volume, &name, n) {
                                Ok(()) => count += 1,
                                Err(Error::NoSpace { .. } | Error::NoInodes { .. }) => {
                                    std::thread::yield_now();
                                }
                                Err(other) => panic!("{other}"),
                            }
                        }
                        count
                    })
                })
                .collect();
            begun.wait();
            let mut at = 9 * MIB;
            while at < 120 * MIB {
                at = (at + 1024 * (1 + rng.below(9000))).min(120 * MIB);
                let bytes = volume.grow(at).unwrap();
                assert!(bytes <= at);
                volume.sync().unwrap();
            }
            ends.store(true, Ordering::SeqCst);
            for (n, writer) in writers.into_iter().enumerate() {
                let count = writer.join().unwrap();
                for at in 0..count {
                    let bytes = contents(&volume, &format!("/w{n}-{at}"));
                    assert!(bytes.len() == 20_000 && bytes.iter().all(|b| *b == n as u8 + 1));
                }
            }
        });
        check_files(&volume, &files);
        volume.close().unwrap();
        fsck(&path);
    }
}

fn write_one(volume: &Volume, name: &str, n: u8) -> Result<(), Error> {
    let file = match volume.open_path(name, OpenFlags::writable()) {
        Ok(file) => file,
        Err(_) => volume.create(name, 0o644)?,
    };
    let mut buf = Buf::zeroed(20_480);
    buf.as_mut_slice().fill(n + 1);
    let (_, done) = file.write_buf(0, buf);
    done?;
    file.truncate(20_000)
}

/// Behind the end is what was there before, zeros, and what the growth says that it writes.
fn check_behind(volume: &Volume, bytes: &[u8], to: u64) {
    let own = volume.grow_writes(to).unwrap();
    let from = volume.superblock().geometry().volume_bytes();
    for (at, byte) in (from..).zip(&bytes[from as usize..]) {
        let expected = own.range(..=at).next_back();
        let expected = expected.and_then(|(start, piece)| piece.get((at - start) as usize));
        let known = matches!(*byte, 0 | 0xEE) || expected == Some(byte);
        assert!(known, "{at}: {byte:#x}, not {expected:?}");
    }
}

#[test]
fn a_power_cut_leaves_the_old_size_or_the_new_one() {
    let states = scaled("DIORITE_CUTS", 12) as usize;
    let mut rng = Rng::from_env("power cuts while growing");
    for (words, from, to) in [
        ("-t ext4 -b 1024", 9, 60),
        ("-t ext4 -b 2048", 40, 150),
        ("-t ext4 -b 1024 -O meta_bg,^resize_inode", 9, 60),
        ("-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg", 9, 60),
    ] {
        let dir = scratch();
        let (path, files) = made(dir.path(), &kind(words, from, to));
        let mut base = std::fs::read(&path).unwrap();
        // What lies behind the end are not zeros.
        base.resize((to * MIB) as usize, 0xEE);
        let device = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
        let volume =
            Volume::open_device(Arc::new(device.clone()), &OpenOptions::writable()).unwrap();
        volume.grow(to * MIB).unwrap();
        let grown = device.mark(1);
        let file = volume.create("/behind", 0o600).unwrap();
        file.write_bytes(0, &vec![7; 1 << 20]).unwrap();
        file.sync().unwrap();
        volume.close().unwrap();
        let log = device.log();
        let mut walk = PowerCuts::new(base, &log);
        let (mut old, mut new) = (0, 0);
        for cut in plan(&log, states, rng.below(u64::MAX), 512) {
            let bytes = walk.with_image(cut, <[u8]>::to_vec);
            let cut_at = dir.path().join("cut");
            std::fs::write(&cut_at, &bytes).unwrap();
            let volume = open(&cut_at);
            let size = volume.superblock().geometry().volume_bytes();
            if size == from * MIB {
                check_behind(&volume, &bytes, to * MIB);
            }
            check_files(&volume, &files);
            volume.close().unwrap();
            fsck(&cut_at);
            // Once it was said that it has grown, it has.
            assert!(cut.at < grown || size > from * MIB, "{cut:?}");
            match size > from * MIB {
                true => new += 1,
                false => old += 1,
            }
            std::fs::write(&cut_at, &bytes).unwrap();
            e2fsck_keeps(&cut_at, &files, &format!("{cut:?}"));
        }
        eprintln!("{words}: {old} old, {new} new");
        assert!(old > 0 && new > 0);
    }
}

/// Each write and each flush fails once.
#[test]
fn an_error_leaves_a_volume_of_one_size() {
    let dir = scratch();
    let (path, files) = made(dir.path(), &kind("-t ext4 -b 1024", 9, 60));
    let mut base = std::fs::read(&path).unwrap();
    base.resize(60 << 20, 0xEE);
    let mut sizes = Vec::new();
    for op in [BioOp::Write, BioOp::Flush] {
        for nth in 1.. {
            let plan = FaultPlan::new(vec![Fault::new(BioErrorKind::Io, When::nth(nth)).on(op)], 1);
            let below: Arc<MemDevice> = Arc::new(mem_of(&base));
            let device: Arc<dyn Device> = Arc::new(FaultDevice::new(below.clone(), plan));
            let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
            let done = volume.grow(60 * MIB);
            let closed = volume.close();
            let ends = done.is_ok() && closed.is_ok();
            let after = dir.path().join("after");
            let mut bytes = vec![0; base.len()];
            below.read_at(0, &mut bytes);
            std::fs::write(&after, &bytes).unwrap();
            if !ends {
                let done = xtask::run::tool("e2fsck")
                    .arg("-fy")
                    .arg(&after)
                    .output()
                    .unwrap();
                assert!(
                    done.status.code().is_some_and(|code| code < 4),
                    "{op:?} {nth}"
                );
            }
            fsck(&after);
            let after = open(&after);
            check_files(&after, &files);
            sizes.push(after.superblock().geometry().volume_bytes());
            after.close().unwrap();
            if ends {
                break;
            }
        }
    }
    assert!(
        sizes.contains(&(9 * MIB)) && sizes.contains(&(60 * MIB)),
        "{sizes:?}"
    );
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let dir = scratch();
    let (path, _) = made(dir.path(), &kind("-t ext4 -b 1024 -O ^resize_inode", 9, 0));
    extend(&path, 1 << 30);
    let volume = open(&path);
    let said = |bytes: u64| volume.grow(bytes).unwrap_err().to_string();
    assert!(said(8 * MIB).contains("fewer"), "{}", said(8 * MIB));
    let most = said(1 << 30);
    assert!(most.contains("can grow to 131073 blocks"), "{most}");
    assert!(said(1 << 31).contains("can grow to"), "{}", said(1 << 31));
    assert_eq!(volume.grow(9 * MIB).unwrap(), 9 * MIB);
    assert_eq!(volume.grow(100 * MIB).unwrap(), 100 * MIB);
    volume.close().unwrap();
    fsck(&path);

    let (small, large) = (dir.path().join("small"), dir.path().join("large"));
    for path in [&small, &large] {
        extend_new(path, 9 * MIB);
        let args = format!("-q -F -b 1024 -O ^64bit {}", path.display());
        run("mke2fs", &crate::common::words(&args));
    }
    let volume = open(&small);
    let error = volume.grow(10 * MIB).unwrap_err().to_string();
    assert!(
        error.contains("10485760") || error.contains("10,485,760"),
        "{error}"
    );
    volume.close().unwrap();
    extend(&large, 8 << 40);
    let volume = open(&large);
    let error = volume.grow(5 << 40).unwrap_err().to_string();
    assert!(error.contains("64bit"), "{error}");
    volume.close().unwrap();
    fsck(&large);
    // The inode that keeps blocks for descriptors has others.
    extend(&small, 20 * MIB);
    debugfs_script(&small, "sif <7> block[DIND] 300\n");
    let volume = open(&small);
    let error = volume.grow(20 * MIB).unwrap_err().to_string();
    assert!(
        error.contains("inode 7") && error.contains("e2fsck"),
        "{error}"
    );
    drop(volume);
    // Or the copies of one of them are not where they should be.
    let path = dir.path().join("copies");
    extend_new(&path, 9 * MIB);
    run(
        "mke2fs",
        &["-q", "-F", "-b", "1024", path.to_str().unwrap()],
    );
    extend(&path, 20 * MIB);
    let mut bytes = std::fs::read(&path).unwrap();
    // The first of them, behind superblock and descriptors: its copy in group 1.
    let list = &mut bytes[3 * 1024..][..4];
    assert_eq!(*list, 8195u32.to_le_bytes());
    list.copy_from_slice(&8000u32.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let error = open(&path).grow(20 * MIB).unwrap_err().to_string();
    assert!(
        error.contains("inode 7") && error.contains("block 3"),
        "{error}"
    );
    let reader = Volume::open(small.to_str().unwrap(), &OpenOptions::default()).unwrap();
    assert!(matches!(reader.grow(20 * MIB), Err(Error::ReadOnly(_))));
}

fn extend_new(path: &Path, bytes: u64) {
    std::fs::File::create(path).unwrap();
    extend(path, bytes);
}
