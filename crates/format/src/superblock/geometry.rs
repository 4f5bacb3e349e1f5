//! Sizes and counts of a volume, validated once, and arithmetic on them.
//! Input: superblock bytes. Output: [`Geometry`], whose getters cannot fail or be out of range. Invariant: `block_size` is
//! 2^10..=2^16, groups x inodes_per_group = inodes_count, every shift is in range. Limit: at most 2^48 blocks, 2^63 bytes and
//! 2^32-1 inodes, as in the format.

use crate::error::{Corrupt, Result, bad};
use crate::features::{Features, Incompat, RoCompat};
use crate::layout::{gd, inode, sb};
use crate::le::{le16, le32, u8_at};
use crate::num;
use crate::types::{FsBlock, GroupNo};

use super::{NewSize, split64};

/// Extent trees have 48-bit block numbers.
const MAX_BLOCKS: u64 = 1 << 48;
/// Inode size in revision 0, and the minimum in revision 1.
const OLD_INODE_SIZE: u32 = 128;

const _: () = assert!(inode::EXTRA_ISIZE == 128 && gd::BLOCK_BITMAP_HI == 32);

/// Sizes in bytes, counts in blocks, clusters, inodes or groups, as the names say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    pub(super) block_bits: u32,
    pub(super) cluster_bits: u32,
    pub(super) blocks_count: u64,
    pub(super) r_blocks_count: u64,
    pub(super) free_blocks_count: u64,
    pub(super) first_data_block: u32,
    pub(super) blocks_per_group: u32,
    pub(super) clusters_per_group: u32,
    pub(super) group_count: u32,
    pub(super) inodes_count: u32,
    pub(super) free_inodes_count: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_size: u32,
    pub(super) first_ino: u32,
    pub(super) desc_size: u32,
    pub(super) reserved_gdt_blocks: u32,
    pub(super) first_meta_bg: u32,
    pub(super) flex_bits: u8,
    pub(super) backup_groups: [u32; 2],
}

impl Geometry {
    pub(super) fn parse(b: &[u8], features: &Features) -> Result<Self> {
        let is_64bit = features.incompat.has(Incompat::BIT64);
        let block_bits = block_bits(b)?;
        let mut g = Self {
            block_bits,
            cluster_bits: cluster_bits(b, features, block_bits)?,
            blocks_count: split64(b, sb::BLOCKS_COUNT_LO, sb::BLOCKS_COUNT_HI, is_64bit),
            r_blocks_count: split64(b, sb::R_BLOCKS_COUNT_LO, sb::R_BLOCKS_COUNT_HI, is_64bit),
            free_blocks_count: split64(
                b,
                sb::FREE_BLOCKS_COUNT_LO,
                sb::FREE_BLOCKS_COUNT_HI,
                is_64bit,
            ),
            first_data_block: le32(b, sb::FIRST_DATA_BLOCK),
            blocks_per_group: le32(b, sb::BLOCKS_PER_GROUP),
            clusters_per_group: le32(b, sb::CLUSTERS_PER_GROUP),
            group_count: 0,
            inodes_count: le32(b, sb::INODES_COUNT),
            free_inodes_count: le32(b, sb::FREE_INODES_COUNT),
            inodes_per_group: le32(b, sb::INODES_PER_GROUP),
            inode_size: OLD_INODE_SIZE,
            first_ino: 11,
            desc_size: num::low32(num::wide(gd::BLOCK_BITMAP_HI)),
            reserved_gdt_blocks: u32::from(le16(b, sb::RESERVED_GDT_BLOCKS)),
            first_meta_bg: le32(b, sb::FIRST_META_BG),
            flex_bits: u8_at(b, sb::LOG_GROUPS_PER_FLEX),
            backup_groups: [
                le32(b, sb::BACKUP_BGS),
                le32(b, sb::BACKUP_BGS.saturating_add(4)),
            ],
        };
        g.read_sizes(b, is_64bit)?;
        g.check_groups(features)?;
        g.check_inodes()?;
        g.check_rest(features)?;
        Ok(g)
    }

