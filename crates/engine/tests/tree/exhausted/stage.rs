//! A volume that is full except for a given number of blocks or inodes.
//!
//! Input: arguments of mke2fs. Output: fresh copies of the volume in memory, with so many blocks or inodes free. Invariant: where
//! blocks are used up, inodes are free, and the other way round. Limits: blocks of 1 KiB; the free blocks are mostly contiguous.

use crate::common::fixture::every_block;
use crate::common::names::empty;
use crate::common::stage::mem_of;
use diorite::{Caller, Error, Fallocate, File, OpenFlags, OpenOptions, Volume};
use diorite_block::{Buf, Device, MemDevice};
use diorite_format::InodeFlags;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Blocks,
    Inodes,
}

/// The number of files with which a test uses what is free.
pub(super) const USES: u32 = 12;

/// The number of files of one block each (or only names) that are deleted to make room.
const FILLERS: u32 = 64;

pub(super) struct Stage {
    pub(super) full: Full,
    image: PathBuf,
    bytes: Vec<u8>,
    device: RefCell<Arc<MemDevice>>,
}

fn options() -> OpenOptions {
    every_block().workers(1).caller(Caller {
        uid: 0,
        gids: vec![0],
    })
}

impl Stage {
    pub(super) fn new(dir: &Path, args: &[&str], full: Full) -> Stage {
        let common = ["-b", "1024", "-I", "256", "-m", "0", "-N", "512"];
        let args: Vec<&str> = args.iter().chain(&common).copied().collect();
        let image = empty(dir, "4M", &args);
        let volume = Volume::open(image.to_str().unwrap(), &options()).unwrap();
        set(&volume);
        volume.close().unwrap();
        let next = name_that_splits(&image);
        let volume = Volume::open(image.to_str().unwrap(), &options()).unwrap();
        for n in 0..next {
            volume.create(&splitting(n), 0o600).unwrap();
        }
        // The operation always makes this name.
        volume.symlink(&splitting(next), "/splits").unwrap();
        match full {
            Full::Blocks => fill_blocks(&volume),
            Full::Inodes => fill_inodes(&volume),
        }
        volume.close().unwrap();
        let bytes = std::fs::read(&image).unwrap();
        let device = RefCell::new(Arc::new(mem_of(&bytes)));
        Stage {
            full,
            image,
            bytes,
            device,
        }
    }

    /// Opens a fresh copy with so many blocks or inodes free.
    pub(super) fn open(&self, free: u32) -> Volume {
        let device = Arc::new(mem_of(&self.bytes));
        self.device.replace(device.clone());
        let volume = Volume::open_device(device, &options()).unwrap();
        (0..free).for_each(|n| volume.unlink(&filler(n)).unwrap());
        volume.sync().unwrap();
        volume
    }

    /// Writes the contents of the device to a file.
    pub(super) fn save(&self) -> PathBuf {
        let device = self.device.borrow();
        let mut bytes = vec![0; usize::try_from(device.geometry().size).unwrap()];
        device.read_at(0, &mut bytes);
        std::fs::write(&self.image, bytes).unwrap();
        self.image.clone()
    }
}

pub(super) fn file(volume: &Volume, path: &str) -> Result<File, Error> {
    let flags = OpenFlags::writable();
    volume.open_path(path, flags)
}

/// Writes `blocks` blocks to a file.
pub(super) fn write(volume: &Volume, path: &str, block: u64, blocks: u64) -> Result<(), Error> {
    let mut buf = Buf::zeroed((blocks * 1024) as usize);
    buf.as_mut_slice().fill(0x5A);
    let (_, done) = file(volume, path)?.write_buf(block * 1024, buf);
    assert!(done.as_ref().map_or(true, |n| *n as u64 == blocks * 1024));
    done.map(drop)
}

