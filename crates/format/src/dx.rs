//! Nodes of a hashed directory: which block may hold a name with a given hash.
//! Input: block 0 of a hashed directory, and the inner blocks that it leads to. Output: [`DxRoot`], [`DxNode`].
//! Invariant: the count fits the limit and the limit fits the block; hashes ascend; every entry points to another
//! block of the directory; the depth is at most 1, or 2 with large_dir, so a descent ends.
//! Limit: hashed directories of casefolded volumes are ordered by folded names; scan those.
//! Source: the kernel's ext4 documentation, "hash tree directories"; FreeBSD's ext2fs (BSD licence).

use crate::csum;
use crate::dirhash::HashVersion;
use crate::error::{Corrupt, Result, bad, want};
use crate::inode::Inode;
use crate::layout::{de, dx_node, dx_root, dx_tail};
use crate::le::{le16, le32, put_le16, put_le32, u8_at};
use crate::num;
use crate::record::record_len_of;
use crate::superblock::Superblock;
use crate::types::FileBlock;

mod edit;
#[cfg(test)]
mod tests;

pub use edit::{capacity, default_hash, most_levels, new_root, node, set_root};

/// Bytes of an entry: hash and block. The first entry's hash is not stored: limit and count take its place.
const ENTRY: usize = 8;
/// Block numbers have 28 bits; the rest is reserved.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// An entry: names with this hash or a higher one are in that block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DxEntry {
    /// Lowest hash of the block; 0 for the first entry. With bit 0 set, the names with hash `hash & !1` began in the block
    /// before.
    pub hash: u32,
    /// Block of the directory.
    pub block: FileBlock,
}

/// Entries of a root or an inner node; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DxNode {
    /// In ascending order of the hash.
    pub entries: Vec<DxEntry>,
    /// The maximum number of entries.
    pub limit: u16,
}

/// A view of a root or inner node whose bytes were checked before, without copying its entries. Other bytes show wrong entries
/// or none, but do no other harm.
#[derive(Debug, Clone, Copy)]
pub struct DxView<'a> {
    /// The used entries.
    entries: &'a [u8],
}

impl<'a> DxView<'a> {
    /// The node in block `block` of the directory.
    #[must_use]
    pub fn new(block: FileBlock, raw: &'a [u8]) -> Self {
        let at = limit_at(block);
        let count = le16(raw, at.saturating_add(2));
        Self {
            entries: raw.get(at..entry_at(at, count)).unwrap_or(&[]),
        }
    }

    /// As [`DxNode::find`].
    #[must_use]
    pub fn find(&self, hash: u32) -> usize {
        let (mut low, mut high) = (0, self.entries.len().checked_div(ENTRY).unwrap_or(0));
        // The entry at `low` is not above the hash; the entry at `high` is.
        while high.saturating_sub(low) > 1 {
            let middle = low.midpoint(high);
            let above = self.entry(middle).is_none_or(|e| e.hash > hash);
            *(if above { &mut high } else { &mut low }) = middle;
        }
        low
    }

    /// The entry at this position.
    #[must_use]
    pub fn entry(&self, at: usize) -> Option<DxEntry> {
        let start = at.saturating_mul(ENTRY);
        let slot = self.entries.get(start..start.saturating_add(ENTRY))?;
        Some(DxEntry {
            hash: if at == 0 { 0 } else { le32(slot, 0) },
            block: FileBlock::new(u64::from(le32(slot, 4) & BLOCK_MASK)),
        })
    }
}

/// The number of bytes of a root or inner node up to its last used entry, as the node says. The node's bytes were checked before.
#[must_use]
pub fn used_len(block: FileBlock, raw: &[u8]) -> usize {
    let at = limit_at(block);
    entry_at(at, le16(raw, at.saturating_add(2)))
}

/// The hash function, and the number of inner levels below the root, from a block 0 that was checked before.
///
/// # Errors
/// `Unsupported` for an unknown hash.
pub fn shape(sb: &Superblock, raw: &[u8]) -> Result<(HashVersion, u8)> {
    let hash = HashVersion::from_disk(stored_hash(raw), sb.hash().unsigned_chars)?;
    Ok((hash, u8_at(raw, dx_root::INDIRECT_LEVELS)))
}

/// The stored hash version of a root.
#[must_use]
pub fn stored_hash(root: &[u8]) -> u8 {
    u8_at(root, dx_root::HASH_VERSION)
}

/// Whether the node's first entry, which is a placeholder, has a name length. e2fsck treats such a block as a leaf.
#[must_use]
pub fn looks_like_a_leaf(node: &[u8]) -> bool {
    u8_at(node, de::NAME_LEN) != 0
}

/// The root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DxRoot {
    /// How names are hashed, with the volume's signedness applied.
    pub hash: HashVersion,
    /// Levels of inner nodes between the root and the blocks with entries: 0, 1, or 2 with large_dir.
    pub indirect_levels: u8,
    /// The entries.
    pub node: DxNode,
}

