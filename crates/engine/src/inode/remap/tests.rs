//! Mapping of blocks that are marked used already, as the replay of fast commits does it.
//!
//! Input: small volumes, free blocks of theirs. Output: none. Invariants: none of its own. Limits: fast commits themselves are tested in
//! `tests/recovery`.

use super::*;
use crate::Volume;
use crate::alloc::MARK_CREDITS;
use crate::inode::Handle;
use crate::testing::small_volume;
use std::sync::Arc;

fn new_file(volume: &Volume) -> Arc<Inode> {
    drop(volume.create("/file", 0o644).unwrap());
    let ino = volume.resolve("/file", false).unwrap();
    volume.inner().inode(ino).unwrap()
}

/// Marks these blocks used and maps them, whatever was mapped there.
fn map(volume: &Volume, inode: &Inode, (file_block, len, start): (u32, u32, u64)) {
    let volume = volume.inner();
    let new = NewRun {
        file_block,
        len,
        start: FsBlock::new(start),
        unwritten: false,
    };
    let run = Run {
        start: new.start,
        len,
    };
    let alloc = volume.alloc().unwrap();
    let used = volume.in_handle(4 * MARK_CREDITS, |handle| alloc.use_blocks(handle, run));
    used.unwrap();
    let range = u64::from(file_block)..u64::from(file_block + len);
    let before = inode.mapped_runs(range).unwrap();
    let mapped = volume.in_handle(inode.credits_to_map(8, &[new]), |handle| {
        let mut remap = inode.remap(handle)?;
        remap.map_known(new, &before)?;
        remap.publish()
    });
    mapped.unwrap();
}

/// All that is mapped, in the order of the file.
fn runs(inode: &Inode) -> Vec<(u64, u32)> {
    let runs = inode.mapped_runs(0..1000).unwrap();
    runs.iter()
        .map(|(start, len)| (start.get(), *len))
        .collect()
}

/// Views that an idle writer had replaced stayed in memory when the maps had exceeded their budget.
#[test]
fn a_map_that_is_dropped_leaves_no_replaced_views() {
    let volume = small_volume("16M", &[]);
    let inode = new_file(&volume);
    volume.sync().unwrap();
    let handle = Handle::of_cache(&inode);
    let (reader, free) = (inode.map.load(), volume.usage().free_on_disk);
    map(&volume, &inode, (0, 1, 15_000));
    handle.retired.keep(reader.clone());
    inode.drop_loaded_map();
    assert!(!handle.retired.is_empty(), "a reader has it");
    drop(reader);
    inode.drop_loaded_map();
    assert!(handle.retired.is_empty());
    drop(handle);
    end(volume, inode, (free, 1));
}

/// What the inode counts, in blocks of 1 KiB.
fn counted(inode: &Inode) -> u64 {
    inode.disk().blocks / 2
}

/// Freed blocks can be had again; those of the maps cannot.
fn end(volume: Volume, inode: Arc<Inode>, (before, used): (u64, u64)) {
    volume.sync().unwrap();
    assert_eq!(volume.usage().free_on_disk, before - used);
    drop(inode);
    assert_eq!(volume.journal_stats().uncredited, 0);
    volume.close().unwrap();
}

/// Just the range of the run gets it: what lies around stays, what lay there is freed, and the inode counts what it has.
#[test]
fn a_known_run_takes_its_range_and_no_more() {
    let volume = small_volume("16M", &[]);
    let inode = new_file(&volume);
    volume.sync().unwrap();
    let before = volume.usage().free_on_disk;
    assert_eq!((runs(&inode), counted(&inode)), (vec![], 0));
    map(&volume, &inode, (30, 4, 15_100));
    assert_eq!((runs(&inode), counted(&inode)), (vec![(15_100, 4)], 4));
    map(&volume, &inode, (20, 8, 15_000));
    let both = vec![(15_000, 8), (15_100, 4)];
    assert_eq!((runs(&inode), counted(&inode)), (both, 12));
    map(&volume, &inode, (24, 4, 15_200));
    let all = vec![(15_000, 4), (15_200, 4), (15_100, 4)];
    assert_eq!((runs(&inode), counted(&inode)), (all.clone(), 12));
    // What is there already is neither freed nor counted again.
    map(&volume, &inode, (24, 4, 15_200));
    assert_eq!((runs(&inode), counted(&inode)), (all, 12));
    end(volume, inode, (before, 12));
}

/// A cluster counts once, whichever of its blocks came first.
#[test]
fn a_cluster_of_which_the_file_has_a_part_is_not_counted_again() {
    let volume = small_volume("16M", &["-O", "bigalloc", "-C", "4096"]);
    let inode = new_file(&volume);
    volume.sync().unwrap();
    let before = volume.usage().free_on_disk;
    map(&volume, &inode, (0, 2, 12_000));
    assert_eq!((runs(&inode), counted(&inode)), (vec![(12_000, 2)], 4));
    map(&volume, &inode, (2, 4, 12_002));
    let len: u32 = runs(&inode).iter().map(|(_, len)| len).sum();
    assert_eq!((len, counted(&inode)), (6, 8));
    map(&volume, &inode, (8, 1, 12_100));
    let len: u32 = runs(&inode).iter().map(|(_, len)| len).sum();
    assert_eq!((len, counted(&inode)), (7, 12));
    end(volume, inode, (before, 12));
}