/// An access control list with so many named users, in the form of the kernel's interface.
pub(super) fn list(users: u32) -> Vec<u8> {
    let named = (0..users).map(|n| (2u16, 5u16, 1000 + n));
    let no = u32::MAX;
    let all =
        std::iter::once((1, 7, no))
            .chain(named)
            .chain([(4, 5, no), (16, 7, no), (32, 5, no)]);
    let entries = all.flat_map(|(tag, perm, id): (u16, u16, u32)| {
        [
            &tag.to_le_bytes()[..],
            &perm.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    });
    2u32.to_le_bytes().into_iter().chain(entries).collect()
}

fn filler(n: u32) -> String {
    format!("/fill/{n}")
}

fn splitting(n: u32) -> String {
    format!("/hashed/next {n:0>50}")
}

/// The number of the first name of this form whose creation splits a leaf.
fn name_that_splits(image: &Path) -> u32 {
    let device = Arc::new(mem_of(&std::fs::read(image).unwrap()));
    let volume = Volume::open_device(device, &options()).unwrap();
    let dir = volume.resolve(b"/hashed", true).unwrap();
    let dir = volume.open_ino(dir, OpenFlags::default()).unwrap();
    let before = dir.size();
    (0..100)
        .find(|n| {
            volume.create(&splitting(*n), 0o600).unwrap();
            dir.size() > before
        })
        .unwrap()
}

/// Makes the files that the operations use.
fn set(volume: &Volume) {
    for dir in [
        "/fill", "/use", "/full", "/hashed", "/lists", "/dir", "/empty",
    ] {
        volume.mkdir(dir, 0o755).unwrap();
    }
    // Fourteen names of this length fill a block.
    (0..14).for_each(|n| drop(volume.create(&format!("/full/{n:0>59}"), 0o600).unwrap()));
    (0..40).for_each(|n| drop(volume.create(&format!("/hashed/{n:0>50}"), 0o600).unwrap()));
    for path in ["/file", "/victim", "/other"] {
        volume.create(path, 0o644).unwrap();
        write(volume, path, 0, 4).unwrap();
    }
    volume.symlink("short", "/short").unwrap();
    volume.symlink(&"t".repeat(300), "/long").unwrap();
    volume.create("/lists/hidden", 0o600).unwrap();
    let lists = volume.resolve(b"/lists", true).unwrap();
    volume
        .set_xattr(lists, b"system.posix_acl_default", &list(40))
        .unwrap();
    for path in ["/one", "/two"] {
        let ino = volume.create(path, 0o644).unwrap().ino();
        // The same attributes for both, in one shared block.
        volume.set_xattr(ino, b"user.shared", &[b's'; 300]).unwrap();
        volume
            .set_xattr(ino, b"system.posix_acl_access", &list(30))
            .unwrap();
    }
    set_files(volume);
    for n in 0..USES {
        volume.create(&format!("/use/{n}"), 0o600).unwrap();
    }
}

/// Files whose maps have no room: another extent needs another block.
fn set_files(volume: &Volume) {
    for path in [
        "/pieces",
        "/many",
        "/ahead",
        "/beyond",
        "/sparse",
        "/journalled",
    ] {
        volume.create(path, 0o600).unwrap();
    }
    (0..4).for_each(|n| write(volume, "/pieces", n * 5, 4).unwrap());
    (0..84).for_each(|n| write(volume, "/many", n * 2, 1).unwrap());
    write(volume, "/sparse", 40, 1).unwrap();
    let ahead = file(volume, "/ahead").unwrap();
    let keep = Fallocate::Allocate { keep_size: false };
    match ahead.fallocate(keep, 0, 40 << 10) {
        Ok(()) => write(volume, "/ahead", 20, 1).unwrap(),
        Err(error) => assert!(matches!(error, Error::NotSupported(_)), "{error}"),
    }
    // Unwritten blocks past the end of the file.
    let beyond = file(volume, "/beyond").unwrap();
    for n in 0..4 {
        let keep = Fallocate::Allocate { keep_size: true };
        match beyond.fallocate(keep, n * 4096, 3072) {
            Ok(()) | Err(Error::NotSupported(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let journalled = volume.resolve(b"/journalled", true).unwrap();
    let disk = volume.open_ino(journalled, OpenFlags::default()).unwrap();
    let flags = disk.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    volume.set_flags(journalled, flags).unwrap();
    write(volume, "/journalled", 0, 3).unwrap();
}

/// One large file uses the remaining space, and files of one block each the rest.
fn fill_blocks(volume: &Volume) {
    for n in 0..FILLERS {
        volume.create(&filler(n), 0o600).unwrap();
        write(volume, &filler(n), 0, 1).unwrap();
    }
    volume.create("/rest", 0o600).unwrap();
    let mut at = 0;
    for blocks in [256, 16, 1] {
        loop {
            match write(volume, "/rest", at, blocks) {
                Ok(()) => at += blocks,
                Err(Error::NoSpace { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
    }
    // Uses a block that is left because the large file would need another one for its map.
    let left = (0..).find(|n| {
        let path = format!("/left {n}");
        volume.create(&path, 0o600).unwrap();
        write(volume, &path, 0, 1).is_err()
    });
    assert!(left.is_some());
    volume.sync().unwrap();
}

fn fill_inodes(volume: &Volume) {
    (0..FILLERS).for_each(|n| drop(volume.create(&filler(n), 0o600).unwrap()));
    let full = (0..).find_map(|n| volume.create(&format!("/fill/more {n}"), 0o600).err());
    assert!(matches!(full, Some(Error::NoInodes { .. })), "{full:?}");
    volume.sync().unwrap();
}