impl DxRoot {
    /// Parses block 0 of a hashed directory.
    ///
    /// # Errors
    /// `Short`, the `Dx...` variants, `DirChecksum`; `Unsupported` for an unknown hash.
    pub fn parse(sb: &Superblock, dir: &Inode, raw: &[u8]) -> Result<Self> {
        let (ino, block) = (dir.ino, FileBlock::new(0));
        let b = whole_block(sb, raw)?;
        check_root_frame(sb, dir, b)?;
        verify_block(sb, dir, block, b)?;
        let levels = u8_at(b, dx_root::INDIRECT_LEVELS);
        let max = most_levels(sb);
        if levels > max {
            return bad(Corrupt::DxDepth {
                ino,
                found: levels,
                max,
            });
        }
        let hash =
            HashVersion::from_disk(u8_at(b, dx_root::HASH_VERSION), sb.hash().unsigned_chars)?;
        let node = parse_entries(sb, dir, block, b, dx_root::LIMIT)?;
        Ok(Self {
            hash,
            indirect_levels: levels,
            node,
        })
    }
}

impl DxNode {
    /// Parses an inner node.
    ///
    /// # Errors
    /// `Short`, the `Dx...` variants, `DirChecksum`.
    pub fn parse(sb: &Superblock, dir: &Inode, block: FileBlock, raw: &[u8]) -> Result<Self> {
        let b = whole_block(sb, raw)?;
        let found = le32(b, de::INODE);
        if found != 0 {
            return bad(Corrupt::DxField {
                ino: dir.ino,
                block,
                what: "the inode of the covering record",
                found,
                expected: 0,
            });
        }
        expect_len(sb, dir, block, b, de::REC_LEN, sb.block_size())?;
        verify_block(sb, dir, block, b)?;
        parse_entries(sb, dir, block, b, dx_node::LIMIT)
    }

    /// Position of the entry that covers `hash`: the last whose hash is not above it.
    #[must_use]
    pub fn find(&self, hash: u32) -> usize {
        // The first entry's hash is 0, so at least that one is not above.
        self.entries
            .partition_point(|e| e.hash <= hash)
            .saturating_sub(1)
    }

    /// Whether names with `hash` continue in the entry after position `at`: its hash is the same with bit 0 set.
    #[must_use]
    pub fn continues(&self, at: usize, hash: u32) -> bool {
        self.entries
            .get(at.saturating_add(1))
            .is_some_and(|next| next.hash & 1 != 0 && next.hash & !1 == hash & !1)
    }
}

fn whole_block<'a>(sb: &Superblock, raw: &'a [u8]) -> Result<&'a [u8]> {
    let size = num::usize32(sb.block_size());
    want("a directory block", raw, size)?;
    Ok(raw.get(..size).unwrap_or(&[]))
}

fn expect_len(
    sb: &Superblock,
    dir: &Inode,
    block: FileBlock,
    b: &[u8],
    at: usize,
    expected: u32,
) -> Result<()> {
    let found = record_len_of(sb, le16(b, at));
    if found != expected {
        return bad(Corrupt::DxField {
            ino: dir.ino,
            block,
            what: "a record length",
            found,
            expected,
        });
    }
    Ok(())
}

/// Checks the two records before the tree, and the eight bytes that describe it.
fn check_root_frame(sb: &Superblock, dir: &Inode, b: &[u8]) -> Result<()> {
    let (ino, block) = (dir.ino, FileBlock::new(0));
    expect_len(
        sb,
        dir,
        block,
        b,
        dx_root::DOT.saturating_add(de::REC_LEN),
        12,
    )?;
    let rest = sb.block_size().saturating_sub(12);
    expect_len(
        sb,
        dir,
        block,
        b,
        dx_root::DOTDOT.saturating_add(de::REC_LEN),
        rest,
    )?;
    for (what, found, expected) in [
        ("the reserved word", le32(b, dx_root::RESERVED_ZERO), 0),
        (
            "the length of the root's description",
            u32::from(u8_at(b, dx_root::INFO_LENGTH)),
            8,
        ),
        ("a flag", u32::from(u8_at(b, dx_root::UNUSED_FLAGS)) & 1, 0),
    ] {
        if found != expected {
            return bad(Corrupt::DxField {
                ino,
                block,
                what,
                found,
                expected,
            });
        }
    }
    Ok(())
}

/// Entries that fit between limit/count at `at` and the end of the block (or its checksum).
fn room(sb: &Superblock, at: usize) -> u32 {
    let tail = if sb.has_metadata_csum() {
        dx_tail::SIZE
    } else {
        0
    };
    let bytes = num::usize32(sb.block_size())
        .saturating_sub(at)
        .saturating_sub(tail);
    num::sat32(num::wide(bytes.checked_div(ENTRY).unwrap_or(0)))
}

fn check_count(
    sb: &Superblock,
    dir: &Inode,
    block: FileBlock,
    b: &[u8],
    at: usize,
) -> Result<(u16, u16)> {
    let (limit, count) = (le16(b, at), le16(b, at.saturating_add(2)));
    let fits = room(sb, at);
    if count == 0 || count > limit || u32::from(limit) != fits {
        return bad(Corrupt::DxCount {
            ino: dir.ino,
            block,
            count,
            limit,
            fits,
        });
    }
    Ok((limit, count))
}

