//! Names that are there after a power cut: when their directory was synced, or at once where it has the flag for that.
//!
//! Input: an operation on names, on a device that loses what was not flushed. Output: the names that are found on what is left. Invariant: nothing commits but what is
//! asked to. Limits: a journal, and ordered rounds without one.

use super::common::names::{by_diorite, empty};
use super::common::stage::mem_of;
use super::common::{fsck, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_block::record::{Cut, PowerCuts, Survival};
use diorite_block::{MemDevice, RecordDevice};
use diorite_format::InodeFlags;
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
    /// With the directories "plain" and "flagged", which has `flag`, and some names in both; all of it durable.
    fn new(args: &[&str], flag: InodeFlags) -> Bed {
        let dir = scratch();
        let image = empty(dir.path(), "8M", args);
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
        for top in ["/plain", "/flagged"] {
            let ino = volume.mkdir(top, 0o755).unwrap();
            for name in ["file", "moves", "goes"] {
                volume.create(&format!("{top}/{name}"), 0o600).unwrap();
            }
            volume.mkdir(&format!("{top}/dir"), 0o755).unwrap();
            let had = volume.open_ino(ino, OpenFlags::default()).unwrap();
            if top == "/flagged" {
                volume
                    .set_flags(ino, had.metadata().flags.with(flag))
                    .unwrap();
            }
        }
        volume.close().unwrap();
        let before = std::fs::read(&image).unwrap();
        let mem: Arc<MemDevice> = Arc::new(mem_of(&before));
        let device = RecordDevice::with_volatile_cache(mem);
        let options = OpenOptions {
            commit_interval: Duration::from_secs(3600),
            ..OpenOptions::writable()
        };
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

    /// The names in a directory after a power cut now: what was neither flushed nor written durably is lost.
    fn after_a_cut(&self, dir: &str) -> BTreeSet<String> {
        let log = self.device.log();
        let cut = Cut {
            at: log.len(),
            survival: Survival::Durable,
        };
        let mut cuts = PowerCuts::new(self.before.clone(), &log);
        cuts.with_image(cut, |bytes| std::fs::write(&self.image, bytes).unwrap());
        let name = self.image.to_str().unwrap();
        if !self.has_journal {
            let mended = std::process::Command::new("e2fsck")
                .args(["-fy", name])
                .output();
            assert!(mended.unwrap().status.code().unwrap() <= 1);
        }
        let volume = Volume::open(name, &OpenOptions::writable()).unwrap();
        let names = by_diorite(&volume, dir);
        volume.close().unwrap();
        fsck(&self.image);
        names
    }

    fn names_now(&self, dir: &str) -> BTreeSet<String> {
        by_diorite(&self.volume, dir)
    }
}

type Change = (&'static str, fn(&Volume, &str) -> Result<(), Error>);

const PLAIN: RenameFlags = RenameFlags {
    no_replace: false,
    exchange: false,
    whiteout: false,
};

/// Every way in which the names of the directory at a path change.
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

/// The call returns, and the name is there, or gone, for good; in other directories it is not yet.
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

/// fsync of a directory, and fdatasync: for a name the same.
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

/// A directory that is open does not keep from being removed; a group of changes is durable when it is committed, whatever flags there are.
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
    let group = bed.volume.group().unwrap();
    bed.volume.create("/flagged/of the group", 0o600).unwrap();
    assert_eq!(bed.after_a_cut("/flagged"), old);
    group.commit().unwrap();
    assert!(bed.after_a_cut("/flagged").contains("of the group"));
}
