//! Truncations that take several handles and cannot be completed. A refused truncation has changed nothing; one that fails between
//! two handles is completed by the next thread that needs it (rules G16, U10, U11).
//!
//! Input: a file of many extents on a volume with the smallest journal and a small cache; a device that fails one read; a damaged
//! node of a map. Output: none. Invariant: e2fsck judges the end wherever the journal was not aborted. Limits: one file.

use crate::common::fixture::{LIMIT, filled, writable};
use crate::common::stage::{Stage, faulty};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{fsck, image, run, scratch, words};
use crate::rules::bed::push_out;
use diorite::{Error, File, OpenFlags, OpenOptions, Volume};
use diorite_block::{BioErrorKind, BioOp, Buf, Fault, When};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// One block of data per block of pointers.
const STRIDE: u64 = 256 << 10;
const BLOCKS: u64 = 80;

const SIZE: u64 = (BLOCKS - 1) * STRIDE + 1024;

/// A volume whose transactions are small, with a file whose truncation takes many handles.
fn made(dir: &Path, args: &str) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let image = image(dir, "8M", &words(args), &tree);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    for n in 0..BLOCKS {
        file.write_buf(n * STRIDE, filled(7, 1024)).1.unwrap();
    }
    drop(file);
    volume.close().unwrap();
    fsck(&image);
    image
}

const EXT3: &str = "-t ext3 -b 1024 -J size=1";
/// The orphan list is in an orphan file.
const ORPHAN_FILE: &str = "-t ext4 -b 1024 -J size=1 -O orphan_file,^extent,^64bit";

fn forgetful() -> OpenOptions {
    OpenOptions::writable().metadata_cache(0)
}

fn is(file: &File, from: u64, to: u64, byte: u8) -> bool {
    let (read, done) = file.read_buf(from, Buf::zeroed((to - from) as usize));
    assert_eq!(done.unwrap() as u64, to - from);
    read.as_slice().iter().all(|b| *b == byte)
}

/// Is all data from this offset on still there?
fn is_whole(file: &File, from: u64) -> bool {
    let blocks = (from..BLOCKS).map(|n| n * STRIDE);
    file.size() == SIZE && blocks.into_iter().all(|pos| is(file, pos, pos + 1024, 7))
}

/// The ways to make a file longer again.
fn lengthen(file: &File, way: u64) -> Result<(), Error> {
    match way {
        0 => file.write_buf(MIB - 1024, filled(0, 1024)).1.map(drop),
        1 => file.truncate(MIB),
        _ => {
            file.truncate(0)?;
            file.append_buf(filled(0, MIB as usize)).1.map(drop)
        }
    }
}

/// Opens the file on a device whose nth read fails, calls the closure unless opening failed, and returns the volume if it still
/// accepts changes. None once n is so large that no read failed.
fn with_a_fault<T>(
    stage: &Stage,
    nth: u64,
    does: impl FnOnce(&Volume, File) -> T,
) -> Option<Option<(Volume, T)>> {
    let fault = Fault::new(BioErrorKind::Io, When::nth(nth)).on(BioOp::Read);
    let device = faulty(stage.device.clone(), vec![fault]);
    let opened = Volume::open_device(device.clone(), &forgetful());
    let opened = opened.and_then(|v| v.open_path("/file", writable()).map(|file| (v, file)));
    let Ok((volume, file)) = opened else {
        return Some(None);
    };
    let done = does(&volume, file);
    if device.plan().failed() == 0 {
        return None;
    }
    // An aborted journal accepts no more changes.
    let sound = volume.mkdir("/sound", 0o755).is_ok();
    Some(sound.then_some((volume, done)))
}

