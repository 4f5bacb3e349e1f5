//! Single cases: the last block, blocks reserved for privileged users, bitmaps not in memory, the memory budget, goals, damage.

use super::super::totals::Totals;
use super::super::{Alloc, MARK_CREDITS, NEW_INODE_CREDITS, Reach, Run};
use super::{Image, run};
use crate::error::{Error, Wait};
use crate::inode::Fs;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{FsBlock, Ino};

/// Claims until nothing is left.
fn claim_all(volume: &Fs, alloc: &Alloc, reach: Reach) -> Vec<Run> {
    let mut all = Vec::new();
    loop {
        match alloc.claim(volume, FsBlock::new(0), 777, reach) {
            Ok(run) => all.push(run),
            Err(Error::NoSpace {
                asked: 777,
                free: 0,
            }) => return all,
            Err(e) => panic!("{e}"),
        }
    }
}

fn sum(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.len)).sum()
}

#[test]
fn space_ends_with_the_last_block_and_not_before() {
    let image = Image::of("1k");
    let volume = image.open();
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let for_maps = volume.sb.kept_for_maps();
    let kept = volume.sb.geometry().r_blocks_count() + for_maps;
    let (all, usable) = (
        alloc.usable_blocks(Reach::All),
        alloc.usable_blocks(Reach::Common),
    );
    assert!(0 < for_maps && for_maps < kept);
    assert_eq!(usable, all - kept);
    assert_eq!(alloc.usable_blocks(Reach::Privileged), all - for_maps);
    let mut runs = claim_all(volume, alloc, Reach::Common);
    assert_eq!(sum(&runs), usable);
    runs.extend(claim_all(volume, alloc, Reach::All));
    assert_eq!(sum(&runs), all);
    let last = runs.pop().unwrap();
    let one = Run {
        start: last.start,
        len: 1,
    };
    alloc.unclaim(volume, one).unwrap();
    let refused = alloc.claim(volume, FsBlock::new(0), 1, Reach::Common);
    assert!(matches!(refused, Err(Error::NoSpace { asked: 1, free: 0 })));
    assert!(matches!(
        alloc.reserve(2, Reach::All),
        Err(Error::NoSpace { asked: 2, free: 1 })
    ));
    let reservation = alloc.reserve(1, Reach::All).unwrap();
    let refused = alloc.claim(volume, FsBlock::new(0), 1, Reach::All);
    assert!(matches!(refused, Err(Error::NoSpace { asked: 1, free: 0 })));
    drop(reservation);
    assert_eq!(alloc.claim(volume, last.end(), 9, Reach::All).unwrap(), one);
}

#[test]
fn what_waits_for_a_commit_is_said_to() {
    let image = Image::of("ext2");
    let volume = image.open();
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let mut runs = claim_all(volume, alloc, Reach::All);
    let run = runs.pop().unwrap();
    let handle = volume.begin(2 * MARK_CREDITS).unwrap();
    alloc.mark_used(&handle, run).unwrap();
    let before = alloc.free_blocks();
    alloc.free(&handle, run.start, run.len).unwrap();
    assert_eq!(alloc.free_blocks(), before + u64::from(run.len));
    for reach in [Reach::All, Reach::Common] {
        let claimed = alloc.claim(volume, run.start, 1, reach);
        // What the commit brings is less than what is kept for the privileged.
        match claimed.unwrap_err() {
            Error::WouldBlock(Wait::Commit) => assert_eq!(reach, Reach::All),
            Error::NoSpace { .. } => assert_eq!(reach, Reach::Common),
            e => panic!("{e}"),
        }
    }
    drop(handle);
    let again = volume.or_commit(|| alloc.claim(volume, run.start, run.len, Reach::All));
    assert_eq!(again.unwrap(), run);
}

