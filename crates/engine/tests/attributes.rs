//! Attributes set, replaced and removed, in the inode and in a block, against a model; and what else an inode says of itself. e2fsck has nothing to
//! say, the kernel sees the same.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::kernel::mounted;
use common::{Rng, fsck, image, run, scratch};
use diorite::{Error, OpenFlags, OpenOptions, SetAttr, Volume};
use diorite_block::Buf;
use diorite_format::{Ino, Timestamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Attrs = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

/// Files a to d; what debugfs gives c and d is in blocks.
fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    for name in ["a", "b", "c", "d"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    let image = image(dir, "16M", args, &tree);
    let long = dir.join("long");
    std::fs::write(&long, [b'l'; 500]).unwrap();
    for file in ["/c", "/d"] {
        let set = format!("ea_set -f {} {file} user.long", long.to_str().unwrap());
        run("debugfs", &["-w", "-R", &set, image.to_str().unwrap()]);
    }
    image
}

fn found(volume: &Volume, ino: Ino) -> Attrs {
    let all = volume.xattrs(ino).unwrap();
    all.into_iter().map(|x| (x.name, x.value)).collect()
}

#[test]
fn against_a_model() {
    let kinds: [&[&str]; 5] = [
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-I", "128"],
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-I",
            "1024",
            "-O",
            "^metadata_csum",
        ],
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
    ];
    for args in kinds {
        let mut rng = Rng::from_env("attributes");
        let dir = scratch();
        let image = make(dir.path(), args);
        let mut volume = open(&image);
        let paths = ["/a", "/b", "/c", "/d", "/dir"];
        let inos: Vec<Ino> = paths
            .iter()
            .map(|p| volume.resolve(p.as_bytes(), true).unwrap())
            .collect();
        let mut models: Vec<Attrs> = inos.iter().map(|i| found(&volume, *i)).collect();
        let mut full = 0;
        for round in 0..600 {
            let which = rng.below(5) as usize;
            let (ino, model) = (inos[which], &mut models[which]);
            let prefix = ["user.", "trusted.", "security."][rng.below(3) as usize];
            let name = format!("{prefix}{}", "n".repeat(1 + rng.below(8) as usize)).into_bytes();
            if rng.below(4) == 0 {
                match volume.remove_xattr(ino, &name) {
                    Ok(()) => assert!(model.remove(&name).is_some()),
                    Err(Error::NotFound { .. }) => assert!(!model.contains_key(&name)),
                    Err(other) => panic!("{other}"),
                }
            } else {
                let most = [4, 30, 300, 2000][rng.below(4) as usize];
                let mut value = vec![0; rng.below(most) as usize];
                rng.fill(&mut value);
                match volume.set_xattr(ino, &name, &value) {
                    Ok(()) => drop(model.insert(name, value)),
                    Err(Error::AttributesFull { .. }) => full += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(&found(&volume, ino), model);
            if round % 150 == 149 {
                volume.close().unwrap();
                fsck(&image);
                volume = open(&image);
                for (ino, model) in inos.iter().zip(&models) {
                    assert_eq!(&found(&volume, *ino), model);
                }
            }
        }
        volume.close().unwrap();
        assert!(full > 0);
        fsck(&image);
        mounted(&image, "ro", |at| {
            for (path, model) in paths.iter().zip(&models) {
                let file = at.join(&path[1..]);
                for (name, value) in model {
                    let mut got = vec![0; 4096];
                    let len = rustix::fs::lgetxattr(&file, &name[..], &mut got[..]).unwrap();
                    assert_eq!(&got[..len], value);
                }
            }
        });
        let volume = open(&image);
        for (ino, path) in inos.iter().zip(paths).take(4) {
            for name in models.remove(0).keys() {
                volume.remove_xattr(*ino, name).unwrap();
            }
            volume.unlink(path).unwrap();
        }
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Permissions, owners, times; what another owner and a write take away.
#[test]
fn what_an_inode_says_of_itself() {
    let dir = scratch();
    let image = make(dir.path(), &["-t", "ext4"]);
    let volume = open(&image);
    let ino = volume.resolve(b"/a", true).unwrap();
    let look = || {
        let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
        file.metadata()
    };
    let (set, at) = (SetAttr::default(), |secs| Timestamp { secs, nanos: 7 });
    let times = SetAttr {
        atime: Some(at(5)),
        mtime: Some(at(0x1_0000_0000)),
        ..set
    };
    volume.set_attr(ino, &times).unwrap();
    assert_eq!((look().atime, look().mtime), (at(5), at(0x1_0000_0000)));
    let permissions = |bits| SetAttr {
        permissions: Some(bits),
        ..SetAttr::default()
    };
    volume.set_attr(ino, &permissions(0o6755)).unwrap();
    volume
        .set_xattr(ino, b"security.capability", &[1; 20])
        .unwrap();
    let given = SetAttr {
        uid: Some(70_000),
        gid: Some(7),
        ..set
    };
    volume.set_attr(ino, &given).unwrap();
    let disk = look();
    assert_eq!((disk.mode, disk.uid, disk.gid), (0o100_755, 70_000, 7));
    assert!(found(&volume, ino).is_empty());
    // A write takes away what was given since.
    volume.set_attr(ino, &permissions(0o4711)).unwrap();
    volume
        .set_xattr(ino, b"security.capability", &[1; 20])
        .unwrap();
    let write = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let file = volume.open_ino(ino, write).unwrap();
    file.write_at(0, Buf::zeroed(4096)).1.unwrap();
    assert_eq!(look().mode, 0o100_711);
    assert!(found(&volume, ino).is_empty());
    drop(file);
    for name in [&b"system.data"[..], b"user.", b"nothing", b"user.a\0b"] {
        let refused = volume.set_xattr(ino, name, b"x");
        assert!(
            matches!(refused, Err(Error::NotSupported(_))),
            "{refused:?}"
        );
    }
    volume.close().unwrap();
    fsck(&image);
}
