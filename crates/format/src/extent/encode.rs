//! Encodes a node of an extent tree: the root into an inode's `i_block`, any other into its block.
//! Input: an [`ExtentNode`]. Output: header, entries and checksum. Invariant: the parser accepts what is written here; on an
//! error nothing changes. Bytes after the last entry, and the header's last word, are kept. Limit: the caller ensures that
//! entries lie within the parent's range and share no blocks.
//! Source: the kernel's ext4 documentation, "extent tree"; an unwritten extent stores its length plus 32,768, so it has
//! at most 32,767 blocks; e2fsck and debugfs on changed images in tests.

use crate::error::{Unfit, fit, room};
use crate::inode::I_BLOCK_SIZE;
use crate::layout::{ee, eh, ei};
use crate::le::{le16, put, put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FsBlock, Ino};

use super::{END, ENTRY, Entries, Extent, ExtentIndex, ExtentNode, MAGIC, MAX_DEPTH, MAX_WRITTEN};
use super::{checksum, slot, tail_offset};

/// Maximum number of entries of the root.
pub const ROOT_CAPACITY: u16 = 4;
/// Most blocks of one written extent.
pub const MAX_WRITTEN_LEN: u32 = MAX_WRITTEN;
/// Most blocks of one unwritten extent.
pub const MAX_UNWRITTEN_LEN: u32 = MAX_WRITTEN - 1;
/// Block numbers have 48 bits.
const MAX_START: u64 = (1 << 48) - 1;

const _: () = assert!(I_BLOCK_SIZE == eh::SIZE + 4 * ENTRY);

type Written = core::result::Result<(), Unfit>;

/// Maximum number of entries in a block of this volume: 84, 169, 340 or 5,460 with 1, 2, 4 or 64 KiB. The checksum fits after
/// them with every block size.
#[must_use]
pub fn block_capacity(sb: &Superblock) -> u16 {
    let bytes = num::usize32(sb.block_size()).saturating_sub(eh::SIZE);
    u16::try_from(bytes / ENTRY).unwrap_or(u16::MAX)
}

/// Most blocks of one extent.
#[must_use]
pub const fn max_len(unwritten: bool) -> u32 {
    if unwritten {
        MAX_UNWRITTEN_LEN
    } else {
        MAX_WRITTEN_LEN
    }
}

impl ExtentNode {
    /// An empty root, as in a new file.
    #[must_use]
    pub const fn empty_root() -> Self {
        Self {
            depth: 0,
            max: ROOT_CAPACITY,
            entries: Entries::Leaf(Vec::new()),
        }
    }

    /// Writes the root. The inode's checksum covers it.
    ///
    /// # Errors
    /// `Value` and `Rule`, as for [`Self::write_block`].
    pub fn write_root(&self, i_block: &mut [u8; I_BLOCK_SIZE]) -> Written {
        self.check(ROOT_CAPACITY)?;
        self.put(i_block);
        Ok(())
    }

    /// Writes a node into its block, with a checksum over the file's inode number and generation.
    ///
    /// # Errors
    /// `Short`; `Value` for more entries than `max`, a `max` above the capacity, a depth above [`MAX_DEPTH`], a length
    /// or number that does not fit; `Rule` for entries out of order or of the wrong kind for the depth.
    pub fn write_block(
        &self,
        sb: &Superblock,
        ino: Ino,
        generation: u32,
        raw: &mut [u8],
    ) -> Written {
        let b = room("an extent block", raw, num::usize32(sb.block_size()))?;
        self.check(block_capacity(sb))?;
        self.put(b);
        seal_block(sb, ino, generation, b);
        Ok(())
    }

    fn put(&self, b: &mut [u8]) {
        let count = match &self.entries {
            Entries::Leaf(list) => {
                put_all(b, list.iter().map(encode_extent));
                list.len()
            }
            Entries::Index(list) => {
                put_all(b, list.iter().map(encode_index));
                list.len()
            }
        };
        put_le16(b, eh::MAGIC, MAGIC);
        put_le16(b, eh::ENTRIES, u16::try_from(count).unwrap_or(u16::MAX));
        put_le16(b, eh::MAX, self.max);
        put_le16(b, eh::DEPTH, self.depth);
    }

