//! One transaction from a layout of the volume to another: of another size, with other group descriptors, with structures elsewhere.
//!
//! Input: a volume that nobody else uses; the superblocks before and after; the groups as they lie afterwards, with what is in new ones
//! written already. Output: the volume of that layout on disk; in memory it is as before, and can only be closed. The steps:
//!
//! 1. One transaction with the bitmaps and descriptors of the groups that change, the inode that keeps blocks for descriptors, the
//!    superblock.
//! 2. A commit, after which it is home, and then the copies of superblock and descriptors in other groups.
//!
//! Invariants: the change begins only when all blocks that leave the volume are known to be free, and all blocks that get new structures
//! were free before; copies keep the old layout until everything else is home. Without a journal the superblock is written after what it
//! counts, and descriptors that it does not count any more are written over after that. Limits: without a journal a crash while descriptors
//! change their size needs `e2fsck -b`, with a copy of the superblock.

use super::kept::KeptBlocks;
use super::{copies, size};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use diorite_format::bitmap::{self, fresh_blocks};
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock};
use std::collections::BTreeMap;

/// The superblock.
const CREDITS: u32 = 1;

/// Makes the volume one with `groups`: see the module. Returns its superblock. Blocks; no lock may be held.
///
/// # Errors
/// `Damaged`: something is not as it should be, and nothing has changed; `Refused`: the journal is too small; errors of the device.
pub(super) fn apply(
    fs: &Fs,
    (old, new): (&Superblock, &Superblock),
    groups: &[GroupDesc],
) -> Result<Superblock, Error> {
    let alloc = fs.alloc()?;
    let _alone = fs.alone()?;
    // The checksums of changed bitmaps are in the descriptors after a commit only.
    fs.commit_running()?;
    let plan = Plan::new(fs, (old, new), groups)?;
    let new = plan.counted(new)?;
    let table = groups
        .first()
        .map_or(FsBlock::NONE, |group| group.inode_table);
    let kept = KeptBlocks::new(fs, (old, &new), table);
    let clusters = plan.descs.iter().map(|g| u64::from(g.free_clusters)).sum();
    let inodes = plan.descs.iter().map(|g| u64::from(g.free_inodes)).sum();
    let credits = plan.credits(&new)?.saturating_add(kept.credits());
    if credits > fs.most_credits_alone() {
        let what = format!("{credits} blocks change at once, which is too much for the journal");
        return Err(Error::refused(what, "make the journal larger"));
    }
    // Without a journal what is written over must not be counted any more.
    let in_steps = !fs.has_journal() && new.group_count() < old.group_count();
    fs.in_handle(credits, |handle| {
        kept.check(handle)?;
        handle.or_abort(plan.write(handle, &new, in_steps))?;
        if !in_steps {
            handle.or_abort(kept.write(handle))?;
        }
        // In the handle: whoever commits it writes the counts into the superblock.
        alloc.shrink(&new, clusters, inodes);
        Ok(())
    })?;
    fs.commit_running()?;
    if in_steps {
        fs.in_handle(credits, |handle| {
            handle.or_abort(plan.write_descriptors(handle, &new, false))?;
            handle.or_abort(kept.write(handle))
        })?;
        fs.commit_running()?;
    }
    copies::write(fs, &new)?;
    Ok(new)
}

/// A group that has other blocks in use than before, or its bitmaps elsewhere.
struct Changed {
    /// Each with its place.
    bitmaps: Vec<(FsBlock, Vec<u8>)>,
}

/// What changes in bitmaps and descriptors.
struct Plan<'a> {
    fs: &'a Fs,
    old: &'a Superblock,
    groups: Vec<Changed>,
    /// All descriptors, as they are afterwards.
    descs: Vec<GroupDesc>,
    /// Those that change, by their group.
    changed: BTreeMap<u32, bool>,
    /// Clusters of structures that go, and of those that come.
    gone: u64,
    come: u64,
}

impl<'a> Plan<'a> {
    /// # Errors
    /// `Damaged`: something that goes is in use.
    fn new(
        fs: &'a Fs,
        (old, new): (&'a Superblock, &Superblock),
        groups: &[GroupDesc],
    ) -> Result<Plan<'a>, Error> {
        let (was, is) = (lying(old, &fs.groups), lying(new, groups));
        let mut plan = Plan {
            fs,
            old,
            groups: Vec::new(),
            descs: Vec::new(),
            changed: BTreeMap::new(),
            gone: 0,
            come: 0,
        };
        for group in (0..old.group_count().max(new.group_count())).map(GroupNo::new) {
            let here = (of(&was, group), of(&is, group));
            match groups.get(group.get() as usize) {
                Some(place) if group.get() < old.group_count() => {
                    plan.stays(place, (old, new), here)?;
                }
                Some(added) => {
                    let of_group = new.group_clusters(group) - added.free_clusters;
                    plan.come += u64::from(of_group);
                    plan.changed.insert(group.get(), true);
                    plan.descs.push(added.clone());
                }
                None => plan.goes(group, old, here.0)?,
            }
        }
        Ok(plan)
    }

