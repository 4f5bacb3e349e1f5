//! One node of an extent tree: the root in the inode or a block below it.
//! Input: an inode, or the block that an index entry of a checked node points to. Output: [`ExtentNode`], which can be written
//! back. Invariant: entries are sorted, do not overlap, lie within the range that the parent gave, and point inside the volume;
//! the depth is what the parent said, so a walk ends after at most five steps down. Limit: two nodes that share a block, or an
//! extent on metadata, can only be seen by code that walks the whole tree.
//! Source: the kernel's ext4 documentation, "extent tree", "checksums".

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::inode::{Inode, MapKind};
use crate::layout::{ee, eh, ei};
use crate::le::{le16, le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FileBlock, FsBlock, Ino, Place};

mod encode;
pub mod raw;
#[cfg(test)]
mod tests;

pub use encode::{
    MAX_UNWRITTEN_LEN, MAX_WRITTEN_LEN, ROOT_CAPACITY, block_capacity, max_len, seal_block,
};

/// Maximum depth: 4 x 340^4 extents of 4 KiB blocks already exceed 2^32 blocks; the format's documentation says 5.
pub const MAX_DEPTH: u16 = 5;
/// A length field above this means an unwritten extent of `field - 32768` blocks.
const MAX_WRITTEN: u32 = 32768;
/// Extents end before this block (the block number 2^32-1 is never used).
const END: u64 = 0xFFFF_FFFF;
const MAGIC: u16 = 0xF30A;
const ENTRY: usize = ee::SIZE;

const _: () = assert!(eh::SIZE == ENTRY && ei::SIZE == ENTRY);

/// A run of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First block in the file.
    pub block: FileBlock,
    /// Blocks, 1..=32768.
    pub len: u32,
    /// First block on the volume.
    pub start: FsBlock,
    /// Allocated but never written: reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The file block after the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.block.get().saturating_add(u64::from(self.len))
    }
}

/// A pointer to a node one level down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentIndex {
    /// First file block that the child may hold.
    pub block: FileBlock,
    /// File block after the last that the child may hold: the start of its right neighbour, or the end of the parent's range.
    pub end: u64,
    /// Block of the child.
    pub child: FsBlock,
}

/// What the parent says about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect {
    /// Levels below the node: 0 for a leaf.
    pub depth: u16,
    /// First file block that it may hold.
    pub first: FileBlock,
    /// File block after the last that it may hold.
    pub end: u64,
}

/// The entries of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entries {
    /// Data.
    Leaf(Vec<Extent>),
    /// Further nodes; never empty.
    Index(Vec<ExtentIndex>),
}

/// A checked node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentNode {
    /// Levels below it: 0 for a leaf.
    pub depth: u16,
    /// The maximum number of entries.
    pub max: u16,
    /// Its entries.
    pub entries: Entries,
}

/// The inode and node being read, for checks and messages.
struct Reader<'a> {
    sb: &'a Superblock,
    ino: Ino,
    at: Place,
    expect: Expect,
}

impl ExtentNode {
    /// The root, in the inode's `i_block`.
    ///
    /// # Errors
    /// `WrongMap` if the inode has no extent tree; every `Extent...` variant but the checksum's: the inode's own checksum
    /// covers the root.
    pub fn parse_root(sb: &Superblock, inode: &Inode) -> Result<Self> {
        let ino = inode.ino;
        if inode.map_kind() != MapKind::Extents {
            return bad(Corrupt::WrongMap {
                ino,
                what: "an extent tree",
            });
        }
        let b = inode.i_block.as_slice();
        let depth = le16(b, eh::DEPTH);
        if depth > MAX_DEPTH {
            return bad(Corrupt::ExtentDepth {
                ino,
                at: Place::Inode,
                found: depth,
                expected: MAX_DEPTH,
            });
        }
        let expect = Expect {
            depth,
            first: FileBlock::new(0),
            end: END,
        };
        Reader {
            sb,
            ino,
            at: Place::Inode,
            expect,
        }
        .node(b)
    }

    /// A node in a block of its own; `raw` is that block.
    ///
    /// # Errors
    /// `Short`, and every `Extent...` variant.
    pub fn parse_block(
        sb: &Superblock,
        ino: Ino,
        generation: u32,
        expect: Expect,
        block: FsBlock,
        raw: &[u8],
    ) -> Result<Self> {
        let (reader, b) = Reader::of_block(sb, ino, expect, block, raw)?;
        let max = reader.header(b)?.max;
        if sb.has_metadata_csum() {
            reader.verify_sum(generation, max, b)?;
        }
        reader.node(b)
    }

