//! Size and free space of a volume, as statvfs(3) reports them.
//!
//! Input: the superblock, and the allocator's counts. Output: [`Space`]. Invariants: no I/O. Limits: exact only while nothing changes.
//! Source: man 3 statvfs; what counts as overhead, and the id: the kernel's mount, compared in tests.

use super::Volume;

/// Sizes and counts of a volume, as in statvfs(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block. All counts of blocks here are in this unit.
    pub block_size: u32,
    /// Blocks of the volume without its own structures.
    pub blocks: u64,
    /// Free blocks, including those that were freed by a transaction which is not committed yet.
    pub free: u64,
    /// Free blocks without those that are reserved for privileged users.
    pub available: u64,
    /// Inodes of the volume.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// The longest name, in bytes.
    pub most_name: u32,
    /// The file system id: a number made from the volume's UUID.
    pub id: u64,
}

impl Volume {
    /// Size and free space of the volume. Does not block on I/O.
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
        // mke2fs writes the overhead into the superblock; volumes of older versions have 0 there.
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
