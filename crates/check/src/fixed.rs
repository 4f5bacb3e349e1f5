//! The volume's structures at fixed places: claimed first, so that whoever else has their blocks is found.
//!
//! Input: superblock and descriptors. Output: claims; afterwards how many clusters of each group they take, which is all that a group has whose bitmap was
//! never written. Invariant: only blocks of the volume are claimed. Limits: none of its own.

use super::space::Space;
use crate::source::Source;
use diorite_format::GroupDesc;
use diorite_format::features::Incompat;

/// Claims all of them; gives the clusters that they take of each group.
pub(super) fn claim(source: &Source, space: &Space) -> Box<[u32]> {
    let sb = &source.sb;
    let table = u64::from(sb.geometry().inode_table_blocks());
    for group in &source.groups {
        let (first, head) = (
            sb.group_first_block(group.group),
            sb.group_head_blocks(group.group),
        );
        let len = u64::from(head.min(sb.group_blocks(group.group)));
        space.claim_own(first, len);
    }
    for group in &source.groups {
        space.claim_own(group.block_bitmap, 1);
        space.claim_own(group.inode_bitmap, 1);
        space.claim_own(group.inode_table, table);
    }
    let used = |group: &GroupDesc| space.used_in(group.group);
    let fixed = source.groups.iter().map(used).collect();
    // In no group's bitmap before it is taken: mke2fs takes it as any block.
    if sb.features().incompat.has(Incompat::MMP) && sb.holds(sb.mmp_block(), 1) {
        space.claim(sb.mmp_block(), 1);
    }
    fixed
}
