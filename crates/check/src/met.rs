//! What the inode tables contain, collected for later passes.
//!
//! Input: inodes as they are judged. Output: [`Met`]. Invariants: the results of several threads can be added. Limits: none.

use crate::context::Check;
use crate::report::Kind;
use crate::usage::{Payers, Usage};
use diorite_format::{FsBlock, Ino};

/// A value in an inode of its own, and the inode with the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueRef {
    pub(super) holder: Ino,
    pub(super) owner: Ino,
    /// Lustre's form: the holder names its owner, and neither hash nor users are counted.
    pub(super) names_owner: bool,
}

/// An inode whose attribute block may refer to values that count in its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counted {
    pub(super) ino: Ino,
    /// Sectors that the inode states.
    pub(super) found: u64,
    /// Sectors, and inodes, without those values.
    pub(super) expected: u64,
    pub(super) inodes: u64,
    pub(super) payers: Option<Payers>,
}

/// The results of one thread.
#[derive(Default)]
pub(super) struct Met {
    pub(super) directories: Vec<Ino>,
    /// Attribute blocks, and the inodes that use them.
    pub(super) attributes: Vec<(FsBlock, Ino)>,
    pub(super) values: Vec<ValueRef>,
    pub(super) counted: Vec<Counted>,
    pub(super) usage: Usage,
    /// Blocks with targets of symbolic links, and their inodes.
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

/// Adds an inode's space to the usage of its owner, and compares it with the inode's own count, if its whole map is known.
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
