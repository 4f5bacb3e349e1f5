//! Space that the kernel keeps for itself, beside the reserve of root.
//!
//! Input: the superblock. Output: a number of blocks. Invariant: what statvfs(3) of the kernel calls available is without them. Limits: no
//! bit on disk says so. Source: the kernel's mount, compared in tests.

use super::Superblock;
use crate::features::Incompat;

/// In volumes with extents the kernel reserves one of this many clusters for maps that grow during writeback.
const CLUSTERS_PER_KEPT: u64 = 50;
/// The most clusters that it reserves.
const MOST_KEPT: u64 = 4096;

impl Superblock {
    /// Blocks that the kernel reserves for maps.
    #[must_use]
    pub fn kept_for_maps(&self) -> u64 {
        if !self.features().incompat.has(Incompat::EXTENTS) {
            return 0;
        }
        let ratio = u64::from(self.geometry().cluster_ratio());
        let clusters = self
            .geometry()
            .blocks_count()
            .checked_div(ratio)
            .unwrap_or(0);
        (clusters / CLUSTERS_PER_KEPT)
            .min(MOST_KEPT)
            .saturating_mul(ratio)
    }
}
