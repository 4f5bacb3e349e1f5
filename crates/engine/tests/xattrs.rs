//! Extended attributes are set, replaced and removed (in the inode, in a block, in inodes of their own) against a model, on images
//! of many shapes; attributes made by the kernel are read and changed. e2fsck judges the image, the kernel sees the same
//! attributes.

use crate::common::attributes::{Attrs, found, make, open};
use crate::common::kernel::mounted;
use crate::common::{Rng, fsck, run, scaled, scratch};
use diorite::{Error, Fallocate, OpenFlags, Volume, XattrWhen};
use diorite_format::{FsBlock, Ino};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr};
use std::path::{Path, PathBuf};

const PATHS: [&str; 6] = ["/a", "/b", "/c", "/d", "/dir", "/e"];

const KINDS: [&[&str]; 9] = [
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
    &["-t", "ext4", "-b", "4096", "-O", "ea_inode"],
    &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "ea_inode"],
    &["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"],
    &["-t", "ext3", "-b", "1024", "-O", "ea_inode"],
];

/// The number of free inodes according to the group descriptors, as they were when the volume was opened.
fn free_inodes(volume: &Volume) -> u32 {
    volume.groups().iter().map(|group| group.free_inodes).sum()
}

/// A file's attributes as the kernel sees them, except those of the host's security modules.
fn seen(file: &Path) -> Attrs {
    let mut names = vec![0; 64 << 10];
    let len = llistxattr(file, &mut names[..]).unwrap();
    let names = names[..len].split(|c| *c == 0).filter(|n| !n.is_empty());
    names
        .filter(|name| *name != b"security.selinux")
        .map(|name| {
            let mut value = vec![0; 65 << 10];
            let len = lgetxattr(file, name, &mut value[..]).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect()
}

struct Game {
    rng: Rng,
    image: PathBuf,
    models: Vec<Attrs>,
    full: u32,
    held: u32,
    rounds: u64,
}

impl Game {
    fn name(&mut self) -> Vec<u8> {
        let prefix = ["user.", "trusted.", "security."][self.rng.below(3) as usize];
        let long = self.rng.below(10) == 0;
        let len = 1 + self
            .rng
            .below(if long { 255 - prefix.len() as u64 } else { 8 });
        let mut name = prefix.as_bytes().to_vec();
        name.resize(prefix.len() + len as usize, b'n');
        name
    }

    fn value(&mut self) -> Vec<u8> {
        let most = [4, 30, 300, 2000, 5000, 65_537][self.rng.below(6) as usize];
        let mut value = vec![0; self.rng.below(most) as usize];
        self.rng.fill(&mut value);
        value
    }

    fn remove(&mut self, volume: &Volume, ino: Ino, which: usize) {
        let name = self.name();
        let model = &mut self.models[which];
        match volume.remove_xattr(ino, &name) {
            Ok(()) => assert!(model.remove(&name).is_some()),
            Err(Error::NoAttribute { .. }) => assert!(!model.contains_key(&name)),
            Err(other) => panic!("{other}"),
        }
    }

    fn set(&mut self, volume: &Volume, ino: Ino, which: usize) {
        let (name, value) = (self.name(), self.value());
        let when = [XattrWhen::Always, XattrWhen::Missing, XattrWhen::Present];
        let when = when[self.rng.below(12).saturating_sub(9) as usize];
        let model = &mut self.models[which];
        let there = model.contains_key(&name);
        match volume.set_xattr_when(ino, &name, &value, when) {
            Ok(()) => {
                let wrong = if there {
                    XattrWhen::Missing
                } else {
                    XattrWhen::Present
                };
                assert_ne!(when, wrong);
                model.insert(name, value);
            }
            Err(Error::AttributesFull { .. }) => self.full += 1,
            Err(Error::AttributeExists { .. }) => assert!(there && when == XattrWhen::Missing),
            Err(Error::NoAttribute { .. }) => assert!(!there && when == XattrWhen::Present),
            Err(other) => panic!("{other}"),
        }
    }

    fn inos(&self, volume: &Volume) -> Vec<Ino> {
        let resolve = |p: &&str| volume.resolve(p.as_bytes(), true).unwrap();
        PATHS.iter().map(resolve).collect()
    }

    fn play(&mut self) {
        let volume = open(&self.image);
        let inos = self.inos(&volume);
        for (ino, model) in inos.iter().zip(&self.models) {
            assert_eq!(&found(&volume, *ino), model);
        }
        for _ in 0..self.rounds {
            let which = self.rng.below(PATHS.len() as u64) as usize;
            match self.rng.below(4) {
                0 => self.remove(&volume, inos[which], which),
                _ => self.set(&volume, inos[which], which),
            }
            assert_eq!(&found(&volume, inos[which]), &self.models[which]);
        }
        self.held += self
            .models
            .iter()
            .flat_map(Attrs::values)
            .filter(|v| v.len() > 4096)
            .count() as u32;
        volume.close().unwrap();
        fsck(&self.image);
    }

    fn compare_with_the_kernel(&self) {
        mounted(&self.image, "ro", |at| {
            for (path, model) in PATHS.iter().zip(&self.models) {
                let seen = seen(&at.join(&path[1..]));
                assert!(seen == *model, "{path}: the kernel sees something else");
            }
        });
    }

    /// The kernel sets and removes some attributes; where mounting is not allowed, nothing is changed.
    fn let_the_kernel_play(&mut self) {
        let plan: Vec<_> = (0..60)
            .map(|_| (self.rng.below(6) as usize, self.name(), self.value()))
            .collect();
        let mut models = self.models.clone();
        let played = mounted(&self.image, "rw", |at| {
            for (which, name, value) in &plan {
                let (file, model) = (at.join(&PATHS[*which][1..]), &mut models[*which]);
                if model.contains_key(name) && value.len() % 2 == 0 {
                    lremovexattr(&file, &name[..]).unwrap();
                    model.remove(name);
                } else if lsetxattr(&file, &name[..], value, XattrFlags::empty()).is_ok() {
                    model.insert(name.clone(), value.clone());
                }
            }
        });
        if played {
            self.models = models;
        }
    }
}

#[test]
fn against_a_model() {
    for args in KINDS {
        let dir = scratch();
        let mut game = Game {
            rng: Rng::from_env("xattrs"),
            image: make(dir.path(), args),
            models: Vec::new(),
            full: 0,
            held: 0,
            rounds: scaled("XATTRS", 120),
        };
        let volume = open(&game.image);
        game.models = game
            .inos(&volume)
            .iter()
            .map(|i| found(&volume, *i))
            .collect();
        volume.close().unwrap();
        for _ in 0..3 {
            game.play();
            game.compare_with_the_kernel();
            game.let_the_kernel_play();
        }
        game.play();
        let apart = args.iter().any(|a| a.contains("ea_inode"));
        assert_eq!(game.held > 0, apart, "{args:?}");
        assert!(game.full > 0 || apart);
        let volume = open(&game.image);
        let free = free_inodes(&volume);
        for (ino, path) in game.inos(&volume).iter().zip(PATHS).take(4) {
            if path != "/b" {
                for name in found(&volume, *ino).keys() {
                    volume.remove_xattr(*ino, name).unwrap();
                }
            }
            volume.unlink(path).unwrap();
        }
        volume.close().unwrap();
        fsck(&game.image);
        let volume = open(&game.image);
        assert!(free_inodes(&volume) >= free + 4);
        volume.close().unwrap();
    }
}

/// Names and values that are refused, and with which error.
#[test]
fn names_and_values_that_cannot_be() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0]);
    let volume = open(&image);
    let ino = volume.resolve(b"/a", true).unwrap();
    let set = |name: &[u8], value: &[u8]| volume.set_xattr(ino, name, value).unwrap_err();
    for name in [
        &b"system.data"[..],
        b"system.foo",
        b"system.",
        b"nothing",
        b"",
    ] {
        assert!(
            matches!(set(name, b"x"), Error::NotSupported(_)),
            "{name:?}"
        );
    }
    for name in [&b"user."[..], b"trusted.", b"user.a\0b"] {
        assert!(matches!(set(name, b"x"), Error::Invalid(_)), "{name:?}");
    }
    let long = [b"user.".to_vec(), vec![b'n'; 251]].concat();
    assert!(matches!(set(&long, b"x"), Error::AttributeName { .. }));
    volume.set_xattr(ino, &long[..255], b"x").unwrap();
    assert_eq!(volume.xattr(ino, &long[..255]).unwrap(), b"x");
    let big = vec![0; 65_537];
    assert!(matches!(
        set(b"user.v", &big),
        Error::AttributeTooBig { len: 65_537, .. }
    ));
    assert!(matches!(
        set(b"user.v", &big[1..]),
        Error::AttributesFull { .. }
    ));
    let missing = volume.xattr(ino, b"user.v").unwrap_err();
    assert!(matches!(missing, Error::NoAttribute { .. }));
    let link = volume.symlink("target", "/link").unwrap();
    let refused = volume.set_xattr(link, b"user.a", b"x").unwrap_err();
    assert!(matches!(refused, Error::NotPermitted { .. }), "{refused}");
    volume.set_xattr(link, b"trusted.a", b"x").unwrap();
    volume.close().unwrap();
    fsck(&image);
}

