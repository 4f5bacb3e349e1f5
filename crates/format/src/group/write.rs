//! Writes a changed group descriptor back into its bytes.
//! Input: a checked [`GroupDesc`] whose counts, flags or bitmap checksums were changed, and the bytes it was parsed from.
//! Output: those bytes with the changes and their checksum. Invariant: the places of bitmaps and table, and bytes that this
//! crate does not know, are kept; on an error nothing changes. Limit: a mounted volume does not update the copies of the
//! descriptors, so nothing here does.
//! Source: the kernel's ext4 documentation, "block group descriptors", "checksums"; e2fsck on changed images in tests.

use crate::bitmap::{self, BitmapKind};
use crate::error::{Result, Unfit, fit, room};
use crate::layout::gd;
use crate::le::{le16, put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;

use super::{GroupDesc, checksum};

type Field = (&'static str, u32, usize, usize);

impl GroupDesc {
    /// Writes counts, flags and bitmap checksums into `raw` with the descriptor's checksum. Without descriptor checksums, the
    /// flags of uninitialised groups and the number of never used inodes have no meaning and are kept as stored.
    ///
    /// # Errors
    /// `Short`; `Value` for a count above what the group has, or above what a 32-byte descriptor can store.
    pub fn write(&self, sb: &Superblock, raw: &mut [u8]) -> core::result::Result<(), Unfit> {
        let size = num::usize32(sb.geometry().desc_size());
        let b = room("a group descriptor", raw, size)?;
        let wide = size >= gd::SIZE;
        self.check_fit(sb)?;
        for (_, value, lo, hi) in self.fields() {
            put_count(b, value, lo, hi, wide);
        }
        if sb.features().descriptor_sums() {
            put_le16(b, gd::FLAGS, self.flags.bits());
            put_count(
                b,
                self.itable_unused,
                gd::ITABLE_UNUSED_LO,
                gd::ITABLE_UNUSED_HI,
                wide,
            );
        } else {
            let meaningless = le16(b, gd::FLAGS) & 3;
            put_le16(b, gd::FLAGS, self.flags.bits() & !3 | meaningless);
        }
        if let Some(sum) = checksum(sb, self.group, b) {
            put_le16(b, gd::CHECKSUM, sum);
        }
        Ok(())
    }

    /// As [`Self::write`], into bytes whose old contents are all dropped, with the places of bitmaps and table: for a new group.
    ///
    /// # Errors
    /// `Short`; `Value` for a place or a count that the descriptor cannot store.
    pub fn write_new(&self, sb: &Superblock, raw: &mut [u8]) -> core::result::Result<(), Unfit> {
        let size = num::usize32(sb.geometry().desc_size());
        let b = room("a group descriptor", raw, size)?;
        self.check_fit(sb)?;
        b.fill(0);
        self.write_moved(sb, b)
    }

    /// As [`Self::write`], with the places of bitmaps and table: for a group whose structures have moved.
    ///
    /// # Errors
    /// As [`Self::write_new`].
    pub fn write_moved(&self, sb: &Superblock, raw: &mut [u8]) -> core::result::Result<(), Unfit> {
        let size = num::usize32(sb.geometry().desc_size());
        let b = room("a group descriptor", raw, size)?;
        let wide = size >= gd::SIZE;
        let most = if wide { u64::MAX } else { u64::from(u32::MAX) };
        for (what, block, lo, hi) in [
            (
                "a block bitmap's place",
                self.block_bitmap,
                gd::BLOCK_BITMAP_LO,
                gd::BLOCK_BITMAP_HI,
            ),
            (
                "an inode bitmap's place",
                self.inode_bitmap,
                gd::INODE_BITMAP_LO,
                gd::INODE_BITMAP_HI,
            ),
            (
                "an inode table's place",
                self.inode_table,
                gd::INODE_TABLE_LO,
                gd::INODE_TABLE_HI,
            ),
        ] {
            fit(what, block.get(), most)?;
            let (high, low) = num::split(block.get());
            put_le32(b, lo, low);
            if wide {
                put_le32(b, hi, high);
            }
        }
        self.write(sb, b)
    }

    fn fields(&self) -> [Field; 5] {
        [
            (
                "free clusters",
                self.free_clusters,
                gd::FREE_BLOCKS_COUNT_LO,
                gd::FREE_BLOCKS_COUNT_HI,
            ),
            (
                "free inodes",
                self.free_inodes,
                gd::FREE_INODES_COUNT_LO,
                gd::FREE_INODES_COUNT_HI,
            ),
            (
                "directories",
                self.used_dirs,
                gd::USED_DIRS_COUNT_LO,
                gd::USED_DIRS_COUNT_HI,
            ),
            (
                "a block bitmap's sum",
                self.block_bitmap_csum,
                gd::BLOCK_BITMAP_CSUM_LO,
                gd::BLOCK_BITMAP_CSUM_HI,
            ),
            (
                "an inode bitmap's sum",
                self.inode_bitmap_csum,
                gd::INODE_BITMAP_CSUM_LO,
                gd::INODE_BITMAP_CSUM_HI,
            ),
        ]
    }

    /// Checks that [`Self::write`] can store it.
    ///
    /// # Errors
    /// As [`Self::write`], without `Short`.
    pub fn check_fit(&self, sb: &Superblock) -> core::result::Result<(), Unfit> {
        let wide = num::usize32(sb.geometry().desc_size()) >= gd::SIZE;
        let stored = if wide { u32::MAX } else { 0xFFFF };
        for (what, value, _, _) in self.fields() {
            fit(what, u64::from(value), u64::from(stored))?;
        }
        let inodes = sb.geometry().inodes_per_group();
        for (what, value, max) in [
            (
                "free clusters",
                self.free_clusters,
                sb.group_clusters(self.group),
            ),
            ("free inodes", self.free_inodes, inodes),
            ("directories", self.used_dirs, inodes),
            ("never used inodes", self.itable_unused, inodes),
        ] {
            fit(what, u64::from(value), u64::from(max))?;
        }
        Ok(())
    }

    /// Stores the checksum of the group's changed block bitmap. Does nothing without metadata_csum.
    ///
    /// # Errors
    /// `Short`.
    pub fn seal_block_bitmap(&mut self, sb: &Superblock, bitmap: &[u8]) -> Result<()> {
        if sb.has_metadata_csum() {
            let sum = bitmap::checksum(sb, BitmapKind::Block, bitmap)?;
            self.block_bitmap_csum = bitmap::stored_sum(sb, sum);
        }
        Ok(())
    }

    /// Stores the checksum of the group's changed inode bitmap. Does nothing without metadata_csum.
    ///
    /// # Errors
    /// `Short`.
    pub fn seal_inode_bitmap(&mut self, sb: &Superblock, bitmap: &[u8]) -> Result<()> {
        if sb.has_metadata_csum() {
            let sum = bitmap::checksum(sb, BitmapKind::Inode, bitmap)?;
            self.inode_bitmap_csum = bitmap::stored_sum(sb, sum);
        }
        Ok(())
    }
}

fn put_count(b: &mut [u8], value: u32, lo: usize, hi: usize, wide: bool) {
    let (high, low) = num::halves(value);
    put_le16(b, lo, low);
    if wide {
        put_le16(b, hi, high);
    }
}
