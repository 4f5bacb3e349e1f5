//! Where copies of the superblock may lie if the primary cannot be read.
//! Input: nothing but a device size. Output: byte offsets to try, in a fixed order.
//! Invariant: at most 7 x 10 candidates, none beyond the device. Limit: volumes made with an unusual number of
//! blocks per group, or with sparse_super2 backups elsewhere, are not guessed.
//! Source: man 8 e2fsck (`-b`), man 5 ext4 (sparse_super).

use std::ops::Range;

use crate::layout::sb;
use crate::le::{le32, put, put_le32};
use crate::num;
use crate::types::DevByte;

use super::{SUPERBLOCK_SIZE, SuperblockEdit};

/// Groups with a copy under sparse_super, nearest first: 1 and the first powers of 3, 5 and 7.
const GROUPS: [u32; 10] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125];

/// A place to look for a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupCandidate {
    /// Byte offset from the start of the volume.
    pub at: DevByte,
    /// The block size for which this is the place of a backup; a copy found here must have this block size, and `group` in
    /// `s_block_group_nr`.
    pub block_size: u32,
    /// The group that starts there.
    pub group: u32,
}

/// Places of copies for every block size, most common first, on a device of `device_bytes`.
#[must_use]
pub fn backup_candidates(device_bytes: u64) -> Vec<BackupCandidate> {
    let mut out = Vec::new();
    for bits in [12u32, 10, 11, 16, 13, 14, 15] {
        let block_size = 1u64.checked_shl(bits).unwrap_or(0);
        let per_group = block_size.saturating_mul(8);
        let first = u64::from(bits == 10);
        for group in GROUPS {
            let block = per_group
                .saturating_mul(u64::from(group))
                .saturating_add(first);
            let at = block.saturating_mul(block_size);
            if at.saturating_add(1024) <= device_bytes {
                out.push(BackupCandidate {
                    at: DevByte::new(at),
                    block_size: num::sat32(block_size),
                    group,
                });
            }
        }
    }
    out
}

/// Turns the bytes of a copy into those of a primary superblock: in group 0, with a valid checksum. `torn` is the primary,
/// whose checksum is wrong.
///
/// No copy has the head of the orphan list, so it is taken from the torn primary if possible. A disk writes a sector as a unit:
/// if the fields around the head are those of the volume and never change while it is in use, then that sector was written with
/// the head, either before the torn write or by it.
pub fn as_primary(raw: &mut [u8; SUPERBLOCK_SIZE], torn: &[u8; SUPERBLOCK_SIZE]) {
    put(raw, sb::BLOCK_GROUP_NR, &0u16.to_le_bytes());
    if is_same_volume(raw, torn) {
        put_le32(raw, sb::LAST_ORPHAN, le32(torn, sb::LAST_ORPHAN));
    }
    SuperblockEdit::new(raw).seal();
}

/// Whether the first sectors of two superblocks are of the same volume: what never changes while it is in use is the same.
#[must_use]
pub fn is_same_volume(one: &[u8; SUPERBLOCK_SIZE], other: &[u8; SUPERBLOCK_SIZE]) -> bool {
    let same = |part: Range<usize>| one.get(part.clone()) == other.get(part);
    LASTING.into_iter().all(same)
}

/// Whether a copy may stand in for a superblock whose checksum is wrong, if there is none of [`is_same_volume`]: it has the same geometry
/// of blocks and groups, and either the same UUID or all else that never changes. Any other copy was left by an older file system, where
/// nothing lies now: of two volumes that were made with the same UUID in the same place, only the geometry tells which one is there.
#[must_use]
pub fn may_stand_in(copy: &[u8; SUPERBLOCK_SIZE], torn: &[u8; SUPERBLOCK_SIZE]) -> bool {
    let same = |part: Range<usize>| copy.get(part.clone()) == torn.get(part);
    let mut others = LASTING.into_iter().filter(|part| *part != UUID);
    same(GEOMETRY) && (same(UUID) || others.all(same))
}

const UUID: Range<usize> = sb::UUID..sb::VOLUME_NAME;

/// The sizes of blocks, clusters and groups, and the number of inodes of a group.
const GEOMETRY: Range<usize> = sb::FIRST_DATA_BLOCK..sb::MTIME;

/// The fields of the first sector that never change: counts of inodes and blocks, the geometry of groups, the volume's UUID, the
/// place of the journal, the hash seed.
const LASTING: [Range<usize>; 5] = [
    sb::INODES_COUNT..sb::R_BLOCKS_COUNT_LO,
    GEOMETRY,
    UUID,
    sb::JOURNAL_INUM..sb::LAST_ORPHAN,
    sb::HASH_SEED..sb::DEF_HASH_VERSION,
];
