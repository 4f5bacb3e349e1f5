//! Attribute blocks that are shared: inodes with equal attributes have one block, which counts its users.
//!
//! Input: files that get equal attributes, from several threads. Output: blocks that several inodes point to. Invariants: every
//! file has the attributes that it was given; e2fsck and `check` find no wrong counts. Limits: each thread changes only its own
//! files.

use crate::common::names::empty;
use crate::common::{Rng, fsck, scaled, scratch, words};
use diorite::dir::RenameFlags;
use diorite::{OpenFlags, OpenOptions, SetAttr, Volume};
use diorite_format::{FsBlock, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const KINDS: [&str; 4] = [
    "-t ext4 -b 1024",
    "-t ext4 -b 1024 -I 128 -O ^metadata_csum",
    "-t ext4 -O ea_inode",
    "-t ext4 -b 1024 -O ^has_journal",
];

fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

fn block_of(volume: &Volume, ino: Ino) -> FsBlock {
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    file.metadata().file_acl
}

/// Files that end with the same attributes, in whatever way, share a block, up to 1024 of them; a file whose attributes change
/// leaves those of the others as they are.
#[test]
fn files_with_equal_attributes_share_a_block() {
    for args in KINDS {
        let dir = scratch();
        let image = empty(dir.path(), "16M", &words(args));
        let volume = open(&image);
        let mut all = Vec::new();
        for n in 0..1030 {
            let ino = volume.create(&format!("/{n}"), 0o600).unwrap().ino();
            let mut names = [("user.a", 300), ("user.b", 200)];
            if n % 2 == 0 {
                names.reverse();
            }
            for (name, len) in names {
                volume
                    .set_xattr(ino, name.as_bytes(), &vec![7; len])
                    .unwrap();
            }
            all.push(ino);
        }
        let blocks: Vec<FsBlock> = all.iter().map(|ino| block_of(&volume, *ino)).collect();
        let known: BTreeSet<FsBlock> = blocks.iter().copied().collect();
        assert!(!known.contains(&FsBlock::NONE), "{args:?}");
        let most = |block: &FsBlock| blocks.iter().filter(|b| *b == block).count();
        let mut counts: Vec<usize> = known.iter().map(most).collect();
        counts.sort_unstable();
        assert_eq!(counts, [6, 1024], "{args:?}");
        let owner = SetAttr::default().uid(7).permissions(0o640);
        volume.set_attr(all[3], &owner).unwrap();
        assert_eq!(
            block_of(&volume, all[3]),
            blocks[3],
            "nothing in it changes"
        );
        volume.set_xattr(all[0], b"user.a", &[8; 300]).unwrap();
        volume.remove_xattr(all[1], b"user.b").unwrap();
        volume.unlink("/2").unwrap();
        assert_eq!(volume.xattr(all[0], b"user.a").unwrap(), [8; 300]);
        assert_eq!(volume.xattr(all[3], b"user.a").unwrap(), [7; 300]);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// A directory's default list that does not fit into inodes is in one block, shared by everything that is made in the directory.
#[test]
fn what_is_inherited_is_shared() {
    let dir = scratch();
    let image = empty(dir.path(), "16M", &words(KINDS[1]));
    let volume = open(&image);
    let top = volume.mkdir("/d", 0o755).unwrap();
    let entry = |tag: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &6u16.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let mut list = 2u32.to_le_bytes().to_vec();
    list.extend(entry(1, u32::MAX));
    (0..20).for_each(|id| list.extend(entry(2, 1000 + id)));
    [4, 16, 32]
        .into_iter()
        .for_each(|tag| list.extend(entry(tag, u32::MAX)));
    volume
        .set_xattr(top, b"system.posix_acl_default", &list)
        .unwrap();
    let make = |n: usize| match n % 2 {
        0 => volume.create(&format!("/d/{n}"), 0o666).unwrap(),
        _ => volume.temporary("/d", 0o666).unwrap(),
    };
    let blocks: BTreeSet<FsBlock> = (0..20).map(|n| make(n).metadata().file_acl).collect();
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    volume.close().unwrap();
    fsck(&image);
}

/// Attributes are set and removed, and their files renamed and deleted, by threads whose files often get equal attributes.
#[test]
fn storms_on_many_files() {
    for (n, args) in (0..).zip(KINDS) {
        let dir = scratch();
        let image = empty(dir.path(), "16M", &words(args));
        let volume = open(&image);
        let seed = Rng::from_env("shared").below(1 << 40) + n;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let volume = &volume;
                scope.spawn(move || storm(volume, thread, seed, scaled("DIORITE_STEPS", 600)));
            }
        });
        volume.close().unwrap();
        fsck(&image);
    }
}

/// A file's attributes, by name.
type Has = BTreeMap<String, Vec<u8>>;

fn storm(volume: &Volume, thread: u64, seed: u64, steps: u64) {
    let mut rng = Rng::new(seed ^ (thread << 48));
    let mut files: BTreeMap<u64, Has> = BTreeMap::new();
    let path = |n: u64| format!("/{thread}-{n}");
    for _ in 0..steps {
        let n = rng.below(12);
        let Some(has) = files.get_mut(&n) else {
            volume.create(&path(n), 0o600).unwrap();
            files.insert(n, Has::new());
            continue;
        };
        let ino = volume.resolve(path(n).as_bytes(), true).unwrap();
        let name = format!("user.{}", rng.below(3));
        match rng.below(10) {
            0 => {
                volume.unlink(&path(n)).unwrap();
                files.remove(&n);
            }
            1 => {
                let to = 20 + n;
                volume
                    .rename(&path(n), &path(to), RenameFlags::default())
                    .unwrap();
                volume
                    .rename(&path(to), &path(n), RenameFlags::default())
                    .unwrap();
            }
            2..=4 => {
                let there = has.remove(&name).is_some();
                assert_eq!(volume.remove_xattr(ino, name.as_bytes()).is_ok(), there);
            }
            _ => {
                // Few different values, so that many files get equal attributes.
                let value = vec![rng.below(2) as u8; 150 + 30 * rng.below(2) as usize];
                volume.set_xattr(ino, name.as_bytes(), &value).unwrap();
                has.insert(name, value);
            }
        }
    }
    for (n, has) in files {
        let ino = volume.resolve(path(n).as_bytes(), true).unwrap();
        let found = volume.xattrs(ino).unwrap().into_iter();
        let found: Has = found
            .map(|x| (String::from_utf8(x.name).unwrap(), x.value))
            .collect();
        assert_eq!(found, has, "seed {seed}, file {n}");
    }
}