/// The name of the attribute whose value is in an inode of its own.
fn apart() -> String {
    format!("user.{}", "n".repeat(200))
}

/// Files a and b, whose attributes the kernel put into one shared block; one value is in an inode of its own. None where mounting
/// is not allowed.
fn shared(dir: &Path, half: &[u8]) -> Option<PathBuf> {
    let image = make(dir, &["-t", "ext4", "-b", "4096", "-O", "ea_inode"]);
    let mounted = mounted(&image, "rw", |at| {
        for name in ["a", "b"] {
            let set = |attr: &str, value: &[u8]| {
                lsetxattr(at.join(name), attr, value, XattrFlags::empty()).unwrap();
            };
            set("user.half", half);
            set(&apart(), &[b'b'; 9000]);
        }
    });
    if !mounted {
        return None;
    }
    fsck(&image);
    let volume = open(&image);
    let [a, b] = ["/a", "/b"].map(|path| block(&volume, path));
    assert_eq!(a, b);
    assert_ne!(a, FsBlock::NONE);
    volume.close().unwrap();
    Some(image)
}

fn block(volume: &Volume, path: &str) -> FsBlock {
    let file = volume.open_path(path, OpenFlags::default()).unwrap();
    file.metadata().file_acl
}

/// A change of one file's attributes leaves the other's as they were.
#[test]
fn shared_blocks_are_copied() {
    let (dir, half) = (scratch(), vec![b'h'; 3000]);
    let Some(image) = shared(dir.path(), &half) else {
        return;
    };
    let volume = open(&image);
    let ino = |path: &[u8]| volume.resolve(path, true).unwrap();
    let before = found(&volume, ino(b"/b"));
    volume
        .set_xattr(ino(b"/a"), b"user.half", &half[1..])
        .unwrap();
    assert_ne!(block(&volume, "/a"), block(&volume, "/b"));
    assert_eq!(found(&volume, ino(b"/b")), before);
    assert_eq!(found(&volume, ino(b"/a")).len(), before.len());
    volume.sync().unwrap();
    volume.unlink("/b").unwrap();
    assert_eq!(found(&volume, ino(b"/a"))[&b"user.half"[..]], half[1..]);
    volume.close().unwrap();
    fsck(&image);
    let volume = open(&image);
    volume.unlink("/a").unwrap();
    volume.close().unwrap();
    fsck(&image);
}

