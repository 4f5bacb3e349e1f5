//! A smaller file system.
//!
//! Input: a volume that nobody else uses, and a number of blocks. Output: the volume of that size on disk; in memory it is as before, and
//! can only be closed. The steps:
//!
//! 1. What lies behind the new end moves to the front: data, maps, directories, inodes. Each move is a transaction of its own. So does
//!    what lies in the new last group, if that gets the copy of the superblock that another one had (sparse_super2).
//! 2. One transaction with the bitmaps and descriptors of the groups that stay and have something of those that go, the inode that keeps
//!    blocks for descriptors, the superblock.
//! 3. A commit, after which it is home, and then the copies of superblock and descriptors in other groups.
//!
//! Invariants: after a crash at any point the volume has one of the two sizes and all its files; nothing of step 2 begins before everything
//! behind the end is seen to be free. Without a journal the superblock is written after what it counts, and what it does not count any more
//! is written over after that. Limits: bitmaps and tables of groups that stay do not move.

use super::kept::KeptBlocks;
use super::{copies, size};
use crate::disk::Zone;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::relocate::{Limit, Progress, evacuate};
use diorite_format::bitmap::{self, fresh_blocks};
use diorite_format::{GroupDesc, GroupNo, Superblock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The superblock, a block of descriptors whose rest is cleared.
const CREDITS: u32 = 2;

/// Makes a volume smaller: see the module. To at most `blocks` blocks; returns how many it has then. Blocks; no lock may be held.
///
/// # Errors
/// `Invalid`, `NotSupported`: a size that cannot be; `NoSpace`: the files need more; damage; errors of the device.
pub(crate) fn shrink(fs: &Arc<Fs>, blocks: u64, progress: Progress<'_>) -> Result<u64, Error> {
    let alloc = fs.alloc()?;
    let (old, new) = (&*fs.sb, size::smaller(&fs.sb, blocks)?);
    if new.geometry().blocks_count() == old.geometry().blocks_count() {
        return Ok(old.geometry().blocks_count());
    }
    let new = empty(fs, old, new, progress)?;
    let _alone = fs.alone()?;
    let plan = Plan::new(fs, old, &new)?;
    let new = plan.counted(&new)?;
    let kept = KeptBlocks::new(fs, old, &new);
    let (mut clusters, mut inodes) = (0, 0);
    for group in (0..new.group_count()).map(GroupNo::new) {
        let desc = alloc.desc_of(group);
        let free = plan.groups.get(&group.get()).map(|there| &there.desc);
        clusters += u64::from(free.unwrap_or(&desc).free_clusters);
        inodes += u64::from(desc.free_inodes);
    }
    fs.in_handle(CREDITS + plan.credits() + kept.credits(), |handle| {
        kept.check(handle)?;
        handle.or_abort(plan.write(handle, &new))?;
        if fs.has_journal() {
            handle.or_abort(Plan::write_over(handle, &new, &kept))?;
        }
        // In the handle: whoever commits it writes the counts into the superblock.
        alloc.shrink(clusters, inodes);
        Ok(())
    })?;
    fs.commit_running()?;
    if !fs.has_journal() {
        fs.in_handle(1 + kept.credits(), |handle| {
            handle.or_abort(Plan::write_over(handle, &new, &kept))
        })?;
        fs.commit_running()?;
    }
    copies::write(fs, &new)?;
    Ok(new.geometry().blocks_count())
}

/// Moves to the front what lies behind the end of `new`. Returns `new` as it is then: with sparse_super2, if a copy of the superblock goes
/// with its group, the last group gets one, if what else it has finds room elsewhere.
fn empty(
    fs: &Arc<Fs>,
    old: &Superblock,
    new: Superblock,
    progress: Progress<'_>,
) -> Result<Superblock, Error> {
    if let Some(with) = size::with_last_copy(old, &new) {
        let last = GroupNo::new(with.group_count() - 1);
        let stay = &fs.groups[..with.group_count() as usize];
        let limit = Limit {
            blocks: with.group_first_block(last).get(),
            inodes: last.get() * with.geometry().inodes_per_group(),
        };
        let is_room = Zone::of_groups(&with, stay)?.fits(&with);
        match is_room.then(|| evacuate(fs, limit, progress)) {
            Some(Ok(_)) => return Ok(with),
            None
            | Some(Err(Error::NoSpace { .. } | Error::NoInodes { .. } | Error::Refused { .. })) => {
            }
            Some(Err(other)) => return Err(other),
        }
    }
    let limit = Limit {
        blocks: new.geometry().blocks_count(),
        inodes: new.geometry().inodes_count(),
    };
    evacuate(fs, limit, progress)?;
    Ok(new)
}

/// A group that stays, and has something of those that go.
struct Changed {
    desc: GroupDesc,
    bitmap: Vec<u8>,
}

/// What changes in bitmaps and descriptors.
struct Plan<'a> {
    fs: &'a Fs,
    groups: BTreeMap<u32, Changed>,
    /// Clusters of structures that go, and of those that come.
    gone: u64,
    come: u64,
}

