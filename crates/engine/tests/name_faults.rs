//! A device fails one request in the middle of an operation on names. After a failed read everything is as before, and the
//! operation can be repeated, unless something had been changed already. In that case, and after a failed write, nothing more can
//! be changed, and the device holds the tree as it was before some operation.

use crate::common::stage::faulty;
use crate::common::{fsck, image, scaled, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_block::{BioErrorKind, BioOp, Device, Fault, FaultDevice, MemDevice, When};
use diorite_format::FileType;
use diorite_format::inode::Rdev;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const KINDS: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    &["-t", "ext3", "-b", "1024"],
];

/// An image with directories of several blocks, with and without an index.
fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::create_dir_all(tree.join("large")).unwrap();
    for n in 0..60 {
        std::fs::write(tree.join(format!("large/{n:0>60}")), b"").unwrap();
    }
    for name in ["a/file", "a/b/victim", "a/b/stays"] {
        std::fs::write(tree.join(name), vec![7; 30_000]).unwrap();
    }
    image(dir, "8M", args, &tree)
}

type Op = (&'static str, fn(&Volume) -> Result<(), Error>);

/// One operation of each kind, in an order in which all are possible.
const OPS: [Op; 16] = [
    ("create", |v| v.create("/a/new", 0o644).map(drop)),
    ("create, a leaf splits", |v| {
        (0..20).try_for_each(|n| v.create(&format!("/large/x{n:0>60}"), 0o644).map(drop))
    }),
    ("mkdir", |v| v.mkdir("/a/dir", 0o755).map(drop)),
    ("symlink", |v| v.symlink("short", "/a/short").map(drop)),
    ("symlink in a block", |v| {
        v.symlink(&"t".repeat(300), "/a/long").map(drop)
    }),
    ("mknod", |v| {
        let device = Rdev { major: 8, minor: 1 };
        v.mknod("/a/node", FileType::BlockDevice, 0o600, device)
            .map(drop)
    }),
    ("link", |v| v.link("/a/file", "/a/b/second")),
    ("temporary", |v| {
        let file = v.temporary("/a", 0o600)?;
        v.link_file(&file, "/a/linked in")
    }),
    ("rename", |v| v.rename("/a/new", "/a/b/moved", FLAGS)),
    ("rename over", |v| {
        v.rename("/a/b/moved", "/a/b/victim", FLAGS)
    }),
    ("rename a directory", |v| {
        v.rename("/a/dir", "/large/dir", FLAGS)
    }),
    ("exchange", |v| {
        let exchange = FLAGS.exchange(true);
        v.rename("/a/file", "/large/dir", exchange)
    }),
    ("whiteout", |v| {
        let whiteout = FLAGS.whiteout(true);
        v.rename("/a/node", "/a/b/node", whiteout)
    }),
    ("unlink", |v| v.unlink("/a/b/stays")),
    ("unlink of a link in a block", |v| v.unlink("/a/long")),
    ("rmdir", |v| v.rmdir("/a/file")),
];

const FLAGS: RenameFlags = RenameFlags::none()
    .no_replace(false)
    .exchange(false)
    .whiteout(false);

fn in_memory(image: &Path) -> Arc<MemDevice> {
    let bytes = std::fs::read(image).unwrap();
    let mem = MemDevice::new(bytes.len() as u64);
    mem.write_at(0, &bytes);
    Arc::new(mem)
}

fn back_on_disk(mem: &MemDevice, to: &Path) {
    let mut bytes = vec![0; usize::try_from(mem.geometry().size).unwrap()];
    mem.read_at(0, &mut bytes);
    std::fs::write(to, bytes).unwrap();
}

fn open(device: &Arc<FaultDevice>) -> Result<Volume, Error> {
    let options = OpenOptions::writable()
        .workers(1)
        // A small cache, so that blocks are read again.
        .metadata_cache(64 << 10);
    Volume::open_device(device.clone(), &options)
}

fn is_device(error: &Error) -> bool {
    matches!(error.root(), Error::Device { .. } | Error::Aborted(_))
}

/// Every path, with its mode and link count.
fn tree(volume: &Volume) -> Vec<String> {
    let (mut all, mut todo) = (Vec::new(), vec![String::new()]);
    while let Some(dir) = todo.pop() {
        let ino = volume.resolve(dir.as_bytes(), true).unwrap();
        for entry in volume.read_dir(ino).unwrap() {
            let entry = entry.unwrap();
            let name = String::from_utf8(entry.name).unwrap();
            if name == "." || name == ".." {
                continue;
            }
            let path = format!("{dir}/{name}");
            let file = volume.open_ino(entry.ino, OpenFlags::default()).unwrap();
            let disk = file.metadata();
            if disk.is_dir() {
                todo.push(path.clone());
            }
            all.push(format!("{path} {:o} {}", disk.mode, disk.links));
        }
    }
    all.sort();
    all
}

#[test]
fn a_read_that_fails_changes_nothing() {
    let most = scaled("DIORITE_STEPS", 60);
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let mut again = 0;
        for n in 1..=most {
            let mut aborted = 0;
            let mem = in_memory(&image);
            let fault = Fault::new(BioErrorKind::Io, When::nth(n)).on(BioOp::Read);
            let device = faulty(mem.clone(), vec![fault]);
            // Some faults hit the opening of the volume.
            let Ok(volume) = open(&device) else {
                continue;
            };
            for (what, op) in OPS {
                let before = device.plan().failed();
                let done = op(&volume);
                if device.plan().failed() == before {
                    done.unwrap_or_else(|e| panic!("{what}: {e}"));
                    continue;
                }
                match done {
                    // The failed read was not needed.
                    Ok(()) => {}
                    Err(error) if is_device(&error) => match op(&volume) {
                        Ok(()) => again += 1,
                        Err(Error::Exists { .. }) if what.contains("splits") => again += 1,
                        // The failed read hit a change that must not be left half done.
                        Err(Error::Aborted(_)) => aborted += 1,
                        Err(other) => panic!("{what}, read {n}: {error}, then {other}"),
                    },
                    Err(error) => panic!("{what}, read {n}: {error}"),
                }
                if aborted > 0 {
                    break;
                }
            }
            let closed = volume.close();
            let copy = dir.path().join("copy");
            back_on_disk(&mem, &copy);
            if aborted > 0 {
                assert!(closed.is_err());
                let mended = xtask::run::tool("e2fsck").arg("-fy").arg(&copy).output();
                assert!(mended.unwrap().status.code().unwrap() <= 1, "read {n}");
            }
            fsck(&copy);
        }
        assert!(again > 5, "{args:?}: {again}");
    }
}

