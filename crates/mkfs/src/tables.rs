//! Blocks of inode tables, as they are filled.
//!
//! Input: inodes, those of the tree in the order of their numbers. Output: each block of a table that has one of them, once. Invariant: a
//! block is written when it is complete. Limit: the first inodes, which come in any order, lie in the first [`OPEN`] blocks.

use crate::error::Error;
use crate::write::Out;
use diorite_format::Superblock;
use diorite_format::inode::{self, Inode};
use diorite_format::xattr::{self, XattrEntry};
use std::collections::BTreeMap;

/// Blocks that are kept until they are complete.
const OPEN: usize = 64;

/// See the module.
pub(crate) struct Tables<'t> {
    /// The first block of each group's table.
    firsts: &'t dyn Fn(u32) -> u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl<'t> Tables<'t> {
    pub(crate) fn new(firsts: &'t dyn Fn(u32) -> u64) -> Tables<'t> {
        Tables {
            firsts,
            blocks: BTreeMap::new(),
        }
    }

    /// Adds an inode. Those with high numbers come in order.
    pub(crate) fn put(
        &mut self,
        sb: &Superblock,
        node: &Inode,
        attributes: &[XattrEntry<'_>],
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let place = sb.inode_place(node.ino)?;
        let block = (self.firsts)(place.group.get()) + u64::from(place.table_block);
        let size = sb.block_size() as usize;
        let raw = self.blocks.entry(block).or_insert_with(|| vec![0; size]);
        let raw = &mut raw[place.offset as usize..];
        let size = sb.geometry().inode_size() as usize;
        node.write_new(sb, raw)?;
        if !attributes.is_empty() {
            xattr::write_inode(node, attributes, &mut raw[..size])
                .map_err(|e| Error::Invalid(format!("extended attributes: {e}")))?;
            inode::seal(sb, node.ino, &mut raw[..size]);
        }
        if self.blocks.len() > OPEN {
            self.end(sb, out, 1)?;
        }
        Ok(())
    }

    /// Writes all blocks but the last `keep`.
    pub(crate) fn end(
        &mut self,
        sb: &Superblock,
        out: &mut Out<'_>,
        keep: usize,
    ) -> Result<(), Error> {
        while self.blocks.len() > keep {
            if let Some((block, raw)) = self.blocks.pop_first() {
                out.put(block << sb.geometry().block_bits(), &raw)?;
            }
        }
        Ok(())
    }
}
