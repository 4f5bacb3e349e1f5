//! Trees of names against a model: made, linked, moved with every flag, removed; what must fail fails by the same name and changes nothing, also
//! where space or inodes run out. e2fsck has nothing to say, debugfs and the kernel see the same tree.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::kernel::mounted;
use common::names::by_debugfs;
use common::names_model::{How, Kind, Model, Said};
use common::{Rng, fsck, image, scaled, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_block::Buf;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

fn open(image: &Path, write: bool) -> Volume {
    let options = match write {
        true => OpenOptions::writable(),
        false => OpenOptions::default(),
    };
    Volume::open(image.to_str().unwrap(), &options).unwrap()
}

fn empty(dir: &Path, size: &str, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    image(dir, size, args, &tree)
}

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

/// Threads that move directories into each other: none becomes a part of itself, nothing is lost.
#[test]
fn towards_circles() {
    let dir = scratch();
    let image = empty(dir.path(), "32M", &["-t", "ext4", "-b", "1024"]);
    let volume = open(&image, true);
    let mut inos: Vec<Ino> = Vec::new();
    for n in 0..8 {
        inos.push(volume.mkdir(&format!("/d{n}"), 0o755).unwrap());
        volume.create(&format!("/d{n}/f{n}"), 0o600).unwrap();
    }
    let mut rng = Rng::from_env("towards circles");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (mut rng, volume) = (rng.fork(), &volume);
            scope.spawn(move || {
                let mut moved = 0;
                for _ in 0..scaled("DIORITE_STEPS", 1500) {
                    let place = |rng: &mut Rng| {
                        let parts = (0..rng.below(4)).map(|_| format!("/d{}", rng.below(8)));
                        parts.collect::<String>()
                    };
                    let name = format!("/d{}", rng.below(8));
                    let (from, to) = (place(&mut rng) + &name, place(&mut rng) + &name);
                    let flags = RenameFlags {
                        exchange: rng.below(4) == 0,
                        ..RenameFlags::default()
                    };
                    match volume.rename(&from, &to, flags) {
                        Ok(()) => moved += 1,
                        Err(error) => match error.root() {
                            Error::NotFound { .. } | Error::Invalid(_) | Error::NotEmpty { .. } => {
                            }
                            other => panic!("{from} {to}: {other}"),
                        },
                    }
                }
                assert!(moved > 0);
            });
        }
    });
    // All are still there, once.
    let mut found = Vec::new();
    let mut todo = vec![String::new()];
    while let Some(path) = todo.pop() {
        for name in common::names::by_diorite(&volume, &path) {
            let path = format!("{path}/{name}");
            if name.starts_with('d') {
                found.push(volume.resolve(path.as_bytes(), true).unwrap());
                todo.push(path);
            }
        }
    }
    found.sort();
    inos.sort();
    assert_eq!(found, inos);
    volume.close().unwrap();
    fsck(&image);
}

