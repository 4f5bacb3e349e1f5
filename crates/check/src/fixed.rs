//! The volume's structures at fixed places: claimed first, so that every other user of their blocks is found.
//!
//! Input: superblock and descriptors. Output: claims; then the number of clusters that they take in each group, which is
//! everything in use in a group whose bitmap was never written. Invariant: only blocks of the volume are claimed. Limits: none.

use super::space::Space;
use crate::report::{Collector, Kind};
use crate::source::Source;
use diorite::Error;
use diorite::probe::Zone;
use diorite_format::GroupDesc;
use diorite_format::features::Incompat;

/// Claims all of them; returns the number of clusters that they take in each group.
///
/// # Errors
/// Geometry that has no place for descriptors.
pub(super) fn claim(
    source: &Source,
    space: &Space,
    found: &Collector,
) -> Result<Box<[u32]>, Error> {
    let sb = &source.sb;
    for overlap in Zone::of_groups(sb, &source.groups)?.overlaps() {
        found.block(Kind::DoubleUse, overlap.at, overlap);
    }
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
    // Not among the fixed structures: mke2fs allocates it like any other block.
    if sb.features().incompat.has(Incompat::MMP) && sb.holds(sb.mmp_block(), 1) {
        space.claim(sb.mmp_block(), 1);
    }
    Ok(fixed)
}
