//! A group descriptor: the places of a group's bitmaps and inode table, and its free counts.
//! Input: the descriptor's bytes, found with [`Superblock::desc_place`]. Output: [`GroupDesc`], checked. Invariant: bitmaps and
//! table lie inside the volume (inside the group without flex_bg); no count is larger than the group. Limit: that no two
//! structures overlap is checked by `diorite-check`, which sees all groups.
//! Source: the kernel's ext4 documentation, "block group descriptors"; compared with `dumpe2fs` in tests.

use crate::bitmap::{self, BitmapKind};
use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::features::{Incompat, RoCompat};
use crate::layout::gd;
use crate::le::{le16, le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FsBlock, GroupNo};

#[cfg(test)]
mod tests;
mod write;

/// The counts of a group descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCounts {
    /// The group.
    pub group: GroupNo,
    /// Free clusters.
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
}

/// A run of clusters of a group, by their bits in its bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRun {
    /// The group.
    pub group: GroupNo,
    /// The first one.
    pub start: u32,
    /// Their number.
    pub len: u32,
}

/// Bits of `bg_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct GroupFlags(u16);

impl GroupFlags {
    /// The flags of a group of a new file system: which of its bitmaps are never written, and whether its inode table is zeroed.
    #[must_use]
    pub const fn of_new(inode_uninit: bool, block_uninit: bool, itable_zeroed: bool) -> Self {
        let mut bits = 0;
        if inode_uninit {
            bits |= 1;
        }
        if block_uninit {
            bits |= 2;
        }
        if itable_zeroed {
            bits |= 4;
        }
        Self(bits)
    }

    /// The bits as stored.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The inode bitmap and table were never written: all inodes are free.
    #[must_use]
    pub const fn inode_uninit(self) -> bool {
        self.0 & 1 != 0
    }

    /// The block bitmap was never written: only the group's own metadata is in use.
    #[must_use]
    pub const fn block_uninit(self) -> bool {
        self.0 & 2 != 0
    }

    /// These flags without the mark that the inode bitmap was never written.
    #[must_use]
    pub const fn without_inode_uninit(self) -> Self {
        Self(self.0 & !1)
    }

    /// These flags without the mark that the block bitmap was never written.
    #[must_use]
    pub const fn without_block_uninit(self) -> Self {
        Self(self.0 & !2)
    }

    /// These flags with the mark that the unused part of the inode table is zeroed.
    #[must_use]
    pub const fn with_itable_zeroed(self) -> Self {
        Self(self.0 | 4)
    }

    /// The unused part of the inode table is zeroed.
    #[must_use]
    pub const fn itable_zeroed(self) -> bool {
        self.0 & 4 != 0
    }
}

/// A checked group descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDesc {
    /// Which group.
    pub group: GroupNo,
    /// Block of the block bitmap.
    pub block_bitmap: FsBlock,
    /// Block of the inode bitmap.
    pub inode_bitmap: FsBlock,
    /// First block of the inode table.
    pub inode_table: FsBlock,
    /// Free clusters (blocks without bigalloc).
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Inodes that are directories.
    pub used_dirs: u32,
    /// Flags; the flags of uninitialised groups are clear unless the volume has descriptor checksums.
    pub flags: GroupFlags,
    /// Inodes at the end of the table that were never used; 0 without descriptor checksums.
    pub itable_unused: u32,
    /// Stored checksum of the block bitmap: 32 bits, or 16 with 32-byte descriptors.
    pub block_bitmap_csum: u32,
    /// Stored checksum of the inode bitmap, likewise.
    pub inode_bitmap_csum: u32,
}

impl GroupDesc {
    /// Stands for a descriptor that cannot be read: it has no places and counts nothing.
    #[must_use]
    pub fn unknown(group: GroupNo) -> Self {
        Self {
            group,
            block_bitmap: FsBlock::NONE,
            inode_bitmap: FsBlock::NONE,
            inode_table: FsBlock::NONE,
            free_clusters: 0,
            free_inodes: 0,
            used_dirs: 0,
            flags: GroupFlags::default(),
            itable_unused: 0,
            block_bitmap_csum: 0,
            inode_bitmap_csum: 0,
        }
    }

