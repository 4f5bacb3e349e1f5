//! Power cuts and failing devices during an evacuation.
//!
//! Input: seeds, which are printed. Output: none. Invariant: what survives a cut is, after recovery, a volume with the same contents; with
//! a journal e2fsck finds nothing in it, except blocks that nobody uses if the cut fell into the move of the journal. Limits: a sample of
//! cuts; writes are torn between sectors.

use super::world::{Kind, bytes_of, complaint, contents, device, filled, made, options};
use super::{FLAT, Limit, TREES, limit, move_all, through_the_journal};
use crate::Volume;
use crate::error::Error;
use crate::relocate::evacuate;
use crate::testing::Rng;
use diorite_block::record::{PowerCuts, plan};
use diorite_block::{
    BioErrorKind, BioOp, Device, Fault, FaultDevice, FaultPlan, RecordDevice, When,
};
use diorite_format::Superblock;
use diorite_format::superblock::SUPERBLOCK_SIZE;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// What recovery makes of an image: opened for writing and closed.
fn recovered(bytes: &[u8]) -> Vec<u8> {
    let device = device(bytes);
    let volume = Volume::open_device(device.clone(), &options()).unwrap();
    volume.close().unwrap();
    bytes_of(&device)
}

/// Lines of e2fsck that are about more than blocks which nobody uses.
fn is_only_about_leaks(said: &str) -> bool {
    let leaks = |line: &str| {
        let line = line.trim();
        let is_kind = [
            "Block bitmap differences:",
            "Free blocks count wrong",
            "Fix? no",
            "Pass ",
            "Padding",
        ];
        let is_list = line.chars().all(|c| "-() .0123456789".contains(c));
        // A sign of plus is a block in use that is marked as free.
        !line.contains('+')
            && (line.is_empty()
                || is_list
                || is_kind.iter().any(|kind| line.starts_with(kind))
                || line.contains("WARNING")
                || line.contains("e2fsck")
                || line.contains("files ("))
    };
    said.lines().all(leaks)
}

/// The image after a change through its journal that leaves nothing behind.
fn changed(bytes: &[u8]) -> Vec<u8> {
    let device = device(bytes);
    let volume = Volume::open_device(device.clone(), &options()).unwrap();
    volume.temporary("/", 0o600).unwrap().sync().unwrap();
    volume.close().unwrap();
    bytes_of(&device)
}

fn repaired(dir: &Path, bytes: &[u8]) -> Vec<u8> {
    let path = dir.join("repaired");
    std::fs::write(&path, bytes).unwrap();
    let out = xtask::run::tool("e2fsck")
        .args(["-fy", path.to_str().unwrap()])
        .output()
        .unwrap();
    let code = out.status.code();
    assert!(
        matches!(code, Some(0 | 1)),
        "{code:?}: {}",
        String::from_utf8_lossy(&out.stdout)
    );
    std::fs::read(&path).unwrap()
}

/// What was seen of an inode, without its names and their count.
fn without_names(entry: &str) -> String {
    let words: Vec<&str> = entry.split(' ').skip(1).collect();
    let at = words.iter().position(|word| *word == "links").unwrap();
    [&words[..at], &words[at + 2..]].concat().join(" ")
}

/// When the evacuation commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commits {
    /// When a transaction is full, and between the parts of the work.
    Seldom,
    /// After each handle.
    Always,
}

fn cut(kind: Kind, states: usize, commits: Commits) {
    let mut rng = Rng::from_env("relocate cuts");
    let before = filled(kind, &mut rng);
    cut_image(kind, before, (states, commits), |volume| {
        limit(volume, true)
    });
}

/// Returns how many cuts have left blocks that nobody uses.
fn cut_image(
    kind: Kind,
    before: Vec<u8>,
    (states, commits): (usize, Commits),
    limit: impl FnOnce(&Volume) -> Limit,
) -> u32 {
    let mut rng = Rng::from_env("relocate cuts");
    let old = contents(&before);
    let dir = tempfile::tempdir().unwrap();
    let below = device(&before);
    let recorder = RecordDevice::with_volatile_cache(below);
    let volume = Volume::open_device(Arc::new(recorder.clone()), &options()).unwrap();
    let journalled = volume.inner().has_journal();
    let limit = limit(&volume);
    let fs = volume.inner();
    let moved = evacuate(fs, &limit, &mut |_| match commits {
        Commits::Seldom => Ok(()),
        Commits::Always => fs.commit_running(),
    });
    let moved = moved.unwrap();
    assert_eq!(moved.blocks, moved.of_blocks, "{kind:?}");
    volume.close().unwrap();
    let log = recorder.log();
    let superblock: [u8; SUPERBLOCK_SIZE] = before[1024..2048].try_into().unwrap();
    let mut cuts = PowerCuts::new(before, &log);
    let mut leaks = 0;
    for cut in plan(&log, states, rng.next(), 512) {
        let mut bytes = cuts.with_image(cut, <[u8]>::to_vec);
        let primary: [u8; SUPERBLOCK_SIZE] = bytes[1024..2048].try_into().unwrap();
        if Superblock::parse(&primary).is_err() {
            // Torn; the copies in other groups have old counts.
            bytes[1024..2048].copy_from_slice(&superblock);
        }
        let after = if journalled {
            recovered(&bytes)
        } else {
            repaired(dir.path(), &bytes)
        };
        let after = match journalled {
            true => changed(&after),
            false => after,
        };
        let said = complaint(dir.path(), &after);
        if let Some(said) = said {
            assert!(is_only_about_leaks(&said), "{kind:?} {cut:?}: {said}");
            leaks += 1;
        }
        let new = contents(&after);
        if journalled {
            for (path, entry) in &old {
                assert_eq!(new.get(path), Some(entry), "{kind:?} {cut:?}");
            }
            continue;
        }
        // e2fsck may have found inodes by both of their numbers, and directories in two others: names may be in lost+found.
        let found: BTreeSet<String> = new.values().map(|entry| without_names(entry)).collect();
        let files = old.values().map(|entry| without_names(entry));
        for file in files.filter(|entry| !entry.starts_with("mode 4")) {
            assert!(found.contains(&file), "{kind:?} {cut:?}: {file}");
        }
    }
    eprintln!("{kind:?}: {states} cuts, {leaks} with leaked blocks");
    leaks
}

