//! The list of bad blocks, inode 1: blocks that nobody else may use. Some of them may lie in the volume's own structures all the same.
//!
//! Input: inode 1. Output: its blocks, claimed; notes. Invariant: a bad block in a copy of superblock or descriptors, in room kept for
//! descriptors, or in an inode table that lies outside of its group, is a note, as for e2fsck -fn; in any other structure it is
//! damage. Limits: none.

use super::context::Check;
use super::maps::{self, Taken};
use super::reader::Reader;
use super::report::Kind;
use super::walk::{Run, Visit, walk};
use diorite::Error;
use diorite::probe::Zone;
use diorite_format::{FsBlock, Inode};
use std::fmt;

/// Claims the blocks of the list.
pub(super) fn claim(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    inode: &Inode,
) -> Result<Taken, Error> {
    if inode.mode != 0 || inode.links != 0 || inode.uid != 0 || inode.gid != 0 {
        let what = "inode 1: the list of bad blocks has a mode, an owner or links";
        check.found.inode(Kind::Inode, inode.ino, what);
    }
    if inode.i_block.iter().all(|byte| *byte == 0) {
        return maps::claim(check, reader, inode);
    }
    let mut listed = Listed {
        check,
        zone: Zone::of_groups(&check.source.sb, &check.source.groups)?,
        inode,
        taken: Taken::default(),
    };
    walk(&check.source.sb, reader, inode, &mut listed)?;
    Ok(listed.taken)
}

struct Listed<'a> {
    check: &'a Check<'a>,
    zone: Zone,
    inode: &'a Inode,
    taken: Taken,
}

impl Listed<'_> {
    /// The structure in this block, if the block may be bad all the same.
    fn spared(&self, block: FsBlock) -> Option<&'static str> {
        let what = self.zone.find(block, 1).or_else(|| self.reserved(block))?;
        let sb = &self.check.source.sb;
        let number = sb.group_of(block)?;
        let group = self.check.source.groups.get(number.get() as usize)?;
        let table = group.inode_table.get();
        let length = u64::from(sb.geometry().inode_table_blocks());
        let own = what.ends_with("bitmap") || (table..table + length).contains(&block.get());
        let first = number.get() == 0
            && block.get() <= sb.super_block().get() + u64::from(sb.geometry().gdt_blocks());
        (!own && !first).then_some(what)
    }

    /// Room that is kept for more descriptors.
    fn reserved(&self, block: FsBlock) -> Option<&'static str> {
        let sb = &self.check.source.sb;
        let group = sb.group_of(block)?;
        let head = u64::from(sb.group_head_blocks(group));
        let inside = block.get() - sb.group_first_block(group).get() < head;
        inside.then_some("room kept for descriptors")
    }
}

impl Visit for Listed<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        let first = self.check.space.claim_node(block);
        self.taken.tangled |= !first;
        first
    }

    fn run(&mut self, run: Run) {
        for block in (run.at.get()..run.at.get() + run.len).map(FsBlock::new) {
            match self.spared(block) {
                Some(what) => self.check.found.note(format_args!(
                    "block {block} is on the list of bad blocks, and belongs to {what}"
                )),
                None => {
                    self.check.space.claim(block, 1);
                }
            }
        }
    }

    fn wrong(&mut self, what: &dyn fmt::Display) {
        self.taken.bad = true;
        self.check.found.inode(Kind::BlockMap, self.inode.ino, what);
    }
}
