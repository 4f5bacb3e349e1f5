//! Checksums of all metadata, written again.
//!
//! Input: an [`Image`] with checksums of one kind or none, and the change of its superblock after which they are others: another UUID,
//! features on or off. Output: every structure with the checksums that the changed superblock asks for. Invariants: every structure in use
//! is checked against its old checksum first, so damage is refused instead of getting a valid checksum; a block is written only if it
//! changes. Limits: those of [`Values`].

use super::image::Image;
use super::values::Values;
use super::{Progress, Step, dirs};
use crate::error::Error;
use diorite_format::features::{Incompat, RoCompat};
use diorite_format::superblock::SuperblockEdit;
use diorite_format::xattr::{self, Xattrs};
use diorite_format::{
    FsBlock, GroupNo, Ino, Inode, Superblock, bitmap, extent, inode, mmp, orphan,
};
use std::collections::BTreeSet;

/// Blocks of an inode table that are read at once.
const AT_ONCE: u32 = 64;

/// What the pass shares.
struct Pass<'p> {
    /// The file system as it was.
    old: Superblock,
    image: &'p mut Image,
    values: Values,
    /// Blocks of attributes that are done.
    attributes: BTreeSet<FsBlock>,
    /// Directories without room for checksums.
    dense: Vec<Ino>,
}