impl<'a> Plan<'a> {
    /// # Errors
    /// `Damaged`: something behind the end is in use.
    fn new(fs: &'a Fs, old: &Superblock, new: &Superblock) -> Result<Plan<'a>, Error> {
        let lying = lying(old, &fs.groups);
        let mut plan = Plan {
            fs,
            groups: BTreeMap::new(),
            gone: 0,
            come: 0,
        };
        for group in (0..old.group_count()).map(GroupNo::new) {
            let here = || lying.get(&group.get()).into_iter().flatten().copied();
            if group.get() < new.group_count() {
                plan.stays(group, (old, new), here())?;
            } else {
                plan.goes(group, old, here())?;
            }
        }
        Ok(plan)
    }

    /// A group that goes has nothing but structures.
    fn goes<'d>(
        &mut self,
        group: GroupNo,
        old: &Superblock,
        own: impl Iterator<Item = &'d GroupDesc>,
    ) -> Result<(), Error> {
        let desc = self.fs.alloc()?.desc_of(group);
        let mut bits = vec![0; old.block_size() as usize];
        fresh_blocks(old, group, own, &mut bits)?;
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

    /// A group that stays loses structures of those that go, and the last one its end.
    fn stays<'d>(
        &mut self,
        group: GroupNo,
        (old, new): (&Superblock, &Superblock),
        own: impl Iterator<Item = &'d GroupDesc> + Clone,
    ) -> Result<(), Error> {
        let stays = |desc: &&GroupDesc| desc.group.get() < new.group_count();
        let size = old.block_size() as usize;
        let (mut before, mut after) = (vec![0; size], vec![0; size]);
        fresh_blocks(old, group, own.clone(), &mut before)?;
        fresh_blocks(new, group, own.filter(stays), &mut after)?;
        let mut desc = self.fs.alloc()?.desc_of(group);
        // e2fsck wants the bitmap of the last group to be written.
        let is_last = group.get() + 1 == new.group_count();
        if before == after && !(is_last && desc.flags.block_uninit()) {
            return Ok(());
        }
        let (was, is) = (old.group_clusters(group), new.group_clusters(group));
        let used = |bits: &[u8], count| count - bitmap::count_zeros(bits, count);
        self.gone += u64::from(used(&before, was).saturating_sub(used(&after, is)));
        self.come += u64::from(used(&after, is).saturating_sub(used(&before, was)));
        let mut bits = before.clone();
        if !desc.flags.block_uninit() {
            let verify = |raw: &[u8]| desc.verify_block_bitmap(old, raw);
            let (cache, at) = (&self.fs.cache, desc.block_bitmap);
            bits.copy_from_slice(&cache.read(&self.fs.blocking, at, Kind::Bitmap, verify)?);
        }
        for ((bit, before), after) in bits.iter_mut().zip(&before).zip(&after) {
            *bit = *bit & !*before | *after;
        }
        // If no file has blocks behind the end, structures alone make the difference.
        let expected = (desc.free_clusters + bitmap::count_zeros(&after, is))
            .checked_sub(bitmap::count_zeros(&before, was));
        desc.free_clusters = bitmap::count_zeros(&bits, is);
        if Some(desc.free_clusters) != expected {
            return Err(Error::Damaged(format!(
                "group {group} has blocks in use behind the new end; run e2fsck"
            )));
        }
        desc.flags = desc.flags.without_block_uninit();
        desc.seal_block_bitmap(new, &bits)?;
        let bitmap = bits;
        self.groups.insert(group.get(), Changed { desc, bitmap });
        Ok(())
    }

    fn credits(&self) -> u32 {
        // A bitmap and a block of descriptors each.
        2 * u32::try_from(self.groups.len()).expect("groups have 32-bit numbers")
    }

    /// The superblock without the overhead of the groups that go.
    fn counted(&self, new: &Superblock) -> Result<Superblock, Error> {
        let before = u64::from(new.info().overhead_clusters);
        let after = (before + self.come).saturating_sub(self.gone);
        // 0 = unknown stays unknown.
        size::with_overhead(new, if before == 0 { 0 } else { after })
    }

    fn write(&self, handle: &JournalHandle<'_>, new: &Superblock) -> Result<(), Error> {
        for changed in self.groups.values() {
            let (desc, at) = (&changed.desc, changed.desc.block_bitmap);
            handle.create(at, Kind::Bitmap, |raw| raw.copy_from_slice(&changed.bitmap));
            let (index, offset) = new.desc_place(desc.group)?;
            handle.update(
                new.gdt_location(index)?,
                Kind::Groups,
                |_| Ok(()),
                |raw| Ok(desc.write(new, &mut raw[offset as usize..])?),
            )?;
        }
        handle.resize(new)
    }

    /// Writes over the descriptors of groups that go: clears them, as in a new file system, as far as their block stays, and keeps the
    /// other blocks. With a log that is a part of the same transaction. Without one the old superblock must not count them any more.
    fn write_over(
        handle: &JournalHandle<'_>,
        new: &Superblock,
        kept: &KeptBlocks<'_>,
    ) -> Result<(), Error> {
        let last = GroupNo::new(new.group_count() - 1);
        let (index, offset) = new.desc_place(last)?;
        let end = offset as usize + new.geometry().desc_size() as usize;
        handle.update(
            new.gdt_location(index)?,
            Kind::Groups,
            |_| Ok(()),
            |raw| {
                raw[end..].fill(0);
                Ok(())
            },
        )?;
        kept.write(handle)
    }
}

/// By group, the descriptors whose bitmaps or tables have a block in it.
fn lying<'d>(sb: &Superblock, groups: &'d [GroupDesc]) -> BTreeMap<u32, Vec<&'d GroupDesc>> {
    let table = u64::from(sb.geometry().inode_table_blocks());
    let mut lying: BTreeMap<u32, Vec<&GroupDesc>> = BTreeMap::new();
    for desc in groups {
        let ends = [
            (desc.block_bitmap, 1),
            (desc.inode_bitmap, 1),
            (desc.inode_table, table),
        ];
        for (at, len) in ends {
            let last = diorite_format::FsBlock::new(at.get() + len - 1);
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