    /// A group that goes has nothing but structures.
    fn goes(&mut self, group: GroupNo, old: &Superblock, own: &[&GroupDesc]) -> Result<(), Error> {
        let desc = self.fs.alloc()?.desc_of(group);
        let mut bits = vec![0; old.block_size() as usize];
        fresh_blocks(old, group, own.iter().copied(), &mut bits)?;
        let clusters = old.group_clusters(group);
        let free = bitmap::count_zeros(&bits, clusters);
        self.gone += u64::from(clusters - free);
        let inodes = old.geometry().inodes_per_group();
        if desc.free_clusters != free || desc.free_inodes != inodes {
            return Err(Error::Damaged(format!(
                "group {group}, behind the new end, has {} free clusters and {} free inodes, {free} and {inodes} were expected; run e2fsck",
                desc.free_clusters, desc.free_inodes
            )));
        }
        Ok(())
    }

    /// A group that stays gains and loses structures, and the last one its end. `place`: where its own lie afterwards.
    fn stays(
        &mut self,
        place: &GroupDesc,
        (old, new): (&Superblock, &Superblock),
        (was, is): (&[&GroupDesc], &[&GroupDesc]),
    ) -> Result<(), Error> {
        let (group, size) = (place.group, old.block_size() as usize);
        let (mut before, mut after) = (vec![0; size], vec![0; size]);
        fresh_blocks(old, group, was.iter().copied(), &mut before)?;
        fresh_blocks(new, group, is.iter().copied(), &mut after)?;
        let alloc = self.fs.alloc()?;
        let now = alloc.desc_of(group);
        let mut desc = GroupDesc {
            block_bitmap: place.block_bitmap,
            inode_bitmap: place.inode_bitmap,
            inode_table: place.inode_table,
            ..now.clone()
        };
        let sums_differ = old.geometry().desc_size() != new.geometry().desc_size();
        let has_moved = now != desc;
        // e2fsck wants the bitmap of the last group to be written.
        let is_last = group.get() + 1 == new.group_count();
        let is_other = before != after || is_last && now.flags.block_uninit();
        let mut changed = Changed {
            bitmaps: Vec::new(),
        };
        if is_other || now.block_bitmap != desc.block_bitmap && !now.flags.block_uninit() {
            let bits = self.merged((old, new), &now, (&before, &after))?;
            desc.free_clusters = bitmap::count_zeros(&bits, new.group_clusters(group));
            desc.flags = desc.flags.without_block_uninit();
            desc.seal_block_bitmap(new, &bits)?;
            changed.bitmaps.push((desc.block_bitmap, bits));
        } else if sums_differ && !now.flags.block_uninit() {
            desc.seal_block_bitmap(new, &alloc.bitmap_on_disk(self.fs, group)?)?;
        }
        if (sums_differ || now.inode_bitmap != desc.inode_bitmap) && !now.flags.inode_uninit() {
            let bits = self.inode_bitmap(&now)?;
            desc.seal_inode_bitmap(new, &bits)?;
            if now.inode_bitmap != desc.inode_bitmap {
                changed.bitmaps.push((desc.inode_bitmap, bits));
            }
        }
        // What nobody compares has to fit, too.
        desc.block_bitmap_csum = bitmap::stored_sum(new, desc.block_bitmap_csum);
        desc.inode_bitmap_csum = bitmap::stored_sum(new, desc.inode_bitmap_csum);
        if has_moved || now != desc {
            self.changed.insert(group.get(), has_moved);
            self.groups.push(changed);
        }
        self.descs.push(desc);
        Ok(())
    }

    /// The bitmap of a group with the structures of `after` in place of those of `before`.
    fn merged(
        &mut self,
        (old, new): (&Superblock, &Superblock),
        desc: &GroupDesc,
        (before, after): (&[u8], &[u8]),
    ) -> Result<Vec<u8>, Error> {
        let group = desc.group;
        let (was, is) = (old.group_clusters(group), new.group_clusters(group));
        let used = |bits: &[u8], count| count - bitmap::count_zeros(bits, count);
        self.gone += u64::from(used(before, was).saturating_sub(used(after, is)));
        self.come += u64::from(used(after, is).saturating_sub(used(before, was)));
        let mut bits = self.fs.alloc()?.bitmap_on_disk(self.fs, group)?;
        for ((bit, before), after) in bits.iter_mut().zip(before).zip(after) {
            *bit = *bit & !*before | *after;
        }
        // If no file has blocks where structures come, or behind the end, structures alone make the difference.
        let expected = (desc.free_clusters + bitmap::count_zeros(after, is))
            .checked_sub(bitmap::count_zeros(before, was));
        if Some(bitmap::count_zeros(&bits, is)) != expected {
            return Err(Error::Damaged(format!(
                "group {group} has blocks in use behind the new end, or where structures are to lie; run e2fsck"
            )));
        }
        Ok(bits)
    }

    fn inode_bitmap(&self, desc: &GroupDesc) -> Result<Vec<u8>, Error> {
        let verify = |raw: &[u8]| desc.verify_inode_bitmap(self.old, raw);
        let (cache, device) = (&self.fs.cache, &self.fs.blocking);
        let bits = cache.read(device, desc.inode_bitmap, Kind::Bitmap, verify)?;
        Ok(bits.to_vec())
    }

