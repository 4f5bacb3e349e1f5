//! Which names survive a power cut: those whose directory was synced, or all at once in a directory with the flag for that.
//!
//! Input: an operation on names, on a device that loses what was not flushed. Output: the names that are found on what is left.
//! Invariant: nothing commits except on request. Limits: with a journal, and with ordered writes without one.

use crate::common::names::{by_diorite, empty};
use crate::common::stage::mem_of;
use crate::common::{fsck, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, Fallocate, OpenFlags, OpenOptions, SetAttr, Volume, Xattr};
use diorite_block::record::{Cut, PowerCuts, Survival};
use diorite_block::{MemDevice, RecordDevice};
use diorite_format::{Ino, InodeFlags, Timestamp};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const KINDS: [(&str, &[&str]); 2] = [
    ("a journal", &["-t", "ext4", "-b", "1024"]),
    (
        "no journal",
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    ),
];

/// A volume on a disk with a volatile cache.
struct Bed {
    _dir: tempfile::TempDir,
    image: PathBuf,
    before: Vec<u8>,
    device: RecordDevice,
    volume: Volume,
    has_journal: bool,
}

impl Bed {
    /// Makes the directories "plain" and "flagged", the latter with `flag`, and some names in both; all of it durable.
    fn new(args: &[&str], flag: InodeFlags) -> Bed {
        Bed::with(args, |volume| {
            let ino = volume.resolve(b"/flagged", true).unwrap();
            let dir = volume.open_ino(ino, OpenFlags::default()).unwrap();
            dir.set_flags(dir.metadata().flags.with(flag)).unwrap();
        })
    }

    /// As `new`, with `prepare` in place of setting the flag.
    fn with(args: &[&str], prepare: impl FnOnce(&Volume)) -> Bed {
        let dir = scratch();
        let image = empty(dir.path(), "8M", args);
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
        for top in ["/plain", "/flagged"] {
            volume.mkdir(top, 0o755).unwrap();
            for name in ["file", "moves", "goes"] {
                volume.create(&format!("{top}/{name}"), 0o600).unwrap();
            }
            volume.mkdir(&format!("{top}/dir"), 0o755).unwrap();
        }
        prepare(&volume);
        volume.close().unwrap();
        let before = std::fs::read(&image).unwrap();
        let mem: Arc<MemDevice> = Arc::new(mem_of(&before));
        let device = RecordDevice::with_volatile_cache(mem);
        let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
        let volume = Volume::open_device(Arc::new(device.clone()), &options).unwrap();
        Bed {
            _dir: dir,
            image,
            before,
            device,
            volume,
            has_journal: !args.contains(&"^has_journal"),
        }
    }

    /// The names in a directory after a power cut now, which loses what was neither flushed nor written with FUA.
    fn after_a_cut(&self, dir: &str) -> BTreeSet<String> {
        self.seen_after_a_cut(|volume| by_diorite(volume, dir))
    }

    /// The result of `see` on the volume after a power cut now.
    fn seen_after_a_cut<T>(&self, see: impl FnOnce(&Volume) -> T) -> T {
        let log = self.device.log();
        let cut = Cut {
            at: log.len(),
            survival: Survival::Durable,
        };
        let mut cuts = PowerCuts::new(self.before.clone(), &log);
        cuts.with_image(cut, |bytes| std::fs::write(&self.image, bytes).unwrap());
        let name = self.image.to_str().unwrap();
        if !self.has_journal {
            let mended = xtask::run::tool("e2fsck").args(["-fy", name]).output();
            assert!(mended.unwrap().status.code().unwrap() <= 1);
        }
        let volume = Volume::open(name, &OpenOptions::writable()).unwrap();
        let seen = see(&volume);
        volume.close().unwrap();
        fsck(&self.image);
        seen
    }

    fn names_now(&self, dir: &str) -> BTreeSet<String> {
        by_diorite(&self.volume, dir)
    }
}