/// Checks the checksum of a root or inner node, which follows the last entry that fits. Does nothing without metadata_csum.
pub(crate) fn verify_block(sb: &Superblock, dir: &Inode, block: FileBlock, b: &[u8]) -> Result<()> {
    if !sb.has_metadata_csum() {
        return Ok(());
    }
    let at = limit_at(block);
    let (limit, count) = check_count(sb, dir, block, b, at)?;
    let tail = entry_at(at, limit);
    let stored = le32(b, tail.saturating_add(dx_tail::CHECKSUM));
    let computed = checksum(dir, b, at, limit, count);
    if stored != computed {
        return bad(Corrupt::DirChecksum {
            ino: dir.ino,
            block,
            stored,
            computed,
        });
    }
    Ok(())
}

/// Writes the checksum of a root or inner node after a change, behind the room for entries. Does nothing without metadata_csum.
///
/// # Errors
/// `Short`; `DxCount` if limit or count do not fit the block, which then does not change.
pub fn seal(sb: &Superblock, dir: &Inode, block: FileBlock, raw: &mut [u8]) -> Result<()> {
    let b = whole_block(sb, raw)?;
    if !sb.has_metadata_csum() {
        return Ok(());
    }
    let at = limit_at(block);
    let (limit, count) = check_count(sb, dir, block, b, at)?;
    let sum = checksum(dir, b, at, limit, count);
    let place = entry_at(at, limit).saturating_add(dx_tail::CHECKSUM);
    put_le32(raw, place, sum);
    Ok(())
}

/// Gives a node that was checked on a volume with or without checksums the form of `sb`, which may differ in that: its limit, and its
/// checksum. Returns false if it has more entries than have room.
///
/// # Errors
/// `Short`, `DxCount`.
pub(crate) fn reform(
    sb: &Superblock,
    dir: &Inode,
    block: FileBlock,
    raw: &mut [u8],
) -> Result<bool> {
    let at = limit_at(block);
    let most = num::low16(room(sb, at));
    let (limit, count) = (le16(raw, at), le16(raw, at.saturating_add(2)));
    if count > most {
        return Ok(false);
    }
    if limit != most {
        put_le16(raw, at, most);
        // What was no entry, or a checksum, is nothing now.
        let end = raw.len();
        let from = entry_at(at, count).min(end);
        raw.get_mut(from..).unwrap_or(&mut []).fill(0);
    }
    seal(sb, dir, block, raw)?;
    Ok(true)
}

/// Whether a block other than the first may be an inner node: one unused record over the whole block, and a node's limit.
pub(crate) fn looks_like_node(sb: &Superblock, b: &[u8]) -> bool {
    le32(b, de::INODE) == 0
        && record_len_of(sb, le16(b, de::REC_LEN)) == sb.block_size()
        && u32::from(le16(b, dx_node::LIMIT)) == room(sb, dx_node::LIMIT)
}

/// Covers the block up to the last used entry, then the 8-byte tail with a zero checksum, but not the space between them.
fn checksum(dir: &Inode, b: &[u8], at: usize, limit: u16, count: u16) -> u32 {
    let sum = csum::crc32c(dir.csum_seed(), b.get(..entry_at(at, count)).unwrap_or(&[]));
    let tail = entry_at(at, limit);
    let tail = b
        .get(tail..tail.saturating_add(dx_tail::SIZE))
        .unwrap_or(&[]);
    csum::crc32c_with_hole(sum, tail, dx_tail::CHECKSUM, 4)
}

/// Position of limit and count.
fn limit_at(block: FileBlock) -> usize {
    if block.get() == 0 {
        dx_root::LIMIT
    } else {
        dx_node::LIMIT
    }
}

fn entry_at(at: usize, n: u16) -> usize {
    num::usize16(n).saturating_mul(ENTRY).saturating_add(at)
}

fn parse_entries(
    sb: &Superblock,
    dir: &Inode,
    block: FileBlock,
    b: &[u8],
    at: usize,
) -> Result<DxNode> {
    let (limit, count) = check_count(sb, dir, block, b, at)?;
    let blocks = dir.size >> sb.geometry().block_bits();
    let mut entries: Vec<DxEntry> = Vec::new();
    for index in 0..count {
        let slot = b
            .get(entry_at(at, index)..entry_at(at, index.saturating_add(1)))
            .unwrap_or(&[]);
        let hash = if index == 0 { 0 } else { le32(slot, 0) };
        let found = le32(slot, 4) & BLOCK_MASK;
        if entries
            .last()
            .is_some_and(|before| index > 1 && hash < before.hash)
        {
            return bad(Corrupt::DxOrder {
                ino: dir.ino,
                block,
                index,
                hash,
            });
        }
        if found == 0 || u64::from(found) >= blocks || u64::from(found) == block.get() {
            return bad(Corrupt::DxBlock {
                ino: dir.ino,
                block,
                index,
                found,
                blocks,
            });
        }
        entries.push(DxEntry {
            hash,
            block: FileBlock::new(u64::from(found)),
        });
    }
    Ok(DxNode { entries, limit })
}
