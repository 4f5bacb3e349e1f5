//! As what a block of metadata was verified: no block is trusted as something that it was not looked at as.
//!
//! Input: uses, with their checks. Output: whether a check can be left out. Invariants: a note is one store and a question one load, so neither sees half
//! of another; blocks of directories count for one place in one directory only, which their sums name too. Limits: of several
//! directories that claim one block, the last one that looked at it.

use diorite_block::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use diorite_format::Ino;

/// What a block is used as. A block is verified again when it is used as something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A node of an extent tree, or an indirect block.
    Map,
    /// A block of a directory.
    Directory,
    /// A block of extended attributes.
    Xattr,
    /// A block of an inode table; each inode in it carries its own checksum.
    InodeTable,
    /// A block of a file's data read as metadata: a symbolic link's target, an attribute's value, the orphan file.
    Data,
    /// The block with the primary superblock.
    Super,
    /// A block of group descriptors.
    Groups,
    /// A block bitmap or an inode bitmap.
    Bitmap,
    /// The root or an inner node of a directory's hash tree.
    HashNode,
}

/// What a block is used as, and for blocks of directories of which one it is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedAs {
    pub(super) kind: Kind,
    place: u64,
}

/// The place of no block: no inode has the number 0.
const NOWHERE: u64 = 0;

impl From<Kind> for UsedAs {
    fn from(kind: Kind) -> UsedAs {
        let place = NOWHERE;
        UsedAs { kind, place }
    }
}

impl UsedAs {
    /// Block `block` of a directory, used as `kind`.
    pub(crate) fn of_directory(kind: Kind, dir: Ino, block: u64) -> UsedAs {
        // Directories have less than 2^32 blocks.
        let place = u64::from(dir.get()) << 32 | block & u64::from(u32::MAX);
        UsedAs { kind, place }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// One bit per [`Kind`].
    kinds: AtomicU32,
    /// Where it is a block of names, and where one of a hash tree.
    names: AtomicU64,
    node: AtomicU64,
}

impl Verified {
    /// Was it looked at as this?
    #[inline]
    pub(super) fn holds(&self, used: UsedAs) -> bool {
        match self.place(used.kind) {
            Some(place) => used.place != NOWHERE && place.load(Ordering::Acquire) == used.place,
            None => self.kinds.load(Ordering::Acquire) & 1 << used.kind as u32 != 0,
        }
    }

    /// It was looked at as this, and is what it should be.
    pub(super) fn note(&self, used: UsedAs) {
        match self.place(used.kind) {
            Some(place) => place.store(used.place, Ordering::Release),
            None => drop(
                self.kinds
                    .fetch_or(1 << used.kind as u32, Ordering::Release),
            ),
        }
    }

    /// Was it ever looked at as this, wherever?
    pub(super) fn has_been(&self, kind: Kind) -> bool {
        match self.place(kind) {
            Some(place) => place.load(Ordering::Acquire) != NOWHERE,
            None => self.holds(kind.into()),
        }
    }

    /// What holds of it after a change as `kind`: that, and of a directory's block its place; nothing else.
    pub(super) fn after_change(&self, kind: Kind) -> Verified {
        let only = Verified::default();
        match (self.place(kind), only.place(kind)) {
            (Some(before), Some(now)) => {
                now.store(before.load(Ordering::Acquire), Ordering::Relaxed)
            }
            _ => only.note(kind.into()),
        }
        only
    }

    fn place(&self, kind: Kind) -> Option<&AtomicU64> {
        match kind {
            Kind::Directory => Some(&self.names),
            Kind::HashNode => Some(&self.node),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::disk::cache::verified::*;

    #[test]
    fn a_block_counts_for_one_place() {
        let verified = Verified::default();
        let dir = Ino::new;
        let names = |n, block| UsedAs::of_directory(Kind::Directory, dir(n), block);
        let node = |n, block| UsedAs::of_directory(Kind::HashNode, dir(n), block);
        verified.note(names(12, 0));
        verified.note(Kind::Xattr.into());
        assert!(verified.holds(names(12, 0)) && verified.holds(Kind::Xattr.into()));
        assert!(!verified.holds(node(12, 0)) && !verified.holds(names(12, 1)));
        assert!(!verified.holds(Kind::Directory.into()));
        verified.note(node(13, 0));
        verified.note(names(13, 0));
        assert!(!verified.holds(names(12, 0)) && !verified.holds(node(12, 0)));
        let after = verified.after_change(Kind::Directory);
        assert!(after.holds(names(13, 0)) && after.has_been(Kind::Directory));
        assert!(!after.holds(node(13, 0)) && !after.has_been(Kind::HashNode));
        assert!(!after.holds(Kind::Xattr.into()));
        let after = verified.after_change(Kind::Xattr);
        assert!(after.holds(Kind::Xattr.into()) && !after.has_been(Kind::Directory));
    }
}
