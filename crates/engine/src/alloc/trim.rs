//! Free runs, for discarding them or writing zeros there.
//!
//! Input: a range of blocks and the lengths of runs. Output: one free run after the other, claimed, so that nobody else writes there
//! meanwhile; the caller gives it back with `unclaim` and asks again from its end. Invariants: what is claimed or waits for a commit is
//! skipped, so no block is touched whose freeing is not durable. Limits: a run ends with its group; while it is claimed others do not get
//! it.

use super::load::Patience;
use super::{Alloc, Clusters, Run};
use crate::error::Error;
use crate::journal::Store;
use diorite_format::{FsBlock, GroupNo};
use std::ops::Range;

impl Alloc {
    /// The free runs of a group as they are now; nothing is claimed. Blocks while the bitmap is read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub(crate) fn free_runs(&self, volume: &Store, group: GroupNo) -> Result<Vec<Run>, Error> {
        // A volume that grows has more groups for a moment than there are here.
        if group.get() >= self.group_count() {
            return Ok(Vec::new());
        }
        self.trim_memory();
        let locked = self.lock_loaded(volume, group, Patience::Waits)?;
        let locked = locked.expect("who waits gets the lock");
        let sb = &volume.sb;
        let (mut runs, mut at, end) = (Vec::new(), 0, sb.group_clusters(group));
        while let Some((start, len)) = locked.next_free(at, end) {
            runs.push(Clusters { group, start, len }.run(sb));
            at = start + len;
        }
        Ok(runs)
    }

    /// Claims the first run of at least `least` free blocks in a range, at most about `most` of it; None if there is none. Blocks while
    /// bitmaps are read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub(crate) fn claim_free_run(
        &self,
        volume: &Store,
        range: Range<FsBlock>,
        (least, most): (u32, u32),
    ) -> Result<Option<Run>, Error> {
        let sb = &volume.sb;
        let ratio = u64::from(sb.geometry().cluster_ratio());
        let mut at = range.start.max(sb.geometry().first_data_block());
        // A volume that grows has more blocks for a moment than groups here.
        let known = |group: GroupNo| group.get() < self.group_count();
        let next = |at| {
            sb.bitmap_bit(at)
                .filter(|(group, _)| at < range.end && known(*group))
        };
        while let Some((group, _)) = next(at) {
            let first = sb.group_first_block(group).get();
            let blocks = u64::from(sb.group_blocks(group));
            let end = first + blocks;
            // Only clusters that lie completely in the range; the volume's last one may be short.
            let from = (at.get() - first).div_ceil(ratio);
            let to = match range.end.get() >= end {
                true => blocks.div_ceil(ratio),
                false => (range.end.get() - first) / ratio,
            };
            let short = |n: u64| u32::try_from(n).expect("a group's clusters have 32-bit numbers");
            let bits = (short(from), short(to));
            let least = u64::from(least).div_ceil(ratio).max(1);
            let least = u32::try_from(least).unwrap_or(u32::MAX);
            let most = most.div_ceil(sb.geometry().cluster_ratio()).max(1);
            if let Some(found) = self.claim_next(volume, group, bits, (least, most))? {
                return Ok(Some(found.run(sb)));
            }
            at = FsBlock::new(end);
        }
        Ok(None)
    }
}
