//! What this process has open as devices: the one answer to "would writing there destroy an image in use?".
//!
//! Input: descriptors, as files and block devices are opened and as somebody is about to write elsewhere. Output: the name of what
//! would be overwritten. Invariants: files are compared by device and inode, block devices by number, so links, bind mounts and other nodes do not matter;
//! what is held stays in the list until its [`super::Hold`] is dropped. Limits: below a block device it knows disks of partitions,
//! parts of device-mapper devices and files of loop devices, as far as /sys shows them.

use rustix::fd::AsFd;
use rustix::fs::{FileType, Stat, major, minor};
use std::fs::{read_dir, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Levels below a device that are looked at: partition, disk, a loop device's file.
const DEEPEST: usize = 8;

/// Which file or block device something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    File { dev: u64, ino: u64 },
    Block { rdev: u64 },
}

impl Identity {
    fn of(stat: &Stat) -> Identity {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Identity::Block { rdev: stat.st_rdev },
            _ => Identity::File {
                dev: stat.st_dev,
                ino: stat.st_ino,
            },
        }
    }
}

/// Something that is open, and what is below it.
#[derive(Debug)]
struct Entry {
    number: u64,
    path: PathBuf,
    itself: Identity,
    below: Vec<Identity>,
}

#[derive(Debug)]
struct List {
    next: u64,
    entries: Vec<Entry>,
}

static LIST: Mutex<List> = Mutex::new(List {
    next: 0,
    entries: Vec::new(),
});

/// A place in the list, for as long as this lives.
#[derive(Debug)]
pub(super) struct Listed(u64);

impl Listed {
    /// Notes that the file of that descriptor's state is in use under this name.
    pub(super) fn new(path: &Path, stat: &Stat) -> Listed {
        let itself = Identity::of(stat);
        let below = below(itself);
        let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        let number = list.next;
        list.next += 1;
        list.entries.push(Entry {
            number,
            path: path.to_owned(),
            itself,
            below,
        });
        Listed(number)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        list.entries.retain(|entry| entry.number != self.0);
    }
}

/// The path under which this process has opened what the descriptor stands for, as a device or below one: writing to the descriptor, or putting
/// something else in the place of its file, would destroy an image that is in use. None if it is nothing of that kind.
///
/// A descriptor opened for its path alone (`O_PATH`) will do.
///
/// # Errors
/// The host's, if it does not say what the descriptor is.
pub fn held_as(fd: impl AsFd) -> std::io::Result<Option<PathBuf>> {
    let itself = Identity::of(&rustix::fs::fstat(fd)?);
    let below = below(itself);
    let list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut entries = list.entries.iter();
    // Two partitions of a disk have the disk below them, and nothing to do with each other.
    let met = entries
        .find(|e| e.itself == itself || e.below.contains(&itself) || below.contains(&e.itself));
    Ok(met.map(|entry| entry.path.clone()))
}

/// What a block device's contents are kept in.
fn below(top: Identity) -> Vec<Identity> {
    let mut found = Vec::new();
    let mut level = vec![top];
    for _ in 0..DEEPEST {
        let next: Vec<Identity> = level.iter().flat_map(|i| just_below(*i)).collect();
        found.extend(&next);
        level = next;
    }
    found
}

fn just_below(identity: Identity) -> Vec<Identity> {
    let Identity::Block { rdev } = identity else {
        return Vec::new();
    };
    let number = format!("{}:{}", major(rdev), minor(rdev));
    let Ok(dir) = std::fs::canonicalize(format!("/sys/dev/block/{number}")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if dir.join("partition").exists() {
        found.extend(dir.parent().and_then(block_device));
    }
    for part in read_dir(dir.join("slaves")).into_iter().flatten().flatten() {
        found.extend(block_device(&part.path()));
    }
    if let Ok(file) = read_to_string(dir.join("loop/backing_file")) {
        let file = std::fs::metadata(file.trim_end_matches('\n'));
        found.extend(file.map(|m| Identity::File {
            dev: m.dev(),
            ino: m.ino(),
        }));
    }
    found
}

/// The device that a directory of /sys is about.
fn block_device(dir: &Path) -> Option<Identity> {
    let number = read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = number.trim().split_once(':')?;
    let rdev = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Identity::Block { rdev })
}