/// Rewrites all checksums: see the module. Blocks.
pub(super) fn rewrite(
    image: &mut Image,
    change: impl FnOnce(&mut SuperblockEdit<'_>),
    values: Values,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let old = image.sb.clone();
    image.edit_super(change)?;
    let mut pass = Pass {
        old,
        image,
        values,
        attributes: BTreeSet::new(),
        dense: Vec::new(),
    };
    let of = u64::from(pass.old.group_count());
    for group in pass.image.group_numbers() {
        pass.group(group)?;
        progress(&Step::checksums(u64::from(group.get()) + 1, of));
    }
    pass.mmp()?;
    for ino in std::mem::take(&mut pass.dense) {
        dirs::remake(pass.image, ino).map_err(|e| e.at(format!("directory inode {ino}")))?;
    }
    Ok(())
}

impl Pass<'_> {
    fn group(&mut self, group: GroupNo) -> Result<(), Error> {
        let n = group.get() as usize;
        let new = std::mem::replace(&mut self.image.sb, self.old.clone());
        let block_bits = self
            .image
            .load_block_bits(group)
            .map(|bits| bits.now.clone());
        let inode_bits = self
            .image
            .load_inode_bits(group)
            .map(|bits| bits.now.clone());
        self.image.sb = new.clone();
        let (block_bits, inode_bits) = (block_bits?, inode_bits?);
        self.inodes(group, &inode_bits)?;
        let marks = new.features().descriptor_sums();
        let desc = &mut self.image.groups[n];
        let (unwritten, none) = (desc.flags.block_uninit(), desc.flags.inode_uninit());
        if !marks {
            // Nothing says any more that these were never written.
            desc.flags = desc.flags.without_block_uninit().without_inode_uninit();
            desc.itable_unused = 0;
        }
        desc.block_bitmap_csum = 0;
        desc.inode_bitmap_csum = 0;
        let (blocks_at, inodes_at) = (desc.block_bitmap, desc.inode_bitmap);
        if !desc.flags.block_uninit() {
            desc.seal_block_bitmap(&new, &block_bits)?;
        }
        if !desc.flags.inode_uninit() {
            desc.seal_inode_bitmap(&new, &inode_bits)?;
        }
        if unwritten && !marks {
            self.image.put(blocks_at, &block_bits);
        }
        if none && !marks {
            self.image.put(inodes_at, &inode_bits);
        }
        self.image.drop_unchanged_bits(group);
        Ok(())
    }

    /// All inodes of a group that were ever used.
    fn inodes(&mut self, group: GroupNo, bits: &[u8]) -> Result<(), Error> {
        let desc = &self.image.groups[group.get() as usize];
        let geometry = self.old.geometry();
        let (per_group, size) = (geometry.inodes_per_group(), geometry.inode_size());
        let (table, table_blocks) = (desc.inode_table, geometry.inode_table_blocks());
        let marks = self.image.sb.features().descriptor_sums();
        let unwritten = desc.flags.inode_uninit();
        let used = match unwritten {
            true => 0,
            false => per_group - desc.itable_unused.min(per_group),
        };
        let per_block = self.old.block_size() / size;
        let used_blocks = used.div_ceil(per_block);
        for from in (0..used_blocks).step_by(AT_ONCE as usize) {
            let count = (used_blocks - from).min(AT_ONCE);
            let raw = self
                .image
                .run(FsBlock::new(table.get() + u64::from(from)), count)?;
            for (n, block) in (from..).zip(raw.chunks_exact(self.old.block_size() as usize)) {
                let at = FsBlock::new(table.get() + u64::from(n));
                let mut new = block.to_vec();
                for (slot, raw) in (n * per_block..).zip(new.chunks_exact_mut(size as usize)) {
                    if slot < per_group {
                        let ino = Ino::new(group.get() * per_group + slot + 1);
                        self.slot((ino, bitmap::test(bits, slot) == Some(true)), raw)?;
                    }
                }
                self.image.put_if_changed(at, block, &new);
            }
        }
        if !marks && self.old.features().descriptor_sums() {
            // Slots that were never used may hold anything.
            let zeros = vec![0; self.old.block_size() as usize];
            for n in used_blocks..table_blocks {
                let at = FsBlock::new(table.get() + u64::from(n));
                let old = self.image.block(at)?;
                self.image.put_if_changed(at, &old, &zeros);
            }
        }
        Ok(())
    }

    /// An inode in its slot.
    fn slot(&mut self, (ino, in_use): (Ino, bool), raw: &mut [u8]) -> Result<(), Error> {
        if raw.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if in_use {
            let old = Inode::parse(&self.old, ino, raw);
            let old = old.map_err(|e| Error::from(e).at(format!("inode {ino}")))?;
            if !old.is_free() {
                self.values.seal_value(&self.image.sb, &old, raw)?;
                self.values.rehash_inode(&self.old, &old, raw)?;
            }
            inode::seal(&self.image.sb, ino, raw);
            if !old.is_free() {
                let new = Inode::parse(&self.image.sb, ino, raw)?;
                self.below(&old, &new)
                    .map_err(|e| e.at(format!("inode {ino}")))?;
            }
        } else {
            inode::seal(&self.image.sb, ino, raw);
        }
        Ok(())
    }

    /// What belongs to an inode.
    fn below(&mut self, old: &Inode, new: &Inode) -> Result<(), Error> {
        self.attributes(old)?;
        let is_orphan_file = self.old.orphan_file() == Some(old.ino);
        let map = self.image.map_as(&self.old, old)?;
        for node in map.nodes.iter().filter(|node| node.is_extents) {
            let raw = self.image.block(node.at)?;
            let mut sealed = raw.to_vec();
            extent::seal_block(&self.image.sb, new.ino, new.generation, &mut sealed);
            self.image.put_if_changed(node.at, &raw, &sealed);
        }
        if is_orphan_file {
            for (_, at) in map.blocks() {
                let raw = self.image.block(at)?;
                if !orphan::parse_block(&self.old, old, at, &raw)?.is_empty() {
                    let what = "the orphan file names inodes; run e2fsck";
                    return Err(Error::Damaged(what.to_owned()));
                }
                let mut empty = raw.to_vec();
                orphan::init_block(&self.image.sb, new, at, &mut empty)?;
                self.image.put_if_changed(at, &raw, &empty);
            }
        }
        if old.is_dir() && !dirs::reseal(self.image, &self.old, (old, new), &map)? {
            self.dense.push(old.ino);
        }
        Ok(())
    }

    fn attributes(&mut self, inode: &Inode) -> Result<(), Error> {
        let at = inode.file_acl;
        if at.is_none() || !self.attributes.insert(at) {
            return Ok(());
        }
        let raw = self.image.block(at)?;
        let count = Xattrs::parse_block(&self.old, inode.ino, at, &raw)?.refcount;
        let mut sealed = raw.to_vec();
        let kinds = (&self.old, &self.image.sb);
        self.values
            .rehash_block(kinds, (inode.ino, at), &mut sealed)?;
        xattr::set_refcount(&self.image.sb, at, &mut sealed, count)?;
        self.image.put_if_changed(at, &raw, &sealed);
        Ok(())
    }

    fn mmp(&mut self) -> Result<(), Error> {
        let at = self.old.mmp_block();
        if !self.old.features().incompat.has(Incompat::MMP) || at.is_none() {
            return Ok(());
        }
        let raw = self.image.block(at)?;
        let mut sealed = raw.to_vec();
        mmp::seal(&self.image.sb, &mut sealed);
        self.image.put_if_changed(at, &raw, &sealed);
        Ok(())
    }
}

/// Whether two superblocks ask for the same checksums.
pub(super) fn are_same(old: &Superblock, new: &Superblock) -> bool {
    let kind = |sb: &Superblock| {
        let ro = sb.features().ro_compat;
        let sums = sb.has_metadata_csum();
        let crc16 = ro.has(RoCompat::GDT_CSUM);
        (
            sums,
            crc16,
            (sums || crc16).then(|| (sb.csum_seed(), *sb.uuid())),
        )
    };
    let (a, b) = (kind(old), kind(new));
    match (a.0, b.0) {
        // Only the seed matters, which may be stored.
        (true, true) => old.csum_seed() == new.csum_seed(),
        _ => a == b,
    }
}
