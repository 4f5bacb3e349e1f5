//! What the superblock of an ext2, ext3 or ext4 file system, or of a journal device, says of its use.
//!
//! Input: the first bytes of a device. Output: a [`Found`], in mke2fs's words. Invariant: a superblock that is damaged or of an unknown
//! kind is recognised, too. Limits: which of the three it is follows from the features, as libblkid sees it. Source: the kernel's ext4
//! documentation ("super block"); the words by experiment with mke2fs 1.47.

use super::{Found, label};
use crate::words::times::Clock;
use diorite_format::features::{Compat, Features, Incompat, RoCompat};

/// Byte of the superblock.
const START: usize = 1024;
const JOURNAL: &str = "jbd";

/// See the module.
pub(super) fn look(head: &[u8]) -> Option<Found> {
    let raw = head.get(START..START + 1024)?;
    if raw[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    let features = Features {
        compat: Compat::from_bits(word(0x5c)),
        incompat: Incompat::from_bits(word(0x60)),
        ro_compat: RoCompat::from_bits(word(0x64)),
    };
    let date = |secs: u32| Clock::local().ctime(secs.into());
    let (mounted, modified, created) = (word(0x2c), word(0x30), word(0x108));
    let on = label(raw, (0x88, 64));
    let more = match (mounted, created, modified) {
        (1.., ..) if on.is_empty() => Some(format!("last mounted on {}", date(mounted))),
        (1.., ..) => Some(format!("last mounted on {on} on {}", date(mounted))),
        (0, 1.., _) => Some(format!("created on {}", date(created))),
        (0, 0, 1..) => Some(format!("last modified on {}", date(modified))),
        (0, 0, 0) => None,
    };
    let kind = kind(&features);
    Some(Found {
        kind,
        is_table: false,
        label: label(raw, (0x78, 16)),
        more: more.filter(|_| kind != JOURNAL),
    })
}

fn kind(features: &Features) -> &'static str {
    let of_ext3 = Incompat::FILETYPE
        .with(Incompat::RECOVER)
        .with(Incompat::META_BG);
    let ro_of_ext3 = RoCompat::SPARSE_SUPER
        .with(RoCompat::LARGE_FILE)
        .with(RoCompat::BTREE_DIR);
    let is_old = features.incompat.without(of_ext3) == Incompat::from_bits(0)
        && features.ro_compat.without(ro_of_ext3) == RoCompat::from_bits(0);
    match (is_old, features.compat.has(Compat::HAS_JOURNAL)) {
        _ if features.incompat.has(Incompat::JOURNAL_DEV) => JOURNAL,
        (true, false) => "ext2",
        (true, true) => "ext3",
        (false, _) => "ext4",
    }
}
