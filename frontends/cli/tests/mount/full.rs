//! A mount that is full: what was refused is told once, and what was promised is kept.
//!
//! Input: images without a free block. Output: ENOSPC from the write that it concerns, and from nothing else; writes into preallocated
//! space, by every way, also after another mount. Limits: one mount at a time.

use crate::bed::{Bed, bytes, diorite, is_root, said, texts, within};
use crate::common::{scratch, skip};
use crate::mapped::{Mapped, What};
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags, XattrFlags, fallocate, fsetxattr, statx};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Bytes that are preallocated.
const LEN: u64 = 4 << 20;

fn opened(bed: &Bed, name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.open(bed.path(name)).unwrap()
}

fn is_full(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
}

/// Writes until not a byte more is taken.
fn fill(bed: &Bed) {
    for len in [65_536, 4096, 512] {
        let file = opened(bed, &format!("fill {len}"));
        let mut at = 0;
        let full = loop {
            match file.write_at(&vec![1; len], at) {
                Ok(count) => at += count as u64,
                Err(error) => break error,
            }
        };
        assert!(is_full(&full), "{full}");
    }
}

/// Defect: with data=journal a write that was refused was reported again as lost data, by fsync through another open file and by the
/// unmount.
#[test]
fn a_refused_write_is_told_once() {
    for option in ["data=journal", "data=ordered"] {
        let Some(bed) = Bed::sized(&["-b", "4096", "-m", "0"], "20M") else {
            return;
        };
        bed.mount(&["-o", option]);
        let file = opened(&bed, "a");
        file.write_at(b"a", 0).unwrap();
        fill(&bed);
        let other = File::open(bed.path("a")).unwrap();
        let refused = file.write_at(&[b'q'; 100], 100_001).unwrap_err();
        assert!(is_full(&refused), "{option}: {refused}");
        file.sync_all().expect(option);
        other.sync_all().expect(option);
        drop((file, other));
        bed.end();
    }
}

/// Preallocates a file of every kind of use, fills the volume, and mounts it again.
fn preallocated(flags: FallocateFlags) -> Option<Bed> {
    let bed = Bed::sized(&["-b", "1024", "-m", "0"], "32M")?;
    bed.mount(&[]);
    for name in ["cached", "direct", "mapped"] {
        let file = opened(&bed, name);
        file.write_at(&[1; 4096], 0).unwrap();
        fallocate(&file, flags, 0, LEN).unwrap();
    }
    fill(&bed);
    bed.unmount();
    bed.mount(&[]);
    Some(bed)
}

/// Every second piece of 4 KiB, in an order that jumps.
fn places() -> impl Iterator<Item = u64> {
    let count = LEN / 8192;
    (0..count).map(move |n| n * 83 % count * 8192 + 4096)
}

fn model() -> Vec<u8> {
    let mut model = vec![0; LEN as usize];
    model[..4096].fill(1);
    for at in places() {
        model[at as usize..at as usize + 4096].fill(7);
    }
    model
}

/// Defect: a write into preallocated space was refused on a full volume, if its extent had to be split and the map had no room.
#[test]
fn preallocated_space_takes_all_writes() {
    let Some(bed) = preallocated(FallocateFlags::empty()) else {
        return;
    };
    let cached = opened(&bed, "cached");
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_DIRECT);
    let direct = options.open(bed.path("direct")).unwrap();
    let mut block = diorite_block::Buf::zeroed(4096);
    block.as_mut_slice().fill(7);
    let mut mapped = Mapped::start();
    let path = bed.path("mapped");
    for at in places() {
        assert_eq!(cached.write_at(&[7; 4096], at).unwrap(), 4096, "at {at}");
        assert_eq!(
            direct.write_at(block.as_slice(), at).unwrap(),
            4096,
            "at {at}"
        );
        if let Some(mapped) = &mut mapped {
            mapped.write(What(1, &path), at as usize, &[7; 4096]);
        }
    }
    if let Some(mapped) = &mut mapped {
        mapped.sync(What(1, &path));
    }
    let is_mapped = mapped.is_some();
    drop((cached, direct, mapped));
    let model = model();
    for name in ["cached", "direct", "mapped"] {
        let is_written = name != "mapped" || is_mapped;
        assert!(bytes(&bed.path(name)) == model || !is_written, "{name}");
    }
    bed.unmount();
    bed.mount(&[]);
    for name in ["cached", "direct", "mapped"] {
        let is_written = name != "mapped" || is_mapped;
        assert!(
            bytes(&bed.path(name)) == model || !is_written,
            "{name}, again"
        );
    }
    bed.end();
}

