//! Room for longer heads of groups: copies of the superblock with more, or larger, group descriptors behind them.
//!
//! Input: an open volume, and a superblock whose groups have other heads. Output: where the bitmaps and inode tables lie that are in the
//! way there, and the blocks that have to be emptied for heads and structures. Invariants: a new place is no other structure's, neither
//! before nor afterwards; without flex_bg it is in the structure's own group; free blocks are preferred, and then those of files, which
//! move. Limits: not with clusters of several blocks, in which structures share clusters; a table needs a run of free blocks, or of files',
//! that is as long.

use crate::alloc::Region;
use crate::error::Error;
use crate::inode::Fs;
use crate::relocate::{Limit, Progress, copy_runs, evacuate};
use diorite_format::features::Incompat;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// See the module.
pub(super) struct Room {
    /// The groups that there are, with their structures at their new places.
    pub(super) groups: Vec<GroupDesc>,
    region: Region,
    /// Inode tables that move.
    tables: Vec<(FsBlock, FsBlock, u32)>,
}

impl Room {
    /// Plans it. Blocks while bitmaps are read.
    ///
    /// # Errors
    /// `NotSupported`, `NoSpace`; damage.
    pub(super) fn plan(fs: &Fs, (old, new): (&Superblock, &Superblock)) -> Result<Room, Error> {
        let heads = Region::of(longer(fs, old, new)?);
        let mut room = Room {
            groups: fs.groups.to_vec(),
            region: heads.clone(),
            tables: Vec::new(),
        };
        if heads.is_empty() {
            return Ok(room);
        }
        if old.geometry().cluster_ratio() > 1 {
            return Err(Error::NotSupported(
                "group descriptors have no room, and structures do not move on a volume with bigalloc".to_owned(),
            ));
        }
        let table = old.geometry().inode_table_blocks();
        let mut search = Search::new(fs, (old, new));
        let mut targets = Vec::new();
        for desc in &mut room.groups {
            let group = desc.group;
            let structures = [
                (&mut desc.block_bitmap, 1, false),
                (&mut desc.inode_bitmap, 1, false),
                (&mut desc.inode_table, table, true),
            ];
            for (at, len, is_table) in structures {
                if !heads.touches(at.get()..at.get() + u64::from(len)) {
                    continue;
                }
                let to = search.find(group, len)?;
                targets.push(to..to + u64::from(len));
                let from = std::mem::replace(at, FsBlock::new(to));
                if is_table {
                    room.tables.push((from, *at, len));
                }
            }
        }
        room.region = Region::of(heads.runs().chain(targets));
        Ok(room)
    }

    /// Empties the blocks, and copies inode tables to their new places, which nothing leads to yet. Durable when it returns. Blocks.
    ///
    /// # Errors
    /// As [`evacuate`]; errors of the device.
    pub(super) fn make(&self, fs: &Arc<Fs>, progress: Progress<'_>) -> Result<(), Error> {
        let limit = Limit::within(&fs.sb, self.region.clone());
        evacuate(fs, &limit, progress)?;
        copy_runs(fs, &self.tables)?;
        fs.flush()
    }
}

/// The blocks that heads of groups gain, as far as the volume has them.
fn longer(fs: &Fs, old: &Superblock, new: &Superblock) -> Result<Vec<Range<u64>>, Error> {
    let mut gained = Vec::new();
    for desc in fs.groups.iter().take(new.group_count() as usize) {
        let group = desc.group;
        let first = old.group_first_block(group).get();
        let end = first + u64::from(old.group_blocks(group));
        let head = |sb: &Superblock| first + u64::from(sb.group_head_blocks(group));
        if head(new) > first + u64::from(new.group_blocks(group)) {
            return Err(Error::NotSupported(format!(
                "group {group} has no room for all group descriptors"
            )));
        }
        gained.push(head(old)..head(new).min(end));
    }
    Ok(gained)
}

/// Looks for places.
struct Search<'a> {
    fs: &'a Fs,
    new: &'a Superblock,
    /// What is used by structures, before or afterwards.
    fixed: Vec<Range<u64>>,
    /// What is in use, by group, as far as it was looked at.
    used: BTreeMap<u32, Vec<Range<u64>>>,
}

impl<'a> Search<'a> {
    fn new(fs: &'a Fs, (old, new): (&Superblock, &'a Superblock)) -> Search<'a> {
        let structures = fs.fixed_runs();
        let mut fixed: Vec<_> = structures
            .map(|(at, len, _)| at.get()..at.get() + len)
            .collect();
        for desc in fs.groups.iter() {
            let first = old.group_first_block(desc.group).get();
            let head = old.group_head_blocks(desc.group);
            let head = head.max(new.group_head_blocks(desc.group));
            fixed.push(first..first + u64::from(head));
        }
        let mmp = old.mmp_block().get();
        fixed.push(mmp..mmp + 1);
        let used = BTreeMap::new();
        Search {
            fs,
            new,
            fixed,
            used,
        }
    }

    /// A place of `len` blocks for a structure of a group.
    fn find(&mut self, own: GroupNo, len: u32) -> Result<u64, Error> {
        let count = self.fs.sb.group_count().min(self.new.group_count());
        let flexible = self.new.features().incompat.has(Incompat::FLEX_BG);
        let groups: Vec<u32> = match flexible {
            true => (own.get()..count).chain(0..own.get()).collect(),
            false => vec![own.get()],
        };
        for only_free in [true, false] {
            for group in groups.iter().copied().map(GroupNo::new) {
                if let Some(at) = self.gap(group, len, only_free)? {
                    self.fixed.push(at..at + u64::from(len));
                    return Ok(at);
                }
            }
        }
        let (asked, free) = (u64::from(len), self.fs.alloc()?.now_free().0);
        Err(Error::NoSpace { asked, free })
    }

    fn gap(&mut self, group: GroupNo, len: u32, only_free: bool) -> Result<Option<u64>, Error> {
        let first = self.fs.sb.group_first_block(group).get();
        let all = first..first + u64::from(self.fs.sb.group_blocks(group));
        if only_free && !self.used.contains_key(&group.get()) {
            let here = Region::of([all.clone()]);
            let runs = self.fs.alloc()?.used_runs(self.fs, &here)?;
            let runs = runs.iter().map(|run| run.start.get()..run.end().get());
            self.used.insert(group.get(), runs.collect());
        }
        let used = self.used.get(&group.get()).filter(|_| only_free);
        let near = self
            .fixed
            .iter()
            .filter(|run| run.start < all.end && run.end > all.start);
        let taken = Region::of(near.chain(used.into_iter().flatten()).cloned());
        let gaps = taken.divided(all);
        let mut gaps = gaps.iter().filter(|(_, is_taken)| !is_taken);
        let long = gaps.find(|(gap, _)| gap.end - gap.start >= u64::from(len));
        Ok(long.map(|(gap, _)| gap.start))
    }
}
