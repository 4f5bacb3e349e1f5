//! The initial contents of bitmaps that were never written: needed before a group's first block or inode is allocated.
//! Input: the group, and the descriptors of every group whose bitmaps or inode table may lie in it. Output: a block of bits.
//! Invariant: bits past the group's end are set, so that they are never allocated; with bigalloc a cluster is in use if any of
//! its blocks is. Limit: only for groups whose descriptor says that the bitmap was never written.
//! Source: the kernel's ext4 documentation, "layout", "flexible block groups", "meta block groups", "lazy block group
//! initialization"; the free counts that mke2fs stores beside such bitmaps, and e2fsck, agree in tests.

use crate::bitmap::runs::force;
use crate::error::{Unfit, room};
use crate::group::GroupDesc;
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FsBlock, GroupNo};

/// Fills `out`, a block, with the block bitmap of `group` before its first allocation: in use are its copy of the superblock
/// and of the descriptors, and every bitmap and inode table of `descs` that lies in the group. `descs` must be the descriptors
/// of all groups: with flex_bg any group's tables may lie here.
///
/// # Errors
/// `Short` if `out` is smaller than a block.
pub fn fresh_blocks<'a>(
    sb: &Superblock,
    group: GroupNo,
    descs: impl IntoIterator<Item = &'a GroupDesc>,
    out: &mut [u8],
) -> Result<(), Unfit> {
    let bitmap = room("a block bitmap", out, num::usize32(sb.block_size()))?;
    bitmap.fill(0);
    let first = sb.group_first_block(group);
    mark_blocks(
        sb,
        group,
        bitmap,
        first,
        u64::from(sb.group_head_blocks(group)),
    );
    let table = u64::from(sb.geometry().inode_table_blocks());
    for desc in descs {
        mark_blocks(sb, group, bitmap, desc.block_bitmap, 1);
        mark_blocks(sb, group, bitmap, desc.inode_bitmap, 1);
        mark_blocks(sb, group, bitmap, desc.inode_table, table);
    }
    force(bitmap, sb.group_clusters(group), u32::MAX);
    Ok(())
}

/// Fills `out`, a block, with an inode bitmap without used inodes.
///
/// # Errors
/// `Short` if `out` is smaller than a block.
pub fn fresh_inodes(sb: &Superblock, out: &mut [u8]) -> Result<(), Unfit> {
    let bitmap = room("an inode bitmap", out, num::usize32(sb.block_size()))?;
    bitmap.fill(0);
    force(bitmap, sb.geometry().inodes_per_group(), u32::MAX);
    Ok(())
}

/// Marks the part of `len` blocks from `start` that lies in `group` as used: its clusters, if some of them are already, too.
pub fn mark_blocks(sb: &Superblock, group: GroupNo, bitmap: &mut [u8], start: FsBlock, len: u64) {
    let first = sb.group_first_block(group).get();
    let ratio = u64::from(sb.geometry().cluster_ratio());
    let end = start.get().saturating_add(len).saturating_sub(first);
    let end = end.min(u64::from(sb.group_blocks(group)));
    let from = start.get().saturating_sub(first);
    if from < end {
        let cluster = from.checked_div(ratio).unwrap_or(0);
        force(bitmap, num::sat32(cluster), num::sat32(end.div_ceil(ratio)));
    }
}