/// The nth read fails during a truncation, for many n. Half of a handle is never committed, and once the new size is there, the
/// truncated data never reappears. The defects: a failed read for the orphan list left blocks free that the map still had; a second
/// truncation to the same size freed nothing, and after the file was made longer it showed the truncated data.
#[test]
fn a_read_fails_during_a_truncation() {
    let _watchdog = Watchdog::new(4 * LIMIT, "reads that fail");
    for args in [EXT3, ORPHAN_FILE] {
        let dir = scratch();
        let image = made(dir.path(), args);
        let bytes = std::fs::read(&image).unwrap();
        let (mut cut, mut nth) = (0, 0);
        loop {
            nth += 1;
            std::fs::write(&image, &bytes).unwrap();
            let stage = Stage::mem(&image);
            let cuts = |_: &Volume, file: File| {
                let done = file.truncate(0);
                (file, done)
            };
            let Some(left) = with_a_fault(&stage, nth, cuts) else {
                break;
            };
            let Some((volume, (file, done))) = left else {
                continue;
            };
            let is_cut = file.size() == 0;
            assert!(is_cut || done.is_err() && is_whole(&file, 0), "read {nth}");
            cut += u64::from(is_cut && done.is_err());
            // In some rounds through a newly opened file.
            let file = match nth % 2 {
                0 => file,
                _ => {
                    drop(file);
                    volume.open_path("/file", writable()).unwrap()
                }
            };
            if is_cut {
                lengthen(&file, nth % 4).unwrap();
                assert_eq!(file.size(), MIB);
                assert!(is(&file, 0, MIB, 0), "read {nth}");
            }
            drop(file);
            volume.close().unwrap();
            stage.fsck();
        }
        assert!(cut > 0, "none of {nth} reads failed between two handles");
    }
}

/// The block of the orphan file cannot be read when an unlinked inode loses its last user. The inode stays on the list, in memory
/// and on disk, and is deleted when the volume is closed. The defect: it was removed from the list in memory only, then deleted,
/// and its number in the slot made the next opening for writing fail.
#[test]
fn a_slot_that_cannot_be_read_keeps_its_orphan() {
    let _watchdog = Watchdog::new(LIMIT, "a slot");
    let dir = scratch();
    let image = made(dir.path(), ORPHAN_FILE);
    let path = image.to_str().unwrap();
    let said = run("dumpe2fs", &["-h", path]);
    let ino = said.split("Orphan file inode:").nth(1).unwrap();
    let ino = ino.split_whitespace().next().unwrap();
    let place = run("debugfs", &["-R", &format!("bmap <{ino}> 0"), path]);
    let place: u64 = place.lines().next().unwrap().trim().parse().unwrap();
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    // The keeper commits and checkpoints soon.
    let options = forgetful().commit_interval(Duration::from_millis(5));
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    volume.unlink("/file").unwrap();
    while volume.journal_stats().checkpoints == 0 {
        std::thread::yield_now();
    }
    push_out(&volume);
    valve.fail_reads(place * 1024..(place + 1) * 1024);
    drop(file);
    // An atomic change first deletes pending orphans, as far as that is possible.
    volume.atomic().unwrap().commit().unwrap();
    valve.fail_reads(0..0);
    volume.close().unwrap();
    stage.fsck();
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    volume.close().unwrap();
}

/// The location of a file's first block of pointers.
fn first_node(image: &Path) -> u64 {
    let said = run("debugfs", &["-R", "stat /file", image.to_str().unwrap()]);
    let at = said.split("(IND):").nth(1).expect("it has such a block");
    let digits: String = at.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// A truncation frees blocks from the end of the file, so it would meet the damage last. The defect: by then the new size was
/// committed, and an orphan stayed on the list that made the next opening for writing fail.
#[test]
fn what_cannot_be_cut_to_the_end_is_not_begun() {
    let dir = scratch();
    let image = made(dir.path(), EXT3);
    let mut bytes = std::fs::read(&image).unwrap();
    let node = first_node(&image) as usize * 1024;
    bytes[node + 40..node + 44].copy_from_slice(&0xFFFF_FFF0u32.to_le_bytes());
    std::fs::write(&image, &bytes).unwrap();
    let options = OpenOptions::writable();
    let stage = Stage::mem(&image);
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let refused = file.truncate(0).unwrap_err();
    assert!(refused.is_corrupt(), "{refused}");
    assert!(is_whole(&file, 2));
    // Past the damaged block nothing prevents a truncation.
    file.truncate(MIB).unwrap();
    drop((file, volume));
}

/// An atomic change has no room for the whole truncation. The defect: the part that had room was committed with the atomic change.
#[test]
fn a_group_cuts_all_or_nothing() {
    let dir = scratch();
    let image = made(dir.path(), EXT3);
    let stage = Stage::mem(&image);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let atomic = volume.atomic().unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    // An empty transaction takes one handle of any size, but not many.
    let refused = file.truncate(0).unwrap_err();
    volume.mkdir("/made", 0o755).unwrap();
    assert!(matches!(refused, Error::AtomicTooLarge { .. }), "{refused}");
    assert!(atomic.fill().is_full);
    atomic.commit().unwrap();
    assert_eq!(file.size(), SIZE);
    drop(file);
    volume.close().unwrap();
    stage.fsck();
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    assert!(is_whole(&file, 0) && volume.resolve("/made", true).is_ok());
}
