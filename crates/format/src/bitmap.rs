//! Block and inode bitmaps: one bit per cluster or inode of a group, lowest bit of the lowest byte first.
//! Input: a bitmap's block and its group's checked descriptor. Output: bits, counts, or a checksum error.
//! Invariant: bits past the group's end are never counted as free. Limit: a bitmap of an uninitialised group
//! (descriptor flags) was never written; ask the descriptor before reading it.
//! Source: the kernel's ext4 documentation, "bitmaps", "checksums".

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::num;
use crate::superblock::Superblock;

/// Which of a group's two bitmaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitmapKind {
    /// Clusters in use.
    Block,
    /// Inodes in use.
    Inode,
}

impl BitmapKind {
    /// As messages call it.
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

/// Compares a bitmap with the sum in its descriptor; `stored` has 32 bits or, with 32-byte descriptors, 16.
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
    let mut computed = checksum(sb, kind, bitmap)?;
    if sb.geometry().desc_size() < 64 {
        computed &= 0xFFFF;
    }
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

/// Whether bit `n` is set; `None` past the end of the slice.
#[must_use]
pub fn test(bitmap: &[u8], n: u32) -> Option<bool> {
    let byte = bitmap.get(num::usize32(n >> 3))?;
    Some(byte & 1u8.checked_shl(n & 7)? != 0)
}

/// Clear bits among the first `bits`.
#[must_use]
pub fn count_zeros(bitmap: &[u8], bits: u32) -> u32 {
    let whole = num::usize32(bits >> 3);
    let full: u32 = bitmap
        .iter()
        .take(whole)
        .fold(0u32, |n, b| n.saturating_add(b.count_zeros()));
    let rest = bits & !7;
    let tail = (rest..bits)
        .filter(|n| test(bitmap, *n) == Some(false))
        .count();
    full.saturating_add(num::sat32(num::wide(tail)))
}

/// First clear bit in `from..to`, if any.
#[must_use]
pub fn next_zero(bitmap: &[u8], from: u32, to: u32) -> Option<u32> {
    let mut n = from;
    while n < to {
        let byte = bitmap.get(num::usize32(n >> 3))?;
        if n & 7 == 0 && *byte == 0xFF {
            n = n.saturating_add(8);
            continue;
        }
        if test(bitmap, n) == Some(false) {
            return Some(n);
        }
        n = n.saturating_add(1);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_little_endian() {
        let map = [0b0000_0101u8, 0x80];
        let set: Vec<u32> = (0..16).filter(|n| test(&map, *n) == Some(true)).collect();
        assert_eq!(set, [0, 2, 15]);
        assert_eq!(test(&map, 16), None);
        assert_eq!(
            (
                count_zeros(&map, 16),
                count_zeros(&map, 3),
                count_zeros(&map, 15)
            ),
            (13, 1, 13)
        );
        assert_eq!(next_zero(&[0xFF, 0xFF, 0x01], 0, 24), Some(17));
        assert_eq!(next_zero(&[0xFF], 0, 24), None);
    }
}
