//! A block of the orphan file: inodes that were deleted while open, or that were being truncated.
//! Input: the orphan file's inode and one of its blocks. Output: the inode numbers in it, and
//! slots changed.
//! Invariant: every number is that of an ordinary inode of the volume. Limit: the older list through `dtime` starts at
//! [`crate::Superblock::last_orphan`]; the engine walks it and must detect loops.
//! Source: the kernel's ext4 documentation, "orphan file"; the checksum's seed found by experiment with
//! mke2fs -O orphan_file.

use crate::csum;
use crate::error::{Corrupt, Result, Unfit, bad, fit, room, want};
use crate::inode::Inode;
use crate::layout::orphan_tail;
use crate::le::{le32, put_le32};
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
    verify(sb, orphan_file, block, b)?;
    let (first, last) = (sb.geometry().first_ino(), sb.geometry().inodes_count());
    let mut list = Vec::new();
    for index in 0..slots_per_block(sb) {
        let found = slot(b, index);
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

fn verify(sb: &Superblock, orphan_file: &Inode, block: FsBlock, b: &[u8]) -> Result<()> {
    let tail = b.get(tail_at(b)..).unwrap_or(&[]);
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
    Ok(())
}

/// The checksum of a checked block on a volume without checksums, where nobody writes one. None if it is 0, as it should be.
#[must_use]
pub fn stray_checksum(sb: &Superblock, raw: &[u8]) -> Option<u32> {
    let b = raw.get(..num::usize32(sb.block_size())).unwrap_or(raw);
    let tail = b.get(tail_at(b)..).unwrap_or(&[]);
    let stored = le32(tail, orphan_tail::CHECKSUM);
    (!sb.has_metadata_csum() && stored != 0).then_some(stored)
}

/// How many inode numbers fit in a block.
#[must_use]
pub fn slots_per_block(sb: &Superblock) -> u32 {
    sb.block_size()
        .saturating_sub(num::count32(orphan_tail::SIZE))
        >> 2
}

/// The first slot of a checked block, from `from` on, that names no inode.
#[must_use]
pub fn free_slot(sb: &Superblock, raw: &[u8], from: u32) -> Option<u32> {
    (from..slots_per_block(sb)).find(|n| slot(raw, *n) == 0)
}

/// The slot of a checked block that names `ino`.
#[must_use]
pub fn find_slot(sb: &Superblock, raw: &[u8], ino: Ino) -> Option<u32> {
    (0..slots_per_block(sb)).find(|n| slot(raw, *n) == ino.get())
}

/// Fills `raw` with a block of the orphan file that names no inode; `block` is its volume block, part of the checksum.
///
/// # Errors
/// `Short`.
pub fn init_block(
    sb: &Superblock,
    orphan_file: &Inode,
    block: FsBlock,
    raw: &mut [u8],
) -> core::result::Result<(), Unfit> {
    let b = room(
        "a block of the orphan file",
        raw,
        num::usize32(sb.block_size()),
    )?;
    b.fill(0);
    let at = tail_at(b).saturating_add(orphan_tail::MAGIC);
    put_le32(b, at, MAGIC);
    seal(sb, orphan_file, block, b);
    Ok(())
}

/// Writes the checksum of the block with this number. Does nothing without metadata_csum.
pub fn seal(sb: &Superblock, orphan_file: &Inode, block: FsBlock, b: &mut [u8]) {
    if sb.has_metadata_csum() {
        let sum = checksum(orphan_file, block, b);
        let at = tail_at(b).saturating_add(orphan_tail::CHECKSUM);
        put_le32(b, at, sum);
    }
}

/// Writes an inode's number into a slot of a checked block, or clears the slot with [`Ino`] 0, and updates the checksum.
///
/// # Errors
/// `Short`; `Value` for a slot or inode past the last; `Rule` for a reserved inode.
pub fn set_slot(
    sb: &Superblock,
    orphan_file: &Inode,
    block: FsBlock,
    raw: &mut [u8],
    slot: u32,
    ino: Ino,
) -> core::result::Result<(), Unfit> {
    let b = room(
        "a block of the orphan file",
        raw,
        num::usize32(sb.block_size()),
    )?;
    let last = slots_per_block(sb).saturating_sub(1);
    fit(
        "a slot of the orphan file",
        u64::from(slot),
        u64::from(last),
    )?;
    let max = sb.geometry().inodes_count();
    fit("an orphan's number", u64::from(ino.get()), u64::from(max))?;
    if !ino.is_none() && ino.get() < sb.geometry().first_ino() {
        return Err(Unfit::Rule {
            what: "an orphan's number",
            why: "that inode is reserved",
        });
    }
    put_le32(b, num::usize32(slot).saturating_mul(4), ino.get());
    seal(sb, orphan_file, block, b);
    Ok(())
}

fn slot(b: &[u8], n: u32) -> u32 {
    le32(b, num::usize32(n).saturating_mul(4))
}

fn tail_at(b: &[u8]) -> usize {
    b.len().saturating_sub(orphan_tail::SIZE)
}

/// The checksum of a block: over the file's seed, the block's number, and its slots.
#[must_use]
pub fn checksum(orphan_file: &Inode, block: FsBlock, bytes: &[u8]) -> u32 {
    let sum = csum::crc32c(orphan_file.csum_seed(), &block.get().to_le_bytes());
    let covered = bytes.len().saturating_sub(orphan_tail::SIZE);
    csum::crc32c(sum, bytes.get(..covered).unwrap_or(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::inode as at;
    use crate::superblock::tests::sample;

    #[test]
    fn slots_are_set_found_and_emptied() {
        let sb = Superblock::parse(&sample()).unwrap();
        let mut inode = [0u8; 256];
        inode[at::MODE + 1] = 0x81;
        inode[at::LINKS_COUNT] = 1;
        let file = Inode::parse(&sb, Ino::new(12), &inode).unwrap();
        let at = FsBlock::new(99);
        let mut raw = vec![0u8; 1024];
        put_le32(&mut raw, 1016, MAGIC);
        assert_eq!(
            (slots_per_block(&sb), free_slot(&sb, &raw, 0)),
            (254, Some(0))
        );
        let mut set = |slot, ino| {
            let done = set_slot(&sb, &file, at, &mut raw, slot, Ino::new(ino)).is_ok();
            let list = parse_block(&sb, &file, at, &raw).unwrap();
            let inos: Vec<u32> = list.into_iter().map(Ino::get).collect();
            (
                done,
                inos,
                free_slot(&sb, &raw, 0),
                find_slot(&sb, &raw, Ino::new(50)),
            )
        };
        assert_eq!(set(0, 60), (true, vec![60], Some(1), None));
        assert_eq!(set(253, 50), (true, vec![60, 50], Some(1), Some(253)));
        assert_eq!(set(0, 0), (true, vec![50], Some(0), Some(253)));
        for (slot, ino) in [(254, 60), (1, 10), (1, 8193), (u32::MAX, 60)] {
            assert_eq!(set(slot, ino), (false, vec![50], Some(0), Some(253)));
        }
    }
}
