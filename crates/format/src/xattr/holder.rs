//! Attributes whose value is in an inode of its own (ea_inode): the value's sum, and the entry's hash. Input: names, values. Output: sums.
//! Invariant: what is written here [`super::verify_ea_inode`] accepts. Limit: the inode's own fields are [`crate::inode`]'s. Source: the
//! kernel's ext4 documentation, "extended attributes"; experiments with the kernel's mount and debugfs.

use crate::csum;
use crate::superblock::Superblock;

use super::{XattrEntry, XattrValue, entry_hash, hash};

/// The sum of a value that is kept in an inode.
#[must_use]
pub fn value_sum(sb: &Superblock, value: &[u8]) -> u32 {
    csum::crc32c(sb.csum_seed(), value)
}

/// The hash of an entry whose value, with this sum, is in an inode.
#[must_use]
pub fn held_hash(name: &[u8], sum: u32) -> u32 {
    entry_hash(name, &sum.to_le_bytes())
}

/// Whether that is the hash of such an entry, in the form of drivers whose characters are signed, too.
#[must_use]
pub fn is_held_hash(stored: u32, name: &[u8], sum: u32) -> bool {
    hash::accepted(name, &sum.to_le_bytes()).contains(&stored)
}

impl XattrEntry<'_> {
    /// Whether its value is in an inode of its own.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.value, XattrValue::Inode { .. })
    }
}
