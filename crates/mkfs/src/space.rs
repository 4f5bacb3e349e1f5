//! The space of a new file system: which blocks are taken, and by what.
//!
//! Input: the superblock of a [`crate::plan::Plan`]. Output: places of bitmaps, inode tables and files; each group's bitmap. Invariants: no
//! block is given away twice; what a file gets begins and ends at a cluster. Limit: the head of a group (backups of superblock and
//! descriptors) is known from the superblock and is in no list.

use crate::error::Error;
use crate::plan::Has;
use diorite_format::bitmap::{self, fresh_blocks};
use diorite_format::features::Incompat;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of one extent, at most.
const MOST_IN_EXTENT: u64 = 32768;

/// Who has a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The bitmaps, or the inode tables, of groups that follow each other from `first` on: `each` blocks of each.
    Groups { first: u32, each: u64 },
    /// A file, or a block of no group.
    File,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    len: u64,
    owner: Owner,
}

impl Taken {
    /// Whether these of its blocks, as far as it has them, are the group's own.
    fn is_of(&self, group: GroupNo, blocks: Range<u64>) -> bool {
        let Owner::Groups { first, each } = self.owner else {
            return false;
        };
        let own = u64::from(group.get() - first.min(group.get())) * each;
        group.get() >= first && own <= blocks.start && blocks.end.min(self.len) <= own + each
    }
}

/// What of a new volume, or of the new groups of a grown one, is taken.
pub struct Space<'s> {
    sb: &'s Superblock,
    /// Runs by their first block.
    taken: BTreeMap<u64, Taken>,
    /// [`Space::next_free`] looks at nothing before this block.
    next: u64,
    /// Blocks of a disk's chunk, by which the bitmaps of each further group lie further behind its table; 0: they lie before it.
    stride: u64,
}

/// What is used in a group.
pub(crate) struct GroupUse {
    /// The block bitmap; empty if it need not be written.
    pub(crate) bitmap: Vec<u8>,
    pub(crate) free_clusters: u32,
    /// Nothing but its own metadata lies in it.
    pub(crate) only_own: bool,
}

fn no_room(what: &str) -> Error {
    Error::NoRoom(format!(
        "the file system is too small for {what}: a larger size, fewer inodes or a smaller journal would do"
    ))
}