/// Threads in directories of their own, and all in one: each name made or removed is, whoever wins.
#[test]
fn threads() {
    let dir = scratch();
    let image = empty(
        dir.path(),
        "64M",
        &["-t", "ext4", "-b", "1024", "-N", "20000"],
    );
    let volume = open(&image, true);
    volume.mkdir("/all", 0o755).unwrap();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                volume.mkdir(&format!("/own{n}"), 0o755).unwrap();
                for at in 0..600 {
                    volume.create(&format!("/own{n}/{at:0>40}"), 0o600).unwrap();
                    let won = volume.mkdir(&format!("/all/{}", at % 50), 0o755);
                    if won.is_ok() {
                        // Its number was another's a moment ago.
                        volume.rmdir(&format!("/all/{}", at % 50)).unwrap();
                    }
                    volume
                        .link(&format!("/own{n}/{at:0>40}"), &format!("/all/{n}.{at}"))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(common::names::by_diorite(&volume, "/all").len(), 2400);
    volume.close().unwrap();
    fsck(&image);
}

/// More subdirectories than can be counted: the count says 1 from then on, or one more is refused.
#[test]
fn many_subdirectories() {
    let dir = scratch();
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "66000",
        "-O",
        "^has_journal",
    ];
    let image = empty(dir.path(), "160M", &args);
    let volume = open(&image, true);
    volume.mkdir("/d", 0o755).unwrap();
    let links = |volume: &Volume| {
        let ino = volume.resolve(b"/d", true).unwrap();
        volume
            .open_ino(ino, OpenFlags::default())
            .unwrap()
            .metadata()
            .links
    };
    for n in 0..64_998 {
        volume.mkdir(&format!("/d/{n}"), 0o755).unwrap();
    }
    assert_eq!(links(&volume), 65_000);
    volume.mkdir("/d/one more", 0o755).unwrap();
    assert_eq!(links(&volume), 1);
    volume.rmdir("/d/7").unwrap();
    assert_eq!(links(&volume), 1);
    volume.close().unwrap();
    fsck(&image);
    common::run("tune2fs", &["-O", "^dir_nlink", image.to_str().unwrap()]);
    let volume = open(&image, true);
    volume.create("/f", 0o600).unwrap();
    volume.mkdir("/links", 0o700).unwrap();
    for n in 1..65_000 {
        volume.link("/f", &format!("/links/{n}")).unwrap();
    }
    let more = volume.link("/f", "/links/more");
    assert!(matches!(more, Err(Error::TooManyLinks { .. })));
    volume.close().unwrap();
}

/// A block that held names, or a link's target, and then holds data, is not overwritten by what the log has of it.
#[test]
fn a_removed_directory_does_not_come_back() {
    let dir = scratch();
    let image = empty(dir.path(), "4M", &["-t", "ext4", "-b", "1024", "-N", "128"]);
    let volume = open(&image, true);
    let write = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    volume.create("/f", 0o600).unwrap();
    for n in 0..20 {
        volume.mkdir(&format!("/{n}"), 0o755).unwrap();
        volume
            .symlink(&"t".repeat(500), &format!("/{n}/l"))
            .unwrap();
    }
    volume.sync().unwrap();
    for n in 0..20 {
        volume.unlink(&format!("/{n}/l")).unwrap();
        volume.rmdir(&format!("/{n}")).unwrap();
    }
    volume.sync().unwrap();
    // All that is free now, in pieces that are found.
    let file = volume.open_path("/f", write).unwrap();
    let mut end = 0;
    for size in [65536, 4096, 1024] {
        loop {
            let mut buf = Buf::zeroed(size);
            buf.as_mut_slice().fill(0x5a);
            match file.write_at(end, buf).1 {
                Ok(done) => end += done as u64,
                Err(error) => {
                    assert!(matches!(error.root(), Error::NoSpace { .. }), "{error}");
                    break;
                }
            }
        }
    }
    volume.sync().unwrap();
    let cut = dir.path().join("cut");
    std::fs::copy(&image, &cut).unwrap();
    volume.close().unwrap();
    let replayed = std::process::Command::new("e2fsck")
        .arg("-fy")
        .arg(&cut)
        .output();
    assert!(replayed.unwrap().status.code().unwrap() <= 1);
    let volume = open(&cut, false);
    let file = volume.open_path("/f", OpenFlags::default()).unwrap();
    let mut bytes = vec![0; end as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap() as u64, end);
    assert!(end > 2 << 20 && bytes.iter().all(|b| *b == 0x5a));
}

