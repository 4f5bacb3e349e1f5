//! Size and free space of a volume, as statvfs(3) reports them.
//!
//! Input: the superblock, and the allocator's counts. Output: [`Space`]. Invariants: no I/O. Limits: exact only while nothing changes.
//! Source: man 3 statvfs; what counts as overhead, what the kernel reserves for itself, and the id: the kernel's mount, compared in tests.

use super::Volume;
use crate::inode::{AtomicLimits, Fs, Ways};
use diorite_format::GroupDesc;
use diorite_format::features::RoCompat;

/// Sizes and counts of a volume, as in statvfs(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block. All counts of blocks here are in this unit.
    pub block_size: u32,
    /// Blocks of the volume without its own structures.
    pub blocks: u64,
    /// Free blocks, including those that were freed by a transaction which is not committed yet.
    pub free: u64,
    /// Free blocks without those that are reserved for privileged users, and those that are kept for maps.
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
        let (free, free_inodes, for_maps) = match &fs.alloc {
            Some(alloc) => {
                let (free, waiting) = alloc.now_free();
                let free_inodes = u64::from(alloc.free_inodes());
                (free + waiting, free_inodes, alloc.kept_for_maps())
            }
            // The groups' counts: those of the superblock may be out of date.
            None => {
                let ratio = u64::from(sb.geometry().cluster_ratio());
                let free = sum(&fs.groups, |group| group.free_clusters);
                (
                    free.saturating_mul(ratio),
                    sum(&fs.groups, |group| group.free_inodes),
                    fs.sb.kept_for_maps(),
                )
            }
        };
        let half = |at: usize| {
            let bytes = sb.uuid()[at..at + 8].try_into();
            u64::from_le_bytes(bytes.expect("8 of its 16 bytes"))
        };
        Space {
            block_size: sb.block_size(),
            blocks: sb.geometry().blocks_count().saturating_sub(overhead(fs)),
            free,
            available: free.saturating_sub(sb.geometry().r_blocks_count() + for_maps),
            inodes: u64::from(sb.geometry().inodes_count()),
            free_inodes,
            most_name: 255,
            id: half(0) ^ half(8),
        }
    }

    /// The bounds of atomic writes ([`crate::Request::atomic`]) in this volume; None if it has none. With a journal the lengths are from a
    /// block to 64 KiB; with clusters (bigalloc) from a cluster, as smaller units share theirs with other data, and none if clusters are
    /// larger than 64 KiB. Without a journal they are those of the device. Does not block.
    #[must_use]
    pub fn atomic_limits(&self) -> Option<AtomicLimits> {
        Ways::of(self.inner()).limits()
    }

    /// Gives back what files have claimed ahead of their next writes, and old blocks of atomic writes that no request in flight knows:
    /// [`Space::available`] has it again.
    pub fn give_back_claims(&self) {
        self.inner().close_windows();
        self.inner().let_go_of_swapped();
    }
}

fn sum(groups: &[GroupDesc], count: impl Fn(&GroupDesc) -> u32) -> u64 {
    groups.iter().map(|group| u64::from(count(group))).sum()
}

/// Blocks of the volume's own structures. In volumes with clusters the count that mke2fs wrote, if it is possible, as in the kernel.
fn overhead(fs: &Fs) -> u64 {
    let (geometry, noted) = (fs.sb.geometry(), fs.sb.info().overhead_clusters);
    let noted = u64::from(noted);
    let is_noted = (1..=geometry.blocks_count()).contains(&noted);
    match fs.sb.features().ro_compat.has(RoCompat::BIGALLOC) && is_noted {
        true => noted * u64::from(geometry.cluster_ratio()),
        false => fs.own_blocks(),
    }
}