    /// Parses the descriptor of `group`; `raw` starts at the descriptor and may be longer.
    ///
    /// # Errors
    /// `GroupRange`, `Short`, `DescChecksum` (metadata_csum or uninit_bg), `DescBlock`, `DescCount`.
    pub fn parse(sb: &Superblock, group: GroupNo, raw: &[u8]) -> Result<Self> {
        let desc = Self::parse_places(sb, group, raw)?;
        desc.check_counts(sb)?;
        Ok(desc)
    }

    /// As [`GroupDesc::parse`], of a volume whose log is not replayed: the counts are not checked. They may be those of a larger volume, if
    /// it grew shortly before a crash.
    ///
    /// # Errors
    /// As [`GroupDesc::parse`], without `DescCount`.
    pub fn parse_places(sb: &Superblock, group: GroupNo, raw: &[u8]) -> Result<Self> {
        sb.check_group(group.get())?;
        let size = num::usize32(sb.geometry().desc_size());
        want("a group descriptor", raw, size)?;
        let b = raw.get(..size).unwrap_or(&[]);
        verify_sum(sb, group, b)?;
        let wide = size >= gd::SIZE;
        let sums = sb.features().descriptor_sums();
        let mut desc = Self {
            group,
            block_bitmap: pointer(b, gd::BLOCK_BITMAP_LO, gd::BLOCK_BITMAP_HI, wide),
            inode_bitmap: pointer(b, gd::INODE_BITMAP_LO, gd::INODE_BITMAP_HI, wide),
            inode_table: pointer(b, gd::INODE_TABLE_LO, gd::INODE_TABLE_HI, wide),
            free_clusters: count(b, gd::FREE_BLOCKS_COUNT_LO, gd::FREE_BLOCKS_COUNT_HI, wide),
            free_inodes: count(b, gd::FREE_INODES_COUNT_LO, gd::FREE_INODES_COUNT_HI, wide),
            used_dirs: count(b, gd::USED_DIRS_COUNT_LO, gd::USED_DIRS_COUNT_HI, wide),
            flags: GroupFlags(le16(b, gd::FLAGS)),
            itable_unused: count(b, gd::ITABLE_UNUSED_LO, gd::ITABLE_UNUSED_HI, wide),
            block_bitmap_csum: count(b, gd::BLOCK_BITMAP_CSUM_LO, gd::BLOCK_BITMAP_CSUM_HI, wide),
            inode_bitmap_csum: count(b, gd::INODE_BITMAP_CSUM_LO, gd::INODE_BITMAP_CSUM_HI, wide),
        };
        if !sums {
            desc.itable_unused = 0;
            desc.flags = GroupFlags(desc.flags.0 & !3);
        }
        desc.check_places(sb)?;
        Ok(desc)
    }

    /// The places in the first half of a descriptor, which is the same whether a descriptor has 64 bytes or 32; no checksum is verified.
    /// For a volume whose descriptors change their size in its log, when that is not replayed yet.
    ///
    /// # Errors
    /// `GroupRange`, `Short`, `DescBlock`.
    pub fn parse_first_half(sb: &Superblock, group: GroupNo, raw: &[u8]) -> Result<Self> {
        sb.check_group(group.get())?;
        want("a group descriptor", raw, gd::BLOCK_BITMAP_HI)?;
        let place = |lo| FsBlock::new(u64::from(le32(raw, lo)));
        let desc = Self {
            block_bitmap: place(gd::BLOCK_BITMAP_LO),
            inode_bitmap: place(gd::INODE_BITMAP_LO),
            inode_table: place(gd::INODE_TABLE_LO),
            ..Self::unknown(group)
        };
        desc.check_places(sb)?;
        Ok(desc)
    }

    fn check_places(&self, sb: &Superblock) -> Result<()> {
        let flex = sb.features().incompat.has(Incompat::FLEX_BG);
        let (first, end) = if flex {
            (
                sb.geometry().first_data_block().get().saturating_add(1),
                sb.geometry().blocks_count(),
            )
        } else {
            let start = sb.group_first_block(self.group).get();
            (
                start,
                start.saturating_add(u64::from(sb.group_blocks(self.group))),
            )
        };
        for (what, block, len) in [
            ("block bitmap", self.block_bitmap, 1),
            ("inode bitmap", self.inode_bitmap, 1),
            (
                "inode table",
                self.inode_table,
                u64::from(sb.geometry().inode_table_blocks()),
            ),
        ] {
            let inside =
                block.get() >= first && block.get().checked_add(len).is_some_and(|e| e <= end);
            if !inside || !sb.holds(block, len) {
                return bad(Corrupt::DescBlock {
                    group: self.group,
                    what,
                    block,
                    len,
                    first,
                    end,
                });
            }
        }
        Ok(())
    }

