//! How large a volume is, and how much of it is free: what statvfs(3) tells.
//!
//! Input: the superblock, and what is free now. Output: [`Space`]. Invariants: no I/O. Limits: exact only while nobody works.
//! Source: man 3 statvfs; what counts as overhead, what is kept for the kernel's own use, and the id: the kernel's mount, compared in tests.

use super::Volume;
use crate::inode::Fs;
use diorite_format::GroupDesc;
use diorite_format::features::{Incompat, RoCompat};

/// Of so many clusters the kernel keeps one, for maps that grow as data is written back; in volumes with extents.
const CLUSTERS_PER_KEPT: u64 = 50;
/// So many at most.
const MOST_KEPT: u64 = 4096;

/// Sizes and counts of a volume, in the words of statvfs(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks that files can have, but for those that the volume's own structures take.
    pub blocks: u64,
    /// Blocks that are free; what was deleted and is not committed counts.
    pub free: u64,
    /// Those of them that are neither kept for the privileged nor, as in a kernel's mount, for maps that grow as data is written back.
    pub available: u64,
    /// Inodes, and those of them that are free.
    pub inodes: u64,
    /// See `inodes`.
    pub free_inodes: u64,
    /// Bytes of a name, at most.
    pub most_name: u32,
    /// A number of the volume, from its UUID.
    pub id: u64,
}

impl Volume {
    /// How large the volume is, and how much of it is free. Does not block on I/O.
    #[must_use]
    pub fn space(&self) -> Space {
        let (sb, fs) = (self.superblock(), self.inner());
        let (free, free_inodes) = match &fs.alloc {
            Some(alloc) => {
                let (free, waiting) = alloc.now_free();
                (free + waiting, u64::from(alloc.free_inodes()))
            }
            // Those of the groups: the superblock's own may be older.
            None => {
                let ratio = u64::from(sb.geometry().cluster_ratio());
                let free = sum(&fs.groups, |group| group.free_clusters);
                (
                    free.saturating_mul(ratio),
                    sum(&fs.groups, |group| group.free_inodes),
                )
            }
        };
        let kept = sb.geometry().r_blocks_count() + kept_for_maps(fs);
        let half = |at: usize| {
            let bytes = sb.uuid()[at..at + 8].try_into();
            u64::from_le_bytes(bytes.expect("8 of its 16 bytes"))
        };
        Space {
            block_size: sb.block_size(),
            blocks: sb.geometry().blocks_count().saturating_sub(overhead(fs)),
            free,
            available: free.saturating_sub(kept),
            inodes: u64::from(sb.geometry().inodes_count()),
            free_inodes,
            most_name: 255,
            id: half(0) ^ half(8),
        }
    }
}

fn sum(groups: &[GroupDesc], count: impl Fn(&GroupDesc) -> u32) -> u64 {
    groups.iter().map(|group| u64::from(count(group))).sum()
}

/// Blocks of the volume's own structures. In volumes of clusters, where they are costly to count, what mke2fs has noted, if that can be.
fn overhead(fs: &Fs) -> u64 {
    let (geometry, noted) = (fs.sb.geometry(), fs.sb.info().overhead_clusters);
    let noted = u64::from(noted);
    let is_noted = (1..=geometry.blocks_count()).contains(&noted);
    match fs.sb.features().ro_compat.has(RoCompat::BIGALLOC) && is_noted {
        true => noted * u64::from(geometry.cluster_ratio()),
        false => fs.own_blocks(),
    }
}

/// Blocks that the kernel gives to nobody but itself.
fn kept_for_maps(fs: &Fs) -> u64 {
    if !fs.sb.features().incompat.has(Incompat::EXTENTS) {
        return 0;
    }
    let ratio = u64::from(fs.sb.geometry().cluster_ratio());
    let clusters = fs.sb.geometry().blocks_count() / ratio;
    (clusters / CLUSTERS_PER_KEPT).min(MOST_KEPT) * ratio
}
