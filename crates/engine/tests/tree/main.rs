//! Trees against a model: names made, linked, moved with every flag, removed; files written, cut, punched, also without a name; attributes, lists, flags,
//! times. What must fail fails by the same name and changes nothing, also where space or inodes run out. Now and then, in the middle of
//! it, the image is judged: e2fsck and `check` have nothing to say, the kernel sees what diorite does, and both what the model says.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod durable;
mod exhausted;
mod files;
mod has;
mod judge;
mod model;
mod shared;
mod world;

use common::names::empty;
use common::{Rng, scaled, scratch};
use diorite::Error;
use model::Said;
use world::World;

/// What became of an operation.
#[derive(Debug, PartialEq, Eq)]
enum Says {
    NoRoom,
    Said(Said),
}

/// What an error is called.
fn called(result: Result<(), Error>) -> Says {
    let Err(error) = result else {
        return Says::Said(Ok(()));
    };
    Says::Said(Err(match error.root() {
        Error::NoSpace { .. } | Error::NoInodes { .. } => return Says::NoRoom,
        Error::NotFound { .. } => "NotFound",
        Error::Exists { .. } => "Exists",
        Error::NotADirectory { .. } => "NotADirectory",
        Error::IsADirectory { .. } => "IsADirectory",
        Error::NotEmpty { .. } => "NotEmpty",
        Error::NameTooLong { .. } => "NameTooLong",
        Error::NotPermitted { .. } => "NotPermitted",
        Error::NoAttribute { .. } => "NoAttribute",
        Error::AttributeExists { .. } => "AttributeExists",
        Error::Invalid(_) => "Invalid",
        other => panic!("{other}"),
    }))
}

const KINDS: [(&str, &[&str]); 10] = [
    ("ext4 4k", &["-t", "ext4", "-b", "4096"]),
    ("ext4 1k", &["-t", "ext4", "-b", "1024"]),
    (
        "ext4 1k, no journal",
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    ),
    ("ext3 1k", &["-t", "ext3", "-b", "1024"]),
    (
        "ext2 2k, no types",
        &["-t", "ext2", "-b", "2048", "-O", "^filetype,^dir_index"],
    ),
    (
        "ext4 1k, linear, no sums",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^dir_index,^metadata_csum",
        ],
    ),
    (
        "ext4 1k, large_dir, no dir_nlink",
        &["-t", "ext4", "-b", "1024", "-O", "large_dir,^dir_nlink"],
    ),
    (
        "ext4 4k, inline data",
        &["-t", "ext4", "-b", "4096", "-I", "512", "-O", "inline_data"],
    ),
    (
        "ext4 4k in clusters",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
    ),
    (
        "ext4 1k, large values",
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode"],
    ),
];

/// Two sessions on a volume of every kind, each judged at a random place and at its end.
#[test]
fn against_a_model() {
    let steps = scaled("DIORITE_STEPS", 800);
    for (what, args) in KINDS {
        let mut rng = Rng::from_env(what);
        let dir = scratch();
        let image = empty(dir.path(), "32M", args);
        let mut world = World::new(&image, false);
        for _ in 0..scaled("DIORITE_SESSIONS", 2) {
            let middle = rng.below(steps);
            for n in 0..steps {
                assert!(world.step(&mut rng), "{what}: there is room");
                if n == middle {
                    world.judge_open(&mut rng);
                }
            }
            world = world.judge_closed();
        }
    }
}

/// Few inodes, or few blocks: what has no room leaves nothing behind.
#[test]
fn without_room() {
    let small: [(&str, &str, &[&str]); 3] = [
        (
            "few inodes",
            "8M",
            &["-t", "ext4", "-b", "1024", "-N", "48"],
        ),
        (
            "few blocks",
            "400K",
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-N",
                "2000",
                "-I",
                "128",
                "-O",
                "^has_journal,^resize_inode",
                "-m",
                "0",
            ],
        ),
        (
            "few blocks, journal",
            "2M",
            &["-t", "ext4", "-b", "1024", "-N", "2000", "-m", "0"],
        ),
    ];
    for (what, size, args) in small {
        let mut rng = Rng::from_env(what);
        let dir = scratch();
        let image = empty(dir.path(), size, args);
        let mut world = World::new(&image, true);
        let mut refused = 0;
        for _ in 0..3 {
            for _ in 0..scaled("DIORITE_STEPS", 800) {
                refused += u32::from(!world.step(&mut rng));
                refused += u32::from(!world.fill_up(&mut rng));
            }
            world = world.judge_closed();
        }
        assert!(refused > 0, "{what}");
    }
}
