//! Names whose directories remember them, and names of inodes that nobody has in memory.
//!
//! Input: volumes of several kinds, and calls in an order in which what is remembered, or was seen in the inode table, is out of date.
//! Output: what the calls find; e2fsck judges each volume. Invariants: as each test says. Limits: none.

use crate::common::names::by_debugfs;
use crate::common::stage::{faulty, mem_of};
use crate::common::{fsck, image, run, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, Ino, OpenFlags, OpenOptions, Volume};
use diorite_block::{BioErrorKind, BioOp, Fault, When};
use diorite_format::InodeFlags;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    &["-t", "ext3", "-b", "1024", "-I", "128"],
    &["-t", "ext4", "-b", "4096", "-O", "inline_data", "-I", "512"],
];

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    image(dir, "32M", args, &tree)
}

fn open(image: &Path) -> Volume {
    let options = OpenOptions::writable().clock(|| Duration::from_secs(2_000_000_000));
    Volume::open(image.to_str().unwrap(), &options).unwrap()
}

fn find(volume: &Volume, path: &str) -> Option<Ino> {
    // Often enough that the lock of the directories is biased towards readers.
    let found: Vec<_> = (0..150).map(|_| volume.resolve(path, true)).collect();
    let first = found[0].as_ref().ok().copied();
    for again in found {
        match again {
            Ok(ino) => assert_eq!(Some(ino), first),
            Err(error) => assert!(matches!(error, Error::NotFound { .. }) && first.is_none()),
        }
    }
    first
}

/// What a directory remembers of its subdirectories: each change of their names makes it forget.
#[test]
fn paths_lead_through_the_names_of_now() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image);
        for path in ["/a", "/a/b", "/a/b/in"] {
            volume.mkdir(path, 0o755).unwrap();
        }
        let (b, inside) = (find(&volume, "/a/b"), find(&volume, "/a/b/in"));
        assert!(b.is_some() && inside.is_some());
        let plain = RenameFlags::none();
        volume.rename("/a/b", "/a/c", plain).unwrap();
        assert_eq!(
            (find(&volume, "/a/b"), find(&volume, "/a/b/in")),
            (None, None)
        );
        assert_eq!(
            (find(&volume, "/a/c"), find(&volume, "/a/c/in")),
            (b, inside)
        );
        let other = volume.mkdir("/a/b", 0o755).unwrap();
        assert_eq!(find(&volume, "/a/b"), Some(other));
        volume.rename("/a/b", "/a/c", plain.exchange(true)).unwrap();
        assert_eq!(
            (find(&volume, "/a/b"), find(&volume, "/a/c")),
            (b, Some(other))
        );
        assert_eq!(find(&volume, "/a/b/in"), inside);
        volume.rmdir("/a/c").unwrap();
        assert_eq!(find(&volume, "/a/c"), None);
        let third = volume.mkdir("/a/c", 0o755).unwrap();
        assert_eq!(find(&volume, "/a/c"), Some(third));
        // Over an empty directory, and to another parent.
        volume.rename("/a/b", "/a/c", plain).unwrap();
        assert_eq!(
            (find(&volume, "/a/c"), find(&volume, "/a/c/in")),
            (b, inside)
        );
        volume.rename("/a/c/in", "/in", plain).unwrap();
        assert_eq!(
            (find(&volume, "/a/c/in"), find(&volume, "/in")),
            (None, inside)
        );
        assert_eq!(find(&volume, "/in/.."), Some(Ino::ROOT));
        assert_eq!(find(&volume, "/a/c/.."), find(&volume, "/a"));
        volume.close().unwrap();
        fsck(&image);
    }
}

