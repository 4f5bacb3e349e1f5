//! The block map of ext2 and ext3: 12 direct pointers, then single, double and triple indirect blocks.
//! Input: an inode's `i_block` and blocks of 32-bit pointers. Output: the path to a file block; pointers, read or changed.
//! Invariant: a returned pointer is 0 (a hole) or lies inside the volume; a path has at most four steps.
//! Source: the kernel's ext4 documentation, "direct/indirect block addressing".

use crate::error::{Corrupt, Result, Unfit, bad, fit, room, want};
use crate::inode::{I_BLOCK_SIZE, Inode};
use crate::le::{le32, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FileBlock, FsBlock, Ino, Place};

/// Direct pointers in the inode.
pub const DIRECT: u32 = 12;

/// The path to a file block: a slot of `i_block`, then a slot of each indirect block.
///
/// Example, 1 KiB blocks (256 pointers in a block): file block 12 + 256 + 3 is `i_block[13]`, slot 0, slot 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectPath {
    /// Slot of `i_block`, 0..=14.
    pub root: u32,
    slots: [u32; 3],
    levels: usize,
    /// File blocks from this one on, including it, whose pointers are in the same indirect block (or in the inode): at least 1.
    pub run: u32,
}

impl IndirectPath {
    /// The path to `block`.
    ///
    /// # Errors
    /// `FileBlockTooLarge` beyond three levels.
    pub fn of(sb: &Superblock, ino: Ino, block: FileBlock) -> Result<Self> {
        let per = u64::from(pointers_per_block(sb));
        let bits = sb.geometry().block_bits().saturating_sub(2);
        let max = max_file_blocks(sb);
        if block.get() >= max {
            return bad(Corrupt::FileBlockTooLarge { ino, block, max });
        }
        let Some(mut rest) = block.get().checked_sub(u64::from(DIRECT)) else {
            let root = num::sat32(block.get());
            return Ok(Self {
                root,
                slots: [0; 3],
                levels: 0,
                run: DIRECT.saturating_sub(root),
            });
        };
        let mut levels = 1u32;
        let mut span = per;
        while rest >= span && levels < 3 {
            rest = rest.saturating_sub(span);
            span = span.saturating_mul(per);
            levels = levels.saturating_add(1);
        }
        let mut slots = [0u32; 3];
        for (n, slot) in slots.iter_mut().take(num::usize32(levels)).enumerate() {
            let below = levels
                .saturating_sub(1)
                .saturating_sub(num::sat32(num::wide(n)));
            let shifted = rest.checked_shr(bits.saturating_mul(below)).unwrap_or(0);
            *slot = num::sat32(shifted & per.saturating_sub(1));
        }
        let last = rest & per.saturating_sub(1);
        Ok(Self {
            root: DIRECT.saturating_add(levels).saturating_sub(1),
            slots,
            levels: num::usize32(levels),
            run: num::sat32(per.saturating_sub(last)),
        })
    }

    /// Slots in the indirect blocks, top first: none for a direct block, otherwise one to three.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        self.slots.get(..self.levels).unwrap_or(&[])
    }
}

/// 32-bit pointers in a block: 256..=16,384.
#[must_use]
pub fn pointers_per_block(sb: &Superblock) -> u32 {
    sb.block_size() >> 2
}

/// Maximum length in blocks of a file without extents: what three levels reach, and below 2^32.
#[must_use]
pub fn max_file_blocks(sb: &Superblock) -> u64 {
    let per = u64::from(pointers_per_block(sb));
    let two = per.saturating_mul(per);
    let all = u64::from(DIRECT)
        .saturating_add(per)
        .saturating_add(two)
        .saturating_add(two.saturating_mul(per));
    all.min(u64::from(u32::MAX))
}

/// The pointer in slot 0..=14 of `i_block`; block 0 is a hole. Slots above 14 read as holes.
///
/// # Errors
/// `IndirectPointer`.
pub fn root_pointer(sb: &Superblock, inode: &Inode, slot: u32) -> Result<FsBlock> {
    PointerBlock {
        sb,
        ino: inode.ino,
        at: Place::Inode,
        bytes: &inode.i_block,
    }
    .get(slot)
}

/// An indirect block.
#[derive(Debug, Clone, Copy)]
pub struct PointerBlock<'a> {
    sb: &'a Superblock,
    ino: Ino,
    at: Place,
    bytes: &'a [u8],
}

impl<'a> PointerBlock<'a> {
    /// Wraps the block that a pointer of a path led to.
    ///
    /// # Errors
    /// `Short`.
    pub fn new(sb: &'a Superblock, ino: Ino, block: FsBlock, raw: &'a [u8]) -> Result<Self> {
        let size = num::usize32(sb.block_size());
        want("a block of pointers", raw, size)?;
        Ok(Self {
            sb,
            ino,
            at: Place::Block(block),
            bytes: raw.get(..size).unwrap_or(&[]),
        })
    }

    /// The pointer in a slot; block 0 is a hole. Slots past the end read as holes.
    ///
    /// # Errors
    /// `IndirectPointer` outside the volume.
    pub fn get(&self, slot: u32) -> Result<FsBlock> {
        let block = FsBlock::new(u64::from(le32(
            self.bytes,
            num::usize32(slot).saturating_mul(4),
        )));
        if !block.is_none() && !self.sb.holds(block, 1) {
            return bad(Corrupt::IndirectPointer {
                ino: self.ino,
                at: self.at,
                index: slot,
                block,
            });
        }
        Ok(block)
    }