    /// As [`ExtentNode::parse_block`] for bytes in memory whose checksum was verified when they were read and may be out of
    /// date.
    ///
    /// # Errors
    /// As [`ExtentNode::parse_block`], without the checksum's.
    pub fn parse_changed_block(
        sb: &Superblock,
        ino: Ino,
        expect: Expect,
        block: FsBlock,
        raw: &[u8],
    ) -> Result<Self> {
        let (reader, b) = Reader::of_block(sb, ino, expect, block, raw)?;
        reader.node(b)
    }

    /// The expectation for the node that an index entry of this node points to.
    #[must_use]
    pub fn expect_child(&self, index: &ExtentIndex) -> Expect {
        Expect {
            depth: self.depth.saturating_sub(1),
            first: index.block,
            end: index.end,
        }
    }

    /// The extents of a leaf; empty for an index node.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        match &self.entries {
            Entries::Leaf(v) => v,
            Entries::Index(_) => &[],
        }
    }

    /// The index entries; empty for a leaf.
    #[must_use]
    pub fn indexes(&self) -> &[ExtentIndex] {
        match &self.entries {
            Entries::Leaf(_) => &[],
            Entries::Index(v) => v,
        }
    }

    /// The index entry whose child may hold `block`, or `None` if the block lies before the first.
    #[must_use]
    pub fn find_child(&self, block: FileBlock) -> Option<&ExtentIndex> {
        let list = self.indexes();
        let after = list.partition_point(|e| e.block <= block);
        list.get(after.checked_sub(1)?)
    }

    /// The extent that holds `block`, or the next one after it; `None` if all end before.
    #[must_use]
    pub fn find_extent(&self, block: FileBlock) -> Option<&Extent> {
        let list = self.extents();
        list.get(list.partition_point(|e| e.end() <= block.get()))
    }
}

/// The checksum of an extent block, which is stored after its last possible entry.
#[must_use]
pub fn checksum(sb: &Superblock, ino: Ino, generation: u32, max: u16, block: &[u8]) -> u32 {
    let seed = csum::inode_seed(sb.csum_seed(), ino, generation);
    csum::crc32c(seed, block.get(..tail_offset(max)).unwrap_or(block))
}

/// Position of the checksum: after the room for `max` entries.
fn tail_offset(max: u16) -> usize {
    slot(num::usize16(max))
}

/// Position of entry `n`.
fn slot(n: usize) -> usize {
    n.saturating_mul(ENTRY).saturating_add(eh::SIZE)
}

/// Decodes a stored extent.
pub(crate) fn decode_extent(raw: &[u8]) -> Extent {
    let stored = u32::from(le16(raw, ee::LEN));
    let unwritten = stored > MAX_WRITTEN;
    Extent {
        block: FileBlock::new(u64::from(le32(raw, ee::BLOCK))),
        len: if unwritten {
            stored.saturating_sub(MAX_WRITTEN)
        } else {
            stored
        },
        start: FsBlock::new(num::join(
            u32::from(le16(raw, ee::START_HI)),
            le32(raw, ee::START_LO),
        )),
        unwritten,
    }
}

/// The header's numbers.
struct Header {
    entries: u16,
    max: u16,
}

impl<'a> Reader<'a> {
    /// The header of a node in a block of its own, and that block's bytes.
    fn of_block(
        sb: &'a Superblock,
        ino: Ino,
        expect: Expect,
        block: FsBlock,
        raw: &'a [u8],
    ) -> Result<(Self, &'a [u8])> {
        let size = num::usize32(sb.block_size());
        want("an extent block", raw, size)?;
        let at = Place::Block(block);
        let reader = Reader {
            sb,
            ino,
            at,
            expect,
        };
        Ok((reader, raw.get(..size).unwrap_or(&[])))
    }
}

