//! Superblocks and descriptors alone, over the tables of a file system that has lost its own.
//!
//! Input: a device, the options of which the file system was made. Output: superblock, descriptors and their copies; nothing else is
//! written. Invariants: they are written only where a root directory shows that the tables are where these options place them, and no copy
//! of a superblock says otherwise; the result calls for a complete check, and no table counts as unused. Limits: counts and sums of bitmaps
//! are wrong until e2fsck has run; tables that another program placed lie elsewhere. Source: man mke2fs (-S).

use super::{Layout, Made, check_writable, complete, empty_tree};
use crate::error::{Error, read_bytes};
use crate::options::MkfsOptions;
use crate::write::Out;
use diorite_block::{Blocking, Device};
use diorite_format::group::GroupFlags;
use diorite_format::inode::Inode;
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use diorite_format::{FileType, FsBlock, Ino, Superblock};
use std::sync::Arc;

/// Writes superblocks and descriptors: see the module. `look`: only if a root directory is where it should be. Blocks.
///
/// # Errors
/// As [`crate::mkfs`]; `Invalid`: no root directory is there, and nothing was written.
pub fn mkfs_super_only(
    device: &Arc<dyn Device>,
    options: &MkfsOptions,
    look: bool,
) -> Result<Made, Error> {
    let mut tree = empty_tree(options);
    complete(&mut tree, options)?;
    let mut layout = Layout::new(options, device.geometry().size, &tree)?;
    check_writable(device, layout.sb.block_size())?;
    let blocking = Blocking::new(device.clone());
    if look {
        layout.look_for_others(&blocking)?;
        layout.look_for_root(&blocking)?;
    }
    if let Ok(Some(journal)) = layout.inode(&blocking, layout.plan.sb.journal) {
        layout.plan.sb.back_up_journal(&journal);
    }
    layout.plan.sb.is_suspect = true;
    for desc in &mut layout.descs {
        desc.flags = GroupFlags::default();
        desc.itable_unused = 0;
    }
    let mut out = Out::new(&blocking);
    layout.write_descriptors(&mut out)?;
    layout.write_superblock(&mut out)?;
    Ok(layout.made())
}

impl Layout {
    /// An inode as the device has it; none if it is not in use.
    fn inode(&self, blocking: &Blocking, ino: Ino) -> Result<Option<Inode>, Error> {
        if ino.is_none() {
            return Ok(None);
        }
        let place = self.sb.inode_place(ino)?;
        let table = self.descs[place.group.get() as usize].inode_table.get();
        let block = FsBlock::new(table + u64::from(place.table_block));
        let at = self.sb.byte_of(block).get() + u64::from(place.offset);
        let raw = read_bytes(blocking, at, self.sb.geometry().inode_size() as usize)?;
        if raw[..2] == [0, 0] {
            return Ok(None);
        }
        Ok(Some(Inode::parse(&self.sb, ino, &raw)?))
    }

    /// Refuses if a superblock or a copy that is still there has another shape.
    fn look_for_others(&self, blocking: &Blocking) -> Result<(), Error> {
        let copies = self.backup_groups();
        let copies = copies.map(|group| self.sb.group_first_block(group));
        for block in [self.sb.super_block()].into_iter().chain(copies) {
            let at = match block == self.sb.super_block() {
                true => SUPERBLOCK_OFFSET,
                false => self.sb.byte_of(block).get(),
            };
            let raw = read_bytes(blocking, at, SUPERBLOCK_SIZE)?;
            let raw: Option<&[u8; SUPERBLOCK_SIZE]> = raw[..].try_into().ok();
            let Some(Ok(found)) = raw.map(Superblock::parse) else {
                continue;
            };
            let shape = |sb: &Superblock| {
                let g = sb.geometry();
                [
                    ("blocks", g.blocks_count()),
                    ("bytes in a block", sb.block_size().into()),
                    ("blocks in a group", g.blocks_per_group().into()),
                    ("inodes in a group", g.inodes_per_group().into()),
                    ("bytes of an inode", u64::from(g.inode_size())),
                    (
                        "blocks kept for descriptors",
                        g.reserved_gdt_blocks().into(),
                    ),
                ]
            };
            let both = shape(&found).into_iter().zip(shape(&self.sb));
            if let Some(((what, there), (_, asked))) = both.into_iter().find(|(a, b)| a.1 != b.1) {
                return Err(Error::Invalid(format!(
                    "a superblock in block {block} is intact and says {there} {what}, and with these options there would be {asked}: \
                     nothing was written. 'e2fsck -b {block}' repairs with that one"
                )));
            }
        }
        Ok(())
    }

    fn look_for_root(&self, blocking: &Blocking) -> Result<(), Error> {
        let table = self.descs[0].inode_table.get();
        let why = match self.inode(blocking, Ino::ROOT) {
            Ok(Some(root)) if root.file_type == Some(FileType::Directory) => return Ok(()),
            Ok(_) => "no root directory is there".to_owned(),
            Err(error @ Error::Format(_)) => error.to_string(),
            Err(error) => return Err(error),
        };
        Err(Error::Invalid(format!(
            "with these options the inodes begin at block {table}, and that is not so: {why}; superblocks that do not fit the rest \
             would destroy it, so nothing was written. The options have to be those with which it was made, its UUID (-U) among them"
        )))
    }
}
