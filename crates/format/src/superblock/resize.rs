//! A superblock of another size: what changes in it when the file system grows or shrinks.
//! Input: a checked superblock and [`NewSize`]. Output: the checked superblock of the new size; its numbers in the bytes of the old one.
//! Invariant: the sizes of blocks, clusters, groups and inodes stay, and so does everything that is not about the size or the descriptors.
//! Limit: free counts are set by those who count. Source: the kernel's ext4 documentation, "super block"; compared with resize2fs in tests.

use crate::error::Result;
use crate::features::{Compat, Incompat};
use crate::layout::sb;
use crate::le::{le32, put_le16, put_le32};
use crate::num;

use super::{SUPERBLOCK_SIZE, Superblock, SuperblockEdit};

/// The numbers of the new size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSize {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks that only root may use.
    pub reserved_blocks: u64,
    /// Blocks kept for more descriptors.
    pub reserved_gdt_blocks: u32,
    /// Groups with backups (sparse_super2); 0 = none.
    pub backup_groups: [u32; 2],
    /// Clusters of metadata; 0 = unknown.
    pub overhead_clusters: u32,
}

impl Superblock {
    /// This superblock for a volume of another size.
    ///
    /// # Errors
    /// `Corrupt`, as [`Superblock::parse`] of its bytes: too many blocks, groups or inodes, or too few.
    pub fn resized(&self, size: &NewSize) -> Result<Superblock> {
        let mut new = Superblock {
            geometry: self.geometry.resized(size, &self.features)?,
            ..self.clone()
        };
        new.info.overhead_clusters = size.overhead_clusters;
        Ok(new)
    }

    /// This superblock with other group descriptors: of 64 bytes (64bit) or of 32, and with those from block `first_meta_bg` of them on in
    /// the groups that they describe (meta_bg), or all in front. The blocks that are kept for more of them stay.
    ///
    /// # Errors
    /// `Corrupt`, as [`Superblock::parse`] of its bytes: more blocks than 32 bits count, without 64bit.
    pub fn with_descriptors(&self, wide: bool, first_meta_bg: Option<u32>) -> Result<Superblock> {
        let mut new = self.clone();
        let incompat = &mut new.features.incompat;
        let switch = |bits: Incompat, flag, on| match on {
            true => bits.with(flag),
            false => bits.without(flag),
        };
        if wide != incompat.has(Incompat::BIT64) {
            new.geometry.desc_size = if wide { 64 } else { 32 };
        }
        *incompat = switch(*incompat, Incompat::BIT64, wide);
        *incompat = switch(*incompat, Incompat::META_BG, first_meta_bg.is_some());
        new.geometry.first_meta_bg = first_meta_bg.unwrap_or(0);
        let g = &self.geometry;
        new.resized(&NewSize {
            blocks: g.blocks_count,
            reserved_blocks: g.r_blocks_count,
            reserved_gdt_blocks: g.reserved_gdt_blocks,
            backup_groups: g.backup_groups,
            overhead_clusters: self.info.overhead_clusters,
        })
    }
}

/// Sets the kind of group descriptors. What is not used keeps its bytes; where 64bit comes or goes the upper halves are 0.
fn set_descriptors(b: &mut [u8; SUPERBLOCK_SIZE], new: &Superblock, wide: bool) {
    let (is, own) = (
        &new.features.incompat,
        Incompat::BIT64.with(Incompat::META_BG),
    );
    let was = Incompat::from_bits(le32(b, sb::FEATURE_INCOMPAT));
    put_le32(
        b,
        sb::FEATURE_INCOMPAT,
        was.without(own).with(is.without(is.without(own))).bits(),
    );
    if was.has(Incompat::BIT64) != wide {
        put_le16(b, sb::DESC_SIZE, num::low16(new.geometry.desc_size));
        for hi in [
            sb::BLOCKS_COUNT_HI,
            sb::R_BLOCKS_COUNT_HI,
            sb::FREE_BLOCKS_COUNT_HI,
        ] {
            put_le32(b, hi, 0);
        }
    }
    if was.has(Incompat::META_BG) || is.has(Incompat::META_BG) {
        put_le32(b, sb::FIRST_META_BG, new.geometry.first_meta_bg);
    }
}

