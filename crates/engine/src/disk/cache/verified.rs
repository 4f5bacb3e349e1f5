//! Which uses a cached block has been verified for. A block that passed the check for one use is not trusted in any other.
//!
//! Input: uses whose checks have passed. Output: whether a check can be skipped. Invariants: a note is one atomic store and a query one
//! load, so no query sees half a note; a directory block counts as verified for one place in one directory only, since its checksum
//! depends on that directory. Limits: if several directories claim one block, only the last one that verified it is remembered.

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

/// What a block is used as; for blocks of directories also the directory, and the block's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedAs {
    pub(super) kind: Kind,
    place: u64,
}

/// The place of blocks that do not belong to a directory: no inode has the number 0.
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
    /// For which place it was verified as a block of names, and for which as a node of a hash tree.
    names: AtomicU64,
    node: AtomicU64,
}

impl Verified {
    /// Was the block verified for this use?
    #[inline]
    pub(super) fn holds(&self, used: UsedAs) -> bool {
        match self.place(used.kind) {
            Some(place) => used.place != NOWHERE && place.load(Ordering::Acquire) == used.place,
            None => self.kinds.load(Ordering::Acquire) & 1 << used.kind as u32 != 0,
        }
    }

    /// Notes that the block passed the check for this use.
    pub(super) fn note(&self, used: UsedAs) {
        match self.place(used.kind) {
            Some(place) => place.store(used.place, Ordering::Release),
            None => drop(
                self.kinds
                    .fetch_or(1 << used.kind as u32, Ordering::Release),
            ),
        }
    }

    /// Was the block ever verified as this kind, at any place?
    pub(super) fn has_been(&self, kind: Kind) -> bool {
        match self.place(kind) {
            Some(place) => place.load(Ordering::Acquire) != NOWHERE,
            None => self.holds(kind.into()),
        }
    }

    /// What remains verified after a change as `kind`: that kind alone. A directory's block keeps its place, too.
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
