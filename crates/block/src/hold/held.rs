//! The files and devices that this process has open as devices: the one answer to "would writing there destroy an image in
//! use?".
//!
//! Input: descriptors, when files and block devices are opened and before something else is written. Output: the name of the
//! image that would be overwritten. Invariants: files are compared by device and inode, block devices by number, so links, bind
//! mounts and other device nodes do not matter; an entry stays in the list until its [`super::Hold`] is dropped. Limits: below
//! a block device it knows disks of partitions, parts of device-mapper devices and files of loop devices, as far as /sys shows
//! them.

use rustix::fd::AsFd;
use rustix::fs::{FileType, Stat, major, minor};
use std::fs::{read_dir, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The most levels below a device: partition, disk, a loop device's file.
const DEEPEST: usize = 8;

/// The identity of a file or block device.
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

/// An open device, and the devices and files below it.
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

/// An entry of the list, for the lifetime of this value.
#[derive(Debug)]
pub(super) struct Listed(u64);

impl Listed {
    /// Adds the file with this state to the list, under this name.
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

/// The path under which this process has opened the file of this descriptor, as a device or below one: writing to the
/// descriptor, or replacing its file, would destroy an image in use. None if there is no such path.
///
/// A descriptor opened with `O_PATH` is enough.
///
/// # Errors
/// The host's error, if it does not identify the descriptor.
pub fn held_as(fd: impl AsFd) -> std::io::Result<Option<PathBuf>> {
    let itself = Identity::of(&rustix::fs::fstat(fd)?);
    let below = below(itself);
    let list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut entries = list.entries.iter();
    // Two partitions have the same disk below them, but do not overlap.
    let met = entries
        .find(|e| e.itself == itself || e.below.contains(&itself) || below.contains(&e.itself));
    Ok(met.map(|entry| entry.path.clone()))
}

/// What stores a block device's contents.
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

/// The device that a directory in /sys describes.
fn block_device(dir: &Path) -> Option<Identity> {
    let number = read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = number.trim().split_once(':')?;
    let rdev = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Identity::Block { rdev })
}
