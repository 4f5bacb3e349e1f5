//! Every operation on a volume with exactly 0, 1, 2, ... free blocks or inodes, until it succeeds. Each failure is for lack of
//! space and leaves the tree as it was: nothing half done, nothing that e2fsck or `check` would report, and all free blocks usable
//! as before.
//!
//! By default each operation runs on one kind of volume, chosen by the seed; `DIORITE_EVERY=1` runs it on all.

mod operations;
mod stage;

use crate::common::{Rng, fsck, scaled, scratch};
use diorite::{Error, Volume};
use diorite_crash::view;
use diorite_format::MapKind;
use operations::{Fails, OPERATIONS, Operation};
use stage::{Full, Stage, USES};
use xtask::manifest::Entry;

const KINDS: [(&str, &[&str]); 6] = [
    ("ext4", &["-t", "ext4"]),
    ("ext4, no journal", &["-t", "ext4", "-O", "^has_journal"]),
    ("ext3", &["-t", "ext3"]),
    ("large values", &["-t", "ext4", "-O", "ea_inode"]),
    ("inline data", &["-t", "ext4", "-O", "inline_data"]),
    ("clusters", &["-t", "ext4", "-O", "bigalloc", "-C", "4096"]),
];

/// More blocks, or inodes, than any of the operations needs.
const ENOUGH: u32 = 64;

#[test]
fn every_operation() {
    let mut rng = Rng::from_env("exhausted");
    let every = scaled("DIORITE_EVERY", 0) != 0;
    let first = rng.below(KINDS.len() as u64) as usize;
    let mut found = Vec::new();
    for (at, (kind, args)) in KINDS.iter().enumerate() {
        let dir = scratch();
        for full in [Full::Blocks, Full::Inodes] {
            let stage = Stage::new(dir.path(), args, full);
            for (n, operation) in OPERATIONS.iter().enumerate() {
                if every || (first + n) % KINDS.len() == at {
                    until_it_fits(kind, &stage, operation, &mut found);
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Runs the operation with more and more room. What a failed run has left behind is added to `found`.
fn until_it_fits(kind: &str, stage: &Stage, operation: &Operation, found: &mut Vec<String>) {
    let (name, run, fails) = operation;
    for free in 0..ENOUGH {
        let what = format!("{kind}, {name}, {free} free {:?}", stage.full);
        let volume = stage.open(free);
        let before = seen(&volume);
        let done = run(&volume);
        match done.as_ref().map_err(Error::root) {
            Ok(()) => {
                volume.close().unwrap();
                return fsck(&stage.save());
            }
            // The operation is not possible for this kind of file.
            Err(Error::NotSupported(_)) => return,
            Err(Error::NoSpace { .. } | Error::NoInodes { .. }) => {}
            Err(other) => panic!("{what}: {other}"),
        }
        if *fails == Fails::Never {
            found.push(format!("{what}: {done:?}"));
        }
        let mut differences = Vec::new();
        view::compare(&before, &seen(&volume), &mut differences);
        found.extend(differences.iter().map(|d| format!("{what}: {d}")));
        usable(&what, &volume, stage.full, free);
        volume.close().unwrap();
        fsck(&stage.save());
    }
    panic!(
        "{kind}, {name}: {ENOUGH} free {:?} are not enough",
        stage.full
    );
}

fn seen(volume: &Volume) -> Vec<Entry> {
    let mut wrong = Vec::new();
    let seen = view::walk(volume, &mut wrong);
    assert!(wrong.is_empty(), "{wrong:?}");
    seen
}

/// Asserts that exactly `free` blocks or inodes can be used by others.
fn usable(what: &str, volume: &Volume, full: Full, free: u32) {
    for n in 0..=free.min(USES - 1) {
        let used = match full {
            Full::Blocks => stage::write(volume, &format!("/use/{n}"), 0, 1),
            Full::Inodes => volume.create(&format!("/use/new {n}"), 0o600).map(drop),
        };
        match used.as_ref().map_err(Error::root) {
            Ok(()) if n < free => {}
            Err(Error::NoSpace { .. } | Error::NoInodes { .. }) if n == free => {}
            other => panic!("{what}: {n} of them are used, then {other:?}"),
        }
    }
}

/// Rule G8. Operations that fail half-way unless they are refused first, on a kind of volume where that can happen: where splitting
/// an extent needs a new node of the map, and where it needs two and only one is free.
#[test]
fn without_the_last_node() {
    for (kind, name) in [
        (0, "written zeros in a block behind the end"),
        (1, "allocate in a full leaf"),
    ] {
        let dir = scratch();
        let (kind, args) = KINDS[kind];
        let stage = Stage::new(dir.path(), args, Full::Blocks);
        let operation = OPERATIONS.iter().find(|o| o.0 == name).unwrap();
        let volume = stage.open(0);
        let done = operation.1(&volume);
        assert!(
            matches!(done, Err(Error::NoSpace { .. })),
            "{name}: {done:?}"
        );
        volume.close().unwrap();
        let mut found = Vec::new();
        until_it_fits(kind, &stage, operation, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// Asserts that the stage has its files in the form that the operations are meant for.
#[test]
fn the_stage_is_set() {
    let dir = scratch();
    let stage = Stage::new(dir.path(), KINDS[0].1, Full::Blocks);
    let volume = stage.open(0);
    let disk = |path: &str| stage::file(&volume, path).unwrap().metadata();
    for path in ["/pieces", "/ahead", "/many"] {
        assert_eq!(disk(path).map_kind(), MapKind::Extents, "{path}");
    }
    assert!(crate::common::names::is_hashed(&volume, "/hashed"));
    assert!(!crate::common::names::is_hashed(&volume, "/full"));
    assert!(matches!(
        stage::write(&volume, "/use/0", 0, 1),
        Err(Error::NoSpace { .. })
    ));
    volume.close().unwrap();
}
