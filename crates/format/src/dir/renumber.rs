//! Entries that refer to other inodes than before, because these got new numbers.
//! Input: a block of a directory, checked, or an inline directory; the new numbers. Output: the changed entries, with the
//! checksum of the block. Invariant: nothing but numbers and the checksum changes; on an error nothing changes. Limit: the
//! types of entries stay. Source: the kernel's ext4 documentation, "directory entries"; the checksum's seed has the directory's
//! inode number, so a directory with a new number needs new checksums in all its blocks.

use crate::dx;
use crate::error::{Corrupt, Result, bad};
use crate::inode::Inode;
use crate::layout::de;
use crate::le::put_le32;
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FileBlock, Ino};

use super::{DirBlock, DirBlockKind, seal};

/// Makes the entries of block `block` refer to the inodes that `new` returns for them. `dir` is the directory as the block's
/// checksum has it, `now` the one that it gets a checksum for.
///
/// # Errors
/// As [`DirBlock::parse`]; `DirInode` for a number that the volume has not.
pub fn renumber(
    sb: &Superblock,
    (dir, now): (&Inode, &Inode),
    block: FileBlock,
    raw: &mut [u8],
    new: &dyn Fn(Ino) -> Ino,
) -> Result<()> {
    let checked = DirBlock::parse(sb, dir, block, raw)?;
    let kind = checked.kind();
    let changed = changes(sb, dir, block, &checked, new)?;
    put_all(raw, &changed);
    match kind {
        DirBlockKind::Linear => seal(sb, now, raw),
        DirBlockKind::DxRoot | DirBlockKind::DxNode => dx::seal(sb, now, block, raw)?,
        DirBlockKind::Inline => {}
    }
    Ok(())
}

/// As [`renumber`], for one part of an inline directory, as [`DirBlock::parse_inline`] takes it.
///
/// # Errors
/// As [`DirBlock::parse_inline`]; `DirInode` for a number that the volume has not.
pub fn renumber_inline(
    sb: &Superblock,
    dir: &Inode,
    part: &mut [u8],
    new: &dyn Fn(Ino) -> Ino,
) -> Result<()> {
    let checked = DirBlock::parse_inline(sb, dir, part)?;
    let changed = changes(sb, dir, FileBlock::new(0), &checked, new)?;
    put_all(part, &changed);
    Ok(())
}

/// The entries that change: their bytes, and the new numbers.
fn changes(
    sb: &Superblock,
    dir: &Inode,
    block: FileBlock,
    checked: &DirBlock<'_>,
    new: &dyn Fn(Ino) -> Ino,
) -> Result<Vec<(u32, Ino)>> {
    let mut all = Vec::new();
    for entry in checked.entries() {
        let number = new(entry.ino);
        if number == entry.ino {
            continue;
        }
        if number.is_none() || sb.check_ino(number.get()).is_err() {
            return bad(Corrupt::DirInode {
                ino: dir.ino,
                block,
                offset: entry.offset,
                found: number.get(),
                max: sb.geometry().inodes_count(),
            });
        }
        all.push((entry.offset, number));
    }
    Ok(all)
}

fn put_all(raw: &mut [u8], changed: &[(u32, Ino)]) {
    for (offset, ino) in changed {
        let at = num::usize32(*offset).saturating_add(de::INODE);
        put_le32(raw, at, ino.get());
    }
}
