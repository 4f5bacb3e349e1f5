//! Trees of names against a model: made, linked, moved with every flag, removed; what must fail fails by the same name and changes nothing, also
//! where space or inodes run out. e2fsck has nothing to say, debugfs and the kernel see the same tree.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::kernel::mounted;
use common::names::{by_debugfs, empty, open};
use common::names_model::{How, Kind, Model, Said};
use common::{Rng, fsck, scaled, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, Volume};
use diorite_format::FileType;
use diorite_format::inode::Rdev;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What an error is called; None if there was no room.
fn called(result: Result<(), Error>) -> Option<Said> {
    let Err(error) = result else {
        return Some(Ok(()));
    };
    Some(Err(match error.root() {
        Error::NoSpace { .. } | Error::NoInodes { .. } => return None,
        Error::NotFound { .. } => "NotFound",
        Error::Exists { .. } => "Exists",
        Error::NotADirectory { .. } => "NotADirectory",
        Error::IsADirectory { .. } => "IsADirectory",
        Error::NotEmpty { .. } => "NotEmpty",
        Error::NotPermitted { .. } => "NotPermitted",
        Error::Invalid(_) => "Invalid",
        other => panic!("{other}"),
    }))
}

/// A path of one to four names, some of them long.
fn path(rng: &mut Rng) -> String {
    let mut path = String::new();
    for _ in 0..1 + rng.below(3) + rng.below(2) {
        let n = rng.below(12);
        let long = if n % 4 == 3 { 200 } else { 1 };
        path += &format!("/{n}{}", "n".repeat(long));
    }
    path
}

/// One random operation on both; false if there was no room for it.
fn step(volume: &Volume, model: &mut Model, rng: &mut Rng) -> bool {
    let (one, two) = (path(rng), path(rng));
    let what = rng.below(16);
    let how = [
        How::default(),
        How::default(),
        How {
            no_replace: true,
            ..How::default()
        },
        How {
            exchange: true,
            ..How::default()
        },
        How {
            whiteout: true,
            ..How::default()
        },
    ][rng.below(5) as usize];
    let flags = RenameFlags {
        no_replace: how.no_replace,
        exchange: how.exchange,
        whiteout: how.whiteout,
    };
    let target = "t".repeat([5, 59, 60, 300][rng.below(4) as usize]);
    let got = match what {
        0 | 1 => volume.create(&one, 0o640).map(drop),
        2..6 => volume.mkdir(&one, 0o750).map(drop),
        6 => volume.symlink(&target, &one).map(drop),
        7 => {
            let device = Rdev { major: 8, minor: 1 };
            let made = volume.mknod(&one, FileType::CharDevice, 0o600, device);
            made.map(drop)
        }
        8 => volume.unlink(&one),
        9 => volume.rmdir(&one),
        10 => volume.link(&one, &two),
        11 => volume
            .temporary("/", 0o640)
            .and_then(|file| volume.link_file(&file, &one)),
        _ => volume.rename(&one, &two, flags),
    };
    let shown = format!("{what}: {one} {two} {how:?}: {got:?}");
    let Some(got) = called(got) else {
        return false;
    };
    let expected = match what {
        0 | 1 | 11 => model.make(&one, Kind::File),
        2..6 => model.make(&one, Kind::Dir(BTreeMap::new())),
        6 => model.make(&one, Kind::Link(target)),
        7 => model.make(&one, Kind::Node(8, 1)),
        8 => model.unlink(&one),
        9 => model.rmdir(&one),
        10 => model.link(&one, &two),
        _ => model.rename(&one, &two, how),
    };
    assert_eq!(got, expected, "{shown}");
    true
}