/// A hash tree whose root is remembered changes under the same lock: names are found before, after and by the next opening.
#[test]
fn a_remembered_tree_grows() {
    for args in [KINDS[0], KINDS[2]] {
        let dir = scratch();
        let image = make(dir.path(), args);
        let path = |n: u32| format!("/d/name-{n:05}");
        let volume = open(&image);
        volume.mkdir("/d", 0o755).unwrap();
        for n in 0..1500 {
            let made = volume.create(&path(n), 0o644).unwrap().ino();
            assert_eq!(volume.resolve(&path(n), true).unwrap(), made);
            assert!(volume.resolve(&path(n / 2), true).is_ok());
            assert!(volume.resolve(&path(n + 1), true).is_err());
        }
        for n in (0..1500).step_by(3) {
            volume.unlink(&path(n)).unwrap();
        }
        for n in 0..1500 {
            assert_eq!(volume.resolve(&path(n), true).is_ok(), n % 3 != 0);
        }
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Files that nobody has in memory are moved and removed where they are; what may not be, and what has more to it, as ever.
#[test]
fn files_that_nobody_has_in_memory() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image);
        volume.mkdir("/d", 0o755).unwrap();
        for name in ["empty", "twice", "full", "kept", "open", "moved"] {
            drop(volume.create(&format!("/{name}"), 0o644).unwrap());
        }
        volume.link("/twice", "/d/second").unwrap();
        let full = volume.open_path("/full", OpenFlags::writable()).unwrap();
        full.write_bytes(0, &[7; 100_000]).unwrap();
        drop(full);
        volume.symlink("short", "/link").unwrap();
        let kept = volume.resolve("/kept", true).unwrap();
        let immutable = volume
            .metadata(kept)
            .unwrap()
            .0
            .flags
            .with(InodeFlags::IMMUTABLE);
        volume.set_flags(kept, immutable).unwrap();
        volume.close().unwrap();

        // An hour later.
        let options = OpenOptions::writable().clock(|| Duration::from_secs(2_000_003_600));
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let ino = |path: &str| volume.resolve(path, false).ok();
        let plain = RenameFlags::none();
        let open_file = volume.open_path("/open", OpenFlags::writable()).unwrap();
        let before: Vec<_> = ["/empty", "/moved", "/twice"]
            .map(|path| ino(path).unwrap())
            .to_vec();
        // By now nobody has them in memory again.
        volume.rename("/moved", "/d/moved", plain).unwrap();
        assert_eq!((ino("/moved"), ino("/d/moved")), (None, Some(before[1])));
        let moved = volume.metadata(before[1]).unwrap().0;
        assert!(moved.ctime.secs == moved.mtime.secs + 3600 && moved.links == 1);
        volume.rename("/link", "/d/link", plain).unwrap();
        let target = volume.read_link(ino("/d/link").unwrap()).unwrap();
        assert_eq!(target, b"short");
        for path in ["/kept", "/d/moved/", "/empty/"] {
            assert!(volume.unlink(path).is_err(), "{path}");
        }
        let refused = volume.rename("/kept", "/d/kept", plain);
        assert!(matches!(refused, Err(Error::NotPermitted { .. })));
        for path in ["/empty", "/twice", "/full", "/open", "/d/link", "/d/moved"] {
            volume.unlink(path).unwrap();
            assert_eq!(ino(path), None);
        }
        let gone = volume.open_ino(before[0], OpenFlags::default());
        assert!(matches!(gone, Err(Error::NotInUse { .. })));
        assert_eq!(ino("/d/second"), Some(before[2]));
        assert_eq!(volume.metadata(before[2]).unwrap().0.links, 1);
        open_file.write_bytes(0, b"still there").unwrap();
        let mut read = [0; 11];
        open_file.read_bytes(0, &mut read).unwrap();
        assert_eq!(&read, b"still there");
        drop(open_file);
        let unset = immutable.without(InodeFlags::IMMUTABLE);
        volume.set_flags(kept, unset).unwrap();
        volume.close().unwrap();
        fsck(&image);
        let stat = run(
            "debugfs",
            &["-R", "stat /d/second", image.to_str().unwrap()],
        );
        assert!(stat.contains("Links: 1"), "{stat}");
    }
}

/// A file's only name is removed while another thread gives the file one more by its number: either it gets that and stays, or it is gone.
#[test]
fn one_more_name_while_the_last_one_goes() {
    const FILES: u32 = 3000;
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image);
        volume.mkdir("/d", 0o755).unwrap();
        let (last, end) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let links = scope.spawn(|| {
                let mut tried = 0;
                while !end.load(Ordering::Acquire) {
                    let ino = last.load(Ordering::Acquire);
                    if ino == 0 {
                        continue;
                    }
                    tried += 1;
                    let name = format!("/d/{tried}");
                    match volume.link_ino(Ino::new(ino), &name) {
                        Ok(()) => {
                            // It may be the only name by now.
                            volume.unlink(&name).unwrap();
                        }
                        Err(Error::NotInUse { .. } | Error::NotFound { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            for n in 0..FILES {
                let name = format!("/f{}", n % 7);
                let ino = volume.create(&name, 0o644).unwrap().ino();
                last.store(ino.get(), Ordering::Release);
                volume.unlink(&name).unwrap();
            }
            end.store(true, Ordering::Release);
            links.join().unwrap();
        });
        volume.close().unwrap();
        fsck(&image);
        let left = by_debugfs(&image, "/d");
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The last name of an empty file goes, whoever has it in memory, and the device does not read something that the deletion needs:
/// everything is as before. The defect: if that was the bitmap of inodes, the name was gone already, so that nothing could be changed
/// any more.
#[test]
fn a_device_that_does_not_read_keeps_no_file_from_being_removed_later() {
    let unlink = |volume: &Volume| volume.unlink("/empty");
    let rename = |volume: &Volume| volume.rename("/other", "/empty", RenameFlags::none());
    type Op<'a> = &'a dyn Fn(&Volume) -> Result<(), Error>;
    let ops: [(bool, Op<'_>); 3] = [(false, &unlink), (true, &unlink), (false, &rename)];
    for args in [KINDS[0], KINDS[1], KINDS[2]] {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image);
        drop(volume.create("/empty", 0o644).unwrap());
        drop(volume.create("/other", 0o644).unwrap());
        volume.close().unwrap();
        for (has_orphan, op) in ops {
            let mut hits = 0;
            for nth in 1..40 {
                let mem = mem_of(&std::fs::read(&image).unwrap());
                let fault = Fault::new(BioErrorKind::Io, When::nth(nth)).on(BioOp::Read);
                let device = faulty(Arc::new(mem), vec![fault]);
                let options = OpenOptions::writable().metadata_cache(64 << 10);
                let Ok(volume) = Volume::open_device(device.clone(), &options) else {
                    continue;
                };
                // With an orphan the file is read into memory to be deleted.
                let orphan = has_orphan.then(|| volume.temporary("/", 0o600));
                volume.sync().unwrap();
                let before = device.plan().failed();
                match op(&volume) {
                    Ok(()) => {}
                    Err(error) => {
                        assert!(device.plan().failed() > before, "read {nth}: {error}");
                        hits += 1;
                        op(&volume).unwrap();
                    }
                }
                drop(orphan);
                let failed = device.plan().failed();
                let closed = volume.close();
                assert!(closed.is_ok() || device.plan().failed() > failed);
            }
            assert!(hits > 0, "{args:?}, {has_orphan}");
        }
    }
}
