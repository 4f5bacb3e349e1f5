//! Files with very many extents, and what an edit of them costs.

use super::super::{NewRun, replace};
use super::rig::Rig;
use super::{EXT4, JOURNALLED};
use crate::OpenOptions;
use crate::alloc::MARK_CREDITS;
use crate::orphan::ORPHAN_CREDITS;
use crate::testing::Rng;
use diorite_format::FsBlock;
use diorite_format::extent::ExtentNode;

/// Extents of one block each, that never join: every other block of the file.
const MANY: u32 = 100_000;

fn map_one(rig: &mut Rig, rng: &mut Rng, block: u32) {
    let run = rig.pick(rng, 1);
    let new = NewRun {
        file_block: block,
        ..run
    };
    rig.replace(block..block + 1, &[new]);
}

#[test]
fn a_file_of_100_000_extents_is_appended_punched_and_refilled() {
    let Some(mut rig) = Rig::new(JOURNALLED, "144M", 110_000) else {
        return;
    };
    let mut rng = Rng::from_env("aged");
    (0..MANY).for_each(|n| map_one(&mut rig, &mut rng, n * 2));
    assert_eq!((rig.file.blocks.len(), rig.depth()), (MANY as usize, 3));
    // Appending leaves full nodes behind: 84 extents in each, 84 leaves below each node above them.
    let full = u64::from(MANY.div_ceil(84) + MANY.div_ceil(84 * 84));
    assert!(
        rig.file.nodes <= full + 1,
        "{} nodes, {full} when full",
        rig.file.nodes
    );
    for n in (0..MANY).filter(|n| n % 3 != 0) {
        rig.replace(n * 2..n * 2 + 1, &[]);
    }
    rig.check_disk();
    assert!(
        rig.file.nodes <= 2 * full / 3,
        "{} nodes for a third of the extents, {full} for all",
        rig.file.nodes
    );
    for n in (0..MANY).filter(|n| n % 3 == 1) {
        map_one(&mut rig, &mut rng, n * 2);
    }
    rig.finish_with_e2fsck();
}

/// Rule U3: a round may be cut short between any two of its blocks. What the root named before is whole until it names others, so no
/// extent is ever in two leaves.
#[test]
fn without_a_journal_a_leaf_that_is_split_is_left_alone() {
    for (made, stays) in [(JOURNALLED, true), (EXT4, false)] {
        let Some(mut rig) = Rig::new(made, "16M", 4000) else {
            return;
        };
        let mut rng = Rng::from_env("split");
        (0..84).for_each(|n| map_one(&mut rig, &mut rng, n * 2));
        let leaves = |rig: &Rig| -> Vec<u64> {
            let sb = &rig.volume.inner().sb;
            let root = ExtentNode::parse_root(sb, &rig.file.inode.disk()).unwrap();
            root.indexes().iter().map(|e| e.child.get()).collect()
        };
        let full = leaves(&rig);
        assert_eq!(full.len(), 1, "84 extents fill a leaf");
        let on_disk = |bytes: &[u8]| bytes[full[0] as usize * 1024..][..1024].to_vec();
        let before = on_disk(&rig.bytes());
        map_one(&mut rig, &mut rng, 81);
        let halves = leaves(&rig);
        assert_eq!((halves.len(), halves.contains(&full[0])), (2, stays));
        assert_eq!(on_disk(&rig.bytes()) != before, stays);
        rig.finish_with_e2fsck();
    }
}

#[test]
fn an_edit_of_a_deep_tree_reads_no_more_than_its_path() {
    let Some(mut rig) = Rig::new(EXT4, "48M", 20_000) else {
        return;
    };
    let mut rng = Rng::from_env("paths");
    (0..8000).for_each(|n| map_one(&mut rig, &mut rng, n * 2));
    let volume = rig.volume.clone();
    for at in [1u32, 7001, 15_001] {
        volume.inner().make_clean().unwrap();
        rig.file.inode.drop_loaded_map();
        let before = volume.metadata_loads();
        map_one(&mut rig, &mut rng, at);
        assert!(volume.metadata_loads() - before <= 3);
    }
    rig.finish_with_e2fsck();
}