type Change = (&'static str, fn(&Volume, &str) -> Result<(), Error>);

const PLAIN: RenameFlags = RenameFlags::none()
    .no_replace(false)
    .exchange(false)
    .whiteout(false);

/// Every way to change the names in the directory at a path.
const CHANGES: [Change; 10] = [
    ("create", |v, at| {
        v.create(&format!("{at}/new"), 0o600).map(drop)
    }),
    ("mkdir", |v, at| {
        v.mkdir(&format!("{at}/new"), 0o700).map(drop)
    }),
    ("symlink", |v, at| {
        v.symlink("to", &format!("{at}/new")).map(drop)
    }),
    ("link", |v, at| {
        v.link(&format!("{at}/file"), &format!("{at}/new"))
    }),
    ("unlink", |v, at| v.unlink(&format!("{at}/goes"))),
    ("rmdir", |v, at| v.rmdir(&format!("{at}/dir"))),
    ("rename", |v, at| {
        v.rename(&format!("{at}/moves"), &format!("{at}/new"), PLAIN)
    }),
    ("rename out of it", |v, at| {
        v.rename(&format!("{at}/moves"), "/new", PLAIN)
    }),
    ("rename into it", |v, at| {
        v.create("/new", 0o600)?;
        v.rename("/new", &format!("{at}/new"), PLAIN)
    }),
    ("a file without a name gets one", |v, at| {
        let file = v.temporary(at, 0o600)?;
        v.link_file(&file, &format!("{at}/new"))
    }),
];

/// When the call returns, its change of names is durable; changes in directories without the flag are not yet.
#[test]
fn at_once_in_directories_with_the_flag() {
    for (n, (kind, args)) in (0..).zip(KINDS) {
        for (at, (what, change)) in (n..).zip(CHANGES) {
            let flag = [InodeFlags::DIRSYNC, InodeFlags::SYNC][at % 2];
            let bed = Bed::new(args, flag);
            let old = bed.names_now("/plain");
            change(&bed.volume, "/plain").unwrap();
            assert_eq!(bed.after_a_cut("/plain"), old, "{kind}, {what}");
            if what.starts_with("rename out") {
                bed.volume.unlink("/new").unwrap();
            }
            change(&bed.volume, "/flagged").unwrap();
            let new = bed.names_now("/flagged");
            assert_ne!(new, old, "{kind}, {what}");
            assert_eq!(bed.after_a_cut("/flagged"), new, "{kind}, {what}, {flag:?}");
        }
    }
}

/// fsync and fdatasync of a directory: for its names both do the same.
#[test]
fn when_the_directory_was_synced() {
    for (n, (kind, args)) in (0..).zip(KINDS) {
        for (at, (what, change)) in (n..).zip(CHANGES) {
            let bed = Bed::new(args, InodeFlags::default());
            change(&bed.volume, "/plain").unwrap();
            let new = bed.names_now("/plain");
            let dir = bed
                .volume
                .open_path("/plain", OpenFlags::default())
                .unwrap();
            match at % 2 {
                0 => dir.sync().unwrap(),
                _ => dir.sync_data().unwrap(),
            }
            assert_eq!(bed.after_a_cut("/plain"), new, "{kind}, {what}");
            let commits = bed.volume.journal_stats().commits;
            dir.sync().unwrap();
            assert_eq!(
                bed.volume.journal_stats().commits,
                commits,
                "nothing more to commit"
            );
        }
    }
}

/// An open directory can be removed; an atomic change becomes durable when it is committed, not earlier, whatever flags there
/// are.
#[test]
fn removed_directories_and_groups() {
    let bed = Bed::new(KINDS[0].1, InodeFlags::DIRSYNC);
    let dir = bed
        .volume
        .open_path("/flagged/dir", OpenFlags::default())
        .unwrap();
    dir.sync().unwrap();
    bed.volume.rmdir("/flagged/dir").unwrap();
    dir.sync().unwrap();
    drop(dir);
    let old = bed.names_now("/flagged");
    let atomic = bed.volume.atomic().unwrap();
    bed.volume.create("/flagged/of the change", 0o600).unwrap();
    assert_eq!(bed.after_a_cut("/flagged"), old);
    atomic.commit().unwrap();
    assert!(bed.after_a_cut("/flagged").contains("of the change"));
}

/// A way to change an inode itself.
type OfInode = (&'static str, fn(&Volume, Ino) -> Result<(), Error>);

/// All changes of an inode other than of its names and its data.
const OF_INODES: [OfInode; 11] = [
    ("chmod", |v, ino| {
        let permissions = Some(0o640);
        v.set_attr(ino, &of(|set| set.permissions = permissions))
    }),
    ("chown", |v, ino| {
        v.set_attr(ino, &of(|set| (set.uid, set.gid) = (Some(7), Some(8))))
    }),
    ("utimes", |v, ino| {
        let time = Timestamp { secs: 77, nanos: 0 };
        v.set_attr(
            ino,
            &of(|set| (set.atime, set.mtime) = (Some(time), Some(time))),
        )
    }),
    ("truncate", |v, ino| writable(v, ino).truncate(5000)),
    ("fallocate", |v, ino| {
        let mode = Fallocate::Allocate { keep_size: true };
        writable(v, ino).fallocate(mode, 0, 4096)
    }),
    ("an attribute", |v, ino| {
        v.set_xattr(ino, b"user.new", b"value")
    }),
    ("an attribute in a block", |v, ino| {
        v.set_xattr(ino, b"user.new", &[7; 600])
    }),
    ("an attribute removed", |v, ino| {
        v.remove_xattr(ino, b"user.old")
    }),
    ("an access control list", |v, ino| {
        let acl = [
            entry(1, 6, u32::MAX),
            entry(2, 4, 1000),
            entry(4, 4, u32::MAX),
            entry(16, 4, u32::MAX),
            entry(32, 0, u32::MAX),
        ];
        let value = [&2u32.to_le_bytes()[..], &acl.concat()].concat();
        v.set_xattr(ino, b"system.posix_acl_access", &value)
    }),
    ("a flag more", |v, ino| {
        let flags = v.open_ino(ino, OpenFlags::default())?.metadata().flags;
        v.set_flags(ino, flags.with(InodeFlags::NODUMP))
    }),
    ("the flag gone", |v, ino| {
        let flags = v.open_ino(ino, OpenFlags::default())?.metadata().flags;
        v.set_flags(
            ino,
            flags.without(InodeFlags::SYNC).with(InodeFlags::NOATIME),
        )
    }),
];

fn of(what: impl FnOnce(&mut SetAttr)) -> SetAttr {
    let mut set = SetAttr::default();
    what(&mut set);
    set
}

/// An entry of an access control list, in the form of the xattr interface.
fn entry(tag: u16, permissions: u16, id: u32) -> Vec<u8> {
    let (tag, permissions) = (tag.to_le_bytes(), permissions.to_le_bytes());
    [&tag[..], &permissions, &id.to_le_bytes()].concat()
}

fn writable(volume: &Volume, ino: Ino) -> diorite::File {
    let write = OpenFlags::writable();
    volume.open_ino(ino, write).unwrap()
}

/// The metadata of an inode and its attributes.
fn facts(volume: &Volume, ino: Ino) -> (String, Vec<Xattr>) {
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    let disk = file.metadata();
    let said = format!(
        "{:o} {} {} {} {} {:?} {:?} {:?}",
        disk.mode, disk.uid, disk.gid, disk.size, disk.blocks, disk.flags, disk.atime, disk.mtime
    );
    (said, volume.xattrs(ino).unwrap())
}

/// When the call returns, its change of the inode is durable; changes of inodes without the flag are not yet.
#[test]
fn at_once_of_inodes_with_the_flag() {
    for (kind, args) in KINDS {
        for (what, change) in OF_INODES {
            let bed = Bed::with(args, |volume| {
                for top in ["/plain", "/flagged"] {
                    let ino = volume
                        .resolve(format!("{top}/file").as_bytes(), true)
                        .unwrap();
                    volume.set_xattr(ino, b"user.old", b"value").unwrap();
                    let flag = [InodeFlags::default(), InodeFlags::SYNC];
                    let flag = flag[usize::from(top == "/flagged")];
                    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
                    file.set_flags(file.metadata().flags.with(flag)).unwrap();
                }
            });
            let volume = &bed.volume;
            let plain = volume.resolve(b"/plain/file", true).unwrap();
            let flagged = volume.resolve(b"/flagged/file", true).unwrap();
            let old = facts(volume, plain);
            change(volume, plain).unwrap();
            let seen = bed.seen_after_a_cut(|volume| facts(volume, plain));
            assert_eq!(seen, old, "{kind}, {what}");
            let old = facts(volume, flagged);
            change(volume, flagged).unwrap();
            let new = facts(volume, flagged);
            assert_ne!(new, old, "{kind}, {what}");
            let seen = bed.seen_after_a_cut(|volume| facts(volume, flagged));
            assert_eq!(seen, new, "{kind}, {what}");
        }
    }
}
