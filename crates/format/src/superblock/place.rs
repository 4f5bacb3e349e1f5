//! Places of groups, descriptor blocks and inodes; and the functions that check numbers and make them typed.
//! Input: a checked superblock and a number. Output: a place inside the volume, or an error with the number. Invariant: a
//! returned place lies within the volume's blocks, except where the doc says otherwise.
//! Source: the kernel's ext4 documentation, "block group descriptors", "meta block groups"; man 5 ext4
//! (sparse_super, sparse_super2); compared with `dumpe2fs` in tests.

use crate::error::{Corrupt, Result, bad};
use crate::features::{Compat, Incompat, RoCompat};
use crate::num;
use crate::types::{DevByte, FsBlock, GroupNo, Ino};

use super::Superblock;

/// Where an inode's bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodePlace {
    /// Its group, whose descriptor names the table.
    pub group: GroupNo,
    /// Its number within the group, from 0: its bit in the inode bitmap.
    pub index: u32,
    /// Block within the group's inode table.
    pub table_block: u32,
    /// Byte within that block.
    pub offset: u32,
}

impl Superblock {
    /// Bytes per block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.geometry.block_size()
    }

    /// Groups in the volume.
    #[must_use]
    pub fn group_count(&self) -> u32 {
        self.geometry.group_count()
    }

    /// Whether the volume fits a device of `bytes` bytes.
    ///
    /// # Errors
    /// `DeviceTooSmall`.
    pub fn check_device(&self, bytes: u64) -> Result<()> {
        let needed = self.geometry.volume_bytes();
        if needed > bytes {
            return bad(Corrupt::DeviceTooSmall {
                needed,
                have: bytes,
            });
        }
        Ok(())
    }

    /// Byte at which a block starts. Saturates for blocks outside the volume.
    #[must_use]
    pub fn byte_of(&self, block: FsBlock) -> DevByte {
        DevByte::new(super::block_bytes(block.get(), self.block_size()))
    }

    /// Checks a pointer read from disk: a block that may hold data or metadata lies behind the superblock and inside the
    /// volume.
    ///
    /// # Errors
    /// `BlockRange`.
    pub fn check_block(&self, block: u64) -> Result<FsBlock> {
        let found = FsBlock::new(block);
        if self.holds(found, 1) {
            return Ok(found);
        }
        let first = self.first_usable();
        bad(Corrupt::BlockRange {
            block: found,
            first,
            end: self.geometry.blocks_count(),
        })
    }

    /// Whether a file or a descriptor may point to `len` blocks from `start`.
    #[must_use]
    pub fn holds(&self, start: FsBlock, len: u64) -> bool {
        let end = start.get().checked_add(len);
        start.get() >= self.first_usable()
            && end.is_some_and(|end| end <= self.geometry.blocks_count())
    }

    /// The block after the one with the superblock.
    fn first_usable(&self) -> u64 {
        u64::from(self.geometry.first_data_block).saturating_add(1)
    }

    /// Checks an inode number read from disk.
    ///
    /// # Errors
    /// `InoRange` for 0 and for numbers above the count.
    pub fn check_ino(&self, number: u32) -> Result<Ino> {
        let max = self.geometry.inodes_count();
        if number == 0 || number > max {
            return bad(Corrupt::InoRange {
                ino: Ino::new(number),
                max,
            });
        }
        Ok(Ino::new(number))
    }

    /// Checks a group number.
    ///
    /// # Errors
    /// `GroupRange`.
    pub fn check_group(&self, number: u32) -> Result<GroupNo> {
        let count = self.group_count();
        self.geometry.group(number).map_or_else(
            || {
                bad(Corrupt::GroupRange {
                    group: GroupNo::new(number),
                    count,
                })
            },
            Ok,
        )
    }

    /// First block of a group. Saturates for groups outside the volume.
    #[must_use]
    pub fn group_first_block(&self, group: GroupNo) -> FsBlock {
        let blocks =
            u64::from(group.get()).saturating_mul(u64::from(self.geometry.blocks_per_group));
        FsBlock::new(blocks.saturating_add(u64::from(self.geometry.first_data_block)))
    }

    /// Blocks of a group: fewer in the last one, 0 outside the volume.
    #[must_use]
    pub fn group_blocks(&self, group: GroupNo) -> u32 {
        let left = self
            .geometry
            .blocks_count()
            .saturating_sub(self.group_first_block(group).get());
        num::sat32(left.min(u64::from(self.geometry.blocks_per_group)))
    }

    /// Clusters of a group: the used bits of its block bitmap.
    #[must_use]
    pub fn group_clusters(&self, group: GroupNo) -> u32 {
        self.group_blocks(group)
            .div_ceil(self.geometry.cluster_ratio())
    }

    /// The group of a block, or `None` outside the volume.
    #[must_use]
    pub fn group_of(&self, block: FsBlock) -> Option<GroupNo> {
        let rel = block
            .get()
            .checked_sub(u64::from(self.geometry.first_data_block))?;
        let number = rel.checked_div(u64::from(self.geometry.blocks_per_group))?;
        (block.get() < self.geometry.blocks_count()).then(|| GroupNo::new(num::sat32(number)))
    }

    /// The bit of a block in its group's bitmap (a cluster number with bigalloc), or `None` outside the volume.
    #[must_use]
    pub fn bitmap_bit(&self, block: FsBlock) -> Option<(GroupNo, u32)> {
        let group = self.group_of(block)?;
        let rel = block
            .get()
            .saturating_sub(self.group_first_block(group).get());
        let bit = rel.checked_div(u64::from(self.geometry.cluster_ratio()))?;
        Some((group, num::sat32(bit)))
    }

    /// The place of an inode; the group's descriptor then names the table's first block.
    ///
    /// # Errors
    /// `InoRange`.
    pub fn inode_place(&self, ino: Ino) -> Result<InodePlace> {
        let n = self.check_ino(ino.get())?.get().saturating_sub(1);
        let per_group = self.geometry.inodes_per_group;
        let index = n.checked_rem(per_group).unwrap_or(0);
        let byte = u64::from(index).saturating_mul(u64::from(self.geometry.inode_size));
        let size = u64::from(self.block_size());
        Ok(InodePlace {
            group: GroupNo::new(n.checked_div(per_group).unwrap_or(0)),
            index,
            table_block: num::sat32(byte.checked_div(size).unwrap_or(0)),
            offset: num::sat32(byte.checked_rem(size).unwrap_or(0)),
        })
    }

    /// Whether a group starts with a copy of the superblock (group 0: the primary itself).
    #[must_use]
    pub fn has_super_backup(&self, group: GroupNo) -> bool {
        let n = group.get();
        if n == 0 {
            return true;
        }
        if self.features.compat.has(Compat::SPARSE_SUPER2) {
            return self.geometry.backup_groups.contains(&n);
        }
        if !self.features.ro_compat.has(RoCompat::SPARSE_SUPER) {
            return true;
        }
        n == 1 || is_power_of(n, 3) || is_power_of(n, 5) || is_power_of(n, 7)
    }

    /// The groups other than the first that start with a copy of the superblock, in order.
    pub fn groups_with_copies(&self) -> impl Iterator<Item = GroupNo> {
        let groups = (1..self.group_count()).map(GroupNo::new);
        groups.filter(|group| self.has_super_backup(*group))
    }

    /// Blocks at the start of a group with a copy of the superblock (in group 0 also the block before it), descriptors, and
    /// reserved descriptor blocks.
    #[must_use]
    pub fn group_head_blocks(&self, group: GroupNo) -> u32 {
        let g = &self.geometry;
        let has_super = self.has_super_backup(group);
        let front = if group.get() == 0 {
            num::sat32(self.super_block().get()).saturating_sub(g.first_data_block)
        } else {
            0
        };
        let per_block = g.descs_per_block();
        let meta = self.features.incompat.has(Incompat::META_BG);
        let index = group.get().checked_div(per_block).unwrap_or(0);
        let descs = if meta && index >= g.first_meta_bg {
            // Of the groups that one block of descriptors describes, the first, the second and the last have a copy of it.
            let place = group.get().checked_rem(per_block).unwrap_or(0);
            u32::from(place < 2 || place == per_block.saturating_sub(1))
        } else if has_super {
            let all = g.gdt_blocks();
            let here = if meta { all.min(g.first_meta_bg) } else { all };
            here.saturating_add(g.reserved_gdt_blocks)
        } else {
            0
        };
        front
            .saturating_add(u32::from(has_super))
            .saturating_add(descs)
    }

    /// The groups that sparse_super2 names as holding backups; 0 means none.
    #[must_use]
    pub fn backup_groups(&self) -> [GroupNo; 2] {
        self.geometry.backup_groups.map(GroupNo::new)
    }

    /// The block with the `index`-th block of group descriptors, from 0 to `gdt_blocks() - 1`.
    ///
    /// Without meta_bg, or below `first_meta_bg`, the descriptors follow the primary superblock. With it, each block of
    /// descriptors lies in the first of the groups that it describes, behind that group's superblock copy if it has one.
    /// Example: with 1 KiB blocks and 32-byte descriptors there are 32 per block, so block 2 of the descriptors is at the start
    /// of group 64.
    ///
    /// # Errors
    /// `BlockRange` if that is outside the volume.
    pub fn gdt_location(&self, index: u32) -> Result<FsBlock> {
        let meta = self.features.incompat.has(Incompat::META_BG);
        let block = if !meta || index < self.geometry.first_meta_bg {
            self.super_block()
                .get()
                .saturating_add(1)
                .saturating_add(u64::from(index))
        } else {
            self.meta_bg_location(index)
        };
        self.check_block(block)
    }

    fn meta_bg_location(&self, index: u32) -> u64 {
        let group = GroupNo::new(index.saturating_mul(self.geometry.descs_per_block()));
        let mut skip = u64::from(self.has_super_backup(group));
        // With 1 KiB blocks that start at block 0 (bigalloc) the boot block comes first.
        if group.get() == 0 {
            skip = skip.saturating_add(
                self.super_block()
                    .get()
                    .saturating_sub(u64::from(self.geometry.first_data_block)),
            );
        }
        self.group_first_block(group).get().saturating_add(skip)
    }

    /// Where copies of the `index`-th block of descriptors lie, if the first cannot be read: nearest first, at most eight, each
    /// inside the volume. Counts and flags of a copy may be out of date, but not its places.
    #[must_use]
    pub fn gdt_copies(&self, index: u32) -> Vec<FsBlock> {
        let meta =
            self.features.incompat.has(Incompat::META_BG) && index >= self.geometry.first_meta_bg;
        let first = if meta {
            index.saturating_mul(self.geometry.descs_per_block())
        } else {
            0
        };
        let last = first
            .saturating_add(self.geometry.descs_per_block())
            .saturating_sub(1);
        let groups: [u32; 8] = if meta {
            [first.saturating_add(1), last, 0, 0, 0, 0, 0, 0]
        } else {
            self.first_backups()
        };
        let skip = if meta { 0 } else { index };
        let holds_copy = |n: &u32| {
            *n != 0 && *n < self.group_count() && (meta || self.has_super_backup(GroupNo::new(*n)))
        };
        let place = |n: u32| {
            let group = GroupNo::new(n);
            let behind = u64::from(self.has_super_backup(group)).saturating_add(u64::from(skip));
            self.check_block(self.group_first_block(group).get().saturating_add(behind))
                .ok()
        };
        groups
            .into_iter()
            .filter(holds_copy)
            .filter_map(place)
            .collect()
    }

    /// Groups to try for copies.
    fn first_backups(&self) -> [u32; 8] {
        let [a, b] = self.geometry.backup_groups;
        if self.features.compat.has(Compat::SPARSE_SUPER2) {
            [a, b, 0, 0, 0, 0, 0, 0]
        } else {
            [1, 3, 5, 7, 9, 25, 27, 49]
        }
    }

    /// The block that holds the primary superblock: 1 with 1 KiB blocks, else 0.
    #[must_use]
    pub fn super_block(&self) -> FsBlock {
        FsBlock::new(u64::from(self.geometry.block_bits == 10))
    }

    /// The block and byte within it of a group's descriptor: (index for [`Self::gdt_location`], byte offset).
    ///
    /// # Errors
    /// `GroupRange`.
    pub fn desc_place(&self, group: GroupNo) -> Result<(u32, u32)> {
        let n = self.check_group(group.get())?.get();
        let per_block = self.geometry.descs_per_block();
        let slot = n.checked_rem(per_block).unwrap_or(0);
        Ok((
            n.checked_div(per_block).unwrap_or(0),
            slot.saturating_mul(self.geometry.desc_size),
        ))
    }
}

/// Whether `n` is a power (at least the first) of `base`.
pub(super) fn is_power_of(n: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(n) {
        power = power.saturating_mul(u64::from(base));
    }
    power == u64::from(n)
}
