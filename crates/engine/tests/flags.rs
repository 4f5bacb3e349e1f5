//! Inode flags: which may be set on which inodes, which are inherited, what they forbid. The same steps are made on the kernel's
//! mount and compared.

use crate::common::fixture::{run_all, writable};
use crate::common::kernel::mounted;
use crate::common::{Rng, fsck, image, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, OpenOptions, Request, SetAttr, Volume};
use diorite_block::Buf;
use diorite_format::{Ino, InodeFlags, Timestamp};
use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags};
use std::fs::File as HostFile;
use std::path::{Path, PathBuf};

fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

fn make(dir: &Path, name: &str) -> PathBuf {
    let (dir, tree) = (dir.join(name), dir.join(name).join("tree"));
    std::fs::create_dir_all(tree.join("d")).unwrap();
    std::fs::write(tree.join("f"), "f").unwrap();
    image(&dir, "16M", &["-t", "ext4"], &tree)
}

fn flags_of(volume: &Volume, ino: Ino) -> InodeFlags {
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    file.metadata().flags
}

#[derive(Debug)]
enum Step {
    Flip(String, u32),
    Create(String),
    Mkdir(String),
}

/// A random flag bit. Left out are those that need privileges, change the kind of map, or forbid further steps; and EOFBLOCKS, an
/// old flag that the kernel lets through and nobody sets.
fn bits(rng: &mut Rng) -> u32 {
    let not = [
        InodeFlags::JOURNAL_DATA,
        InodeFlags::EXTENTS,
        InodeFlags::IMMUTABLE,
        InodeFlags::APPEND,
        InodeFlags::EOFBLOCKS,
    ];
    let not = not.iter().fold(0, |all, flag| all | flag.bits());
    loop {
        let bit = 1 << rng.below(32);
        if bit & not == 0 {
            return bit;
        }
    }
}

fn steps(rng: &mut Rng) -> Vec<Step> {
    let (mut dirs, mut all) = (vec!["d".to_owned()], vec!["d".to_owned(), "f".to_owned()]);
    let mut steps = Vec::new();
    for n in 0..600 {
        let any = all[rng.below(all.len() as u64) as usize].clone();
        let dir = &dirs[rng.below(dirs.len() as u64) as usize];
        let new = format!("{dir}/{n}");
        steps.push(match rng.below(8) {
            0 => {
                all.push(new.clone());
                Step::Create(new)
            }
            1 => {
                all.push(new.clone());
                dirs.push(new.clone());
                Step::Mkdir(new)
            }
            _ => Step::Flip(any, bits(rng)),
        });
    }
    steps
}

/// Makes the step on the kernel's mount. Returns whether it was allowed, and the flags afterwards.
fn by_the_kernel(at: &Path, step: &Step) -> (bool, u32) {
    let (Step::Flip(path, _) | Step::Create(path) | Step::Mkdir(path)) = step;
    let path = at.join(path);
    match step {
        Step::Create(_) => drop(HostFile::create(&path).unwrap()),
        Step::Mkdir(_) => std::fs::create_dir(&path).unwrap(),
        Step::Flip(..) => {}
    }
    let file = rustix::fs::open(&path, OFlags::RDONLY, Mode::empty()).unwrap();
    let is = ioctl_getflags(&file).unwrap().bits();
    let done = match step {
        Step::Flip(_, bit) => ioctl_setflags(&file, IFlags::from_bits_retain(is ^ *bit)).is_ok(),
        _ => true,
    };
    (done, ioctl_getflags(&file).unwrap().bits())
}

fn by_us(volume: &Volume, step: &Step) -> (bool, u32) {
    let (Step::Flip(path, _) | Step::Create(path) | Step::Mkdir(path)) = step;
    let path = format!("/{path}");
    match step {
        Step::Create(_) => drop(volume.create(&path, 0o644).unwrap()),
        Step::Mkdir(_) => drop(volume.mkdir(&path, 0o755).unwrap()),
        Step::Flip(..) => {}
    }
    let ino = volume.resolve(path.as_bytes(), true).unwrap();
    let done = match step {
        Step::Flip(_, bit) => {
            let is = flags_of(volume, ino).bits();
            match volume.set_flags(ino, InodeFlags::from_bits(is ^ bit)) {
                Ok(()) => true,
                Err(Error::NotSupported(_)) => false,
                Err(other) => panic!("{step:?}: {other}"),
            }
        }
        _ => true,
    };
    (done, flags_of(volume, ino).bits())
}

#[test]
fn the_kernel_does_the_same() {
    let mut rng = Rng::from_env("flags");
    let dir = scratch();
    let (ours, theirs) = (make(dir.path(), "ours"), make(dir.path(), "theirs"));
    let steps = steps(&mut rng);
    let mut told = Vec::new();
    let could = mounted(&theirs, "rw", |at| {
        told = steps.iter().map(|step| by_the_kernel(at, step)).collect();
    });
    let volume = open(&ours);
    for (n, step) in steps.iter().enumerate() {
        let done = by_us(&volume, step);
        if could {
            assert_eq!(done, told[n], "{n}: {step:?}");
        }
    }
    volume.close().unwrap();
    fsck(&ours);
}

