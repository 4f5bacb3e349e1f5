//! Attributes with the value in an inode of its own (ea_inode): the value's checksum, and the entry's hash. Input: names,
//! values. Output: checksums. Invariant: [`super::verify_ea_inode`] accepts what is written here. Limit: [`crate::inode`]
//! handles the inode's own fields. Source: the kernel's ext4 documentation, "extended attributes"; experiments with the
//! kernel's mount and debugfs.

use crate::csum;
use crate::inode::Inode;
use crate::superblock::Superblock;
use crate::types::Ino;

use super::{XattrEntry, XattrValue, entry_hash, hash};

/// The checksum of a value in an inode.
#[must_use]
pub fn value_sum(sb: &Superblock, value: &[u8]) -> u32 {
    continue_value_sum(sb.csum_seed(), value)
}

/// The checksum of a value whose beginning has the checksum `sum`, with `more` behind that.
#[must_use]
pub fn continue_value_sum(sum: u32, more: &[u8]) -> u32 {
    csum::crc32c(sum, more)
}

/// The hash of an entry with its value, of this checksum, in an inode.
#[must_use]
pub fn held_hash(name: &[u8], sum: u32) -> u32 {
    entry_hash(name, &sum.to_le_bytes())
}

/// Whether that is the hash of such an entry, also in the form of drivers with signed characters.
#[must_use]
pub fn is_held_hash(stored: u32, name: &[u8], sum: u32) -> bool {
    hash::accepted(name, &sum.to_le_bytes()).contains(&stored)
}

impl XattrEntry<'_> {
    /// Whether the value is in an inode of its own.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.value, XattrValue::Inode { .. })
    }

    /// Whether a value that is in the inode `holder` is in Lustre's old form, which counts for nobody: no hash fits, and the value's inode
    /// names the inode with the attribute, of this number and generation, by its time of modification and its own generation.
    #[must_use]
    pub fn is_lustre(&self, holder: &Inode, (owner, generation): (Ino, u32)) -> bool {
        !is_held_hash(self.hash, self.name, holder.value_checksum())
            && holder.mtime.secs & i64::from(u32::MAX) == i64::from(owner.get())
            && holder.generation == generation
    }
}