/// The defect: a value that one file removed or replaced was deleted, although the other file's attributes still referred to it.
#[test]
fn a_value_in_a_shared_block_stays_the_others() {
    let (half, other) = (vec![b'h'; 3000], vec![b'o'; 7000]);
    for new in [None, Some(&other[..]), Some(b"short")] {
        let dir = scratch();
        let Some(image) = shared(dir.path(), &half) else {
            return;
        };
        let volume = open(&image);
        let ino = |path: &[u8]| volume.resolve(path, true).unwrap();
        let before = found(&volume, ino(b"/b"));
        let mut model = before.clone();
        match new {
            None => volume.remove_xattr(ino(b"/a"), &apart()).unwrap(),
            Some(new) => volume.set_xattr(ino(b"/a"), &apart(), new).unwrap(),
        }
        model.remove(apart().as_bytes());
        model.extend(new.map(|new| (apart().into_bytes(), new.to_vec())));
        assert_eq!(found(&volume, ino(b"/a")), model);
        assert_eq!(found(&volume, ino(b"/b")), before);
        volume.close().unwrap();
        fsck(&image);
        let volume = open(&image);
        volume.unlink("/b").unwrap();
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Allocates all space except so many blocks.
fn fill(volume: &Volume, leave: u64) {
    let file = volume.create("/filler", 0o600).unwrap();
    let keep = Fallocate::Allocate { keep_size: true };
    let (mut at, mut step) = (0, 64 << 20);
    while step >= 1024 {
        match file.fallocate(keep, at, step) {
            Ok(()) => at += step,
            Err(Error::NoSpace { .. }) => step /= 2,
            Err(other) => panic!("{other}"),
        }
    }
    let blocks: u64 = file.metadata().blocks / 2;
    let punch = |from: u64| file.fallocate(Fallocate::PunchHole, from * 1024, 1024);
    (0..leave).for_each(|n| punch((n * 7 + 3) % blocks).unwrap());
    volume.sync().unwrap();
}

/// If there is no room for all that a change needs (a block, an inode, the blocks of a value), none of it is done.
#[test]
fn without_room_nothing_is_half_done() {
    for (leave, args) in (0..10).zip([&["-N", "64"][..], &["-N", "32"]].into_iter().cycle()) {
        let all = ["-t", "ext4", "-b", "1024", "-O", "ea_inode,^resize_inode"];
        let args: Vec<&str> = all.iter().chain(args).copied().collect();
        let dir = scratch();
        let mut game = Game {
            rng: Rng::from_env("without room"),
            image: make(dir.path(), &args),
            models: vec![Attrs::new(); PATHS.len()],
            full: 0,
            held: 0,
            rounds: 0,
        };
        let volume = open(&game.image);
        let inos = game.inos(&volume);
        game.models = inos.iter().map(|i| found(&volume, *i)).collect();
        fill(&volume, leave);
        let mut refused = 0;
        for _ in 0..100 {
            let which = game.rng.below(PATHS.len() as u64) as usize;
            let (name, value, model) = (game.name(), game.value(), &mut game.models[which]);
            match volume.set_xattr(inos[which], &name, &value) {
                Ok(()) => drop(model.insert(name, value)),
                Err(Error::AttributesFull { .. }) => {}
                Err(Error::NoSpace { .. } | Error::NoInodes { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            assert_eq!(&found(&volume, inos[which]), &game.models[which]);
        }
        assert!(refused > 0, "{leave} blocks are left");
        volume.close().unwrap();
        fsck(&game.image);
        game.compare_with_the_kernel();
    }
}

/// An attribute whose value is said to be in one of the volume's own inodes, which is flagged to match, is damage. The defect: that
/// inode was deleted together with the attribute.
#[test]
fn values_are_not_in_the_volumes_own_inodes() {
    const OWN: u32 = 9;
    let dir = scratch();
    let args = ["-t", "ext4", "-b", "1024", "-O", "ea_inode,^metadata_csum"];
    let image = make(dir.path(), &args);
    let volume = open(&image);
    let ino = volume.resolve(b"/a", true).unwrap();
    volume.set_xattr(ino, b"user.v", &[7; 5000]).unwrap();
    volume.close().unwrap();
    let path = image.to_str().unwrap();
    let fields = [
        ("mode", "0100600"),
        ("links_count", "1"),
        ("size", "5000"),
        ("flags", "0x200000"),
    ];
    for (field, value) in fields {
        let request = format!("sif <{OWN}> {field} {value}");
        run("debugfs", &["-w", "-R", &request, path]);
    }
    // The entry: one letter in the namespace "user.", no value beside it; then the inode and the size.
    let mut bytes = std::fs::read(&image).unwrap();
    let size = 5000u32.to_le_bytes();
    let is_entry = |e: &[u8]| e[..4] == [1, 1, 0, 0] && e[8..12] == size && e[16] == b'v';
    let found: Vec<usize> = (0..bytes.len() - 17)
        .filter(|at| is_entry(&bytes[*at..at + 17]))
        .collect();
    assert!(!found.is_empty());
    for at in found {
        bytes[at + 4..at + 8].copy_from_slice(&OWN.to_le_bytes());
    }
    std::fs::write(&image, &bytes).unwrap();
    let volume = open(&image);
    for result in [
        volume.remove_xattr(ino, b"user.v"),
        volume.set_xattr(ino, b"user.v", b"short"),
        volume.xattr(ino, b"user.v").map(drop),
    ] {
        let said = result.unwrap_err().to_string();
        assert!(said.contains("one of the volume's own"), "{said}");
    }
    volume.close().unwrap();
    let own = run("debugfs", &["-R", &format!("stat <{OWN}>"), path]);
    assert!(
        own.contains("Links: 1") && own.contains("Size: 5000"),
        "{own}"
    );
}
