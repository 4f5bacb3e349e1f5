//! Block and inode bitmaps: one bit per cluster or inode of a group, lowest bit of the lowest byte first.
//! Input: a bitmap's block and its group's checked descriptor. Output: bits, counts, changed bits, or a checksum error.
//! Invariant: bits past the group's end never count as free. Limit: the bitmap of an uninitialised group (descriptor flags) was
//! never written; check the descriptor before reading it, and create it with [`fresh_blocks`] or [`fresh_inodes`].
//! Source: the kernel's ext4 documentation, "bitmaps", "checksums".

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::num;
use crate::superblock::Superblock;

mod fresh;
mod runs;

pub use fresh::{fresh_blocks, fresh_inodes, mark_blocks};
pub use runs::{
    BitClash, clear_range, count_ones, count_zeros, next_one, next_zero, next_zero_run, set_range,
    test,
};

/// Which of a group's two bitmaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitmapKind {
    /// Clusters in use.
    Block,
    /// Inodes in use.
    Inode,
}

impl BitmapKind {
    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Inode => "inode",
        }
    }

    /// Bytes of the bitmap that the checksum covers: one bit per cluster or inode of a full group.
    #[must_use]
    pub fn covered_bytes(self, sb: &Superblock) -> usize {
        let bits = match self {
            Self::Block => sb.geometry().clusters_per_group(),
            Self::Inode => sb.geometry().inodes_per_group(),
        };
        num::usize32(bits >> 3)
    }
}

/// The crc32c of a bitmap, 32 bits, of which a 32-byte descriptor stores the low half.
///
/// # Errors
/// `Short` if the slice has fewer bytes than the group has bits.
pub fn checksum(sb: &Superblock, kind: BitmapKind, bitmap: &[u8]) -> Result<u32> {
    let need = kind.covered_bytes(sb);
    want("a bitmap", bitmap, need)?;
    Ok(csum::crc32c(
        sb.csum_seed(),
        bitmap.get(..need).unwrap_or(&[]),
    ))
}

/// The checksum as a descriptor of this volume stores it: 32 bits, or 16 with 32-byte descriptors.
#[must_use]
pub fn stored_sum(sb: &Superblock, sum: u32) -> u32 {
    if sb.geometry().desc_size() < 64 {
        sum & 0xFFFF
    } else {
        sum
    }
}

/// Compares a bitmap with the checksum in its descriptor; `stored` has 32 bits, or 16 with 32-byte descriptors.
pub(crate) fn verify(
    sb: &Superblock,
    group: crate::types::GroupNo,
    kind: BitmapKind,
    stored: u32,
    bitmap: &[u8],
) -> Result<()> {
    if !sb.has_metadata_csum() {
        return want("a bitmap", bitmap, kind.covered_bytes(sb));
    }
    let computed = stored_sum(sb, checksum(sb, kind, bitmap)?);
    if computed != stored {
        return bad(Corrupt::BitmapChecksum {
            group,
            what: kind.name(),
            stored,
            computed,
        });
    }
    Ok(())
}