#[test]
fn a_cold_bitmap_is_read_by_those_who_may_wait() {
    let image = Image::of("ext3");
    let volume = image.open();
    let loads = || volume.metadata_loads();
    let (shared, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let goal = FsBlock::new(3000);
    let before = loads();
    assert_eq!(alloc.try_claim(shared, goal, 5, Reach::All).unwrap(), None);
    assert_eq!(loads(), before);
    let first = alloc.claim(shared, goal, 5, Reach::All).unwrap();
    assert_eq!(
        first,
        Run {
            start: goal,
            len: 5
        }
    );
    let before = loads();
    let next = alloc
        .try_claim(shared, first.end(), 50, Reach::All)
        .unwrap();
    assert_eq!(
        next,
        Some(Run {
            start: first.end(),
            len: 50
        })
    );
    assert_eq!(loads(), before);
}

#[test]
fn a_long_run_is_found_in_another_group() {
    let image = Image::of("ext3");
    let volume = image.open();
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    // Every second block of a group is taken.
    let start = volume
        .sb
        .group_first_block(diorite_format::GroupNo::new(5))
        .get();
    let mut at = start;
    while at < start + 2048 {
        let run = alloc
            .claim(volume, FsBlock::new(at), 1, Reach::All)
            .unwrap();
        at = run.start.get() + 2;
    }
    let found = alloc
        .claim(volume, FsBlock::new(start), 40, Reach::All)
        .unwrap();
    assert_eq!(found.len, 40);
    assert!(found.start.get() >= start + 2048);
    let holes = alloc
        .claim(volume, FsBlock::new(start + 1500), 1, Reach::All)
        .unwrap();
    assert!((start + 1500..start + 2048).contains(&holes.start.get()));
}

#[test]
fn bitmaps_stay_within_their_budget() {
    let image = Image::of("meta-bg");
    let volume = image.open_with(64 << 10);
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let mut runs = Vec::new();
    for group in (0..volume.sb.group_count()).chain(0..volume.sb.group_count()) {
        let goal = volume
            .sb
            .group_first_block(diorite_format::GroupNo::new(group));
        runs.push(alloc.claim(volume, goal, 3, Reach::All).unwrap());
        let loaded = alloc.loaded.load(Ordering::Relaxed);
        assert!(loaded <= alloc.most_loaded + 1, "{loaded}");
    }
    assert!(alloc.most_loaded < volume.sb.group_count() as usize);
    for run in runs {
        alloc.unclaim(volume, run).unwrap();
    }
}

#[test]
fn a_descriptor_that_cannot_be_written_leaves_the_bitmap_as_it_was() {
    let image = Image::of("1k");
    let volume = image.open();
    let (shared, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let handle = shared.begin(2 * NEW_INODE_CREDITS).unwrap();
    let far = shared.sb.geometry().inodes_count() - 1;
    let ino = alloc.new_inode(&handle, Ino::new(far), false).unwrap();
    let free = alloc.free_inodes();
    // The group has no directory.
    let refused = alloc.free_inode(&handle, ino, true);
    assert!(refused.is_err_and(|e| e.is_corrupt()));
    assert_eq!(alloc.free_inodes(), free);
    alloc.free_inode(&handle, ino, false).unwrap();
    drop(handle);
    volume.close().unwrap();
    image.fsck();
}

#[test]
fn directories_of_the_root_spread_and_files_stay_near() {
    let image = Image::of("ext3");
    let volume = image.open();
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let group = |ino: Ino| volume.sb.inode_place(ino).unwrap().group;
    let take = |parent, dir| {
        let handle = volume.begin(NEW_INODE_CREDITS).unwrap();
        alloc.new_inode(&handle, parent, dir).unwrap()
    };
    let dirs: Vec<Ino> = (0..6).map(|_| take(Ino::ROOT, true)).collect();
    let mut groups: Vec<_> = dirs.iter().map(|d| group(*d)).collect();
    groups.dedup();
    assert_eq!(groups.len(), 6);
    for dir in dirs {
        assert_eq!(group(take(dir, false)), group(dir));
        assert_eq!(group(take(dir, true)), group(dir));
        assert_eq!(
            volume.sb.group_of(alloc.goal_of(&volume.sb, dir)),
            Some(group(dir))
        );
    }
}

#[test]
fn what_cannot_be_true_is_refused_by_name() {
    let image = Image::of("ext2");
    let path = image.path.to_str().unwrap();
    run("debugfs", &["-w", "-R", "freeb 100 1", path]);
    let volume = image.open();
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let desc = &volume.groups[1];
    let handle = volume.begin(8).unwrap();
    let table = alloc.free(&handle, desc.inode_table, 3).unwrap_err();
    assert!(table.to_string().contains("an inode table lies"), "{table}");
    let outside = FsBlock::new(volume.sb.geometry().blocks_count());
    assert!(alloc.free(&handle, outside, 1).unwrap_err().is_corrupt());
    assert!(
        alloc
            .free_inode(&handle, Ino::ROOT, true)
            .unwrap_err()
            .is_corrupt()
    );
    // debugfs has freed a block of the table; nobody gets it.
    let claimed = alloc
        .claim(volume, FsBlock::new(100), 1, Reach::All)
        .unwrap_err();
    assert!(claimed.is_corrupt(), "{claimed}");
    assert!(claimed.to_string().contains("group 0"), "{claimed}");
}

#[test]
#[should_panic(expected = "are not claimed")]
fn a_run_is_given_back_once() {
    let image = Image::of("ext2");
    let volume = image.open();
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let run = alloc.claim(volume, FsBlock::new(0), 5, Reach::All).unwrap();
    alloc.unclaim(volume, run).unwrap();
    // Debug builds stop there, others say so.
    alloc.unclaim(volume, run).unwrap();
}

/// Without a journal an old name may lead to an inode until the round that freed it is durable.
#[test]
fn an_inode_that_a_round_freed_waits_for_it() {
    let image = Image::of("ext2");
    let volume = image.open();
    let (volume, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
    let take = || {
        let handle = volume.begin(NEW_INODE_CREDITS).unwrap();
        alloc.new_inode(&handle, Ino::ROOT, false).unwrap()
    };
    let first = take();
    let handle = volume.begin(NEW_INODE_CREDITS).unwrap();
    alloc.free_inode(&handle, first, false).unwrap();
    drop(handle);
    let second = take();
    assert_ne!(first, second);
    volume.commit_running().unwrap();
    assert_eq!(take(), first);
    // The last ones are taken all the same.
    let (total, mut all) = (alloc.free_inodes(), vec![second]);
    all.extend((0..total).map(|_| take()));
    for ino in all {
        let handle = volume.begin(NEW_INODE_CREDITS).unwrap();
        alloc.free_inode(&handle, ino, false).unwrap();
    }
    for _ in 0..=total {
        take();
    }
    let handle = volume.begin(NEW_INODE_CREDITS).unwrap();
    let none = alloc.new_inode(&handle, Ino::ROOT, false);
    assert!(matches!(none, Err(Error::NoInodes { .. })));
}

/// The defect: what was reserved and kept for maps stayed that of the larger volume.
#[test]
fn a_smaller_volume_reserves_less() {
    let sized = |size| crate::testing::small_volume(size, &["-m", "20"]);
    let (large, small) = (sized("64M"), sized("16M"));
    let (large, small) = (large.superblock(), small.superblock());
    let totals = Totals::new(large, &[], true);
    totals.give(60_000);
    totals.shrank(small, 9000, 77);
    let fresh = Totals::new(small, &[], true);
    fresh.give(9000);
    assert_eq!(totals.blocks_for_maps(), fresh.blocks_for_maps());
    for reach in [Reach::Common, Reach::Privileged, Reach::All] {
        assert_eq!(totals.usable_blocks(reach), fresh.usable_blocks(reach));
    }
    assert!(fresh.usable_blocks(Reach::Common) < fresh.usable_blocks(Reach::All));
    assert_eq!(
        (totals.free_blocks_on_disk(), totals.free_inodes()),
        (9000, 77)
    );
}