/// Inodes that may not be changed (immutable), or only be added to (append-only).
#[test]
fn what_they_forbid() {
    let dir = scratch();
    let image = make(dir.path(), "image");
    let volume = open(&image);
    let set = |path: &str, flag: InodeFlags| {
        let ino = volume.resolve(path.as_bytes(), true).unwrap();
        let kept = flags_of(&volume, ino).without(InodeFlags::IMMUTABLE.with(InodeFlags::APPEND));
        volume.set_flags(ino, kept.with(flag)).unwrap();
        ino
    };
    let refused = |done: Result<(), Error>| {
        assert!(matches!(done, Err(Error::NotPermitted { .. })), "{done:?}");
    };
    let none = InodeFlags::default();
    volume.create("/d/x", 0o644).unwrap();
    let file = volume.open_path("/f", writable()).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let write = || {
        let request = Request::write(id, 0, Buf::zeroed(4096), 0);
        run_all(&queue, vec![request]).remove(0).result.map(drop)
    };
    let append = || {
        let request = Request::append(id, Buf::zeroed(4096), 0);
        run_all(&queue, vec![request]).remove(0).result.map(drop)
    };
    write().unwrap();
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        let ino = set("/f", flag);
        refused(write());
        match flag {
            InodeFlags::APPEND => append().unwrap(),
            _ => refused(append()),
        }
        refused(file.truncate(0));
        refused(volume.unlink("/f"));
        refused(volume.rename("/f", "/g", RenameFlags::default()));
        refused(volume.link("/f", "/g"));
        refused(volume.set_xattr(ino, b"user.a", b"x"));
        let mode = SetAttr::default().permissions(0o600);
        refused(volume.set_attr(ino, &mode));
        set("/f", none);
        write().unwrap();
        append().unwrap();
    }
    let ino = set("/d", InodeFlags::APPEND);
    volume.create("/d/y", 0o644).unwrap();
    refused(volume.unlink("/d/x"));
    refused(volume.rename("/d/x", "/d/z", RenameFlags::default()));
    refused(volume.rename("/d/x", "/z", RenameFlags::default()));
    set("/d", InodeFlags::IMMUTABLE);
    refused(volume.unlink("/d/x"));
    refused(volume.create("/d/z", 0o644).map(drop));
    refused(volume.mkdir("/d/z", 0o755).map(drop));
    refused(volume.rename("/f", "/d/z", RenameFlags::default()));
    // While an inode stays immutable, no other flag can be changed.
    let more = flags_of(&volume, ino).with(InodeFlags::NODUMP);
    refused(volume.set_flags(ino, more));
    volume
        .set_flags(ino, more.without(InodeFlags::IMMUTABLE))
        .unwrap();
    volume.unlink("/d/x").unwrap();
    drop((queue, file));
    volume.close().unwrap();
    fsck(&image);
}

/// A file's data begins to be journalled, and later stops, while a queue reads and writes it.
#[test]
fn data_through_the_journal_and_back() {
    let dir = scratch();
    let image = make(dir.path(), "image");
    let volume = open(&image);
    let file = volume.create("/data", 0o644).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let mut rng = Rng::from_env("journal data");
    let mut model = vec![0; 64 << 10];
    for round in 0..24 {
        let on = InodeFlags::JOURNAL_DATA;
        let is = file.metadata().flags;
        file.set_flags(if round % 2 == 0 {
            is.with(on)
        } else {
            is.without(on)
        })
        .unwrap();
        for _ in 0..6 {
            let at = 4096 * rng.below(16) as usize;
            rng.fill(&mut model[at..at + 4096]);
            let mut buf = Buf::zeroed(4096);
            buf.copy_in(0, &model[at..at + 4096]);
            let done = run_all(&queue, vec![Request::write(id, at as u64, buf, 0)]);
            done[0].result.as_ref().unwrap();
            let read = run_all(&queue, vec![Request::read(id, 0, Buf::zeroed(64 << 10), 0)]);
            let len = *read[0].result.as_ref().unwrap();
            assert_eq!(
                &read[0].buf.as_slice()[..len],
                &model[..len],
                "round {round}"
            );
        }
    }
    let counters = queue.counters();
    assert!(counters.fallback_buffered > 0);
    drop((queue, file));
    volume.close().unwrap();
    fsck(&image);
}

#[test]
fn generations() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("f"), "f").unwrap();
    let args = ["-t", "ext4", "-O", "^metadata_csum"];
    let image = image(dir.path(), "16M", &args, &tree);
    let volume = open(&image);
    let file = volume.open_path("/f", writable()).unwrap();
    volume.set_generation(file.ino(), 0x1234_5678).unwrap();
    assert_eq!(file.metadata().generation, 0x1234_5678);
    assert!(file.metadata().ctime > Timestamp::default());
    let new: Vec<u32> = (0..50)
        .map(|n| {
            let file = volume.create(&format!("/{n}"), 0o644).unwrap();
            file.metadata().generation
        })
        .collect();
    let mut different = new.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), new.len());
    drop(file);
    volume.close().unwrap();
    fsck(&image);
    let with = make(dir.path(), "with");
    let volume = open(&with);
    let ino = volume.resolve(b"/f", true).unwrap();
    let refused = volume.set_generation(ino, 1);
    assert!(
        matches!(refused, Err(Error::NotSupported(_))),
        "{refused:?}"
    );
    volume.close().unwrap();
}