impl Reader<'_> {
    fn header(&self, b: &[u8]) -> Result<Header> {
        let (ino, at) = (self.ino, self.at);
        let (found, depth) = (le16(b, eh::MAGIC), le16(b, eh::DEPTH));
        let header = Header {
            entries: le16(b, eh::ENTRIES),
            max: le16(b, eh::MAX),
        };
        if found != MAGIC {
            return bad(Corrupt::ExtentMagic { ino, at, found });
        }
        if depth != self.expect.depth || depth > MAX_DEPTH {
            return bad(Corrupt::ExtentDepth {
                ino,
                at,
                found: depth,
                expected: self.expect.depth,
            });
        }
        let room = b
            .len()
            .saturating_sub(eh::SIZE)
            .checked_div(ENTRY)
            .unwrap_or(0);
        let fits = u16::try_from(room).unwrap_or(u16::MAX);
        if header.max == 0 || header.max > fits {
            return bad(Corrupt::ExtentMax {
                ino,
                at,
                max: header.max,
                fits,
            });
        }
        if header.entries > header.max {
            return bad(Corrupt::ExtentEntries {
                ino,
                at,
                entries: header.entries,
                max: header.max,
            });
        }
        if header.entries == 0 && depth > 0 {
            return bad(Corrupt::ExtentEmptyIndex { ino, at });
        }
        Ok(header)
    }

    fn verify_sum(&self, generation: u32, max: u16, b: &[u8]) -> Result<()> {
        let stored = le32(b, tail_offset(max));
        let computed = checksum(self.sb, self.ino, generation, max, b);
        if stored != computed {
            return bad(Corrupt::ExtentChecksum {
                ino: self.ino,
                at: self.at,
                stored,
                computed,
            });
        }
        Ok(())
    }

    fn node(&self, b: &[u8]) -> Result<ExtentNode> {
        let header = self.header(b)?;
        let slots = b
            .get(eh::SIZE..)
            .unwrap_or(&[])
            .chunks_exact(ENTRY)
            .take(num::usize16(header.entries));
        let entries = if self.expect.depth == 0 {
            Entries::Leaf(self.leaf(slots)?)
        } else {
            Entries::Index(self.index(slots)?)
        };
        Ok(ExtentNode {
            depth: self.expect.depth,
            max: header.max,
            entries,
        })
    }

    fn leaf<'b>(&self, slots: impl Iterator<Item = &'b [u8]>) -> Result<Vec<Extent>> {
        let mut list = Vec::new();
        let mut previous_end = self.expect.first;
        for raw in slots {
            let extent = self.extent(raw)?;
            self.check_order(list.is_empty(), previous_end, extent.block, extent.end())?;
            previous_end = FileBlock::new(extent.end());
            list.push(extent);
        }
        Ok(list)
    }

    fn extent(&self, raw: &[u8]) -> Result<Extent> {
        let (ino, at) = (self.ino, self.at);
        let extent = decode_extent(raw);
        let Extent {
            block, len, start, ..
        } = extent;
        if len == 0 {
            return bad(Corrupt::ExtentLength { ino, at, block });
        }
        if !self.sb.holds(start, u64::from(len)) {
            return bad(Corrupt::ExtentPhysical {
                ino,
                at,
                start,
                len,
                count: self.sb.geometry().blocks_count(),
            });
        }
        Ok(extent)
    }

    fn index<'b>(&self, slots: impl Iterator<Item = &'b [u8]>) -> Result<Vec<ExtentIndex>> {
        let mut list: Vec<ExtentIndex> = Vec::new();
        let mut next = self.expect.first;
        for raw in slots {
            let block = FileBlock::new(u64::from(le32(raw, ei::BLOCK)));
            let child = FsBlock::new(num::join(
                u32::from(le16(raw, ei::LEAF_HI)),
                le32(raw, ei::LEAF_LO),
            ));
            self.check_order(list.is_empty(), next, block, block.get().saturating_add(1))?;
            if !self.sb.holds(child, 1) {
                let count = self.sb.geometry().blocks_count();
                return bad(Corrupt::ExtentPhysical {
                    ino: self.ino,
                    at: self.at,
                    start: child,
                    len: 1,
                    count,
                });
            }
            if let Some(before) = list.last_mut() {
                before.end = block.get();
            }
            next = FileBlock::new(block.get().saturating_add(1));
            list.push(ExtentIndex {
                block,
                end: self.expect.end,
                child,
            });
        }
        Ok(list)
    }

    /// Checks that `start..end` comes after what was read so far and stays within the node's range.
    fn check_order(
        &self,
        is_first: bool,
        previous_end: FileBlock,
        start: FileBlock,
        end: u64,
    ) -> Result<()> {
        let (ino, at) = (self.ino, self.at);
        if !is_first && start < previous_end {
            return bad(Corrupt::ExtentOrder {
                ino,
                at,
                previous_end,
                found: start,
            });
        }
        let (low, high) = (self.expect.first.get(), self.expect.end);
        if start.get() < low || end > high {
            return bad(Corrupt::ExtentRange {
                ino,
                at,
                start: start.get(),
                end,
                low,
                high,
            });
        }
        Ok(())
    }
}
