//! The pure functions of an edit, and views after edits.

use super::super::NewRun;
use super::super::leaf::Change;
use super::super::nodes::sizes;
use super::super::runs::without;
use super::EXT4;
use super::rig::Rig;
use crate::testing::Rng;
use diorite_format::extent::Extent;
use diorite_format::{FileBlock, FsBlock, Ino};

fn extent(block: u64, len: u32, start: u64, unwritten: bool) -> Extent {
    Extent {
        block: FileBlock::new(block),
        len,
        start: FsBlock::new(start),
        unwritten,
    }
}

fn run(file_block: u32, len: u32, start: u64, unwritten: bool) -> NewRun {
    NewRun {
        file_block,
        len,
        start: FsBlock::new(start),
        unwritten,
    }
}

#[test]
fn a_conversion_cuts_and_joins() {
    let leaf = [extent(0, 10, 100, false), extent(10, 90, 110, true)];
    // The first ten unwritten blocks were written: they continue what is before them.
    let change = Change::replace(10..20, &[run(10, 10, 110, false)]);
    let changed = change.apply(&leaf, true).unwrap();
    assert_eq!(
        changed.extents,
        [extent(0, 20, 100, false), extent(20, 80, 120, true)]
    );
    assert_eq!(changed.removed, [extent(10, 10, 110, true)]);
    // In the middle: cut in three; the parts that were not written stay unwritten.
    let change = Change::replace(40..50, &[run(40, 10, 140, false)]);
    let changed = change.apply(&leaf, true).unwrap();
    let middle = [
        extent(0, 10, 100, false),
        extent(10, 30, 110, true),
        extent(40, 10, 140, false),
        extent(50, 50, 150, true),
    ];
    assert_eq!(changed.extents, middle);
}

#[test]
fn extents_are_as_long_as_they_may_be_and_no_longer() {
    let long = |unwritten| {
        let change = Change::replace(0..100_000, &[run(0, 100_000, 1000, unwritten)]);
        let lens = |e: &Extent| e.len;
        change.new_extents().iter().map(lens).collect::<Vec<_>>()
    };
    assert_eq!(long(false), [32_768, 32_768, 32_768, 1696]);
    assert_eq!(long(true), [32_767, 32_767, 32_767, 1699]);
    let leaf = [extent(0, 32_760, 1000, false)];
    let change = Change::replace(32_760..32_780, &[run(32_760, 20, 33_760, false)]);
    let changed = change.apply(&leaf, true).unwrap();
    assert_eq!(
        changed.extents,
        [
            extent(0, 32_768, 1000, false),
            extent(32_768, 12, 33_768, false)
        ]
    );
}

#[test]
fn nothing_moves_out_of_what_can_be_mapped() {
    let last = u64::from(u32::MAX) - 1;
    let leaf = [extent(5, 1, 100, false), extent(last, 1, 200, false)];
    assert!(Change::shift(0..u32::MAX, 1).apply(&leaf, true).is_none());
    assert!(Change::shift(0..u32::MAX, -6).apply(&leaf, true).is_none());
    let moved = Change::shift(0..u32::MAX, -5).apply(&leaf, true).unwrap();
    assert_eq!(
        moved.extents,
        [extent(0, 1, 100, false), extent(last - 5, 1, 200, false)]
    );
}

#[test]
fn blocks_mapped_again_are_not_removed() {
    let ino = Ino::new(12);
    let runs = |list: &[(u64, u32)]| -> Vec<(FsBlock, u32)> {
        list.iter()
            .map(|(at, len)| (FsBlock::new(*at), *len))
            .collect()
    };
    let left = |old: &[(u64, u32)], new: &[(u64, u32)]| without(ino, &runs(old), &runs(new));
    let all = [(200, 10), (100, 10), (110, 5)];
    assert_eq!(left(&all, &[]).unwrap(), runs(&[(100, 15), (200, 10)]));
    assert_eq!(
        left(&all, &[(104, 2), (205, 50), (90, 11)]).unwrap(),
        runs(&[(101, 3), (106, 9), (200, 5)])
    );
    assert!(left(&[(100, 10), (109, 1)], &[]).is_err());
}

#[test]
fn nodes_are_split_evenly_or_left_full() {
    assert_eq!(sizes(84, 84, 84, false), [84]);
    assert_eq!(sizes(85, 84, 84, false), [43, 42]);
    assert_eq!(sizes(85, 84, 84, true), [84, 1]);
    assert_eq!(sizes(300, 84, 84, true), [84, 84, 84, 48]);
    // A node with little room, as only a damaged or strange one has.
    assert_eq!(sizes(10, 1, 84, false), [1, 9]);
    for (first, total) in [(84, 500), (3, 500), (83, 167), (84, 168)] {
        for is_append in [true, false] {
            let all = sizes(total, first, 84, is_append);
            assert_eq!(all.iter().sum::<usize>(), total);
            assert!(
                all[0] <= first && all.iter().all(|n| (1..=84).contains(n)),
                "{all:?}"
            );
        }
    }
}

/// A view that was taken before an edit shows nodes that the edit let go; whoever loads them gets the map as it is.
#[test]
fn a_view_from_before_an_edit_loads_what_is_there_after_it() {
    let Some(mut rig) = Rig::new(EXT4, "16M", 4000) else {
        return;
    };
    let mut rng = Rng::from_env("old views");
    for n in 0..500 {
        let block = rig.pick(&mut rng, 1);
        rig.replace(
            n * 2..n * 2 + 1,
            &[NewRun {
                file_block: n * 2,
                ..block
            }],
        );
    }
    rig.file.inode.drop_loaded_map();
    let old = rig.file.inode.map.load();
    rig.truncate(100);
    let loaded = rig.file.inode.load_map_from(&old, 0..1000).unwrap();
    let all: Vec<_> = loaded.walk(0, 1000).collect::<Result<_, _>>().unwrap();
    let mapped = all.iter().filter(|m| m.state != crate::MappingState::Hole);
    assert_eq!(mapped.count(), 50);
    rig.finish_with_e2fsck();
}

/// Rule U5. Writes were admitted because the leaf has room for them: an edit that joins extents leaves that room.
#[test]
fn a_leaf_that_writes_count_on_stays() {
    for (counted_on, depth) in [(0, 0), (1, 0), (2, 1)] {
        let Some(mut rig) = Rig::new(EXT4, "8M", 300) else {
            return;
        };
        let all_free = |from: &&u64| (0..21).all(|n| rig.free.blocks.contains(&(*from + n)));
        let first = *rig.free.blocks.iter().find(all_free).unwrap();
        // Five extents: three next to one another, two apart.
        let at = |block: u32, unwritten| run(block, 1, first + u64::from(block), unwritten);
        for new in [
            at(0, false),
            at(1, true),
            at(2, false),
            at(10, true),
            at(20, true),
        ] {
            rig.replace(new.file_block..new.file_block + 1, &[new]);
        }
        let depth_now = |rig: &Rig| rig.file.inode.disk().i_block[6];
        assert_eq!(depth_now(&rig), 1);
        rig.free.counted_on = counted_on;
        rig.replace(1..11, &[at(1, false), at(10, false)]);
        assert_eq!(depth_now(&rig), depth, "{counted_on}");
        rig.free.counted_on = 0;
        rig.finish_with_e2fsck();
    }
}
