//! Access control lists: how lists and the mode change each other, and what new files inherit from their directory. The same steps
//! are made on the kernel's mount and compared.

use crate::common::attributes::acl;
use crate::common::kernel::mounted;
use crate::common::{Rng, fsck, image, scratch};
use diorite::{Error, Fallocate, OpenFlags, OpenOptions, SetAttr, Volume};
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino};
use rustix::fs::{Mode, XattrFlags, chmod, lgetxattr, lremovexattr, lsetxattr, lstat, mkdir};
use std::collections::BTreeMap;
use std::path::Path;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NO: u32 = u32::MAX;

fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

/// A random list, mostly a valid one.
fn some_list(rng: &mut Rng) -> Vec<u8> {
    let mut perm = || rng.below(8) as u16;
    let (owner, group, others, mask, a, b) = (perm(), perm(), perm(), perm(), perm(), perm());
    let all = [
        (1, owner, NO),
        (2, a, 1000),
        (4, group, NO),
        (8, b, 50),
        (16, mask, NO),
        (32, others, NO),
    ];
    let drop = rng.below(64);
    let drop = match rng.below(6) {
        0 => drop,
        1 => 0b01_1010,
        2 => 0b00_1010,
        _ => drop & 0b00_1010,
    };
    let mut kept: Vec<_> = (0..6)
        .filter(|n| drop >> n & 1 == 0)
        .map(|n| all[n as usize])
        .collect();
    if rng.below(20) == 0 {
        kept.reverse();
    }
    // Now and then enough users to need a block.
    if rng.below(12) == 0 && kept.len() == 6 {
        let more = (0..20 + rng.below(30)).map(|n| (2, 5, 2000 + n as u32));
        kept.splice(2..2, more);
    }
    acl(&kept)
}

/// A file's mode and both of its lists.
type Said = (u32, Option<Vec<u8>>, Option<Vec<u8>>);

fn said_by_us(volume: &Volume, ino: Ino) -> Said {
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    let get = |name: &str| match volume.xattr(ino, name.as_bytes()) {
        Ok(value) => Some(value),
        Err(Error::NoAttribute { .. }) => None,
        Err(other) => panic!("{other}"),
    };
    (u32::from(file.metadata().mode), get(ACCESS), get(DEFAULT))
}

fn said_by_the_kernel(path: &Path) -> Said {
    let get = |name: &str| {
        let mut value = vec![0; 8192];
        let len = lgetxattr(path, name, &mut value[..]).ok()?;
        Some(value[..len].to_vec())
    };
    (lstat(path).unwrap().st_mode, get(ACCESS), get(DEFAULT))
}