impl<'s> Space<'s> {
    /// Nothing is taken yet but the heads of groups.
    #[must_use]
    pub fn new(sb: &'s Superblock) -> Space<'s> {
        Space {
            sb,
            taken: BTreeMap::new(),
            next: 0,
            stride: 0,
        }
    }

    /// Spreads the bitmaps of groups over the disks of an array, of which each has so many blocks before the next one follows.
    pub(crate) fn stagger(&mut self, stride: u16) {
        self.stride = stride.into();
    }

    /// Where the bitmaps of a group are looked for. Staggered, as mke2fs has them: behind its table, each group's a chunk further.
    fn bitmaps_at(&self, group: u32) -> u64 {
        let number = GroupNo::new(group);
        let start = self.sb.group_first_block(number).get();
        if self.stride == 0 {
            return start;
        }
        let head = u64::from(self.sb.group_head_blocks(number));
        let own = head + u64::from(self.sb.geometry().inode_table_blocks());
        let room = u64::from(self.sb.group_blocks(number)).saturating_sub(own);
        match room {
            // For both of them.
            0..2 => start,
            _ => start + own + (self.stride * u64::from(group) % room).min(room - 2),
        }
    }

    /// Places bitmaps and inode tables: those of a flexible group at its start, those of other groups inside them. `packed`: all at the
    /// start of the volume.
    pub(crate) fn place_groups(
        &mut self,
        per_flex: u32,
        packed: bool,
    ) -> Result<Vec<GroupDesc>, Error> {
        let count = self.sb.group_count();
        let mut descs = Vec::new();
        let mut first = 0;
        while first < count {
            let end = match packed {
                true => count,
                false => count.min(first.saturating_add(per_flex)),
            };
            self.place_flex(first..end, &mut descs)?;
            first = end;
        }
        Ok(descs)
    }

    /// Places bitmaps and inode tables of these groups together, at the start of the first one.
    pub fn place_flex(
        &mut self,
        groups: Range<u32>,
        descs: &mut Vec<GroupDesc>,
    ) -> Result<(), Error> {
        let start = self.sb.group_first_block(GroupNo::new(groups.start)).get();
        let table = u64::from(self.sb.geometry().inode_table_blocks());
        let mut at = self.bitmaps_at(groups.start);
        // Without that feature the tables of a group lie inside it, and bad blocks may leave them no room there.
        let end = match Has(self.sb.features()).incompat(Incompat::FLEX_BG) {
            true => self.sb.geometry().blocks_count(),
            false => start + u64::from(self.sb.group_blocks(GroupNo::new(groups.start))),
        };
        let mut blocks: [Vec<u64>; 3] = Default::default();
        for (kind, (firsts, each)) in blocks.iter_mut().zip([1, 1, table]).enumerate() {
            let mut first = groups.start;
            if kind == 2 && self.stride > 0 {
                at = start;
            }
            while first < groups.end {
                let wanted = u64::from(groups.end - first) * each;
                let run = self.free_run(at, wanted, 1);
                let run = run.filter(|run| run.start + each <= end).ok_or_else(|| {
                    let count = self.sb.group_count();
                    no_room(&format!("the inode tables of {count} groups"))
                })?;
                let count = (run.end - run.start) / each;
                at = run.start + count * each;
                if count == 0 {
                    at = run.end;
                    continue;
                }
                firsts.extend((run.start..at).step_by(each as usize));
                self.take(run.start..at, Owner::Groups { first, each });
                first += count as u32;
            }
        }
        for (n, group) in groups.enumerate() {
            descs.push(GroupDesc {
                group: GroupNo::new(group),
                block_bitmap: FsBlock::new(blocks[0][n]),
                inode_bitmap: FsBlock::new(blocks[1][n]),
                inode_table: FsBlock::new(blocks[2][n]),
                free_clusters: 0,
                free_inodes: 0,
                used_dirs: 0,
                flags: Default::default(),
                itable_unused: 0,
                block_bitmap_csum: 0,
                inode_bitmap_csum: 0,
            });
        }
        Ok(())
    }

    /// Takes so many blocks for a file, in as few runs as possible from the start of the volume: each of an extent's length at most.
    pub(crate) fn for_file(&mut self, blocks: u64, what: &str) -> Result<Vec<Range<u64>>, Error> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        if let Some(run) = self.whole_run(0, blocks.next_multiple_of(ratio), ratio) {
            return Ok(self.take_pieces(run, blocks));
        }
        let (mut left, mut at, mut runs) = (blocks, 0, Vec::new());
        while left > 0 {
            let wanted = left.next_multiple_of(ratio);
            let run = self
                .free_run(at, wanted, ratio)
                .ok_or_else(|| no_room(what))?;
            at = run.end;
            let len = left.min(run.end - run.start);
            runs.extend(self.take_pieces(run, len));
            left -= len;
        }
        Ok(runs)
    }

