//! Directories and their parents: according to "..", and according to the name.
//!
//! Input: directories as they are read. Output: [`Directories`]. Invariants: any number of threads may add at once; the blocks
//! that a pass may still read are counted here. Limits: eight bytes per directory, and its number.

use super::context::Check;
use super::report::Kind;
use diorite_format::Ino;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// What is known about one directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) ino: Ino,
    /// The parent according to "..".
    up: AtomicU32,
    /// The directory that names it.
    above: AtomicU32,
}

/// All directories, by number.
pub(super) struct Directories {
    list: Vec<Directory>,
    /// Names in all directories.
    names: AtomicU64,
    /// Blocks that may still be read.
    left: AtomicI64,
}

impl Directories {
    pub(super) fn new(inos: &[Ino], blocks: u64) -> Directories {
        let directory = |ino: &Ino| Directory {
            ino: *ino,
            up: AtomicU32::new(0),
            above: AtomicU32::new(0),
        };
        Directories {
            list: inos.iter().map(directory).collect(),
            names: AtomicU64::new(0),
            left: AtomicI64::new(twice(blocks)),
        }
    }

    /// Takes blocks from those that may still be read; returns whether there were enough.
    pub(super) fn spend(&self, blocks: u64) -> bool {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.left.fetch_sub(blocks, Ordering::Relaxed) > 0
    }

    /// Lets another pass read as many blocks as the first one.
    pub(super) fn refill(&self, blocks: u64) {
        self.left.store(twice(blocks), Ordering::Relaxed);
    }

    pub(super) fn list(&self) -> &[Directory] {
        &self.list
    }

    /// Adds to the number of names read.
    pub(super) fn add_names(&self, count: u64) {
        self.names.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn names(&self) -> u64 {
        self.names.load(Ordering::Relaxed)
    }

    /// The position of a directory in the list.
    pub(super) fn find(&self, ino: Ino) -> Option<usize> {
        self.list.binary_search_by_key(&ino, |d| d.ino).ok()
    }

    /// Records that `by` names a directory; returns the directory that named it before.
    pub(super) fn named(&self, ino: Ino, by: Ino) -> Option<Ino> {
        let directory = &self.list[self.find(ino)?];
        let first =
            directory
                .above
                .compare_exchange(0, by.get(), Ordering::Relaxed, Ordering::Relaxed);
        first.err().map(Ino::new)
    }
}

/// The number of blocks that one pass may read on a volume with `blocks` blocks.
fn twice(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX / 2) * 2
}

impl Directory {
    /// Records the parent according to "..".
    pub(super) fn says_above(&self, up: u32) {
        self.up.store(up, Ordering::Relaxed);
    }

    /// The parent according to ".."; 0 if there is none.
    pub(super) fn up(&self) -> Ino {
        Ino::new(self.up.load(Ordering::Relaxed))
    }

    /// The directory that names it; 0 if none does.
    pub(super) fn above(&self) -> Ino {
        Ino::new(self.above.load(Ordering::Relaxed))
    }
}

/// Takes blocks from those that may still be read; reports it if there are none left.
pub(super) fn spend(check: &Check<'_>, directories: &Directories, blocks: u64) -> bool {
    let enough = directories.spend(blocks);
    if !enough {
        check.found.add(
            Kind::NotChecked,
            "directories have more blocks than the volume: some were not read",
        );
    }
    enough
}
