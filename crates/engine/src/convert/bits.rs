//! Bitmaps of an [`Image`]: which blocks and inodes are in use now, and which were when it was opened.
//!
//! Input: numbers of blocks and inodes. Output: the same numbers, allocated or freed. Invariants: a bit that is in use on the device is not
//! handed out; counts of descriptors follow the bits. Limits: a file system with clusters hands out whole clusters.

use super::image::Image;
use crate::error::Error;
use diorite_format::bitmap::{self, fresh_blocks, fresh_inodes};
use diorite_format::{FsBlock, GroupNo, Ino};
use std::ops::Range;

/// A bitmap.
#[derive(Clone)]
pub(super) struct Bits {
    before: Vec<u8>,
    pub(super) now: Vec<u8>,
}

impl Bits {
    fn new(bits: Vec<u8>) -> Bits {
        Bits {
            before: bits.clone(),
            now: bits,
        }
    }

    pub(super) fn is_changed(&self) -> bool {
        self.before != self.now
    }

    /// Bits that may be handed out.
    fn is_free(&self, bit: u32) -> bool {
        let clear = |bits: &[u8]| bitmap::test(bits, bit) == Some(false);
        clear(&self.before) && clear(&self.now)
    }
}

fn used_by_nobody(what: &str, number: u64) -> Error {
    Error::Damaged(format!(
        "{what} {number} is used, and marked as free; run e2fsck"
    ))
}

impl Image {
    /// The block bitmap of a group. Blocks.
    pub(super) fn load_block_bits(&mut self, group: GroupNo) -> Result<&mut Bits, Error> {
        let n = group.get();
        if !self.block_bits.contains_key(&n) {
            let desc = &self.groups[n as usize];
            let mut bits = vec![0; self.sb.block_size() as usize];
            if desc.flags.block_uninit() {
                fresh_blocks(&self.sb, group, &self.groups, &mut bits)?;
            } else {
                bits.copy_from_slice(&self.block(desc.block_bitmap)?);
                desc.verify_block_bitmap(&self.sb, &bits)?;
            }
            self.block_bits.insert(n, Bits::new(bits));
        }
        Ok(self.block_bits.get_mut(&n).expect("it was inserted"))
    }

    /// The inode bitmap of a group. Blocks.
    pub(super) fn load_inode_bits(&mut self, group: GroupNo) -> Result<&mut Bits, Error> {
        let n = group.get();
        if !self.inode_bits.contains_key(&n) {
            let desc = &self.groups[n as usize];
            let mut bits = vec![0; self.sb.block_size() as usize];
            if desc.flags.inode_uninit() {
                fresh_inodes(&self.sb, &mut bits)?;
            } else {
                bits.copy_from_slice(&self.block(desc.inode_bitmap)?);
                desc.verify_inode_bitmap(&self.sb, &bits)?;
            }
            self.inode_bits.insert(n, Bits::new(bits));
        }
        Ok(self.inode_bits.get_mut(&n).expect("it was inserted"))
    }

    /// Hands out an inode that no file has. Blocks.
    pub(super) fn take_inode(&mut self) -> Result<Ino, Error> {
        let per_group = self.sb.geometry().inodes_per_group();
        for group in self.group_numbers() {
            let first = group.get() * per_group + 1;
            let from = self
                .sb
                .geometry()
                .first_ino()
                .saturating_sub(first)
                .min(per_group);
            let bits = self.load_inode_bits(group)?;
            let Some(index) = (from..per_group).find(|bit| bits.is_free(*bit)) else {
                continue;
            };
            bitmap::set_range(&mut bits.now, index, 1).expect("the bit is clear");
            let desc = &mut self.groups[group.get() as usize];
            desc.free_inodes = desc.free_inodes.saturating_sub(1);
            // Slots behind it were never used, and may hold anything.
            let unused = per_group - index - 1;
            if unused < desc.itable_unused {
                let begin = per_group - desc.itable_unused;
                desc.itable_unused = unused;
                for index in begin..=index {
                    self.clear_inode(Ino::new(first + index))?;
                }
            }
            return Ok(Ino::new(first + index));
        }
        Err(Error::NoInodes {
            total: self.sb.geometry().inodes_count(),
        })
    }

    /// Gives an inode back, with its slot cleared. Blocks.
    pub(super) fn free_inode(&mut self, ino: Ino) -> Result<(), Error> {
        let place = self.sb.inode_place(ino)?;
        let bits = self.load_inode_bits(place.group)?;
        bitmap::clear_range(&mut bits.now, place.index, 1)
            .map_err(|_| used_by_nobody("inode", ino.get().into()))?;
        self.groups[place.group.get() as usize].free_inodes += 1;
        self.clear_inode(ino)
    }