/// The tree that diorite finds, compared node by node.
fn compare(volume: &Volume, model: &Model) {
    let all = model.all();
    for (path, n) in &all {
        let node = &model.nodes[*n];
        let ino = volume.resolve(path.as_bytes(), false).unwrap();
        let disk = volume
            .open_ino(ino, OpenFlags::default())
            .unwrap()
            .metadata();
        // lost+found, too.
        let links = node.links + usize::from(path.is_empty());
        assert_eq!(usize::from(disk.links), links, "{path}");
        match &node.kind {
            Kind::Dir(names) => {
                let mut found = common::names::by_diorite(volume, path);
                found.remove("lost+found");
                assert!(found.iter().eq(names.keys()), "{path}: {found:?}");
                let up = volume
                    .resolve(format!("{path}/..").as_bytes(), true)
                    .unwrap();
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                assert_eq!(
                    up,
                    volume.resolve(parent.as_bytes(), true).unwrap(),
                    "{path}"
                );
            }
            Kind::File => assert_eq!(disk.file_type, Some(FileType::Regular)),
            Kind::Link(target) => {
                assert_eq!(volume.read_link(ino).unwrap(), target.as_bytes(), "{path}");
            }
            Kind::Node(major, minor) => {
                let (major, minor) = (*major, *minor);
                assert_eq!(disk.rdev(), Some(Rdev { major, minor }), "{path}");
            }
        }
    }
}

fn by_others(image: &Path, model: &Model) {
    let all = model.all();
    let seen = mounted(image, "ro", |at| {
        for (path, n) in &all {
            let node = &model.nodes[*n];
            let meta = std::fs::symlink_metadata(at.join(path.trim_start_matches('/'))).unwrap();
            assert_eq!(
                meta.nlink() as usize,
                node.links + usize::from(path.is_empty()),
                "{path}"
            );
            assert_eq!(meta.is_dir(), model.is_dir(*n));
            assert_eq!(
                meta.file_type().is_char_device(),
                matches!(node.kind, Kind::Node(..))
            );
            if let Kind::Link(target) = &node.kind {
                let link = at.join(path.trim_start_matches('/'));
                assert_eq!(std::fs::read_link(link).unwrap(), Path::new(target));
            }
        }
    });
    let dirs = all.iter().filter(|(_, n)| model.is_dir(**n));
    for (path, n) in dirs.take(if seen { 5 } else { usize::MAX }) {
        let mut found = by_debugfs(image, &format!("{path}/"));
        found.remove("lost+found");
        let Kind::Dir(names) = &model.nodes[*n].kind else {
            unreachable!()
        };
        assert!(found.iter().eq(names.keys()), "{path}: {found:?}");
    }
}

const KINDS: [(&str, &[&str]); 9] = [
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
];

#[test]
fn against_a_model() {
    let steps = scaled("DIORITE_STEPS", 1200);
    for (what, args) in KINDS {
        let mut rng = Rng::from_env(what);
        let dir = scratch();
        let image = empty(dir.path(), "32M", args);
        let mut model = Model::new();
        for _ in 0..3 {
            let volume = open(&image, true);
            for _ in 0..steps {
                assert!(step(&volume, &mut model, &mut rng), "{what}: there is room");
            }
            compare(&volume, &model);
            volume.close().unwrap();
            fsck(&image);
            compare(&open(&image, false), &model);
            by_others(&image, &model);
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
        let mut model = Model::new();
        let mut refused = 0;
        for _ in 0..4 {
            let volume = open(&image, true);
            for _ in 0..scaled("DIORITE_STEPS", 800) {
                refused += u32::from(!step(&volume, &mut model, &mut rng));
                // Long targets fill it up.
                let name = format!("/full{}", model.nodes.len());
                let target = "f".repeat(500);
                match called(volume.symlink(&target, &name).map(drop)) {
                    Some(Ok(())) => model.make(&name, Kind::Link(target)).unwrap(),
                    Some(other) => panic!("{other:?}"),
                    None => refused += 1,
                }
                if rng.below(3) == 0 {
                    let names = model.all();
                    let links = names.keys().filter(|n| n.starts_with("/full"));
                    if let Some(name) = links.clone().nth(rng.below(20) as usize) {
                        volume.unlink(name).unwrap();
                        model.unlink(name).unwrap();
                    }
                }
            }
            compare(&volume, &model);
            volume.close().unwrap();
            fsck(&image);
            by_others(&image, &model);
        }
        assert!(refused > 0, "{what}");
    }
}