/// As above, for space behind the end of the file, which the writes move; one after the other, with gaps.
#[test]
fn preallocated_space_behind_the_end_takes_all_writes() {
    let Some(bed) = preallocated(FallocateFlags::KEEP_SIZE) else {
        return;
    };
    let file = opened(&bed, "cached");
    let mut model = vec![1; 4096];
    for n in 0..LEN / 8192 {
        let at = n * 8192 + 4096;
        assert_eq!(file.write_at(&[7; 4096], at).unwrap(), 4096, "at {at}");
        model.resize(at as usize, 0);
        model.extend([7; 4096]);
    }
    drop(file);
    assert!(fs::read(bed.path("cached")).unwrap() == model);
    bed.end();
}

/// A small tmpfs, until its end.
struct Small {
    at: PathBuf,
    _around: TempDir,
}

impl Drop for Small {
    fn drop(&mut self) {
        within("umount", &["-l", self.at.to_str().unwrap()]);
    }
}

/// An image without a journal that takes more than its host has.
fn on_small_host() -> Option<(Small, Bed)> {
    if !is_root() {
        skip("root mounts a small tmpfs");
        return None;
    }
    let around = scratch();
    let at = around.path().join("small");
    fs::create_dir(&at).unwrap();
    let place = at.to_str().unwrap();
    said("mount", &["-t", "tmpfs", "-o", "size=24M", "tmpfs", place]);
    let small = Small {
        at,
        _around: around,
    };
    let dir = tempfile::tempdir_in(&small.at).unwrap();
    let bed = Bed::in_dir(dir, &["-b", "4096", "-O", "^has_journal"], "64M")?;
    Some((small, bed))
}

/// Fills what holds the image.
fn fill_host(dir: &Path) -> PathBuf {
    let path = dir.join("fill");
    let file = File::create(&path).unwrap();
    for len in [65_536, 4096, 1] {
        while std::io::Write::write_all(&mut &file, &vec![1; len]).is_ok() {}
    }
    path
}

/// Data that the host does not take is lost once, and told once. The defect: a removed file that the kernel forgot just then had the fsync
/// executed again, which found nothing to write and succeeded.
#[test]
fn lost_data_is_told_though_removed_files_go() {
    let Some((small, bed)) = on_small_host() else {
        return;
    };
    bed.mount(&[]);
    let (file, held) = (opened(&bed, "a"), bed.path("held"));
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    fs::write(&held, "").unwrap();
    file.sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();
    let fill = fill_host(&small.at);
    for round in 0..4 {
        // The mount itself collects what is no whole block.
        for n in 0..32 {
            file.write_at(&[7; 100], (round * 32 + n) * 4096 + 1)
                .unwrap();
        }
        let mut by_path = OpenOptions::new();
        by_path.read(true).custom_flags(libc::O_PATH);
        let by_path = by_path.open(&held).unwrap();
        fs::remove_file(&held).unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(by_path);
        });
        let lost = file.sync_all().expect_err("the host is full");
        assert!(is_full(&lost), "{round}: {lost}");
        late.join().unwrap();
        fs::write(&held, "").unwrap();
    }
    fs::remove_file(fill).unwrap();
    drop(file);
    // Who wrote was told of all of it: the unmount has nothing more to say.
    let done = diorite(&["umount", bed.at.to_str().unwrap()]);
    assert_eq!(texts(&done), (String::new(), String::new()), "{done:?}");
    bed.check();
}

/// The defect: the kernel showed the blocks from before a change that was made, but could not be made durable.
#[test]
fn what_is_not_durable_is_shown() {
    let Some((small, bed)) = on_small_host() else {
        return;
    };
    bed.mount(&["-o", "sync"]);
    let file = opened(&bed, "a");
    let fill = fill_host(&small.at);
    let before = file.metadata().unwrap().blocks();
    let value = [5; 3000];
    fsetxattr(&file, "user.long", &value, XattrFlags::empty()).expect_err("the host is full");
    let now = file.metadata().unwrap().blocks();
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let asked = statx(&file, "", flags, StatxFlags::BLOCKS).unwrap();
    assert_ne!(asked.stx_blocks, before);
    assert_eq!(now, asked.stx_blocks);
    fs::remove_file(fill).unwrap();
    drop(file);
    let _failed = diorite(&["umount", bed.at.to_str().unwrap()]);
}