/// What a new inode has from its directory, as the kernel gives it.
#[test]
fn inheritance() {
    let dir = scratch();
    let image = empty(dir.path(), "8M", &["-t", "ext4", "-b", "1024"]);
    let volume = open(&image, true);
    volume.mkdir("/d", 0o2755).unwrap();
    volume.close().unwrap();
    let path = image.to_str().unwrap();
    // A, d, S and D, and extents.
    for (field, value) in [("flags", "0x900c8"), ("gid", "77")] {
        common::run(
            "debugfs",
            &["-w", "-R", &format!("sif /d {field} {value}"), path],
        );
    }
    let volume = open(&image, true);
    volume.create("/d/f", 0o644).unwrap();
    volume.mkdir("/d/s", 0o755).unwrap();
    volume.symlink(&"t".repeat(80), "/d/l").unwrap();
    let look = |path: &str| {
        let ino = volume.resolve(path.as_bytes(), false).unwrap();
        let disk = volume
            .open_ino(ino, OpenFlags::default())
            .unwrap()
            .metadata();
        (disk.mode, disk.gid, disk.flags.bits())
    };
    assert_eq!(look("/d/f"), (0o100_644, 77, 0x800c8));
    assert_eq!(look("/d/s"), (0o042_755, 77, 0x900c8));
    assert_eq!(look("/d/l"), (0o120_777, 77, 0x800c0));
    volume.close().unwrap();
    fsck(&image);
}

/// Names and targets at their limits, special names, and files that have lost their last name.
#[test]
fn edges() {
    let dir = scratch();
    let image = empty(dir.path(), "8M", &["-t", "ext4", "-b", "1024"]);
    let volume = open(&image, true);
    let longest = format!("/{}", "n".repeat(255));
    volume.mkdir(&longest, 0o755).unwrap();
    let too_long = |e: Error| assert!(matches!(e, Error::NameTooLong { .. }), "{e}");
    too_long(volume.mkdir(&format!("{longest}n"), 0o755).unwrap_err());
    volume.symlink(&"t".repeat(1023), "/long").unwrap();
    too_long(volume.symlink(&"t".repeat(1024), "/longer").unwrap_err());
    for special in ["/", "/.", "/.."] {
        assert!(matches!(
            volume.mkdir(special, 0o755),
            Err(Error::Exists { .. })
        ));
        assert!(matches!(
            volume.unlink(special),
            Err(Error::IsADirectory { .. })
        ));
        let moved = volume.rename(special, "/x", RenameFlags::default());
        assert!(matches!(moved, Err(Error::Busy { .. })));
    }
    assert!(matches!(volume.rmdir("/"), Err(Error::Busy { .. })));
    assert!(matches!(volume.rmdir("/."), Err(Error::Invalid(_))));
    assert!(matches!(volume.rmdir("/.."), Err(Error::NotEmpty { .. })));
    assert!(matches!(
        volume.unlink("/long/"),
        Err(Error::NotADirectory { .. })
    ));
    volume.mkdir("/slash/", 0o755).unwrap();
    for minor in [0, 255, 256, 0xF_FFFF] {
        let device = Rdev {
            major: 0xFFF,
            minor,
        };
        volume
            .mknod(
                &format!("/dev{minor}"),
                FileType::BlockDevice,
                0o600,
                device,
            )
            .unwrap();
    }
    let device = Rdev {
        major: 0x1000,
        minor: 0,
    };
    let refused = volume.mknod("/dev", FileType::CharDevice, 0o600, device);
    assert!(matches!(refused, Err(Error::Invalid(_))));
    let file = volume.create("/gone", 0o600).unwrap();
    volume.unlink("/gone").unwrap();
    let again = volume.link_file(&file, "/back");
    assert!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
    let temporary = volume.temporary("/", 0o600).unwrap();
    volume.link_file(&temporary, "/one").unwrap();
    volume.link_file(&temporary, "/two").unwrap();
    assert_eq!(temporary.metadata().links, 2);
    drop((file, temporary, volume.temporary("/slash", 0o600).unwrap()));
    // A directory that goes while somebody reads it.
    let reader = volume
        .read_dir(volume.resolve(b"/slash", true).unwrap())
        .unwrap();
    volume.rmdir("/slash").unwrap();
    assert_eq!(reader.count(), 2);
    volume.close().unwrap();
    fsck(&image);
    mounted(&image, "ro", |at| {
        for minor in [0u64, 255, 256, 0xF_FFFF] {
            let rdev = std::fs::metadata(at.join(format!("dev{minor}")))
                .unwrap()
                .rdev();
            let encoded = (minor & 0xFF) | 0xFFF << 8 | (minor & 0xF_FF00) << 12;
            assert_eq!(rdev, encoded, "{minor}");
        }
    });
}
