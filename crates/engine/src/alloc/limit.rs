//! A limit for the allocator: behind it nothing is handed out, so that what lies there can move away. And what is in use there.
//!
//! Input: the first block, and the last inode, that count. Output: free clusters behind the limit are claimed, and so are those that become
//! free there later; inodes are taken only from groups before it; the runs and inodes in use. Invariants: what is claimed is not handed
//! out and not counted as available, so a lack of space is reported as ever; on disk nothing changes. Limits: for a volume that nobody else
//! uses; both numbers are whole, in clusters and in groups of inodes; bitmaps of the groups behind the limit are read.

use super::{Alloc, Clusters, Run};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::Store;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{FsBlock, GroupNo, Ino, Superblock, bitmap};

impl Alloc {
    /// Hands out nothing from block `end` on, and no inode behind number `inodes`, until [`Alloc::end_limit`]. Blocks while bitmaps are
    /// read.
    ///
    /// # Errors
    /// Damage; a device that fails. The limit holds for what was not claimed yet, too.
    pub(crate) fn limit(&self, volume: &Store, end: FsBlock, inodes: u32) -> Result<(), Error> {
        self.block_limit.store(end.get(), Ordering::SeqCst);
        self.inode_limit.store(inodes, Ordering::SeqCst);
        for group in groups_from(volume, end) {
            let from = first_behind(volume, group, end.get());
            let range = (from, volume.sb.group_clusters(group));
            // Each claim makes the next run the first one.
            while self
                .claim_next(volume, group, range, (1, u32::MAX))?
                .is_some()
            {}
        }
        Ok(())
    }

    /// Ends the limit: what is free behind it is handed out again.
    ///
    /// # Errors
    /// As [`Alloc::unclaim`].
    pub(crate) fn end_limit(&self, volume: &Store) -> Result<(), Error> {
        let end = self.block_limit.swap(u64::MAX, Ordering::SeqCst);
        self.inode_limit.store(u32::MAX, Ordering::SeqCst);
        for group in groups_from(volume, FsBlock::new(end)) {
            let from = first_behind(volume, group, end);
            let held = self.slot(group).lock().claimed_from(from);
            for (start, len) in held {
                self.unclaim(volume, Clusters { group, start, len }.run(&volume.sb))?;
            }
        }
        Ok(())
    }

    /// The bit of the first cluster of a group that lies behind the limit.
    pub(super) fn limit_in(&self, sb: &Superblock, group: GroupNo) -> u32 {
        let end = self.block_limit.load(Ordering::SeqCst);
        bit_of(sb, group, end)
    }

    /// May inodes of this group be handed out?
    pub(super) fn gives_inodes(&self, group: GroupNo, per_group: u32) -> bool {
        let first = u64::from(group.get()) * u64::from(per_group);
        first < u64::from(self.inode_limit.load(Ordering::SeqCst))
    }

    /// Free inodes on disk, up to this number, the last one of a group.
    pub(crate) fn free_inodes_up_to(&self, sb: &Superblock, last: Ino) -> u32 {
        let groups = last.get() / sb.geometry().inodes_per_group();
        let free = |group| self.desc_of(GroupNo::new(group)).free_inodes;
        (0..groups.min(sb.group_count())).map(free).sum()
    }

    /// The runs of clusters of a group, from block `from` on, that are in use on disk. Blocks while the bitmap is read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub(crate) fn used_runs(
        &self,
        volume: &Store,
        group: GroupNo,
        from: FsBlock,
    ) -> Result<Vec<Run>, Error> {
        let desc = self.desc_of(group);
        let bits = volume.sb.group_clusters(group);
        let bytes = match desc.flags.block_uninit() {
            true => volume.fresh_bitmap(group)?,
            false => {
                let verify = |raw: &[u8]| desc.verify_block_bitmap(&volume.sb, raw);
                let at = desc.block_bitmap;
                let (cache, device) = (&volume.cache, &volume.blocking);
                cache.read(device, at, Kind::Bitmap, verify)?.to_vec()
            }
        };
        let (mut runs, mut at) = (Vec::new(), first_behind(volume, group, from.get()));
        while let Some(start) = bitmap::next_one(&bytes, at, bits) {
            at = bitmap::next_zero(&bytes, start, bits).unwrap_or(bits);
            let len = at - start;
            runs.push(Clusters { group, start, len }.run(&volume.sb));
        }
        Ok(runs)
    }

    /// The inodes of a group that are in use on disk. Blocks while the bitmap is read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub(crate) fn used_inodes(&self, volume: &Store, group: GroupNo) -> Result<Vec<Ino>, Error> {
        let desc = self.desc_of(group);
        if desc.flags.inode_uninit() {
            return Ok(Vec::new());
        }
        let verify = |raw: &[u8]| desc.verify_inode_bitmap(&volume.sb, raw);
        let (cache, device) = (&volume.cache, &volume.blocking);
        let map = cache.read(device, desc.inode_bitmap, Kind::Bitmap, verify)?;
        let count = volume.sb.geometry().inodes_per_group();
        let (mut all, mut at) = (Vec::new(), 0);
        while let Some(index) = bitmap::next_one(&map, at, count) {
            all.push(Ino::new(group.get() * count + index + 1));
            at = index + 1;
        }
        Ok(all)
    }
}

/// The groups with clusters from this block on.
fn groups_from(volume: &Store, block: FsBlock) -> impl Iterator<Item = GroupNo> {
    let count = volume.sb.group_count();
    let first = volume.sb.group_of(block).map_or(count, GroupNo::get);
    (first..count).map(GroupNo::new)
}

fn first_behind(volume: &Store, group: GroupNo, end: u64) -> u32 {
    bit_of(&volume.sb, group, end)
}

/// The bit of the first whole cluster of the group from block `end` on; the number of its clusters if all lie before.
fn bit_of(sb: &Superblock, group: GroupNo, end: u64) -> u32 {
    let first = sb.group_first_block(group).get();
    let inside = end.saturating_sub(first);
    let bits = inside.div_ceil(u64::from(sb.geometry().cluster_ratio()));
    let all = sb.group_clusters(group);
    u32::try_from(bits).map_or(all, |bits| bits.min(all))
}
