//! Oddities that only a consistency check reports: superblock fields that nothing uses on this volume, with impossible values.
//! Input: a checked superblock and its bytes. Output: one sentence per oddity. Invariant: a volume that mke2fs made has none.
//! Limit: no oddity makes a volume unreadable. Source: the kernel's ext4 documentation, "super block"; what e2fsck -fn says
//! about superblocks changed field by field.

use crate::features::{Compat, Incompat, RoCompat};
use crate::layout::{inode, sb};
use crate::le::{bytes, le16, le32, u8_at};
use crate::num;

use super::{SUPERBLOCK_SIZE, Superblock};

/// The largest size of group descriptors, whether the volume has descriptors of that size or not.
const MAX_DESC_SIZE: u32 = 1024;

impl Superblock {
    /// The oddities of this superblock; `raw` is what it was parsed from.
    #[must_use]
    pub fn oddities(&self, raw: &[u8; SUPERBLOCK_SIZE]) -> Vec<&'static str> {
        let b = raw.as_slice();
        let features = self.features();
        let desc_size = le16(b, sb::DESC_SIZE);
        let bigalloc = features.ro_compat.has(RoCompat::BIGALLOC);
        let clusters = le32(b, sb::CLUSTERS_PER_GROUP);
        let casefold = features.incompat.has(Incompat::CASEFOLD);
        let known = !features.names().iter().any(|n| n.starts_with("FEATURE_"));
        // These features have names, but no writer.
        let dead = features.compat.has(Compat::LAZY_BG)
            || features.compat.has(Compat::EXCLUDE_BITMAP)
            || features.ro_compat.has(RoCompat::HAS_SNAPSHOT)
            || features.ro_compat.has(RoCompat::REPLICA);
        let rows = [
            (
                !bigalloc && clusters != self.geometry().blocks_per_group(),
                "clusters in a group that are not its blocks",
            ),
            (
                !features.incompat.has(Incompat::BIT64)
                    && desc_size != 0
                    && (!desc_size.is_power_of_two() || u32::from(desc_size) > MAX_DESC_SIZE),
                "a size of descriptors that no volume can have",
            ),
            (
                self.geometry().r_blocks_count() > self.geometry().blocks_count() / 2,
                "more than half of the blocks are reserved",
            ),
            (
                u8_at(b, sb::LOG_GROUPS_PER_FLEX) > 31,
                "flexible groups that are too large",
            ),
            (
                features.compat.has(Compat::ORPHAN_FILE)
                    && !features.compat.has(Compat::HAS_JOURNAL),
                "a file of orphans, and no journal",
            ),
            (
                self.names_no_orphan_file(raw),
                "a file of orphans, and not the feature orphan_file",
            ),
            (
                !features.compat.has(Compat::ORPHAN_FILE)
                    && features.ro_compat.has(RoCompat::ORPHAN_PRESENT),
                "orphans in a file, and not the feature orphan_file",
            ),
            (
                casefold && le16(b, sb::ENCODING) != 1,
                "names that fold case, in an encoding that is not known",
            ),
            (
                self.odd_extra(le16(b, sb::MIN_EXTRA_ISIZE)),
                "more fields required of inodes than they have room for, or a part of one",
            ),
            (
                self.odd_extra(le16(b, sb::WANT_EXTRA_ISIZE)),
                "more fields wanted of inodes than they have room for, or a part of one",
            ),
            (
                self.needs_recovery() && !features.compat.has(Compat::HAS_JOURNAL),
                "a journal to be replayed, and not the feature has_journal",
            ),
            (
                !known || dead,
                "features that are not known: what they mean was not checked",
            ),
        ];
        let odd = rows.into_iter().filter(|(odd, _)| *odd);
        odd.map(|(_, what)| what)
            .chain(self.odd_journal(b))
            .collect()
    }

    /// Whether an orphan file is named that the volume does not have: see [`super::SuperblockEdit::forget_orphan_file`]. `raw` is what it
    /// was parsed from.
    #[must_use]
    pub fn names_no_orphan_file(&self, raw: &[u8; SUPERBLOCK_SIZE]) -> bool {
        !self.features().compat.has(Compat::ORPHAN_FILE) && le32(raw, sb::ORPHAN_FILE_INUM) != 0
    }

    /// Whether inodes cannot have this many bytes of fields after the first 128. The value is unused if inodes have only 128
    /// bytes.
    fn odd_extra(&self, bytes: u16) -> bool {
        let room = num::usize32(self.geometry().inode_size()).saturating_sub(inode::EXTRA_ISIZE);
        room != 0 && (usize::from(bytes) > room || !bytes.is_multiple_of(4))
    }

    /// The journal must be in at most one place, and on a device only if the volume has one. Without the feature, an inode that is named
    /// is judged by its contents.
    fn odd_journal(&self, b: &[u8]) -> Option<&'static str> {
        let inside = self.info().journal_inum != 0;
        let outside = bytes::<16>(b, sb::JOURNAL_UUID) != [0; 16];
        match (
            self.features().compat.has(Compat::HAS_JOURNAL),
            inside,
            outside,
        ) {
            (true, false, false) => Some("a journal that is neither in an inode nor on a device"),
            (true, true, true) => Some("a journal both in an inode and on a device"),
            (false, _, true) => Some("the place of a journal, and not the feature has_journal"),
            _ => None,
        }
    }
}
