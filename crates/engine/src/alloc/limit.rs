//! A region from which the allocator hands out nothing, so that its contents can be moved elsewhere; and the list of what is in use there.
//!
//! Input: the region, and the last inode that counts. Output: free clusters in the region are claimed, and so are those that become free
//! there later; inodes are taken only from groups before the last one that counts; the runs and inodes in use. Invariants: what is claimed
//! is not handed out and not counted as available, so a lack of space is reported as usual; on disk nothing changes. Limits: for a volume
//! that nobody else uses; the region and the inodes are whole, in clusters and in groups; bitmaps of the groups with a part of the region
//! are read.

use super::{Alloc, Clusters, Region, Run};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::Store;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{FsBlock, GroupNo, Ino, Superblock, bitmap};
use std::ops::Range;

impl Alloc {
    /// Hands out nothing of a region, and no inode behind number `inodes`, until [`Alloc::end_limit`]. Blocks while bitmaps are read.
    ///
    /// # Errors
    /// `Invalid`: too many regions since the volume was opened; damage; a device that fails. The limit holds for what was not claimed yet,
    /// too.
    pub(crate) fn limit(&self, volume: &Store, region: &Region, inodes: u32) -> Result<(), Error> {
        // One more for the end.
        if self.region.changes_left() < 2 {
            let what = "too many changes since the volume was opened: open it again";
            return Err(Error::Invalid(what.to_owned()));
        }
        self.region.publish(region.clone());
        self.inode_limit.store(inodes, Ordering::SeqCst);
        for (group, bits) in bits_of(&volume.sb, region) {
            // Each claim makes the next run the first one.
            while self
                .claim_next(volume, group, (bits.start, bits.end), (1, u32::MAX))?
                .is_some()
            {}
        }
        Ok(())
    }

    /// Ends the limit: what is free in the region is handed out again.
    ///
    /// # Errors
    /// As [`Alloc::unclaim`].
    pub(crate) fn end_limit(&self, volume: &Store) -> Result<(), Error> {
        let region = (*self.region).clone();
        if region.is_empty() {
            return Ok(());
        }
        self.region.publish(Region::default());
        self.inode_limit.store(u32::MAX, Ordering::SeqCst);
        for (group, bits) in bits_of(&volume.sb, &region) {
            let held = self.slot(group).lock().claimed_in(bits);
            for (start, len) in held {
                self.unclaim(volume, Clusters { group, start, len }.run(&volume.sb))?;
            }
        }
        Ok(())
    }

    /// The parts of a run that are in the region, and those that are not.
    pub(super) fn divided(&self, sb: &Superblock, part: Clusters) -> Vec<(Clusters, bool)> {
        let blocks = part.run(sb);
        let divided = self.region.divided(blocks.start.get()..blocks.end().get());
        let clusters = |(blocks, held): (Range<u64>, bool)| {
            let bits = bit_of(sb, part.group, blocks.start)..bit_of(sb, part.group, blocks.end);
            let part = Clusters {
                start: bits.start,
                len: bits.end - bits.start,
                ..part
            };
            (part, held)
        };
        divided.into_iter().map(clusters).collect()
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

    /// The runs of clusters in a region that are in use on disk, in order; a run ends where its group does. Blocks while bitmaps are read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub(crate) fn used_runs(&self, volume: &Store, region: &Region) -> Result<Vec<Run>, Error> {
        let mut runs = Vec::new();
        let mut bytes: Option<(GroupNo, Vec<u8>)> = None;
        for (group, bits) in bits_of(&volume.sb, region) {
            if bytes.as_ref().is_none_or(|(of, _)| *of != group) {
                bytes = Some((group, self.bitmap_on_disk(volume, group)?));
            }
            let map = bytes.as_ref().map_or(&[][..], |(_, map)| map);
            let mut at = bits.start;
            while let Some(start) = bitmap::next_one(map, at, bits.end) {
                at = bitmap::next_zero(map, start, bits.end).unwrap_or(bits.end);
                let len = at - start;
                runs.push(Clusters { group, start, len }.run(&volume.sb));
            }
        }
        Ok(runs)
    }

    /// The block bitmap of a group, verified, as the running transaction has it. Blocks while it is read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub(crate) fn bitmap_on_disk(&self, volume: &Store, group: GroupNo) -> Result<Vec<u8>, Error> {
        let desc = self.desc_of(group);
        if desc.flags.block_uninit() {
            return volume.fresh_bitmap(group);
        }
        let verify = |raw: &[u8]| desc.verify_block_bitmap(&volume.sb, raw);
        let (cache, device) = (&volume.cache, &volume.blocking);
        let map = cache.read(device, desc.block_bitmap, Kind::Bitmap, verify)?;
        Ok(map.to_vec())
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

/// The bits of a region, by groups.
fn bits_of<'r>(
    sb: &'r Superblock,
    region: &'r Region,
) -> impl Iterator<Item = (GroupNo, Range<u32>)> + 'r {
    let of = move |run: Range<u64>| {
        let count = sb.group_count();
        let first = sb.group_of(FsBlock::new(run.start));
        let first = first.map_or(count, GroupNo::get);
        let groups = (first..count).map(GroupNo::new);
        let end = run.end;
        groups
            .take_while(move |group| sb.group_first_block(*group).get() < end)
            .map(move |group| (group, bit_of(sb, group, run.start)..bit_of(sb, group, end)))
            .filter(|(_, bits)| !bits.is_empty())
    };
    region.runs().flat_map(of)
}

/// The bit of the first whole cluster of the group from block `at` on; the number of its clusters if all lie before.
fn bit_of(sb: &Superblock, group: GroupNo, at: u64) -> u32 {
    let first = sb.group_first_block(group).get();
    let inside = at.saturating_sub(first);
    let bits = inside.div_ceil(u64::from(sb.geometry().cluster_ratio()));
    let all = sb.group_clusters(group);
    u32::try_from(bits).map_or(all, |bits| bits.min(all))
}
