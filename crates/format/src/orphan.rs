//! A block of the orphan file: inodes that were deleted or being truncated while open.
//! Input: the orphan file's inode and one of its blocks. Output: the inode numbers in it.
//! Invariant: every number is that of an ordinary inode of the volume. Limit: the older list through `dtime`
//! starts at [`crate::Superblock::last_orphan`] and is walked by the engine, which must notice loops.
//! Source: the kernel's ext4 documentation, "orphan file"; the checksum's seed found by experiment with
//! mke2fs -O orphan_file.

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::inode::Inode;
use crate::layout::orphan_tail;
use crate::le::le32;
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FsBlock, Ino};

const MAGIC: u32 = 0x0B10_CA04;

/// Checks block `block` (a volume block, part of the checksum) of the orphan file and returns the orphans in it.
///
/// # Errors
/// `Short`, `OrphanMagic`, `OrphanChecksum` (metadata_csum), `OrphanIno`.
pub fn parse_block(
    sb: &Superblock,
    orphan_file: &Inode,
    block: FsBlock,
    raw: &[u8],
) -> Result<Vec<Ino>> {
    let size = num::usize32(sb.block_size());
    want("a block of the orphan file", raw, size)?;
    let b = raw.get(..size).unwrap_or(&[]);
    let (slots, tail) = b.split_at(size.saturating_sub(orphan_tail::SIZE).min(b.len()));
    let found = le32(tail, orphan_tail::MAGIC);
    if found != MAGIC {
        return bad(Corrupt::OrphanMagic { block, found });
    }
    let (stored, computed) = (
        le32(tail, orphan_tail::CHECKSUM),
        checksum(orphan_file, block, b),
    );
    if sb.has_metadata_csum() && stored != computed {
        return bad(Corrupt::OrphanChecksum {
            block,
            stored,
            computed,
        });
    }
    let (first, last) = (sb.geometry().first_ino(), sb.geometry().inodes_count());
    let mut list = Vec::new();
    for (index, slot) in (0u32..).zip(slots.chunks_exact(4)) {
        let found = le32(slot, 0);
        if found != 0 && (found < first || found > last) {
            return bad(Corrupt::OrphanIno {
                block,
                index,
                found,
                first,
                last,
            });
        }
        if found != 0 {
            list.push(Ino::new(found));
        }
    }
    Ok(list)
}

/// The checksum that a block should carry: the file's seed, the block's number, its slots.
#[must_use]
pub fn checksum(orphan_file: &Inode, block: FsBlock, bytes: &[u8]) -> u32 {
    let sum = csum::crc32c(orphan_file.csum_seed(), &block.get().to_le_bytes());
    let covered = bytes.len().saturating_sub(orphan_tail::SIZE);
    csum::crc32c(sum, bytes.get(..covered).unwrap_or(&[]))
}
