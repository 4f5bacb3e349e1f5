//! Inline directories: made, changed in the inode, moved out when they are full, also by the kernel; against a model, on a full
//! volume, and beside attributes that need the same room. e2fsck, diorite's check and the kernel see the same names.

use crate::common::kernel::mounted;
use crate::common::names::{by_debugfs, by_diorite, by_kernel, empty, open};
use crate::common::{Rng, fsck, image, scaled, scratch, words};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, Volume};
use diorite_format::{Ino, MapKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Inodes of all sizes for which mke2fs accepts inline_data; it refuses 128 bytes.
const KINDS: [&str; 4] = [
    "-b 4096 -I 256 -O inline_data",
    "-b 1024 -I 512 -O inline_data",
    "-b 1024 -I 1024 -O inline_data,^has_journal",
    "-b 4096 -I 512 -O inline_data,^metadata_csum,^extent,^64bit",
];

const PLAIN: RenameFlags = RenameFlags::none()
    .no_replace(false)
    .exchange(false)
    .whiteout(false);

fn args(kind: &'static str) -> Vec<&'static str> {
    ["-t", "ext4"].into_iter().chain(words(kind)).collect()
}

fn made(dir: &Path, kind: usize) -> PathBuf {
    empty(dir, "16M", &args(KINDS[kind]))
}

fn ino(volume: &Volume, path: &str) -> Ino {
    volume.resolve(path.as_bytes(), true).unwrap()
}

fn is_inside(volume: &Volume, path: &str) -> bool {
    let file = volume.open_ino(ino(volume, path), OpenFlags::default());
    let disk = file.unwrap().metadata();
    let inside = disk.map_kind() == MapKind::Inline;
    assert!(!inside || disk.blocks == 0 || !disk.file_acl.is_none());
    inside
}

/// Creates names of four bytes in a directory until it leaves its inode. Returns how many were in the inode.
fn fill_up(volume: &Volume, path: &str) -> usize {
    let mut n = 0;
    while is_inside(volume, path) {
        volume.create(&format!("{path}/{n:04}"), 0o644).unwrap();
        n += 1;
    }
    n - 1
}

fn numbered(count: usize) -> BTreeSet<String> {
    (0..count).map(|n| format!("{n:04}")).collect()
}

/// The kernel creates names of four bytes, too; it has the same room.
fn by_kernel_fill_up(image: &Path, names: usize) {
    mounted(image, "rw", |at| {
        std::fs::create_dir(at.join("theirs")).unwrap();
        for n in 0..names {
            std::fs::write(at.join(format!("theirs/{n:04}")), b"").unwrap();
        }
    });
}

#[test]
fn as_many_names_as_the_kernel_has() {
    // Four in `i_block`, the others in the attribute area of the inode.
    for (kind, names) in [(0, 4 + 5), (1, 4 + 27), (2, 4 + 69), (3, 4 + 27)] {
        let dir = scratch();
        let image = made(dir.path(), kind);
        let volume = open(&image, true);
        volume.mkdir("/ours", 0o755).unwrap();
        volume.mkdir("/full", 0o755).unwrap();
        assert_eq!(fill_up(&volume, "/full"), names, "{kind}");
        for n in 0..names {
            volume.create(&format!("/ours/{n:04}"), 0o644).unwrap();
        }
        assert!(is_inside(&volume, "/ours"));
        volume.close().unwrap();
        fsck(&image);
        assert_eq!(by_debugfs(&image, "/ours"), numbered(names));
        assert_eq!(by_debugfs(&image, "/full"), numbered(names + 1));
        by_kernel_fill_up(&image, names);
        let seen = by_kernel(&image, "/ours");
        assert!(seen.is_none_or(|seen| seen == numbered(names)));
        let volume = open(&image, true);
        let theirs = volume.resolve(b"/theirs", true).is_ok();
        for dir in ["/ours", "/theirs"]
            .into_iter()
            .take(1 + usize::from(theirs))
        {
            assert!(is_inside(&volume, dir));
            assert_eq!(by_diorite(&volume, dir), numbered(names));
            // One name is replaced by another; then one more does not fit.
            volume.unlink(&format!("{dir}/0002")).unwrap();
            volume.create(&format!("{dir}/more"), 0o644).unwrap();
            assert!(is_inside(&volume, dir));
            volume.create(&format!("{dir}/much"), 0o644).unwrap();
            assert!(!is_inside(&volume, dir));
        }
        volume.close().unwrap();
        fsck(&image);
    }
}

/// The names of a directory, the inodes they refer to, and the attributes of the directory.
#[derive(Clone, Debug, Default)]
struct Known {
    names: BTreeMap<String, Ino>,
    attributes: BTreeMap<String, Vec<u8>>,
}

type Model = BTreeMap<String, Known>;

fn name(rng: &mut Rng) -> String {
    let n = rng.below(24);
    let len = [0, 0, 1, 2, 5, 30][(n % 6) as usize];
    format!("{n}{}", "x".repeat(len))
}

/// One random operation on one or two of the directories.
fn step(volume: &Volume, model: &mut Model, rng: &mut Rng) {
    let dirs: Vec<String> = model.keys().cloned().collect();
    let mut some = || dirs[rng.below(dirs.len() as u64) as usize].clone();
    let (from, to) = (some(), some());
    let (one, two) = (name(rng), name(rng));
    let (old, new) = (format!("{from}/{one}"), format!("{to}/{two}"));
    let there = model[&from].names.get(&one).copied();
    let other = model[&to].names.get(&two).copied();
    match rng.below(10) {
        0..4 => match volume.create(&old, 0o644) {
            Ok(file) => {
                assert_eq!(there, None);
                model.get_mut(&from).unwrap().names.insert(one, file.ino());
            }
            Err(Error::Exists { .. }) => assert!(there.is_some()),
            Err(other) => panic!("{other}"),
        },
        4 | 5 => {
            assert_eq!(volume.unlink(&old).is_ok(), there.is_some());
            model.get_mut(&from).unwrap().names.remove(&one);
        }
        6 => {
            let linked = volume.link(&old, &new).is_ok();
            assert_eq!(linked, there.is_some() && other.is_none());
            if linked {
                model
                    .get_mut(&to)
                    .unwrap()
                    .names
                    .insert(two, there.unwrap());
            }
        }
        7 => {
            let moved = volume.rename(&old, &new, PLAIN).is_ok();
            assert_eq!(moved, there.is_some());
            if moved && there != other {
                model.get_mut(&from).unwrap().names.remove(&one);
                model
                    .get_mut(&to)
                    .unwrap()
                    .names
                    .insert(two, there.unwrap());
            }
        }
        8 => {
            let exchange = PLAIN.exchange(true);
            let done = volume.rename(&old, &new, exchange).is_ok();
            assert_eq!(done, there.is_some() && other.is_some());
            if let (true, Some(there), Some(other)) = (done, there, other) {
                model.get_mut(&from).unwrap().names.insert(one, other);
                model.get_mut(&to).unwrap().names.insert(two, there);
            }
        }
        _ => attribute(volume, (&from, model.get_mut(&from).unwrap()), rng),
    }
}

fn attribute(volume: &Volume, (path, known): (&str, &mut Known), rng: &mut Rng) {
    let (ino, name) = (ino(volume, path), format!("user.{}", rng.below(3)));
    if rng.below(3) == 0 {
        let gone = volume.remove_xattr(ino, name.as_bytes()).is_ok();
        assert_eq!(gone, known.attributes.remove(&name).is_some());
    } else {
        let value = vec![7; rng.below(90) as usize];
        volume.set_xattr(ino, name.as_bytes(), &value).unwrap();
        known.attributes.insert(name, value);
    }
}

fn compare(volume: &Volume, model: &Model) {
    for (path, known) in model {
        assert!(by_diorite(volume, path).iter().eq(known.names.keys()));
        for (name, stands_for) in &known.names {
            assert_eq!(ino(volume, &format!("{path}/{name}")), *stands_for);
        }
        let all = volume.xattrs(ino(volume, path)).unwrap();
        let all = all
            .into_iter()
            .map(|x| (String::from_utf8(x.name).unwrap(), x.value));
        assert_eq!(all.collect::<BTreeMap<_, _>>(), known.attributes);
    }
}

fn by_others(image: &Path, model: &Model) {
    for (path, known) in model {
        assert!(by_debugfs(image, path).iter().eq(known.names.keys()));
        let seen = by_kernel(image, path);
        assert!(seen.is_none_or(|seen| seen.iter().eq(known.names.keys())));
    }
}

/// Random names and attributes in a few directories: some stay inline, others grow out. Then all names and the directories are
/// removed.
#[test]
fn against_a_model() {
    let rounds = scaled("DIORITE_STEPS", 4);
    for kind in 0..KINDS.len() {
        let mut rng = Rng::from_env("inline directories");
        let (dir, mut inside) = (scratch(), 0);
        let image = made(dir.path(), kind);
        for round in 0..rounds {
            let volume = open(&image, true);
            let mut model = Model::new();
            for n in 0..3 {
                let path = format!("/{round}-{n}");
                volume.mkdir(&path, 0o755).unwrap();
                model.insert(path, Known::default());
            }
            for _ in 0..rng.below([8, 30, 100, 300][(round % 4) as usize]) {
                step(&volume, &mut model, &mut rng);
            }
            compare(&volume, &model);
            inside += model.keys().filter(|p| is_inside(&volume, p)).count();
            volume.close().unwrap();
            fsck(&image);
            by_others(&image, &model);
            let volume = open(&image, true);
            compare(&volume, &model);
            for (path, known) in &model {
                let full = volume.rmdir(path);
                assert_eq!(full.is_ok(), known.names.is_empty());
                for name in known.names.keys() {
                    volume.unlink(&format!("{path}/{name}")).unwrap();
                }
                if full.is_err() && rng.below(2) == 0 {
                    volume.rmdir(path).unwrap();
                }
            }
            volume.close().unwrap();
            fsck(&image);
        }
        assert!(inside > 0, "{kind}: some stay");
    }
}

/// The kernel, debugfs and diorite change the same directories in turn.
#[test]
fn in_turns_with_the_kernel() {
    let mut rng = Rng::from_env("in turns");
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("theirs")).unwrap();
    std::fs::write(tree.join("theirs/by-mke2fs"), b"").unwrap();
    let image = image(dir.path(), "16M", &args(KINDS[1]), &tree);
    let mut names: BTreeSet<String> = ["by-mke2fs".to_owned()].into();
    for round in 0..12 {
        let come: Vec<String> = (0..rng.below(3))
            .map(|n| format!("{round}-{n}{}", "y".repeat(rng.below(9) as usize)))
            .collect();
        let gone: Vec<String> = names
            .iter()
            .filter(|_| rng.below(3) == 0)
            .cloned()
            .collect();
        let by_kernel = round % 2 == 0
            && mounted(&image, "rw", |at| {
                let at = at.join("theirs");
                come.iter()
                    .for_each(|n| std::fs::write(at.join(n), b"").unwrap());
                gone.iter()
                    .for_each(|n| std::fs::remove_file(at.join(n)).unwrap());
            });
        if !by_kernel {
            let volume = open(&image, true);
            for name in &come {
                volume.create(&format!("/theirs/{name}"), 0o644).unwrap();
            }
            for name in &gone {
                volume.unlink(&format!("/theirs/{name}")).unwrap();
            }
            assert!(is_inside(&volume, "/theirs"));
            volume.close().unwrap();
        }
        names.extend(come);
        names.retain(|n| !gone.contains(n));
        fsck(&image);
        assert_eq!(by_debugfs(&image, "/theirs"), names);
        assert_eq!(by_diorite(&open(&image, false), "/theirs"), names);
    }
}

#[test]
fn moved_with_all_that_is_in_them() {
    let dir = scratch();
    let image = made(dir.path(), 0);
    let volume = open(&image, true);
    for path in ["/a", "/a/few", "/b", "/b/there"] {
        volume.mkdir(path, 0o755).unwrap();
    }
    volume.create("/a/few/file", 0o644).unwrap();
    volume.rename("/a/few", "/b/few", PLAIN).unwrap();
    assert!(is_inside(&volume, "/b/few"));
    assert_eq!(ino(&volume, "/b/few/.."), ino(&volume, "/b"));
    assert_eq!(ino(&volume, "/b/few/."), ino(&volume, "/b/few"));
    volume.rename("/b/few", "/b/there", PLAIN).unwrap();
    assert!(matches!(volume.rmdir("/b"), Err(Error::NotEmpty { .. })));
    volume.rmdir("/a").unwrap();
    // A rename within one directory, which leaves its inode because of the new name.
    let names = ["1", "2", "3", "4", "5", "6"];
    for name in names {
        volume.create(&format!("/b/there/{name}"), 0o644).unwrap();
    }
    assert!(is_inside(&volume, "/b/there"));
    let long = "l".repeat(100);
    volume
        .rename("/b/there/3", &format!("/b/there/{long}"), PLAIN)
        .unwrap();
    assert!(!is_inside(&volume, "/b/there"));
    volume.close().unwrap();
    fsck(&image);
    let expected = ["1", "2", "4", "5", "6", "file", &long];
    let expected: BTreeSet<String> = expected.iter().map(|n| (*n).to_owned()).collect();
    assert_eq!(by_debugfs(&image, "/b/there"), expected);
}

/// A reader of a directory that grows out of its inode sees each name once.
#[test]
fn read_while_it_grows_out() {
    let dir = scratch();
    let image = made(dir.path(), 0);
    let volume = open(&image, true);
    volume.mkdir("/d", 0o755).unwrap();
    for n in 0..9 {
        volume.create(&format!("/d/{n:04}"), 0o644).unwrap();
    }
    assert!(is_inside(&volume, "/d"));
    let mut reading = volume.read_dir(ino(&volume, "/d")).unwrap();
    let mut seen: Vec<_> = reading.by_ref().take(5).map(|e| e.unwrap().name).collect();
    for n in 9..200 {
        volume.create(&format!("/d/{n:04}"), 0o644).unwrap();
    }
    seen.extend(reading.map(|e| e.unwrap().name));
    let old = numbered(9);
    let names = seen
        .iter()
        .filter(|n| old.contains(&*String::from_utf8_lossy(n)));
    assert_eq!(names.count(), 9);
    volume.close().unwrap();
    fsck(&image);
}

/// Without a free block, names can be made and removed inline; only a name that does not fit is refused, and changes nothing.
#[test]
fn without_a_block() {
    let dir = scratch();
    let image = made(dir.path(), 0);
    let volume = open(&image, true);
    volume.mkdir("/few", 0o755).unwrap();
    volume.mkdir("/empty", 0o755).unwrap();
    for n in 0..9 {
        volume.create(&format!("/few/{n:04}"), 0o644).unwrap();
    }
    // Other inodes use up the space; the root directory needs a block for their names, with room in it.
    let mut full = 0;
    let target = "t".repeat(1000);
    while volume.symlink(&target, &format!("/full-{full}")).is_ok() {
        full += 1;
    }
    assert!(full > 1000);
    let made = volume.create("/few/much", 0o644);
    assert!(matches!(made, Err(Error::NoSpace { .. })), "{made:?}");
    assert!(is_inside(&volume, "/few"));
    assert_eq!(by_diorite(&volume, "/few"), numbered(9));
    volume.unlink("/few/0003").unwrap();
    volume.create("/few/more", 0o644).unwrap();
    volume.rename("/few/0004", "/empty/0004", PLAIN).unwrap();
    volume.rename("/few/0005", "/few/5", PLAIN).unwrap();
    volume.mkdir("/few/sub", 0o755).unwrap();
    volume.rmdir("/few/sub").unwrap();
    for name in ["more", "0000", "0001", "0002", "5", "0006", "0007", "0008"] {
        volume.unlink(&format!("/few/{name}")).unwrap();
    }
    volume.rmdir("/few").unwrap();
    assert!(is_inside(&volume, "/empty"));
    volume.close().unwrap();
    fsck(&image);
    assert_eq!(by_debugfs(&image, "/empty"), ["0004".to_owned()].into());
}

/// Attributes and names share the room: the first to come gets it, and what does not fit goes elsewhere.
#[test]
fn beside_attributes() {
    for kind in 0..KINDS.len() {
        let dir = scratch();
        let image = made(dir.path(), kind);
        let volume = open(&image, true);
        for path in ["/names", "/attributes", "/both"] {
            volume.mkdir(path, 0o755).unwrap();
        }
        let all = fill_up(&volume, "/names");
        let some = vec![b'v'; 40];
        let set = |path: &str| volume.set_xattr(ino(&volume, path), b"user.a", &some);
        set("/attributes").unwrap();
        let beside = fill_up(&volume, "/attributes");
        assert!((4..all).contains(&beside), "{kind}: {beside}, not {all}");
        for n in 0..all {
            volume.create(&format!("/both/{n:04}"), 0o644).unwrap();
        }
        // The names have used all room, so the attribute goes to a block.
        set("/both").unwrap();
        assert!(is_inside(&volume, "/both"));
        volume.unlink("/both/0000").unwrap();
        volume.create("/both/more", 0o644).unwrap();
        let held = volume.xattrs(ino(&volume, "/both")).unwrap();
        assert_eq!((held.len(), &held[0].value), (1, &some));
        volume.close().unwrap();
        fsck(&image);
        let seen = by_kernel(&image, "/both");
        assert!(seen.is_none_or(|seen| seen.len() == all));
    }
}

/// An inherited default list is stored beside the names, or in a block where the inode is small.
#[test]
fn with_lists_from_above() {
    let entries = [
        (1u16, 7u16, u32::MAX),
        (2, 5, 1000),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 0, u32::MAX),
    ];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    for kind in 0..KINDS.len() {
        let dir = scratch();
        let image = made(dir.path(), kind);
        let volume = open(&image, true);
        let default = b"system.posix_acl_default";
        let top = volume.mkdir("/top", 0o755).unwrap();
        volume.set_xattr(top, default, &list).unwrap();
        let mut path = "/top".to_owned();
        for n in 0..3 {
            path = format!("{path}/{n}");
            let made = volume.mkdir(&path, 0o775).unwrap();
            assert_eq!(volume.xattr(made, default).unwrap(), list);
            assert!(is_inside(&volume, &path));
        }
        for n in 0..4 {
            volume.create(&format!("{path}/{n:04}"), 0o664).unwrap();
        }
        assert!(is_inside(&volume, &path));
        volume.close().unwrap();
        fsck(&image);
        mounted(&image, "ro", |at| {
            let all = std::fs::read_dir(at.join(path.trim_start_matches('/')));
            assert_eq!(all.unwrap().count(), 4);
        });
    }
}

/// Names and attributes of one directory are changed at the same time: neither change loses the other's bytes in the inode.
#[test]
fn attributes_while_names_change() {
    let dir = scratch();
    let image = made(dir.path(), 1);
    let volume = open(&image, true);
    for round in 0..20 {
        let path = format!("/{round}");
        let top = volume.mkdir(&path, 0o755).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..20 {
                    let name = format!("user.{}", n % 4);
                    volume.set_xattr(top, name.as_bytes(), &[n; 24]).unwrap();
                }
            });
            for n in 0..20 {
                volume.create(&format!("{path}/{n:04}"), 0o644).unwrap();
            }
        });
        assert_eq!(by_diorite(&volume, &path), numbered(20));
        let last = (16..20).map(|n| vec![n; 24]);
        let held = volume.xattrs(top).unwrap();
        let held: BTreeSet<_> = held.into_iter().map(|x| x.value).collect();
        assert_eq!(held, last.collect());
    }
    volume.close().unwrap();
    fsck(&image);
}
