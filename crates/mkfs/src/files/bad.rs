//! Bad blocks: they are given to no file and no structure.
//!
//! Input: their numbers. Output: inode 1, which has them. Invariants: no structure and no file lies in one of them; what has a fixed place
//! is in no list, so a bad block there is refused (the superblock, its descriptors) or left where it is (copies). Limit: the inode has
//! block pointers, whatever the features are. Source: man mke2fs (-l); the inode's shape by experiment with mke2fs, debugfs and e2fsck
//! 1.47, which counts a block of a copy twice if inode 1 has it, too.

use super::Maker;
use crate::error::Error;
use crate::map;
use crate::space::Space;
use diorite_format::extent::Extent;
use diorite_format::inode::{I_BLOCK_SIZE, InodeFlags};
use diorite_format::{FileBlock, FsBlock, GroupNo, Ino, Superblock};
use std::collections::BTreeSet;

/// Whether a block has a fixed place in its group: copies of the superblock and descriptors, and what is kept for more of those.
fn is_fixed(sb: &Superblock, block: u64) -> bool {
    let group = sb.group_of(FsBlock::new(block)).map_or(0, GroupNo::get);
    let group = GroupNo::new(group);
    let start = sb.group_first_block(group).get();
    block < start + u64::from(sb.group_head_blocks(group))
}

/// Those that can be kept out of use, in order.
fn movable(sb: &Superblock, bad: &[u64]) -> BTreeSet<u64> {
    let all = bad.iter().copied();
    all.filter(|block| !is_fixed(sb, *block)).collect()
}

/// Bad blocks in copies of the superblock and of descriptors.
pub(crate) fn in_copies(sb: &Superblock, bad: &[u64]) -> Vec<u64> {
    let all: BTreeSet<u64> = bad.iter().copied().collect();
    all.into_iter()
        .filter(|block| is_fixed(sb, *block))
        .collect()
}

/// Takes the blocks, before anything else is placed.
///
/// # Errors
/// `Invalid`: a block is not in the volume, or the volume cannot be without it.
pub(crate) fn keep_off(sb: &Superblock, space: &mut Space<'_>, bad: &[u64]) -> Result<(), Error> {
    let (first, end) = (
        sb.geometry().first_data_block().get(),
        sb.geometry().blocks_count(),
    );
    if let Some(block) = bad.iter().find(|block| !(first..end).contains(block)) {
        return Err(Error::Invalid(format!(
            "the bad block {block} is not in the file system, which has the blocks {first} to {}",
            end - 1
        )));
    }
    let (at, descs) = (sb.super_block().get(), sb.geometry().gdt_blocks());
    let mut primary = vec![at];
    for n in 0..descs {
        primary.push(sb.gdt_location(n)?.get());
    }
    if let Some(block) = bad.iter().find(|block| primary.contains(block)) {
        return Err(Error::Invalid(format!(
            "block {block} is bad, and the superblock or a descriptor has to be there: no file system can be made here"
        )));
    }
    if !bad.is_empty() && sb.geometry().cluster_ratio() > 1 {
        let why = "bad blocks are kept out of use one by one, and bigalloc uses whole clusters: leave it out (-O ^bigalloc)";
        return Err(Error::NotSupported(why.to_owned()));
    }
    for block in movable(sb, bad) {
        space.keep_off(block);
    }
    Ok(())
}

impl Maker<'_, '_> {
    /// The inode that has them.
    pub(crate) fn bad_blocks(&mut self, bad: &[u64]) -> Result<(), Error> {
        let bad = movable(self.sb, bad);
        if bad.is_empty() {
            return Ok(());
        }
        let mut inode = self.fresh(Ino::BAD_BLOCKS, 0);
        inode.flags = InodeFlags::default();
        inode.i_block = [0; I_BLOCK_SIZE];
        inode.links = 0;
        let count = bad.len() as u64;
        let pieces = (0..).zip(bad).map(|(n, block)| Extent {
            block: FileBlock::new(n),
            len: 1,
            start: FsBlock::new(block),
            unwritten: false,
        });
        let extents: Vec<Extent> = pieces.collect();
        let space = &mut *self.space;
        let mut take = || Ok(space.for_file(1, "the list of bad blocks")?[0].start);
        let upper = map::by_pointers(self.sb, &mut inode, &extents, &mut take)?;
        let all = count + upper.len() as u64;
        let size = u64::from(self.sb.block_size());
        inode.size = count * size;
        inode.blocks = all * (size / 512);
        self.files.of_files += all;
        self.files.blocks.extend(upper);
        self.files.inodes.push(inode);
        Ok(())
    }
}