    fn check(&self, capacity: u16) -> Written {
        fit(
            "an extent node's room",
            u64::from(self.max),
            u64::from(capacity),
        )?;
        fit(
            "an extent node's depth",
            u64::from(self.depth),
            u64::from(MAX_DEPTH),
        )?;
        let count = match &self.entries {
            Entries::Leaf(list) => {
                if self.depth != 0 {
                    return rule("extents above the leaves");
                }
                check_leaf(list)?;
                list.len()
            }
            Entries::Index(list) => {
                if self.depth == 0 || list.is_empty() {
                    return rule("index entries in a leaf, or none above the leaves");
                }
                check_index(list)?;
                list.len()
            }
        };
        fit(
            "an extent node's entries",
            num::wide(count),
            u64::from(self.max),
        )
    }
}

/// Writes the checksum after the room for entries. Does nothing without metadata_csum.
pub fn seal_block(sb: &Superblock, ino: Ino, generation: u32, block: &mut [u8]) {
    if sb.has_metadata_csum() {
        let max = le16(block, eh::MAX);
        let sum = checksum(sb, ino, generation, max, block);
        put_le32(block, tail_offset(max), sum);
    }
}

fn rule(why: &'static str) -> Written {
    Err(Unfit::Rule {
        what: "an extent node",
        why,
    })
}

fn check_leaf(list: &[Extent]) -> Written {
    let mut end = 0u64;
    for extent in list {
        if extent.len == 0 {
            return rule("an extent without blocks");
        }
        let max = max_len(extent.unwritten);
        fit("an extent's length", u64::from(extent.len), u64::from(max))?;
        fit("an extent's end", extent.end(), END)?;
        let last = extent
            .start
            .get()
            .saturating_add(u64::from(extent.len).saturating_sub(1));
        fit("an extent's last block", last, MAX_START)?;
        if extent.block.get() < end {
            return rule("extents out of order");
        }
        end = extent.end();
    }
    Ok(())
}

fn check_index(list: &[ExtentIndex]) -> Written {
    let mut next = 0u64;
    for index in list {
        fit(
            "an index entry's file block",
            index.block.get(),
            END.saturating_sub(1),
        )?;
        fit("an index entry's child", index.child.get(), MAX_START)?;
        if index.block.get() < next {
            return rule("index entries out of order");
        }
        next = index.block.get().saturating_add(1);
    }
    Ok(())
}

fn put_all(b: &mut [u8], entries: impl Iterator<Item = [u8; ENTRY]>) {
    for (n, entry) in entries.enumerate() {
        put(b, slot(n), &entry);
    }
}

/// The lower 32 bits and the 16 above them.
fn start_parts(block: FsBlock) -> (u16, u32) {
    let (high, low) = num::split(block.get());
    (num::low16(high), low)
}

pub(super) fn encode_extent(extent: &Extent) -> [u8; ENTRY] {
    let mut e = [0u8; ENTRY];
    let (high, low) = start_parts(extent.start);
    let mark = if extent.unwritten { MAX_WRITTEN } else { 0 };
    put_le32(&mut e, ee::BLOCK, num::low32(extent.block.get()));
    put_le16(&mut e, ee::LEN, num::low16(extent.len.saturating_add(mark)));
    put_le16(&mut e, ee::START_HI, high);
    put_le32(&mut e, ee::START_LO, low);
    e
}

pub(super) fn encode_index(index: &ExtentIndex) -> [u8; ENTRY] {
    let mut e = [0u8; ENTRY];
    let (high, low) = start_parts(index.child);
    put_le32(&mut e, ei::BLOCK, num::low32(index.block.get()));
    put_le32(&mut e, ei::LEAF_LO, low);
    put_le16(&mut e, ei::LEAF_HI, high);
    e
}