    /// Compares the counts with what the group has.
    ///
    /// # Errors
    /// `DescCount`.
    pub fn check_counts(&self, sb: &Superblock) -> Result<()> {
        let inodes = sb.geometry().inodes_per_group();
        for (what, found, max) in [
            (
                "the number of free blocks",
                self.free_clusters,
                sb.group_clusters(self.group),
            ),
            ("the number of free inodes", self.free_inodes, inodes),
            ("the number of directories", self.used_dirs, inodes),
            (
                "the number of never used inodes",
                self.itable_unused,
                inodes,
            ),
        ] {
            if found > max {
                return bad(Corrupt::DescCount {
                    group: self.group,
                    what,
                    found,
                    max,
                });
            }
        }
        Ok(())
    }

    /// Compares the group's block bitmap with its checksum. Not for an uninitialised one.
    ///
    /// # Errors
    /// `Short`; `BitmapChecksum` with metadata_csum.
    pub fn verify_block_bitmap(&self, sb: &Superblock, bitmap: &[u8]) -> Result<()> {
        bitmap::verify(
            sb,
            self.group,
            BitmapKind::Block,
            self.block_bitmap_csum,
            bitmap,
        )
    }

    /// Compares the group's inode bitmap with its checksum. Not for an uninitialised one.
    ///
    /// # Errors
    /// `Short`; `BitmapChecksum` with metadata_csum.
    pub fn verify_inode_bitmap(&self, sb: &Superblock, bitmap: &[u8]) -> Result<()> {
        bitmap::verify(
            sb,
            self.group,
            BitmapKind::Inode,
            self.inode_bitmap_csum,
            bitmap,
        )
    }
}

/// The checksum of a descriptor: the low half of a crc32c, or a crc16; `None` without either feature.
#[must_use]
pub fn checksum(sb: &Superblock, group: GroupNo, desc: &[u8]) -> Option<u16> {
    let number = group.get().to_le_bytes();
    if sb.has_metadata_csum() {
        let seed = csum::crc32c(sb.csum_seed(), &number);
        return Some(num::low16(csum::crc32c_with_hole(
            seed,
            desc,
            gd::CHECKSUM,
            2,
        )));
    }
    if !sb.features().ro_compat.has(RoCompat::GDT_CSUM) {
        return None;
    }
    let before = desc.get(..gd::CHECKSUM).unwrap_or(&[]);
    let after = desc.get(gd::BLOCK_BITMAP_HI..).unwrap_or(&[]);
    Some(csum::crc16(&[sb.uuid(), &number, before, after]))
}

/// Whether the descriptor in `raw` marks its inodes as never written on a volume that cannot have that: the mark is ignored there, also by
/// the kernel, and by e2fsck unless the group has inodes in use.
#[must_use]
pub fn is_oddly_unwritten(sb: &Superblock, raw: &[u8]) -> bool {
    !sb.features().descriptor_sums() && GroupFlags(le16(raw, gd::FLAGS)).inode_uninit()
}

fn verify_sum(sb: &Superblock, group: GroupNo, desc: &[u8]) -> Result<()> {
    let stored = le16(desc, gd::CHECKSUM);
    match checksum(sb, group, desc) {
        Some(computed) if computed != stored => bad(Corrupt::DescChecksum {
            group,
            stored,
            computed,
        }),
        _ => Ok(()),
    }
}

fn pointer(b: &[u8], lo: usize, hi: usize, wide: bool) -> FsBlock {
    FsBlock::new(num::join(if wide { le32(b, hi) } else { 0 }, le32(b, lo)))
}

fn count(b: &[u8], lo: usize, hi: usize, wide: bool) -> u32 {
    let high = if wide { u32::from(le16(b, hi)) } else { 0 };
    u32::from(le16(b, lo)) | high << 16
}