    /// Whether all descriptors are written again: they have another size.
    fn all_anew(&self, new: &Superblock) -> bool {
        self.old.geometry().desc_size() != new.geometry().desc_size()
    }

    /// The blocks of descriptors that change.
    fn descriptors(&self, new: &Superblock) -> Result<Vec<u32>, Error> {
        let g = new.geometry();
        // The rest of the last one is cleared.
        let mut all = vec![g.gdt_blocks() - 1];
        for index in 0..g.gdt_blocks() {
            let moved = index >= self.old.geometry().gdt_blocks()
                || self.old.gdt_location(index)? != new.gdt_location(index)?;
            if moved || self.all_anew(new) {
                all.push(index);
            }
        }
        let of_groups = self.changed.keys().map(|group| group / g.descs_per_block());
        all.extend(of_groups);
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    fn credits(&self, new: &Superblock) -> Result<u32, Error> {
        let bitmaps: usize = self.groups.iter().map(|group| group.bitmaps.len()).sum();
        let blocks = bitmaps + self.descriptors(new)?.len();
        Ok(CREDITS.saturating_add(u32::try_from(blocks).unwrap_or(u32::MAX)))
    }

    /// The superblock with the overhead of structures as it is afterwards.
    fn counted(&self, new: &Superblock) -> Result<Superblock, Error> {
        let before = u64::from(new.info().overhead_clusters);
        let after = (before + self.come).saturating_sub(self.gone);
        // 0 = unknown stays unknown.
        size::with_overhead(new, if before == 0 { 0 } else { after })
    }

    /// `keeps`: descriptors of groups that go stay as they are.
    fn write(
        &self,
        handle: &JournalHandle<'_>,
        new: &Superblock,
        keeps: bool,
    ) -> Result<(), Error> {
        for (at, bits) in self.groups.iter().flat_map(|group| &group.bitmaps) {
            handle.create(*at, Kind::Bitmap, |raw| raw.copy_from_slice(bits));
        }
        self.write_descriptors(handle, new, keeps)?;
        handle.resize(new)
    }

    /// Writes descriptors, and clears those behind the last group, unless they are kept.
    fn write_descriptors(
        &self,
        handle: &JournalHandle<'_>,
        new: &Superblock,
        keeps: bool,
    ) -> Result<(), Error> {
        let anew = self.all_anew(new);
        for index in self.descriptors(new)? {
            let at = new.gdt_location(index)?;
            let is_old =
                index < self.old.geometry().gdt_blocks() && self.old.gdt_location(index)? == at;
            if anew || !is_old {
                let mut bytes = vec![0; new.block_size() as usize];
                self.put(new, index, (&mut bytes, true), keeps)?;
                handle.create(at, Kind::Groups, |raw| raw.copy_from_slice(&bytes));
            } else {
                handle.update(
                    at,
                    Kind::Groups,
                    |_| Ok(()),
                    |raw| self.put(new, index, (raw, false), keeps),
                )?;
            }
        }
        Ok(())
    }

    /// Puts descriptors into a block of them: all of it, or those that change.
    fn put(
        &self,
        new: &Superblock,
        index: u32,
        (raw, all): (&mut [u8], bool),
        keeps: bool,
    ) -> Result<(), Error> {
        let per_block = new.geometry().descs_per_block();
        let size = new.geometry().desc_size() as usize;
        let first = index * per_block;
        let mut slots = raw.chunks_exact_mut(size);
        for (group, slot) in (first..first + per_block).zip(&mut slots) {
            let Some(desc) = self.descs.get(group as usize) else {
                if !keeps {
                    slot.fill(0);
                }
                continue;
            };
            match self.changed.get(&group) {
                Some(true) => desc.write_new(new, slot)?,
                _ if all => desc.write_new(new, slot)?,
                Some(false) => desc.write(new, slot)?,
                None => {}
            }
        }
        Ok(())
    }
}

type Lying<'d> = BTreeMap<u32, Vec<&'d GroupDesc>>;

fn of<'l, 'd>(lying: &'l Lying<'d>, group: GroupNo) -> &'l [&'d GroupDesc] {
    lying.get(&group.get()).map_or(&[], Vec::as_slice)
}

/// By group, the descriptors whose bitmaps or tables have a block in it.
fn lying<'d>(sb: &Superblock, groups: &'d [GroupDesc]) -> Lying<'d> {
    let table = u64::from(sb.geometry().inode_table_blocks());
    let mut lying: Lying<'d> = BTreeMap::new();
    for desc in groups {
        let ends = [
            (desc.block_bitmap, 1),
            (desc.inode_bitmap, 1),
            (desc.inode_table, table),
        ];
        for (at, len) in ends {
            let last = FsBlock::new(at.get() + len - 1);
            let of = |block| sb.group_of(block).map_or(0, GroupNo::get);
            for group in of(at)..=of(last) {
                let here = lying.entry(group).or_default();
                if here.last().is_none_or(|there| there.group != desc.group) {
                    here.push(desc);
                }
            }
        }
    }
    lying
}
