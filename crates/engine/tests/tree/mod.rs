//! Random trees against a model. Names are made, linked, moved with every flag, removed; files are written, truncated, punched,
//! also without a name; attributes, access control lists, flags and times are set. What must fail fails with the expected error and
//! changes nothing, also when space or inodes run out. Now and then the image is judged: e2fsck and `check` find nothing, the
//! kernel sees what diorite sees, and both see what the model says.

mod attributes;
mod durable;
mod exhausted;
mod files;
mod has;
mod judge;
mod model;
mod shared;
mod world;

use crate::common::names::empty;
use crate::common::{Rng, scaled, scratch};
use diorite::Error;
use model::Said;
use world::World;

/// The result of an operation.
#[derive(Debug, PartialEq, Eq)]
enum Says {
    NoRoom,
    Said(Said),
}

/// The name of an error.
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

/// Two runs on a volume of every kind, each judged at a random moment and at its end.
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

/// With few inodes, or few blocks: an operation without room leaves nothing behind.
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