    /// Takes so many blocks for a file: the free ones from `at` on, and behind the last block those from the start of the volume on.
    pub(crate) fn for_file_at(
        &mut self,
        at: u64,
        blocks: u64,
        what: &str,
    ) -> Result<Vec<Range<u64>>, Error> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let (mut left, mut from, mut runs) = (blocks, at, Vec::new());
        let mut is_again = false;
        while left > 0 {
            let found = self.free_run(from, left.next_multiple_of(ratio), ratio);
            let Some(run) = found.filter(|run| !is_again || run.start < at) else {
                if is_again {
                    return Err(no_room(what));
                }
                (from, is_again) = (0, true);
                continue;
            };
            from = run.end;
            let len = left.min(run.end - run.start);
            runs.extend(self.take_pieces(run, len));
            left -= len;
        }
        Ok(runs)
    }

    /// Takes one block that nothing is to be put into. Heads of groups are never taken.
    pub(crate) fn keep_off(&mut self, block: u64) {
        self.take(block..block + 1, Owner::File);
    }

    /// Takes the next free blocks, one after the other: whole clusters, in pieces of an extent's length at most. None if so many are not
    /// left; then nothing is taken.
    pub(crate) fn next_free(&mut self, blocks: u64) -> Option<Vec<Range<u64>>> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let (mut left, mut at, mut runs) = (blocks.next_multiple_of(ratio), self.next, Vec::new());
        while left > 0 {
            let run = self.free_run(at, left, ratio)?;
            at = run.end;
            left -= run.end - run.start;
            runs.push(run);
        }
        self.next = at;
        let mut rest = blocks;
        let mut pieces = Vec::with_capacity(runs.len());
        for run in runs {
            let len = rest.min(run.end - run.start);
            pieces.extend(self.take_pieces(run, len));
            rest -= len;
        }
        Some(pieces)
    }

    /// The free runs from where [`Space::next_free`] would go on.
    pub(crate) fn free_runs(&self) -> Vec<Range<u64>> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let mut at = self.next;
        let next = || {
            let run = self.free_run(at, u64::MAX, ratio)?;
            at = run.end;
            Some(run)
        };
        std::iter::from_fn(next).collect()
    }

    /// Takes a run, and returns the first `blocks` of it in pieces of extents.
    fn take_pieces(&mut self, run: Range<u64>, blocks: u64) -> Vec<Range<u64>> {
        self.take(run.clone(), Owner::File);
        let end = run.start + blocks;
        let starts = (run.start..end).step_by(MOST_IN_EXTENT as usize);
        starts.map(|s| s..end.min(s + MOST_IN_EXTENT)).collect()
    }

    fn take(&mut self, run: Range<u64>, owner: Owner) {
        let len = run.end - run.start;
        if let Some((start, before)) = self.taken.range_mut(..=run.start).next_back() {
            debug_assert!(start + before.len <= run.start, "a block is taken twice");
            if start + before.len == run.start
                && (before.owner, owner) == (Owner::File, Owner::File)
            {
                before.len += len;
                return;
            }
        }
        self.taken.insert(run.start, Taken { len, owner });
    }

    /// The first free run of exactly `len` blocks at or behind `from` that begins at a multiple of `align`.
    fn whole_run(&self, from: u64, len: u64, align: u64) -> Option<Range<u64>> {
        let mut at = from;
        loop {
            let run = self.free_run(at, len, align)?;
            if run.end - run.start == len {
                return Some(run);
            }
            at = run.end;
        }
    }

    /// The first free run at or behind `from` that begins at a multiple of `align`: whole clusters, at most `most` blocks.
    fn free_run(&self, from: u64, most: u64, align: u64) -> Option<Range<u64>> {
        let end = self.sb.geometry().blocks_count();
        let first = self.sb.geometry().first_data_block().get();
        let mut at = from.max(first);
        loop {
            at = first + (at - first).next_multiple_of(align);
            if at >= end {
                return None;
            }
            let stop = self.next_taken(at, at.saturating_add(most).min(end));
            let whole = at + (stop.start - at) / align * align;
            if whole > at {
                return Some(at..whole);
            }
            // Behind the end of the volume nothing is in the way, but no whole cluster is there either.
            at = stop.end.max(at + 1);
        }
    }

    /// The first taken blocks in `at..end`: where they begin, and where what has been met there ends. `end` if there are none.
    fn next_taken(&self, at: u64, end: u64) -> Range<u64> {
        let before = self.taken.range(..=at).next_back();
        if let Some((start, taken)) = before
            && start + taken.len > at
        {
            return at..start + taken.len;
        }
        let next = self.taken.range(at..end).next();
        let stop = next.map_or(end..end, |(start, taken)| *start..start + taken.len);
        let group = self.sb.group_of(FsBlock::new(at));
        let mut group = group.map_or(0, GroupNo::get);
        while group < self.sb.group_count() {
            let number = GroupNo::new(group);
            let start = self.sb.group_first_block(number).get();
            if start >= stop.start {
                break;
            }
            let head = start + u64::from(self.sb.group_head_blocks(number));
            if head > at && head > start {
                return start.max(at)..head;
            }
            group += 1;
        }
        stop
    }

    /// What is used in a group. Its bitmap is made if `written`, or if there is more in it than its head.
    pub(crate) fn of_group(&self, group: GroupNo, written: bool) -> Result<GroupUse, Error> {
        let start = self.sb.group_first_block(group).get();
        let end = start + u64::from(self.sb.group_blocks(group));
        let reaches_in = self.taken.range(..start).next_back();
        let reaches_in = reaches_in.filter(|(at, taken)| *at + taken.len > start);
        let mut inside = reaches_in
            .into_iter()
            .chain(self.taken.range(start..end))
            .peekable();
        if !written && inside.peek().is_none() {
            let ratio = self.sb.geometry().cluster_ratio();
            let head = self.sb.group_head_blocks(group).div_ceil(ratio);
            return Ok(GroupUse {
                free_clusters: self.sb.group_clusters(group).saturating_sub(head),
                bitmap: Vec::new(),
                only_own: true,
            });
        }
        let mut bits = vec![0; self.sb.block_size() as usize];
        fresh_blocks(self.sb, group, [], &mut bits)?;
        let mut only_own = true;
        for (at, taken) in inside {
            bitmap::mark_blocks(self.sb, group, &mut bits, FsBlock::new(*at), taken.len);
            only_own &= taken.is_of(group, start.saturating_sub(*at)..end - at);
        }
        Ok(GroupUse {
            free_clusters: bitmap::count_zeros(&bits, self.sb.group_clusters(group)),
            bitmap: bits,
            only_own,
        })
    }
}
