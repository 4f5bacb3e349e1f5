//! Atomic writes where space is short: full and fragmented volumes, failures of the device.
//!
//! Input: small volumes. Output: none. Invariants: a full volume still overwrites atomically; a write that fails has changed nothing; what
//! was kept and reserved is given back, so the free count is what is on disk (rule D11). Limits: one thread.

use super::{FOUR_K, Kind, ONE_K, atomic, kind, made, opened, read_direct, same, write};
use crate::common::fixture::{filled, run_all, writable};
use crate::common::stage::{Stage, faulty};
use crate::common::watch::Watchdog;
use crate::common::{Rng, scratch};
use diorite::{Error, Fallocate, File, OpenOptions, Request, Volume};
use diorite_block::{BioErrorKind, BioOp, Fault, When};
use std::time::Duration;

pub(super) fn is_full(error: &Error) -> bool {
    matches!(error.root(), Error::NoSpace { .. })
}

/// Takes all space that files get.
pub(super) fn fill(volume: &Volume) -> File {
    let file = volume.open_path("/filler", writable()).unwrap();
    for len in [1 << 20, 65536, 4096] {
        loop {
            match file.write_buf(file.size(), filled(0x44, len)).1 {
                Ok(_) => {}
                Err(error) if is_full(&error) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    file
}

fn options(keeps: bool) -> OpenOptions {
    OpenOptions::writable().keep_for_maps(keeps)
}

fn overwrite_when_full(kind: &Kind, keeps: bool, early: bool) {
    let _watchdog = Watchdog::new(Duration::from_secs(120), kind.name);
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), kind, "16M"));
    let volume = stage.open(&options(keeps)).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let len = kind.unit.max(16384);
    let mut model = vec![0x55; 300_000];
    if early {
        assert_eq!(atomic(&file, 0, 1, len).unwrap() as u64, len);
        write(&mut model, 0, 1, len);
    }
    let filler = fill(&volume);
    let mut rng = Rng::from_env("untorn-full");
    for n in 0..200u64 {
        let pos = rng.below(262_144 / len) * len;
        let byte = 1 + n as u8;
        let done = atomic(&file, pos, byte, len);
        let done = done.unwrap_or_else(|e| panic!("{}, write {n} at {pos}: {e}", kind.name));
        assert_eq!(done as u64, len);
        write(&mut model, pos, byte, len);
    }
    // Many at once, more than there is room for at a time.
    let queue = volume.queue(32).unwrap();
    let id = queue.attach(&file).unwrap();
    let requests = (0..262_144 / len)
        .map(|n| Request::write(id, n * len, filled(0x99, len as usize), n).atomic());
    for done in run_all(&queue, requests.collect()) {
        assert_eq!(done.result.unwrap() as u64, len);
        write(&mut model, done.pos, 0x99, len);
    }
    same(kind.name, &read_direct(&file), &model);
    // It is full for others all the time.
    let more = filler.write_buf(filler.size(), filled(1, 1 << 20)).1;
    assert!(more.is_err_and(|e| is_full(&e)));
    drop((queue, file, filler));
    volume.close().unwrap();
    stage.fsck();
}

/// The blocks come from a reserve, into which the old ones go back.
#[test]
fn a_full_volume_overwrites_atomically() {
    let clusters: &[&str] = &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "16384"];
    overwrite_when_full(&FOUR_K, true, false);
    overwrite_when_full(&FOUR_K, false, true);
    overwrite_when_full(&ONE_K, false, true);
    overwrite_when_full(&kind("clusters", clusters, 1024, 16384), false, true);
}

/// Free space in single blocks: a unit has as many runs, and is mapped at once all the same.
#[test]
fn a_fragmented_volume_writes_units_of_many_runs() {
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), &ONE_K, "16M"));
    let volume = stage.open(&options(true)).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let filler = fill(&volume);
    for n in 0..filler.size() / 2048 - 1 {
        filler
            .fallocate(Fallocate::PunchHole, n * 2048, 1024)
            .unwrap();
    }
    filler.sync().unwrap();
    let mut model = vec![0x55; 300_000];
    for n in 0..24u64 {
        let pos = n % 4 * 65536;
        assert_eq!(atomic(&file, pos, 1 + n as u8, 65536).unwrap(), 65536);
        write(&mut model, pos, 1 + n as u8, 65536);
        // Later ones may get the old blocks of these, which lie together, if a commit comes between.
        let runs = file.mappings(pos, 65536).unwrap().len();
        assert!(n >= 4 || runs > 16, "{runs} runs");
    }
    same("fragmented", &read_direct(&file), &model);
    drop((file, filler));
    volume.close().unwrap();
    stage.fsck();
}

/// A write that is refused has changed no other part of the file either: preallocated blocks stay preallocated.
#[test]
fn a_refused_write_leaves_the_map() {
    let dir = scratch();
    // Nothing is reserved for root: an ordinary user's atomic writes would find a reserve there.
    let args: &[&str] = &["-t", "ext4", "-b", "4096", "-m", "0"];
    let bare = kind("no reserve", args, 4096, 4096);
    let stage = Stage::mem(&made(dir.path(), &bare, "32M"));
    let volume = stage.open(&options(false)).unwrap();
    drop(volume.create("/preallocated", 0o644).unwrap());
    let file = volume.open_path("/preallocated", writable()).unwrap();
    file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 8 << 20)
        .unwrap();
    file.write_buf(0, filled(1, 65536)).1.unwrap();
    let filler = fill(&volume);
    volume.sync().unwrap();
    let map = || file.mappings(0, 8 << 20).unwrap();
    let before = map();
    assert_eq!(before.len(), 2);
    let error = atomic(&file, 0, 2, 65536).unwrap_err();
    assert!(is_full(&error), "{error}");
    assert_eq!(map(), before);
    // Into preallocated blocks: all of it or nothing.
    match atomic(&file, 4 << 20, 3, 65536) {
        Ok(len) => assert_eq!(len, 65536),
        Err(error) => {
            assert!(is_full(&error), "{error}");
            assert_eq!(map(), before);
        }
    }
    drop((file, filler));
    volume.close().unwrap();
    stage.fsck();
}

/// A device error: the unit is old, whole, and no block is lost.
#[test]
fn a_failed_write_changes_nothing() {
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), &FOUR_K, "16M"));
    let free = {
        let (volume, _) = opened(&stage);
        volume.space().free
    };
    let fault = Fault {
        kind: BioErrorKind::Io,
        when: When::Every(3),
        op: Some(BioOp::Write),
        // Data only: everything behind the metadata of the group.
        range: Some(8 << 20..16 << 20),
    };
    let device = faulty(stage.device.clone(), vec![fault]);
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let mut model = vec![0x55; 300_000];
    let mut failed = 0;
    for n in 0..60u64 {
        let pos = n % 16 * 16384;
        match atomic(&file, pos, 1 + n as u8, 16384) {
            Ok(_) => write(&mut model, pos, 1 + n as u8, 16384),
            Err(Error::Device { .. }) => failed += 1,
            Err(error) => panic!("{error}"),
        }
        same("after a failure", &read_direct(&file), &model);
    }
    eprintln!("{failed} failed");
    drop(file);
    let _failed_commit = volume.close();
    stage.fsck();
    let (volume, _) = opened(&stage);
    assert_eq!(volume.space().free, free);
}