    /// The geometry of a volume that differs in its size alone.
    pub(super) fn resized(&self, size: &NewSize, features: &Features) -> Result<Self> {
        let mut g = self.clone();
        g.blocks_count = size.blocks;
        g.r_blocks_count = size.reserved_blocks;
        g.reserved_gdt_blocks = size.reserved_gdt_blocks;
        g.backup_groups = size.backup_groups;
        if !features.incompat.has(Incompat::BIT64) && size.blocks > u64::from(u32::MAX) {
            let (found, first) = (size.blocks, g.first_data_block);
            return bad(Corrupt::BlockCount { found, first });
        }
        g.count_groups()?;
        // More inodes than 32 bits can count are found by the check.
        g.inodes_count = g.group_count.saturating_mul(g.inodes_per_group);
        g.check_inodes()?;
        g.check_rest(features)?;
        Ok(g)
    }

    /// Inode and descriptor sizes: fixed in revision 0 and without 64bit.
    fn read_sizes(&mut self, b: &[u8], is_64bit: bool) -> Result<()> {
        if le32(b, sb::REV_LEVEL) > 0 {
            let size = u32::from(le16(b, sb::INODE_SIZE));
            if size < OLD_INODE_SIZE || !size.is_power_of_two() || size > self.block_size() {
                return bad(Corrupt::InodeSize {
                    found: size,
                    block_size: self.block_size(),
                });
            }
            self.inode_size = size;
            self.first_ino = le32(b, sb::FIRST_INO);
        }
        if is_64bit {
            let size = u32::from(le16(b, sb::DESC_SIZE));
            let max = self.block_size().min(1024);
            if size < 64 || !size.is_power_of_two() || size > max {
                return bad(Corrupt::DescSize { found: size, max });
            }
            self.desc_size = size;
        }
        Ok(())
    }

    fn check_groups(&mut self, features: &Features) -> Result<()> {
        let bits_in_block = u64::from(self.block_size()).saturating_mul(8);
        let bigalloc = features.ro_compat.has(RoCompat::BIGALLOC);
        if bigalloc {
            self.check_clusters(bits_in_block)?;
        } else {
            self.clusters_per_group = self.blocks_per_group;
        }
        let bpg = self.blocks_per_group;
        let max =
            bits_in_block.saturating_mul(1u64.checked_shl(self.ratio_bits()).unwrap_or(u64::MAX));
        if bpg < 8 || bpg.trailing_zeros() < 3 || u64::from(bpg) > max {
            return bad(Corrupt::BlocksPerGroup { found: bpg, max });
        }
        let expected = u32::from(self.block_bits == 10 && !bigalloc);
        if self.first_data_block != expected {
            return bad(Corrupt::FirstDataBlock {
                found: self.first_data_block,
                expected,
            });
        }
        self.count_groups()
    }

    fn check_clusters(&self, max: u64) -> Result<()> {
        let found = self.clusters_per_group;
        let blocks = u64::from(found)
            .checked_shl(self.ratio_bits())
            .unwrap_or(u64::MAX);
        if found == 0
            || found.trailing_zeros() < 3
            || u64::from(found) > max
            || blocks != u64::from(self.blocks_per_group)
        {
            return bad(Corrupt::ClustersPerGroup {
                found,
                max,
                blocks: self.blocks_per_group,
            });
        }
        Ok(())
    }