#[test]
fn a_power_cut_loses_nothing() {
    cut(TREES[0], 100, Commits::Always);
}

#[test]
fn a_power_cut_loses_nothing_with_values_in_inodes() {
    cut(TREES[1], 60, Commits::Seldom);
}

#[test]
fn a_power_cut_loses_nothing_without_extents() {
    cut(TREES[2], 60, Commits::Seldom);
}

#[test]
fn a_power_cut_without_a_journal_is_repaired() {
    cut(TREES[3], 60, Commits::Seldom);
}

/// Little but the journal is behind the limit, so the cuts are at every write of its move.
#[test]
fn a_power_cut_while_the_journal_moves_leaks_blocks_at_most() {
    let (half, often) = (
        |volume: &Volume| limit(volume, true),
        (250, Commits::Always),
    );
    let leaks = cut_image(FLAT[0], made(FLAT[0]), often, half);
    assert!(leaks > 0, "the journal has not moved");
}

/// The first half of the journal stays where it is, with what older transactions have left in it.
#[test]
fn a_power_cut_while_half_of_the_journal_moves_leaks_blocks_at_most() {
    let often = (250, Commits::Always);
    let leaks = cut_image(FLAT[0], made(FLAT[0]), often, through_the_journal);
    assert!(leaks > 0, "the journal has not moved");
}

/// The nth write or read fails, for ever. Afterwards the volume is recovered, and has all contents.
#[test]
fn a_device_that_fails_loses_nothing() {
    let mut rng = Rng::from_env("relocate faults");
    let before = filled(TREES[1], &mut rng);
    let old = contents(&before);
    let dir = tempfile::tempdir().unwrap();
    let mut failed = 0;
    for n in 0..40 {
        let op = if n % 4 == 0 {
            BioOp::Read
        } else {
            BioOp::Write
        };
        let below = device(&before);
        let fault = Fault::new(BioErrorKind::Io, When::nth(1 + rng.below(400))).on(op);
        let failing = FaultDevice::new(below.clone(), FaultPlan::new(vec![fault], 1));
        let failing: Arc<dyn Device> = Arc::new(failing);
        let Ok(volume) = Volume::open_device(failing, &options()) else {
            continue;
        };
        let limit = limit(&volume, true);
        let moved = move_all(&volume, &limit);
        let closed = volume.close();
        // It replays the log, and clears the error that was written down.
        let after = repaired(dir.path(), &bytes_of(&below));
        let said = complaint(dir.path(), &after);
        assert_eq!(said, None, "{n}: {moved:?} {closed:?}");
        assert_eq!(contents(&after), old, "{n}: {moved:?} {closed:?}");
        failed += u32::from(moved.is_err());
    }
    assert!(failed > 5, "{failed} failed");
}

/// The caller stops it after some steps: something has moved, and the volume is as good as before.
#[test]
fn a_stop_leaves_a_consistent_volume() {
    let mut rng = Rng::from_env("relocate stops");
    let before = filled(TREES[0], &mut rng);
    let old = contents(&before);
    let dir = tempfile::tempdir().unwrap();
    // The later ones fall between the inodes that get new numbers, and the users of one block of attributes.
    for steps in [0, 1, 3, 10, 40].into_iter().chain(95..125) {
        let device = device(&before);
        let volume = Volume::open_device(device.clone(), &options()).unwrap();
        let limit = limit(&volume, true);
        let mut left = steps;
        let stopped = evacuate(volume.inner(), &limit, &mut |_| {
            left -= 1;
            if left < 0 {
                Err(Error::ShutDown)
            } else {
                Ok(())
            }
        });
        assert!(
            matches!(stopped, Err(Error::ShutDown)),
            "{steps}: {stopped:?}"
        );
        // What lies behind the limit is handed out again.
        let alloc = volume.inner().alloc().unwrap();
        let (free, waiting) = alloc.now_free();
        assert_eq!(free + waiting, alloc.free_blocks());
        volume.close().unwrap();
        let after = bytes_of(&device);
        assert_eq!(complaint(dir.path(), &after), None, "{steps}");
        assert_eq!(contents(&after), old, "{steps}");
    }
}