/// With a journal the tree is as it was before one of the operations, or after the last.
#[test]
fn a_write_that_fails_ends_all_changes() {
    let most = scaled("DIORITE_STEPS", 40);
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let has_journal = !args.contains(&"^has_journal");
        let mut trees = Vec::new();
        let mut failed = 0;
        for n in 0..=most {
            let mem = in_memory(&image);
            // In the first run nothing fails, and the trees are recorded.
            let fault = Fault::new(BioErrorKind::Io, When::nth(n.max(1))).on(BioOp::Write);
            let device = faulty(mem.clone(), Vec::from_iter((n > 0).then_some(fault)));
            let Ok(volume) = open(&device) else {
                continue;
            };
            let mut done = Ok(());
            for (_, op) in OPS {
                if n == 0 {
                    trees.push(tree(&volume));
                }
                done = done.and_then(|()| op(&volume)).and_then(|()| volume.sync());
            }
            if n == 0 {
                trees.push(tree(&volume));
            }
            let closed = done.and_then(|()| volume.close());
            let hit = device.plan().failed() > 0;
            assert_eq!(closed.is_err(), hit, "write {n}: {closed:?}");
            failed += u32::from(hit);
            let copy = dir.path().join("copy");
            back_on_disk(&mem, &copy);
            let mended = xtask::run::tool("e2fsck").arg("-fy").arg(&copy).output();
            assert!(mended.unwrap().status.code().unwrap() <= 1, "write {n}");
            fsck(&copy);
            if has_journal {
                let volume = Volume::open(copy.to_str().unwrap(), &OpenOptions::default()).unwrap();
                let mut seen = tree(&volume);
                // An operation that makes several names may have made some of them.
                seen.retain(|path| !path.contains("/x000"));
                let is_one = trees.iter().any(|tree| {
                    let tree = tree.iter().filter(|path| !path.contains("/x000"));
                    tree.eq(&seen)
                });
                assert!(is_one, "write {n}: {seen:#?}");
            }
        }
        assert!(failed > 5, "{args:?}: {failed}");
    }
}
