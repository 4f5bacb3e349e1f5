//! What the inode tables are found to hold, for the passes behind them.
//!
//! Input: inodes as they are judged. Output: [`Met`]. Invariants: what several threads have met adds up. Limits: none of its own.

use crate::context::Check;
use crate::report::Kind;
use crate::usage::{Payers, Usage};
use diorite_format::{FsBlock, Ino};

/// A value in an inode of its own, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueRef {
    pub(super) holder: Ino,
    pub(super) owner: Ino,
}

/// An inode whose block of attributes may name values that count in its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counted {
    pub(super) ino: Ino,
    /// Sectors that the inode says.
    pub(super) found: u64,
    /// Sectors, and inodes, without those.
    pub(super) expected: u64,
    pub(super) inodes: u64,
    pub(super) payers: Option<Payers>,
}

/// What one thread has met.
#[derive(Default)]
pub(super) struct Met {
    pub(super) directories: Vec<Ino>,
    /// Blocks of attributes, and who has them.
    pub(super) attributes: Vec<(FsBlock, Ino)>,
    pub(super) values: Vec<ValueRef>,
    pub(super) counted: Vec<Counted>,
    pub(super) usage: Usage,
    /// Blocks with targets of symbolic links.
    pub(super) targets: Vec<(FsBlock, Ino)>,
    pub(super) inodes: u64,
}

impl Met {
    pub(crate) fn add(&mut self, other: Met) {
        self.directories.extend(other.directories);
        self.attributes.extend(other.attributes);
        self.values.extend(other.values);
        self.counted.extend(other.counted);
        self.targets.extend(other.targets);
        self.usage.merge(other.usage);
        self.inodes += other.inodes;
    }
}

/// What an inode uses counts for whose it is, and is compared with what it says itself, if all of its map is known.
pub(super) fn space(check: &Check<'_>, usage: &mut Usage, of: &Counted, sound: bool) {
    let (ino, found, expected) = (of.ino, of.found, of.expected);
    if sound && found != expected {
        let what =
            format_args!("inode {ino}: {found} sectors are counted as in use; expected {expected}");
        check.found.inode(Kind::Inode, ino, what);
    }
    if let Some(payers) = of.payers {
        usage.add(payers, expected, of.inodes);
    }
}