    fn count_groups(&mut self) -> Result<()> {
        let first = self.first_data_block;
        let data = self.blocks_count.saturating_sub(u64::from(first));
        let most = (1u64 << 63)
            .checked_shr(self.block_bits)
            .unwrap_or(0)
            .min(MAX_BLOCKS);
        if data == 0 || self.blocks_count > most {
            return bad(Corrupt::BlockCount {
                found: self.blocks_count,
                first,
            });
        }
        let groups = data.div_ceil(u64::from(self.blocks_per_group));
        // Inode numbers have 32 bits and a group has at least 8 inodes.
        let max = u64::from(u32::MAX >> 3);
        if groups > max {
            return bad(Corrupt::GroupCount { found: groups, max });
        }
        self.group_count = num::sat32(groups);
        Ok(())
    }

    fn check_inodes(&self) -> Result<()> {
        let found = self.inodes_per_group;
        let min = u64::from(self.block_size().checked_div(self.inode_size).unwrap_or(0)).max(8);
        let max = u64::from(self.block_size()).saturating_mul(8);
        if found.trailing_zeros() < 3 || u64::from(found) < min || u64::from(found) > max {
            return bad(Corrupt::InodesPerGroup { found, min, max });
        }
        let expected = u64::from(self.group_count).saturating_mul(u64::from(found));
        if expected != u64::from(self.inodes_count) {
            return bad(Corrupt::InodeCount {
                found: self.inodes_count,
                groups: self.group_count,
                per_group: found,
                expected,
            });
        }
        if self.first_ino < 11 || self.first_ino > self.inodes_count {
            return bad(Corrupt::FirstIno {
                found: self.first_ino,
            });
        }
        Ok(())
    }

    fn check_rest(&self, features: &Features) -> Result<()> {
        let max = self.block_size() >> 2;
        if self.reserved_gdt_blocks > max {
            return bad(Corrupt::ReservedGdt {
                found: self.reserved_gdt_blocks,
                max,
            });
        }
        let descs = self.gdt_blocks();
        if features.incompat.has(Incompat::META_BG)
            && u64::from(self.first_meta_bg) > u64::from(descs)
        {
            return bad(Corrupt::FirstMetaBg {
                found: self.first_meta_bg,
                max: u64::from(descs),
            });
        }
        if features.incompat.has(Incompat::FLEX_BG) && self.flex_bits > 31 {
            return bad(Corrupt::FlexBg {
                log: self.flex_bits,
            });
        }
        self.check_counts()
    }

    /// Only the count of reserved blocks is used. The groups say what is free: a superblock that counts more than there is was
    /// left by a crash, or by e2fsck -E journal_only, and its next writer corrects it.
    fn check_counts(&self) -> Result<()> {
        let (found, total) = (self.r_blocks_count, self.blocks_count);
        if found > total {
            return bad(Corrupt::ReservedBlocks { found, total });
        }
        Ok(())
    }

    /// log2 of the cluster size over the block size.
    fn ratio_bits(&self) -> u32 {
        self.cluster_bits.saturating_sub(self.block_bits)
    }