/// What lies above a leaf may leave memory while the leaf is split.
#[test]
fn leaves_are_split_in_little_memory() {
    let options = OpenOptions {
        metadata_cache: 64 << 10,
        ..OpenOptions::writable()
    };
    let Some(mut rig) = Rig::with_options(EXT4, "64M", 30_000, &options) else {
        return;
    };
    let mut rng = Rng::from_env("splits");
    let mut left: Vec<u32> = (0..26_000).map(|n| n * 2).collect();
    while !left.is_empty() {
        let next = left.swap_remove(rng.below(left.len() as u64) as usize);
        map_one(&mut rig, &mut rng, next);
        if left.len().is_multiple_of(8) {
            rig.volume.inner().make_clean().unwrap();
        }
    }
    assert_eq!(rig.depth(), 3);
    rig.finish_with_e2fsck();
}

/// What a leaf has got of its neighbour's space is known to views that show it as not loaded.
#[test]
fn a_leaf_grows_into_its_neighbours_space() {
    for also_split in [false, true] {
        let Some(mut rig) = Rig::new(EXT4, "48M", 2_000) else {
            return;
        };
        let mut rng = Rng::from_env("neighbours");
        (0..3 * 84).for_each(|n| map_one(&mut rig, &mut rng, n * 2));
        rig.replace(10..11, &[]);
        rig.file.inode.drop_loaded_map();
        // The second leaf alone is loaded; then its first entries go.
        rig.check(200..202);
        rig.replace(168..173, &[]);
        map_one(&mut rig, &mut rng, 170);
        if also_split {
            map_one(&mut rig, &mut rng, 168);
        }
        rig.check(0..600);
        rig.finish_with_e2fsck();
    }
}

#[test]
fn emptied_from_either_end_nothing_is_left() {
    for from_the_start in [true, false] {
        let Some(mut rig) = Rig::new(EXT4, "48M", 20_000) else {
            return;
        };
        let mut rng = Rng::from_env("emptied");
        (0..8000).for_each(|n| map_one(&mut rig, &mut rng, n * 2));
        assert_eq!(rig.depth(), 2);
        for n in 0..8000 {
            let block = if from_the_start {
                n * 2
            } else {
                2 * (7999 - n)
            };
            rig.replace(block..block + 1, &[]);
        }
        assert_eq!((rig.depth(), rig.file.nodes), (0, 0));
        let better = rig.finish_with_e2fsck();
        assert_eq!(better, "");
    }
}

/// Rule D5. Runs that are mapped one after another, before other extents of their leaf, leave half full what they split: all of that is in
/// the credits, beside the inode, its place on the list of orphans and the one group's bitmap.
#[test]
fn edits_that_follow_each_other_have_credits() {
    const RUNS: u32 = 1500;
    let Some(mut rig) = Rig::new(&["-t", "ext4", "-J", "size=1"], "8M", 5000) else {
        return;
    };
    let mut rng = Rng::from_env("one hole");
    map_one(&mut rig, &mut rng, 0);
    (0..83).for_each(|n| map_one(&mut rig, &mut rng, RUNS + 2 + 2 * n));
    // No node belongs to the transaction yet.
    rig.volume.sync().unwrap();
    let places = rig.free.blocks.iter().step_by(2).copied();
    let new = (1..=RUNS).zip(places).map(|(file_block, at)| NewRun {
        file_block,
        len: 1,
        start: FsBlock::new(at),
        unwritten: false,
    });
    let new: Vec<NewRun> = new.collect();
    assert_eq!(new.len(), RUNS as usize);
    for run in &new {
        rig.free.blocks.remove(&run.start.get());
        let place = (run.start.get(), false);
        rig.file.blocks.insert(run.file_block, place);
    }
    let (volume, inode) = (rig.volume.clone(), rig.file.inode.clone());
    let credits = inode.credits_to_convert(&new, true);
    let handle = volume.inner().begin(credits).unwrap();
    {
        let _map = inode.map_lock.lock();
        let (mut disk, mut edits) = ((*inode.disk()).clone(), Vec::new());
        for run in new.chunks(1) {
            let range = run[0].file_block..run[0].file_block + 1;
            edits.push(replace(&handle, &mut rig.free, &mut disk, range, run).unwrap());
        }
        let others = 1 + ORPHAN_CREDITS + MARK_CREDITS;
        let left = handle.credits_left();
        assert!(
            left >= others,
            "{} blocks changed of {credits}",
            credits - left
        );
        inode.change(&handle, |d| d.i_block = disk.i_block).unwrap();
        inode.publish_edits(&edits, None).unwrap();
        rig.file.nodes += edits.iter().map(|e| u64::from(e.nodes_taken)).sum::<u64>();
        assert!(edits.iter().all(|e| e.nodes_removed.is_empty()));
    }
    drop(handle);
    rig.finish_with_e2fsck();
}