    /// All pointers of the block.
    ///
    /// # Errors
    /// `IndirectPointer` for the first that lies outside the volume.
    pub fn to_vec(&self) -> Result<Vec<FsBlock>> {
        (0..pointers_per_block(self.sb))
            .map(|slot| self.get(slot))
            .collect()
    }
}

/// Writes a pointer into a slot of an indirect block; block 0 makes a hole.
///
/// # Errors
/// `Short`; `Value` for a slot past the last or a block above 2^32-1; `Rule` for a block outside the volume.
pub fn set_pointer(
    sb: &Superblock,
    raw: &mut [u8],
    slot: u32,
    block: FsBlock,
) -> core::result::Result<(), Unfit> {
    let b = room("a block of pointers", raw, num::usize32(sb.block_size()))?;
    put_pointer(sb, b, slot, pointers_per_block(sb), block)
}

/// Writes a pointer into slot 0..=14 of `i_block`; block 0 makes a hole.
///
/// # Errors
/// As [`set_pointer`].
pub fn set_root_pointer(
    sb: &Superblock,
    i_block: &mut [u8; I_BLOCK_SIZE],
    slot: u32,
    block: FsBlock,
) -> core::result::Result<(), Unfit> {
    put_pointer(sb, i_block, slot, DIRECT.saturating_add(3), block)
}

fn put_pointer(
    sb: &Superblock,
    b: &mut [u8],
    slot: u32,
    slots: u32,
    block: FsBlock,
) -> core::result::Result<(), Unfit> {
    let what = "a block in a map of pointers";
    fit(
        "a slot of pointers",
        u64::from(slot),
        u64::from(slots.saturating_sub(1)),
    )?;
    fit(what, block.get(), u64::from(u32::MAX))?;
    if !block.is_none() && !sb.holds(block, 1) {
        let why = "outside the volume";
        return Err(Unfit::Rule { what, why });
    }
    put_le32(
        b,
        num::usize32(slot).saturating_mul(4),
        num::low32(block.get()),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::sample;

    #[test]
    fn paths_count_through_all_levels() {
        let sb = Superblock::parse(&sample()).unwrap();
        let path = |n: u64| {
            let p = IndirectPath::of(&sb, Ino::new(12), FileBlock::new(n)).unwrap();
            (p.root, p.slots().to_vec(), p.run)
        };
        assert_eq!(path(0), (0, vec![], 12));
        assert_eq!(path(11), (11, vec![], 1));
        assert_eq!(path(12), (12, vec![0], 256));
        assert_eq!(path(267), (12, vec![255], 1));
        assert_eq!(path(268), (13, vec![0, 0], 256));
        assert_eq!(path(12 + 256 + 3), (13, vec![0, 3], 253));
        assert_eq!(path(12 + 256 + 65536), (14, vec![0, 0, 0], 256));
        let last = 12 + 256 + 65536 + 256 * 65536 - 1;
        assert_eq!(path(last), (14, vec![255, 255, 255], 1));
        assert_eq!(max_file_blocks(&sb), last + 1);
        assert!(IndirectPath::of(&sb, Ino::new(12), FileBlock::new(last + 1)).is_err());
    }

    #[test]
    fn pointers_stay_in_the_volume() {
        let sb = Superblock::parse(&sample()).unwrap();
        let mut raw = [0u8; 1024];
        raw[4..8].copy_from_slice(&77u32.to_le_bytes());
        raw[8..12].copy_from_slice(&32768u32.to_le_bytes());
        let b = PointerBlock::new(&sb, Ino::new(12), FsBlock::new(50), &raw).unwrap();
        assert_eq!(
            (b.get(0).unwrap(), b.get(1).unwrap().get()),
            (FsBlock::NONE, 77)
        );
        assert!(b.get(2).is_err() && b.to_vec().is_err());
        assert!(b.get(u32::MAX).unwrap().is_none());
    }

    #[test]
    fn pointers_are_set() {
        let sb = Superblock::parse(&sample()).unwrap();
        let mut raw = [0u8; 1024];
        set_pointer(&sb, &mut raw, 255, FsBlock::new(77)).unwrap();
        let b = PointerBlock::new(&sb, Ino::new(12), FsBlock::new(50), &raw).unwrap();
        assert_eq!(
            (b.get(255).unwrap().get(), b.get(254).unwrap().get()),
            (77, 0)
        );
        let before = raw;
        for (slot, block) in [(256, 77), (0, 32768), (0, 1), (0, 1 << 32)] {
            assert!(set_pointer(&sb, &mut raw, slot, FsBlock::new(block)).is_err());
        }
        assert!(set_pointer(&sb, &mut raw[..1023], 0, FsBlock::new(77)).is_err());
        assert_eq!(raw, before);
        set_pointer(&sb, &mut raw, 255, FsBlock::NONE).unwrap();
        assert_eq!(raw, [0; 1024]);
        let mut i_block = [0u8; I_BLOCK_SIZE];
        set_root_pointer(&sb, &mut i_block, 14, FsBlock::new(99)).unwrap();
        assert_eq!(i_block[56..], [99, 0, 0, 0]);
        assert!(set_root_pointer(&sb, &mut i_block, 15, FsBlock::new(99)).is_err());
    }
}