    /// Bytes per block, 1,024..=65,536.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1u32.checked_shl(self.block_bits).unwrap_or(1024)
    }

    /// log2 of the block size, 10..=16.
    #[must_use]
    pub fn block_bits(&self) -> u32 {
        self.block_bits
    }

    /// Bytes per cluster; the block size without bigalloc. A power of two up to 2^29.
    #[must_use]
    pub fn cluster_size(&self) -> u32 {
        1u32.checked_shl(self.cluster_bits).unwrap_or(1024)
    }

    /// Blocks per cluster, a power of two; 1 without bigalloc.
    #[must_use]
    pub fn cluster_ratio(&self) -> u32 {
        1u32.checked_shl(self.ratio_bits()).unwrap_or(1)
    }

    /// Blocks in the volume.
    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        self.blocks_count
    }

    /// Bytes in the volume.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        super::block_bytes(self.blocks_count, self.block_size())
    }

    /// Blocks kept for the privileged user.
    #[must_use]
    pub fn r_blocks_count(&self) -> u64 {
        self.r_blocks_count
    }

    /// Free blocks (not clusters, also with bigalloc), as last written to the superblock.
    #[must_use]
    pub fn free_blocks_count(&self) -> u64 {
        self.free_blocks_count
    }

    /// First block of group 0: 1 with 1 KiB blocks and no bigalloc, else 0.
    #[must_use]
    pub fn first_data_block(&self) -> FsBlock {
        FsBlock::new(u64::from(self.first_data_block))
    }

    /// Blocks in every group but the last.
    #[must_use]
    pub fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Clusters in every group but the last: bits in use of a block bitmap.
    #[must_use]
    pub fn clusters_per_group(&self) -> u32 {
        self.clusters_per_group
    }

    /// Groups in the volume, at least 1.
    #[must_use]
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Inodes in the volume, used or free.
    #[must_use]
    pub fn inodes_count(&self) -> u32 {
        self.inodes_count
    }

    /// Free inodes, as last written to the superblock.
    #[must_use]
    pub fn free_inodes_count(&self) -> u32 {
        self.free_inodes_count
    }

    /// Inodes in every group: bits in use of an inode bitmap.
    #[must_use]
    pub fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Bytes per inode, a power of two from 128 to the block size.
    #[must_use]
    pub fn inode_size(&self) -> u32 {
        self.inode_size
    }

    /// First inode that is not reserved, at least 11.
    #[must_use]
    pub fn first_ino(&self) -> u32 {
        self.first_ino
    }

    /// Bytes per group descriptor: 32, or 64..=1024 with 64bit.
    #[must_use]
    pub fn desc_size(&self) -> u32 {
        self.desc_size
    }

    /// Blocks reserved behind the descriptors for growing.
    #[must_use]
    pub fn reserved_gdt_blocks(&self) -> u32 {
        self.reserved_gdt_blocks
    }

    /// The first block of descriptors that lies in the groups that it describes, with meta_bg.
    #[must_use]
    pub fn first_meta_bg(&self) -> u32 {
        self.first_meta_bg
    }

    /// log2 of the groups per flexible group; 0 without flex_bg.
    #[must_use]
    pub fn flex_bits(&self) -> u8 {
        self.flex_bits
    }

    /// Descriptors that fit in a block.
    #[must_use]
    pub fn descs_per_block(&self) -> u32 {
        self.block_size()
            .checked_div(self.desc_size)
            .unwrap_or(1)
            .max(1)
    }

    /// Blocks of group descriptors.
    #[must_use]
    pub fn gdt_blocks(&self) -> u32 {
        self.group_count.div_ceil(self.descs_per_block())
    }

    /// Blocks of one group's inode table.
    #[must_use]
    pub fn inode_table_blocks(&self) -> u32 {
        let bytes = u64::from(self.inodes_per_group).saturating_mul(u64::from(self.inode_size));
        num::sat32(bytes.div_ceil(u64::from(self.block_size())))
    }

    /// Whether a group is in range, as a typed number.
    #[must_use]
    pub fn group(&self, number: u32) -> Option<GroupNo> {
        (number < self.group_count).then(|| GroupNo::new(number))
    }
}

fn block_bits(b: &[u8]) -> Result<u32> {
    let log = le32(b, sb::LOG_BLOCK_SIZE);
    if log > 6 {
        return bad(Corrupt::BlockSize { log });
    }
    Ok(log.saturating_add(10))
}

/// Without bigalloc the field is the old fragment size, which must equal the block size.
fn cluster_bits(b: &[u8], features: &Features, block_bits: u32) -> Result<u32> {
    let log = le32(b, sb::LOG_CLUSTER_SIZE);
    let bits = log.saturating_add(10);
    let fits = if features.ro_compat.has(RoCompat::BIGALLOC) {
        bits >= block_bits && bits <= 29
    } else {
        bits == block_bits
    };
    if !fits {
        return bad(Corrupt::ClusterSize {
            log_cluster: log,
            log_block: block_bits.saturating_sub(10),
        });
    }
    Ok(bits)
}
