//! Writes nodes of a hash tree.
//! Input: a directory, the entries of a node, and for a root the records before them. Output: whole blocks with checksums.
//! Invariant: [`super::DxRoot::parse`] or [`super::DxNode::parse`] accepts the blocks, if their entries ascend and point into
//! the directory as it will be. Limit: entries that do not fit a node are refused; the caller splits nodes.
//! Source: the kernel's ext4 documentation, "hash tree directories"; e2fsck on trees made of these, in tests.

use crate::dir::DirBlock;
use crate::error::{Result, Unfit, fit, room};
use crate::features::Incompat;
use crate::inode::Inode;
use crate::layout::{de, dx_node, dx_root};
use crate::le::{put, put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::FileBlock;

use super::{DxEntry, HashVersion, entry_at, limit_at, seal};

type Fitted<T> = core::result::Result<T, Unfit>;

/// The maximum number of inner levels: 1, or 2 with large_dir.
#[must_use]
pub fn most_levels(sb: &Superblock) -> u8 {
    if sb.features().incompat.has(Incompat::LARGE_DIR) {
        2
    } else {
        1
    }
}

/// The hash version for new trees of the volume.
///
/// # Errors
/// `Unsupported` if the volume names an unknown one.
pub fn default_hash(sb: &Superblock) -> Result<HashVersion> {
    HashVersion::from_disk(sb.hash().default_version, sb.hash().unsigned_chars)
}

/// The root of a new tree, made from the first block of a directory without one, which has "." and ".." at its start
/// ([`DirBlock::dots`]).
///
/// # Errors
/// `Value` if the entries do not fit.
pub fn new_root(
    sb: &Superblock,
    dir: &Inode,
    first: &DirBlock<'_>,
    entries: &[DxEntry],
) -> Fitted<Vec<u8>> {
    let mut b = vec![0; num::usize32(sb.block_size())];
    let rest = sb.block_size().saturating_sub(12);
    let frames = [(dx_root::DOT, 12), (dx_root::DOTDOT, rest)];
    for (entry, (at, len)) in first.entries().zip(frames) {
        put(&mut b, at, first.fixed_part(&entry));
        put(&mut b, at.saturating_add(de::SIZE), entry.name);
        // Less than 64 KiB, because "." is before it.
        put_le16(&mut b, at.saturating_add(de::REC_LEN), num::low16(len));
    }
    put(&mut b, dx_root::HASH_VERSION, &[sb.hash().default_version]);
    put(&mut b, dx_root::INFO_LENGTH, &[8]);
    put_entries(sb, dir, FileBlock::new(0), &mut b, entries)?;
    Ok(b)
}

/// Replaces the entries and the number of levels of a checked root.
///
/// # Errors
/// `Short`; `Value` if the entries do not fit.
pub fn set_root(
    sb: &Superblock,
    dir: &Inode,
    raw: &mut [u8],
    levels: u8,
    entries: &[DxEntry],
) -> Fitted<()> {
    let b = room("a directory block", raw, num::usize32(sb.block_size()))?;
    fit(
        "a hash tree's levels",
        u64::from(levels),
        u64::from(most_levels(sb)),
    )?;
    put(b, dx_root::INDIRECT_LEVELS, &[levels]);
    put_entries(sb, dir, FileBlock::new(0), b, entries)
}

/// An inner node with these entries.
///
/// # Errors
/// `Value` if they do not fit.
pub fn node(
    sb: &Superblock,
    dir: &Inode,
    block: FileBlock,
    entries: &[DxEntry],
) -> Fitted<Vec<u8>> {
    let mut b = vec![0; num::usize32(sb.block_size())];
    // One unused record over the whole block; in a 64 KiB block its length is stored as 65,535.
    let len = u16::try_from(sb.block_size()).unwrap_or(u16::MAX);
    put_le16(&mut b, de::REC_LEN, len);
    put_entries(sb, dir, block, &mut b, entries)?;
    Ok(b)
}

/// The maximum number of entries of the root, or of an inner node.
#[must_use]
pub fn capacity(sb: &Superblock, is_root: bool) -> usize {
    let at = if is_root {
        dx_root::LIMIT
    } else {
        dx_node::LIMIT
    };
    num::usize32(super::room(sb, at))
}

fn put_entries(
    sb: &Superblock,
    dir: &Inode,
    block: FileBlock,
    b: &mut [u8],
    entries: &[DxEntry],
) -> Fitted<()> {
    let (at, most) = (limit_at(block), super::room(sb, limit_at(block)));
    fit(
        "a hash tree node's entries",
        num::wide(entries.len()),
        u64::from(most),
    )?;
    let end = entry_at(at, num::low16(most));
    b.get_mut(at..end).unwrap_or(&mut []).fill(0);
    for (place, entry) in (at..).step_by(super::ENTRY).zip(entries) {
        put_le32(b, place, entry.hash);
        let number = entry.block.get();
        fit("a directory's block", number, u64::from(super::BLOCK_MASK))?;
        put_le32(b, place.saturating_add(4), num::low32(number));
    }
    // Stored in place of the first entry's hash.
    put_le16(b, at, num::low16(most));
    let count = num::count32(entries.len());
    put_le16(b, at.saturating_add(2), num::low16(count));
    seal(sb, dir, block, b).map_err(|_| no_node())
}

fn no_node() -> Unfit {
    Unfit::Rule {
        what: "a hash tree node",
        why: "it has no entries",
    }
}
