//! Collapse and insert range: in one handle if that can hold the change, else in as many as have credits for it (rule D5).
//!
//! Input: files of many extents on small volumes. Output: none. Invariants: contents are compared with an array; e2fsck judges the
//! end, diorite's own check what a power cut leaves. Limits: no power cut between two commits.

use crate::common::bytes;
use crate::common::fixture::{LIMIT, filled, run_all, writable};
use crate::common::recipe::{RECIPES, Recipe, bare};
use crate::common::scratch;
use crate::common::stage::{Stage, mem_of};
use crate::common::watch::Watchdog;
use crate::rules::bed::{Bed, quiet};
use diorite::{Fallocate, File, Request, Volume};
use diorite_block::Device;
use diorite_block::record::{Cut, PowerCuts, RecordDevice, Survival};
use diorite_check::{CheckOptions, check_device};
use std::sync::Arc;

const BLOCK: u64 = 1024;

/// A journal of 1,023 blocks: a handle can change seven leaves of a map at most.
const SMALL: Recipe = Recipe {
    name: "small",
    args: &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    ..RECIPES[1]
};
const NO_JOURNAL: Recipe = Recipe {
    name: "no journal",
    args: &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    ..RECIPES[1]
};
/// Clusters with several extents each; most leaves of a map end within one.
const CLUSTERS: Recipe = Recipe {
    name: "clusters",
    args: &[
        "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "16384",
    ],
    size: "32M",
    block: 1024,
    cluster: 16,
    extents: true,
};
/// A cluster spans more leaves than one handle can change.
const HUGE_CLUSTERS: Recipe = Recipe {
    name: "huge clusters",
    args: &[
        "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "1048576",
    ],
    size: "80M",
    cluster: 1024,
    ..CLUSTERS
};

/// Makes the file `blocks` long. From block `from` on each is an extent of its own, unwritten and written in turn. The last ones
/// are written first, so that most leaves of the map are half full. Returns its bytes.
fn striped(volume: &Volume, file: &File, from: u64, blocks: u64) -> Vec<u8> {
    let allocate = Fallocate::Allocate { keep_size: false };
    file.truncate(0).unwrap();
    file.fallocate(allocate, 0, blocks * BLOCK).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(file).unwrap();
    let byte = |n: u64| (n % 251) as u8 + 1;
    let odd: Vec<u64> = (from + 1..blocks).step_by(2).collect();
    for some in odd.rchunks(4) {
        let write = |n: &u64| Request::write(id, n * BLOCK, filled(byte(*n), BLOCK as usize), *n);
        let done = run_all(&queue, some.iter().map(write).collect());
        assert!(done.iter().all(|d| d.result.is_ok()), "{done:?}");
    }
    let is_written = |n: u64| n >= from && n % 2 == 1;
    let of_block = |n: u64| vec![if is_written(n) { byte(n) } else { 0 }; BLOCK as usize];
    (0..blocks).flat_map(of_block).collect()
}

fn same(what: &str, file: &File, model: &[u8]) {
    let mut found = vec![0xEE; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut found).unwrap(), found.len());
    let differs = found.iter().zip(model).position(|(a, b)| a != b);
    assert_eq!((found.len(), differs), (model.len(), None), "{what}");
}

/// Applies the operation to the file and to the array. Returns the number of handles.
fn handles(volume: &Volume, file: &File, model: &mut Vec<u8>, range: (Fallocate, u64, u64)) -> u64 {
    let (mode, block, count) = range;
    let (pos, len) = (block * BLOCK, count * BLOCK);
    let before = volume.journal_stats().handles;
    file.fallocate(mode, pos, len).unwrap();
    let did = volume.journal_stats().handles - before;
    bytes::fallocate(model, mode, pos as usize, len as usize);
    same(&format!("{range:?}"), file, model);
    did
}

const COLLAPSE: Fallocate = Fallocate::CollapseRange;
const INSERT: Fallocate = Fallocate::InsertRange;

