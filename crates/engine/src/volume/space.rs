//! How large a volume is, and how much of it is free: what statvfs(3) tells.
//!
//! Input: the superblock, and what is free now. Output: [`Space`]. Invariants: no I/O. Limits: exact only while nobody works.
//! Source: man 3 statvfs; what counts as overhead, and the id: the kernel's mount, compared in tests.

use super::Volume;

/// Sizes and counts of a volume, in the words of statvfs(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks that files can have, but for those that the volume's own structures take.
    pub blocks: u64,
    /// Blocks that are free; what was deleted and is not committed counts.
    pub free: u64,
    /// Those of them that are not kept for the privileged.
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
            None => {
                let geometry = sb.geometry();
                let free_inodes = u64::from(geometry.free_inodes_count());
                (geometry.free_blocks_count(), free_inodes)
            }
        };
        // What mke2fs has counted; older ones have not.
        let overhead = match sb.info().overhead_clusters {
            0 => fs.own_blocks(),
            noted => u64::from(noted) * u64::from(sb.geometry().cluster_ratio()),
        };
        let half = |at: usize| {
            let bytes = sb.uuid()[at..at + 8].try_into();
            u64::from_le_bytes(bytes.expect("8 of its 16 bytes"))
        };
        Space {
            block_size: sb.block_size(),
            blocks: sb.geometry().blocks_count().saturating_sub(overhead),
            free,
            available: free.saturating_sub(sb.geometry().r_blocks_count()),
            inodes: u64::from(sb.geometry().inodes_count()),
            free_inodes,
            most_name: 255,
            id: half(0) ^ half(8),
        }
    }
}