/// One step, made by diorite and by the kernel.
#[derive(Debug)]
enum Step {
    Set(String, &'static str, Vec<u8>),
    Remove(String, &'static str),
    Chmod(String, u16),
    Make(String, FileType, u16),
}

impl Step {
    fn path(&self) -> &str {
        match self {
            Step::Set(path, ..)
            | Step::Remove(path, ..)
            | Step::Chmod(path, ..)
            | Step::Make(path, ..) => path,
        }
    }
}

fn steps(rng: &mut Rng) -> Vec<Step> {
    let (mut dirs, mut all) = (vec!["d".to_owned()], vec!["d".to_owned(), "f".to_owned()]);
    let mut steps = Vec::new();
    for n in 0..250 {
        let any = all[rng.below(all.len() as u64) as usize].clone();
        let dir = dirs[rng.below(dirs.len() as u64) as usize].clone();
        let bits = rng.below(0o10000) as u16;
        steps.push(match rng.below(10) {
            0 | 1 => Step::Set(any, ACCESS, some_list(rng)),
            2 | 3 => Step::Set(dir, DEFAULT, some_list(rng)),
            4 => Step::Remove(any, if bits & 1 == 0 { ACCESS } else { DEFAULT }),
            5 | 6 => Step::Chmod(any, bits & !0o2000),
            _ => {
                let kind = [FileType::Regular, FileType::Directory, FileType::Fifo];
                let (path, kind) = (format!("{dir}/{n}"), kind[rng.below(3) as usize]);
                if kind == FileType::Directory {
                    dirs.push(path.clone());
                }
                all.push(path.clone());
                Step::Make(path, kind, bits & 0o777)
            }
        });
    }
    steps
}

/// Makes the step with diorite. Returns false if it was refused.
fn by_us(volume: &Volume, step: &Step) -> bool {
    let ino = |path: &str| volume.resolve(format!("/{path}").as_bytes(), true).unwrap();
    let done = match step {
        Step::Set(path, name, value) => volume.set_xattr(ino(path), name.as_bytes(), value),
        Step::Remove(path, name) => volume.remove_xattr(ino(path), name.as_bytes()),
        Step::Chmod(path, bits) => {
            let set = SetAttr::default().permissions(*bits);
            volume.set_attr(ino(path), &set)
        }
        Step::Make(path, kind, bits) => {
            let path = format!("/{path}");
            match kind {
                FileType::Directory => volume.mkdir(&path, *bits).map(drop),
                FileType::Fifo => {
                    let none = Rdev { major: 0, minor: 0 };
                    volume.mknod(&path, FileType::Fifo, *bits, none).map(drop)
                }
                _ => volume.create(&path, *bits).map(drop),
            }
        }
    };
    match done {
        Ok(()) => true,
        Err(Error::Invalid(_) | Error::NotPermitted { .. }) => false,
        Err(other) => panic!("{step:?}: {other}"),
    }
}

fn by_the_kernel(at: &Path, step: &Step) -> bool {
    let mode = |bits: u16| Mode::from_raw_mode(u32::from(bits));
    match step {
        Step::Set(path, name, value) => {
            lsetxattr(at.join(path), *name, value, XattrFlags::empty()).is_ok()
        }
        Step::Remove(path, name) => lremovexattr(at.join(path), *name).is_ok(),
        Step::Chmod(path, bits) => chmod(at.join(path), mode(*bits)).is_ok(),
        Step::Make(path, kind, bits) => {
            let (path, bits) = (at.join(path), mode(*bits));
            match kind {
                FileType::Directory => mkdir(path, bits).is_ok(),
                FileType::Fifo => {
                    let fifo = rustix::fs::FileType::Fifo;
                    rustix::fs::mknodat(rustix::fs::CWD, path, fifo, bits, 0).is_ok()
                }
                _ => {
                    let flags = rustix::fs::OFlags::CREATE;
                    rustix::fs::open(path, flags | rustix::fs::OFlags::WRONLY, bits).is_ok()
                }
            }
        }
    }
}

fn make(dir: &Path, name: &str, args: &[&str]) -> std::path::PathBuf {
    let (dir, tree) = (dir.join(name), dir.join(name).join("tree"));
    std::fs::create_dir_all(tree.join("d")).unwrap();
    std::fs::write(tree.join("f"), "f").unwrap();
    image(&dir, "16M", args, &tree)
}

#[test]
fn the_kernel_does_the_same() {
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024", "-I", "128"],
    ] {
        let mut rng = Rng::from_env("acls");
        let dir = scratch();
        let (ours, theirs) = (
            make(dir.path(), "ours", args),
            make(dir.path(), "theirs", args),
        );
        let steps = steps(&mut rng);
        let mut told = Vec::new();
        // Files are created without a umask.
        let before = rustix::process::umask(Mode::empty());
        let could = mounted(&theirs, "rw,acl", |at| {
            for step in &steps {
                let done = by_the_kernel(at, step);
                let path = step.path();
                told.push((done, said_by_the_kernel(&at.join(path))));
            }
        });
        rustix::process::umask(before);
        let volume = open(&ours);
        let mut last = BTreeMap::new();
        for (n, step) in steps.iter().enumerate() {
            let done = by_us(&volume, step);
            let path = step.path();
            let ino = volume.resolve(format!("/{path}").as_bytes(), true).unwrap();
            let said = said_by_us(&volume, ino);
            if could {
                assert_eq!((done, &said), (told[n].0, &told[n].1), "{n}: {step:?}");
            }
            last.insert(path, said);
        }
        volume.close().unwrap();
        fsck(&ours);
        mounted(&ours, "ro,acl", |at| {
            for (path, said) in &last {
                assert_eq!(&said_by_the_kernel(&at.join(path)), said, "{path}");
            }
        });
    }
}

/// A symbolic link inherits no list and accepts none; a file without a name gets the same as one with a name.
#[test]
fn links_and_files_without_names() {
    let dir = scratch();
    let image = make(dir.path(), "image", &["-t", "ext4"]);
    let volume = open(&image);
    let named = [(1, 7, NO), (2, 7, 9), (4, 5, NO), (16, 7, NO), (32, 0, NO)];
    let ino = volume.resolve(b"/d", true).unwrap();
    volume
        .set_xattr(ino, DEFAULT.as_bytes(), &acl(&named))
        .unwrap();
    let link = volume.symlink("x", "/d/link").unwrap();
    assert_eq!(said_by_us(&volume, link), (0o120_777, None, None));
    let refused = volume.set_xattr(link, ACCESS.as_bytes(), &acl(&named));
    assert!(
        matches!(refused, Err(Error::NotSupported(_))),
        "{refused:?}"
    );
    let file = volume.temporary("/d", 0o644).unwrap();
    let (mode, access, default) = said_by_us(&volume, {
        volume.link_file(&file, "/d/file").unwrap();
        file.ino()
    });
    let limited = [(1, 6, NO), (2, 7, 9), (4, 5, NO), (16, 4, NO), (32, 0, NO)];
    assert_eq!(
        (mode, access, default),
        (0o100_640, Some(acl(&limited)), None)
    );
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// A list that does not fit into an inode needs a block; without a free one, nothing is created.
#[test]
fn without_room() {
    let dir = scratch();
    let image = make(dir.path(), "image", &["-t", "ext4", "-b", "1024"]);
    let volume = open(&image);
    let mut long = vec![(1, 7, NO)];
    long.extend((0..30).map(|n| (2, 7, 1000 + n)));
    long.extend([(4, 5, NO), (16, 7, NO), (32, 0, NO)]);
    let ino = volume.resolve(b"/d", true).unwrap();
    volume
        .set_xattr(ino, DEFAULT.as_bytes(), &acl(&long))
        .unwrap();
    let filler = volume.create("/filler", 0o600).unwrap();
    let keep = Fallocate::Allocate { keep_size: true };
    let (mut at, mut step) = (0, 16 << 20);
    while step >= 1024 {
        match filler.fallocate(keep, at, step) {
            Ok(()) => at += step,
            Err(_) => step /= 2,
        }
    }
    filler
        .fallocate(Fallocate::PunchHole, 0, 20 * 1024)
        .unwrap();
    volume.sync().unwrap();
    let mut made = 0;
    let refused = loop {
        let done = match made % 3 {
            0 => volume.create(&format!("/d/{made}"), 0o660).map(drop),
            1 => volume.mkdir(&format!("/d/{made}"), 0o770).map(drop),
            _ => volume.temporary("/d", 0o660).map(drop),
        };
        match done {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    assert!(made > 3);
    drop(filler);
    volume.close().unwrap();
    fsck(&image);
}
