//! Directories, and what is above each: what it says, and what names it.
//!
//! Input: directories as they are read. Output: [`Directories`]. Invariants: any number of threads may note at once; the blocks that a pass may
//! read are counted here. Limits: eight bytes for each, and its number.

use super::context::Check;
use super::report::Kind;
use diorite_format::Ino;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// What is known of one directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) ino: Ino,
    /// What it says is above it.
    up: AtomicU32,
    /// The directory that names it.
    above: AtomicU32,
}

/// All directories, by number.
pub(super) struct Directories {
    list: Vec<Directory>,
    /// Names in all of them.
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

    /// Takes blocks from what may still be read; says whether there were some.
    pub(super) fn spend(&self, blocks: u64) -> bool {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.left.fetch_sub(blocks, Ordering::Relaxed) > 0
    }

    /// Lets another pass read as many as the first one.
    pub(super) fn refill(&self, blocks: u64) {
        self.left.store(twice(blocks), Ordering::Relaxed);
    }

    pub(super) fn list(&self) -> &[Directory] {
        &self.list
    }

    /// So many names were read.
    pub(super) fn add_names(&self, count: u64) {
        self.names.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn names(&self) -> u64 {
        self.names.load(Ordering::Relaxed)
    }

    /// Where in the list a directory is.
    pub(super) fn find(&self, ino: Ino) -> Option<usize> {
        self.list.binary_search_by_key(&ino, |d| d.ino).ok()
    }

    /// `by` names a directory; gives who named it before.
    pub(super) fn named(&self, ino: Ino, by: Ino) -> Option<Ino> {
        let directory = &self.list[self.find(ino)?];
        let first =
            directory
                .above
                .compare_exchange(0, by.get(), Ordering::Relaxed, Ordering::Relaxed);
        first.err().map(Ino::new)
    }
}

/// Blocks that one pass may read on a volume of so many.
fn twice(blocks: u64) -> i64 {
    i64::try_from(blocks).unwrap_or(i64::MAX / 2) * 2
}

impl Directory {
    /// Notes what it says is above it.
    pub(super) fn says_above(&self, up: u32) {
        self.up.store(up, Ordering::Relaxed);
    }

    /// What it says is above it; 0 if it does not say.
    pub(super) fn up(&self) -> Ino {
        Ino::new(self.up.load(Ordering::Relaxed))
    }

    /// The directory that names it; 0 if none does.
    pub(super) fn above(&self) -> Ino {
        Ino::new(self.above.load(Ordering::Relaxed))
    }
}

/// Takes blocks from what may still be read; where there are none, that is said.
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