impl SuperblockEdit<'_> {
    /// Sets the size: blocks, inodes, descriptors, and what follows from them. `new` is made by [`Superblock::resized`] and
    /// [`Superblock::with_descriptors`] of these bytes.
    pub fn set_size(&mut self, new: &Superblock) {
        let (b, g) = (&mut *self.0, &new.geometry);
        let wide = new.features.incompat.has(Incompat::BIT64);
        set_descriptors(b, new, wide);
        for (value, lo, hi) in [
            (g.blocks_count, sb::BLOCKS_COUNT_LO, sb::BLOCKS_COUNT_HI),
            (
                g.r_blocks_count,
                sb::R_BLOCKS_COUNT_LO,
                sb::R_BLOCKS_COUNT_HI,
            ),
        ] {
            let (high, low) = num::split(value);
            put_le32(b, lo, low);
            if wide {
                put_le32(b, hi, high);
            }
        }
        put_le32(b, sb::INODES_COUNT, g.inodes_count);
        put_le16(
            b,
            sb::RESERVED_GDT_BLOCKS,
            num::low16(g.reserved_gdt_blocks),
        );
        put_le32(b, sb::OVERHEAD_CLUSTERS, new.info.overhead_clusters);
        if new.features.compat.has(Compat::SPARSE_SUPER2) {
            for (at, group) in [0, 4].into_iter().zip(g.backup_groups) {
                put_le32(b, sb::BACKUP_BGS.saturating_add(at), group);
            }
        }
    }

    /// Makes the bytes those of the copy in a group: of a volume that needs no recovery, and, as mke2fs and tune2fs write it, not marked as
    /// clean.
    pub fn set_copy_in(&mut self, group: u32) {
        put_le16(self.0, sb::BLOCK_GROUP_NR, num::low16(group));
        self.set_needs_recovery(false);
        self.set_orphan_present(false);
        self.set_valid(false);
        put_le32(self.0, sb::LAST_ORPHAN, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::sample;

    #[test]
    fn the_bytes_of_the_new_size_are_the_new_superblock() {
        let mut raw = sample();
        let old = Superblock::parse(&raw).expect("a sample");
        let g = old.geometry();
        let size = NewSize {
            blocks: g.blocks_count() + u64::from(g.blocks_per_group()) * 3,
            reserved_blocks: 77,
            reserved_gdt_blocks: 3,
            backup_groups: g.backup_groups,
            overhead_clusters: 99,
        };
        let new = old.resized(&size).expect("a size that can be");
        assert_eq!(new.group_count(), old.group_count() + 3);
        let mut edit = SuperblockEdit::new(&mut raw);
        edit.set_size(&new);
        edit.seal();
        let read = Superblock::parse(&raw).expect("what was written");
        assert_eq!(read, new);
    }

    #[test]
    fn the_bytes_with_other_descriptors_are_the_new_superblock() {
        let first = Superblock::parse(&sample()).expect("a sample");
        let is_wide = first.features().incompat.has(Incompat::BIT64);
        for (wide, meta) in [(!is_wide, None), (is_wide, Some(1)), (!is_wide, Some(0))] {
            let mut raw = sample();
            let new = first.with_descriptors(wide, meta).expect("descriptors");
            assert_eq!(new.geometry().desc_size(), if wide { 64 } else { 32 });
            let mut edit = SuperblockEdit::new(&mut raw);
            edit.set_size(&new);
            edit.seal();
            assert_eq!(Superblock::parse(&raw).expect("what was written"), new);
            // And back.
            let back = new.with_descriptors(is_wide, None).expect("descriptors");
            let mut edit = SuperblockEdit::new(&mut raw);
            edit.set_size(&back);
            edit.seal();
            assert_eq!(Superblock::parse(&raw).expect("what was written"), back);
        }
    }

    #[test]
    fn sizes_that_the_format_cannot_hold_are_refused() {
        let old = Superblock::parse(&sample()).expect("a sample");
        let size = |blocks| NewSize {
            blocks,
            reserved_blocks: 0,
            reserved_gdt_blocks: 0,
            backup_groups: [0; 2],
            overhead_clusters: 0,
        };
        for blocks in [0, 1 << 49, u64::MAX] {
            assert!(old.resized(&size(blocks)).is_err(), "{blocks} blocks");
        }
        let inodes = u64::from(u32::MAX) / u64::from(old.geometry().inodes_per_group()) + 1;
        let blocks = inodes * u64::from(old.geometry().blocks_per_group());
        assert!(old.resized(&size(blocks)).is_err(), "too many inodes");
        let more = NewSize {
            reserved_blocks: 5,
            ..size(4)
        };
        assert!(old.resized(&more).is_err(), "more reserved than there are");
    }
}