/// Rule D5. A change that fits into one handle takes one, so no crash shows half of it: neither of the removed range nor of the map
/// after it. A larger change takes several, each with credits for what it changes.
#[test]
fn one_handle_where_one_can_hold_it() {
    let _watchdog = Watchdog::new(LIMIT, "one handle");
    let bed = Bed::new(&SMALL, &quiet());
    let (file, ..) = bed.open("/sparse");
    for (blocks, is_one) in [(8, true), (200, true), (6000, false)] {
        let mut model = striped(&bed.volume, &file, 0, blocks);
        for (mode, block, count) in [(COLLAPSE, 1, 2), (INSERT, 3, 2), (COLLAPSE, 0, 3)] {
            let did = handles(&bed.volume, &file, &mut model, (mode, block, count));
            assert_eq!(did == 1, is_one, "{mode:?} of {blocks} blocks: {did}");
        }
        // All but the last blocks, so that little is left to move.
        let many = model.len() as u64 / BLOCK - 2;
        let did = handles(&bed.volume, &file, &mut model, (COLLAPSE, 1, many));
        assert_eq!(did == 1, is_one, "all of {blocks} blocks: {did}");
    }
    drop(file);
    bed.finish();
}

/// In an atomic change, ranges are collapsed and inserted as long as the transaction has room for them; no commit is requested, since an
/// atomic change does not allow one.
#[test]
fn in_a_group() {
    let _watchdog = Watchdog::new(LIMIT, "shifts in an atomic change");
    for recipe in [&SMALL, &NO_JOURNAL] {
        let bed = Bed::new(recipe, &quiet());
        let (file, ..) = bed.open("/sparse");
        let mut model = striped(&bed.volume, &file, 0, 200);
        let atomic = bed.volume.atomic().unwrap();
        bed.volume.create("/first", 0o600).unwrap();
        let commits = bed.volume.journal_stats().commits;
        for (mode, block, count) in [(COLLAPSE, 1, 2), (INSERT, 3, 2), (INSERT, 0, 1)] {
            handles(&bed.volume, &file, &mut model, (mode, block, count));
        }
        assert_eq!(bed.volume.journal_stats().commits, commits);
        atomic.commit().unwrap();
        same(recipe.name, &file, &model);
        drop(file);
        bed.finish();
    }
}

/// A collapse or insert that takes several handles is consistent at each commit, and each handle has credits for what it changes:
/// no cluster is at two places of the file, not even where it spans more leaves than one handle changes otherwise.
#[test]
fn every_commit_leaves_whole_clusters() {
    let _watchdog = Watchdog::new(2 * LIMIT, "whole clusters");
    for (recipe, from, blocks) in [(&CLUSTERS, 0, 16_000), (&HUGE_CLUSTERS, 2048, 3072)] {
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), recipe));
        let volume = stage.open(&quiet()).unwrap();
        let file = volume.open_path("/sparse", writable()).unwrap();
        let mut model = striped(&volume, &file, from, blocks);
        drop(file);
        volume.close().unwrap();

        let base = stage.bytes();
        let record = RecordDevice::new(Arc::new(mem_of(&base)));
        let volume = Volume::open_device(Arc::new(record.clone()), &quiet()).unwrap();
        let file = volume.open_path("/sparse", writable()).unwrap();
        for mode in [COLLAPSE, INSERT] {
            let before = volume.journal_stats().commits;
            let did = handles(&volume, &file, &mut model, (mode, 0, recipe.cluster));
            let commits = volume.journal_stats().commits - before;
            let many = from > 0 || did > 20 && commits > 0;
            assert!(
                did > 1 && many,
                "{}, {mode:?}: {did} in {commits} commits",
                recipe.name
            );
        }
        assert_eq!(volume.journal_stats().uncredited, 0, "rule D5");
        let log = record.log();
        let mut walk = PowerCuts::new(base, &log);
        for n in 0..12 {
            let cut = Cut {
                at: log.len() * n / 11,
                survival: Survival::Ended,
            };
            let left: Arc<dyn Device> = walk.with_image(cut, |image| Arc::new(mem_of(image)));
            let found = check_device(&left, &CheckOptions::default(), &|_| ()).unwrap();
            let said: Vec<String> = found.kept().map(|(_, f)| f.to_string()).collect();
            assert_eq!(said, [""; 0], "{}, cut at {}", recipe.name, cut.at);
        }
        drop(file);
        volume.close().unwrap();
    }
}
