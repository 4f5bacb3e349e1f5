//! Evacuations of volumes of many kinds: nothing is left behind the limit, and nothing else has changed.

mod crash;
mod refusals;
pub(crate) mod world;

use super::tree::{Part, read_inode, walk};
use super::{Limit, Moved, evacuate};
use crate::Volume;
use crate::error::Error;
use crate::testing::Rng;
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, GroupNo};
use world::{Kind, bytes_of, complaint, contents, device, filled, open};

const FLAT: [Kind; 4] = [
    Kind {
        size: "24M",
        args: "-t ext4 -b 1024 -N 512 -J size=1",
        is_flat: true,
    },
    Kind {
        size: "64M",
        args: "-t ext4 -b 4096 -g 4096 -N 512 -O ^orphan_file",
        is_flat: true,
    },
    Kind {
        size: "24M",
        args: "-t ext2 -b 1024 -N 512",
        is_flat: true,
    },
    Kind {
        size: "64M",
        args: "-t ext4 -b 1024 -C 16384 -O bigalloc -N 512 -J size=1",
        is_flat: true,
    },
];

/// Half of the volume, rounded to clusters, in whole groups or not.
fn limit(volume: &Volume, whole: bool) -> Limit {
    let sb = volume.superblock();
    let geometry = sb.geometry();
    let ratio = u64::from(geometry.cluster_ratio());
    let mut blocks = geometry.blocks_count() / 2 / ratio * ratio;
    let mut group = sb.group_of(FsBlock::new(blocks - 1)).unwrap().get() + 1;
    if whole && group > 1 {
        group -= 1;
        blocks = sb.group_first_block(GroupNo::new(group)).get();
    }
    Limit::behind(blocks, group * geometry.inodes_per_group())
}

/// In the middle of the journal's longest run.
fn through_the_journal(volume: &Volume) -> Limit {
    let fs = volume.inner();
    let JournalPlace::Internal(ino) = fs.sb.journal() else {
        panic!("a journal in the volume");
    };
    let mut runs = Vec::new();
    let mut meet = |part| {
        if let Part::Data(run) = part {
            runs.push(run);
        }
        Ok(())
    };
    walk(fs, &read_inode(fs, ino).unwrap(), &mut meet).unwrap();
    let run = runs.iter().max_by_key(|run| run.len).unwrap();
    let blocks = run.at.get() + u64::from(run.len / 2);
    let group = fs.sb.group_of(FsBlock::new(blocks - 1)).unwrap().get() + 1;
    Limit::behind(blocks, group * fs.sb.geometry().inodes_per_group())
}

/// Asserts that nothing is in use behind the limit but fixed structures.
fn assert_empty(volume: &Volume, limit: &Limit) {
    let fs = volume.inner();
    let alloc = fs.alloc().unwrap();
    for group in (0..fs.sb.group_count()).map(GroupNo::new) {
        let last = (group.get() + 1) * fs.sb.geometry().inodes_per_group();
        if last > limit.inodes {
            assert_eq!(alloc.used_inodes(fs, group).unwrap(), []);
        }
    }
    for run in alloc.used_runs(fs, &limit.region).unwrap() {
        let group = fs.sb.group_of(run.start).unwrap();
        let mut blocks = run.start.get()..run.end().get();
        let ratio = u64::from(fs.sb.geometry().cluster_ratio());
        let reserved = fs.sb.geometry().reserved_gdt_blocks();
        let head = u64::from(fs.sb.group_head_blocks(group) + reserved);
        let is_head = |at: u64| at < fs.sb.group_first_block(group).get() + head;
        let fixed = |at: u64| {
            let cluster = FsBlock::new(at / ratio * ratio);
            fs.metadata_in(if ratio > 1 { cluster } else { FsBlock::new(at) }, ratio)
                .is_some()
        };
        assert!(
            blocks.all(|at| fixed(at) || is_head(at)),
            "group {group}: {run}"
        );
    }
}

fn move_all(volume: &Volume, limit: &Limit) -> Result<Moved, Error> {
    evacuate(volume.inner(), limit, &mut |_| Ok(()))
}

/// Evacuates an image; returns it afterwards.
fn evacuated(kind: Kind, before: &[u8], whole: bool) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(complaint(dir.path(), before), None, "{kind:?}");
    let device = device(before);
    let volume = open(device.clone());
    let limit = limit(&volume, whole);
    let moved = move_all(&volume, &limit).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
    assert!(moved.blocks > 0 || moved.inodes > 0, "{kind:?}");
    assert_eq!(
        (moved.blocks, moved.inodes),
        (moved.of_blocks, moved.of_inodes),
        "{kind:?}"
    );
    assert_empty(&volume, &limit);
    volume.close().unwrap();
    let after = bytes_of(&device);
    assert_eq!(complaint(dir.path(), &after), None, "{kind:?}");
    let (old, new) = (contents(before), contents(&after));
    for (path, entry) in &old {
        assert_eq!(new.get(path), Some(entry), "{kind:?}");
    }
    assert_eq!(old.len(), new.len(), "{kind:?}");
    after
}

const TREES: [Kind; 5] = [
    Kind {
        size: "32M",
        args: "-t ext4 -b 1024 -g 4096 -G 1 -N 2048 -J size=1",
        is_flat: false,
    },
    Kind {
        size: "32M",
        args: "-t ext4 -b 1024 -g 4096 -G 1 -N 2048 -O inline_data,ea_inode -J size=4",
        is_flat: false,
    },
    Kind {
        size: "32M",
        args: "-t ext3 -b 1024 -g 4096 -N 2048 -O uninit_bg -J size=2",
        is_flat: false,
    },
    Kind {
        size: "32M",
        args: "-t ext4 -b 1024 -g 4096 -G 1 -N 2048 -O ^has_journal",
        is_flat: false,
    },
    Kind {
        size: "64M",
        args: "-t ext4 -b 4096 -g 2048 -G 1 -N 2048 -O orphan_file,large_dir -J size=4",
        is_flat: false,
    },
];

fn check(kind: Kind) {
    let mut rng = Rng::from_env("relocate");
    let before = filled(kind, &mut rng);
    evacuated(kind, &before, false);
    evacuated(kind, &before, true);
}

/// A test for each kind of volume.
macro_rules! kinds {
    ($($name:ident: $kind:expr;)*) => {
        $(#[test]
        fn $name() {
            check($kind);
        })*
    };
}

kinds! {
    files_move_with_small_blocks: FLAT[0];
    files_move_with_large_blocks: FLAT[1];
    files_move_without_extents: FLAT[2];
    files_move_in_clusters: FLAT[3];
    trees_move: TREES[0];
    trees_move_with_values_in_inodes: TREES[1];
    trees_move_without_checksums: TREES[2];
    trees_move_without_a_journal: TREES[3];
    trees_move_with_an_orphan_file: TREES[4];
}