    /// Gives blocks back: whole clusters. Blocks.
    pub(super) fn free_blocks(&mut self, blocks: Range<u64>) -> Result<(), Error> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        for at in blocks.clone().step_by(usize::try_from(ratio).unwrap_or(1)) {
            let (group, bit) = self.bit_of(at)?;
            let bits = self.load_block_bits(group)?;
            bitmap::clear_range(&mut bits.now, bit, 1).map_err(|_| used_by_nobody("block", at))?;
            self.groups[group.get() as usize].free_clusters += 1;
        }
        for at in blocks {
            self.forget(FsBlock::new(at));
        }
        Ok(())
    }

    fn bit_of(&self, at: u64) -> Result<(GroupNo, u32), Error> {
        let found = self.sb.bitmap_bit(FsBlock::new(at));
        found.ok_or_else(|| Error::Damaged(format!("block {at} is outside of the file system")))
    }

    /// Marks blocks as used, which are free: whole clusters. Blocks.
    pub(super) fn take_blocks(&mut self, blocks: &Range<u64>) -> Result<(), Error> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        for at in blocks.clone().step_by(usize::try_from(ratio).unwrap_or(1)) {
            let (group, bit) = self.bit_of(at)?;
            let bits = self.load_block_bits(group)?;
            if bitmap::set_range(&mut bits.now, bit, 1).is_err() {
                return Err(Error::Damaged(format!("block {at} was taken twice")));
            }
            let desc = &mut self.groups[group.get() as usize];
            desc.free_clusters = desc.free_clusters.saturating_sub(1);
        }
        Ok(())
    }

    /// The free runs of a group, in blocks, whole clusters. Blocks.
    fn free_runs(&mut self, group: GroupNo) -> Result<Vec<Range<u64>>, Error> {
        let first = self.sb.group_first_block(group).get();
        let clusters = self.sb.group_clusters(group);
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let bits = self.load_block_bits(group)?;
        let (mut runs, mut begin) = (Vec::new(), None);
        for bit in 0..=clusters {
            let is_free = bit < clusters && bits.is_free(bit);
            match (begin, is_free) {
                (None, true) => begin = Some(bit),
                (Some(from), false) => {
                    runs.push(first + u64::from(from) * ratio..first + u64::from(bit) * ratio);
                    begin = None;
                }
                _ => {}
            }
        }
        Ok(runs)
    }

    /// Hands out `blocks` blocks in as few runs as there are, from this group on and round. Blocks.
    ///
    /// # Errors
    /// `NoSpace`: there are fewer; none was handed out.
    pub(super) fn take_space(
        &mut self,
        from: GroupNo,
        blocks: u64,
    ) -> Result<Vec<Range<u64>>, Error> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let want = blocks.next_multiple_of(ratio);
        let count = self.sb.group_count();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for n in 0..count {
            let group = GroupNo::new((from.get() + n) % count);
            if self.groups[group.get() as usize].free_clusters > 0 {
                for run in self.free_runs(group)? {
                    match runs.last_mut() {
                        Some(last) if last.end == run.start => last.end = run.end,
                        _ => runs.push(run),
                    }
                }
            }
            if runs.iter().any(|run| run.end - run.start >= want) {
                break;
            }
        }
        let len = |run: &Range<u64>| run.end - run.start;
        let chosen = match runs.iter().find(|run| len(run) >= want) {
            Some(run) => std::iter::once(run.start..run.start + want).collect(),
            None => {
                runs.sort_by_key(|run| std::cmp::Reverse(len(run)));
                let mut left = want;
                let mut chosen = Vec::new();
                for run in runs {
                    let part = len(&run).min(left);
                    if part > 0 {
                        chosen.push(run.start..run.start + part);
                        left -= part;
                    }
                }
                if left > 0 {
                    let free = want - left;
                    return Err(Error::NoSpace { asked: want, free });
                }
                chosen
            }
        };
        for run in &chosen {
            self.take_blocks(run)?;
        }
        Ok(chosen)
    }

    /// Hands out exactly the blocks from `at` on. Blocks.
    ///
    /// # Errors
    /// `Invalid`: some of them are in use.
    pub(super) fn take_space_at(&mut self, at: u64, blocks: u64) -> Result<Vec<Range<u64>>, Error> {
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let run = at - at % ratio..(at + blocks).next_multiple_of(ratio);
        for block in run.clone().step_by(usize::try_from(ratio).unwrap_or(1)) {
            let (group, bit) = self.bit_of(block)?;
            if !self.load_block_bits(group)?.is_free(bit) {
                let what =
                    format!("block {block} is in use: {blocks} free ones are wanted from {at} on");
                return Err(Error::Invalid(what));
            }
        }
        self.take_blocks(&run)?;
        Ok(vec![run])
    }

    /// Hands out a run of `blocks` blocks inside of one group, if it has such a run. Blocks.
    pub(super) fn take_run_in(
        &mut self,
        group: GroupNo,
        blocks: u64,
    ) -> Result<Option<u64>, Error> {
        let runs = self.free_runs(group)?;
        let Some(run) = runs.iter().find(|run| run.end - run.start >= blocks) else {
            return Ok(None);
        };
        self.take_blocks(&(run.start..run.start + blocks))?;
        Ok(Some(run.start))
    }
}
