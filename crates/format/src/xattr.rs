//! Extended attributes: in the inode after its fields, and in a block of their own.
//! Input: an inode's bytes, or the block that `file_acl` names. Output: [`Xattrs`], a list of checked entries. Invariant: names
//! and values lie inside the given bytes; a value never overlaps the list of entries. Limit: a value in an inode of its own is
//! only referred to; [`verify_ea_inode`] checks its length and hash. Source: the kernel's ext4 documentation, "extended
//! attributes"; man 5 attr.

use crate::csum;
use crate::error::{Corrupt, Result, Unfit, bad, room, want};
use crate::features::Incompat;
use crate::inode::Inode;
use crate::layout::{xe, xh};
use crate::le::{le16, le32, put_le32, u8_at};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FsBlock, Ino, Place};

mod hash;
mod holder;
mod pack;
#[cfg(test)]
mod tests;

pub use hash::{entry_hash, verify_ea_inode};
pub use holder::{continue_value_sum, held_hash, is_held_hash, value_sum};
pub use pack::{block_hash, write_block, write_inode};

/// First word of both areas.
const MAGIC: u32 = 0xEA02_0000;
/// Longest value in an inode of its own (the format's limit; the kernel's interface has 64 KiB).
pub const MAX_EA_INODE: u32 = 1 << 24;

/// The code of a name's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: Self = Self(1);
    /// `system.posix_acl_access`, the whole name.
    pub const ACL_ACCESS: Self = Self(2);
    /// `system.posix_acl_default`, the whole name.
    pub const ACL_DEFAULT: Self = Self(3);
    /// `trusted.`
    pub const TRUSTED: Self = Self(4);
    /// `security.`
    pub const SECURITY: Self = Self(6);
    /// `system.`, among them `system.data`, the rest of inline data.
    pub const SYSTEM: Self = Self(7);
    /// The encryption context; not shown.
    pub const ENCRYPTION: Self = Self(9);

    /// The text before the stored name; `None` for codes that are not shown (encryption contexts).
    #[must_use]
    pub const fn prefix(self) -> Option<&'static str> {
        match self.0 {
            1 => Some("user."),
            2 => Some("system.posix_acl_access"),
            3 => Some("system.posix_acl_default"),
            4 => Some("trusted."),
            6 => Some("security."),
            7 => Some("system."),
            8 => Some("system.richacl"),
            10 => Some("gnu."),
            _ => None,
        }
    }

    /// Splits a full name into code and stored name; `None` if no code has that prefix.
    #[must_use]
    pub fn split(full: &[u8]) -> Option<(Self, &[u8])> {
        // Whole names first: they begin with "system." too.
        for code in [2u8, 3, 8] {
            if Self(code).prefix().is_some_and(|p| p.as_bytes() == full) {
                return Some((Self(code), &[]));
            }
        }
        [1u8, 4, 6, 7, 10].into_iter().find_map(|code| {
            let rest = full.strip_prefix(Self(code).prefix()?.as_bytes())?;
            (!rest.is_empty()).then_some((Self(code), rest))
        })
    }
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// In these bytes.
    Bytes(&'a [u8]),
    /// In the data of this inode (ea_inode).
    Inode {
        /// The inode; a regular file flagged EA_INODE.
        ino: Ino,
        /// Length in bytes, 1..=2^24.
        size: u32,
    },
}

/// An attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// Code of the prefix.
    pub index: NameIndex,
    /// The name after the prefix, 0..=255 bytes without a NUL.
    pub name: &'a [u8],
    /// Its value.
    pub value: XattrValue<'a>,
    /// Stored hash; 0 = none (entries in inodes).
    pub hash: u32,
}

impl XattrEntry<'_> {
    /// Full name; `None` for codes that are not shown.
    #[must_use]
    pub fn full_name(&self) -> Option<Vec<u8>> {
        let mut full = self.index.prefix()?.as_bytes().to_vec();
        full.extend_from_slice(self.name);
        Some(full)
    }

    /// Compares the stored hash with name and value. Entries without a hash pass, and so do values in inodes: for those see
    /// [`verify_ea_inode`].
    ///
    /// # Errors
    /// `XattrHash`.
    pub fn verify_hash(&self, ino: Ino) -> Result<()> {
        let XattrValue::Bytes(value) = self.value else {
            return Ok(());
        };
        if self.hash == 0 || hash::accepted(self.name, value).contains(&self.hash) {
            return Ok(());
        }
        bad(Corrupt::XattrHash {
            ino,
            what: "entry",
            stored: self.hash,
            computed: entry_hash(self.name, value),
        })
    }
}

/// The attributes of one area.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Xattrs<'a> {
    /// In stored order.
    pub entries: Vec<XattrEntry<'a>>,
    /// Inodes that share the block; 1 for attributes in the inode; 0 for an area that was never used.
    pub refcount: u32,
}

/// Whether the inode, with these bytes, has an area with attributes, which may be damaged or have none.
#[must_use]
pub fn has_area(inode: &Inode, raw: &[u8]) -> bool {
    area_of(inode, raw).is_some()
}

/// The area of an inode's bytes that has attributes; it begins with their magic number.
fn area_of<'a>(inode: &Inode, raw: &'a [u8]) -> Option<&'a [u8]> {
    let area = inode.xattr_area().and_then(|r| raw.get(r))?;
    (le32(area, 0) == MAGIC).then_some(area)
}

impl<'a> Xattrs<'a> {
    /// The attributes in the inode; `raw` is what the inode was parsed from. Without a magic number there are none.
    ///
    /// # Errors
    /// `XattrEntry`, `XattrValue`.
    pub fn parse_inode(sb: &Superblock, inode: &Inode, raw: &'a [u8]) -> Result<Self> {
        let Some(area) = area_of(inode, raw) else {
            return Ok(Self::default());
        };
        let list = area.get(4..).unwrap_or(&[]);
        let entries = Reader {
            sb,
            ino: inode.ino,
            at: Place::Inode,
            base: 0,
            bytes: list,
        }
        .entries()?;
        Ok(Self {
            entries,
            refcount: 1,
        })
    }

    /// The attributes in a block.
    ///
    /// # Errors
    /// `Short`, `XattrMagic`, `XattrBlocks`, `XattrChecksum` (metadata_csum), `XattrEntry`, `XattrValue`.
    pub fn parse_block(sb: &Superblock, ino: Ino, block: FsBlock, raw: &'a [u8]) -> Result<Self> {
        let (size, at) = (num::usize32(sb.block_size()), Place::Block(block));
        want("a block of extended attributes", raw, size)?;
        let b = raw.get(..size).unwrap_or(&[]);
        let (magic, blocks) = (le32(b, xh::MAGIC), le32(b, xh::BLOCKS));
        if magic != MAGIC {
            return bad(Corrupt::XattrMagic {
                ino,
                at,
                found: magic,
            });
        }
        if blocks != 1 {
            return bad(Corrupt::XattrBlocks {
                ino,
                at,
                found: blocks,
            });
        }
        let (stored, computed) = (le32(b, xh::CHECKSUM), block_checksum(sb, block, b));
        if sb.has_metadata_csum() && stored != computed {
            return bad(Corrupt::XattrChecksum {
                ino,
                at,
                stored,
                computed,
            });
        }
        let entries = Reader {
            sb,
            ino,
            at,
            base: xh::SIZE,
            bytes: b,
        }
        .entries()?;
        Ok(Self {
            entries,
            refcount: le32(b, xh::REFCOUNT),
        })
    }

    /// The attribute with this code and name.
    #[must_use]
    pub fn get(&self, index: NameIndex, name: &[u8]) -> Option<&XattrEntry<'a>> {
        self.entries
            .iter()
            .find(|e| e.index == index && e.name == name)
    }
}

/// The checksum of an attribute block: over its number, then its bytes with a zero checksum.
#[must_use]
pub fn block_checksum(sb: &Superblock, block: FsBlock, bytes: &[u8]) -> u32 {
    let seed = csum::crc32c(sb.csum_seed(), &block.get().to_le_bytes());
    csum::crc32c_with_hole(seed, bytes, xh::CHECKSUM, 4)
}

/// Sets how many inodes share a checked attribute block, and updates the checksum.
///
/// # Errors
/// `Short`.
pub fn set_refcount(
    sb: &Superblock,
    block: FsBlock,
    raw: &mut [u8],
    count: u32,
) -> core::result::Result<(), Unfit> {
    let what = "a block of extended attributes";
    let b = room(what, raw, num::usize32(sb.block_size()))?;
    put_le32(b, xh::REFCOUNT, count);
    if sb.has_metadata_csum() {
        let sum = block_checksum(sb, block, b);
        put_le32(b, xh::CHECKSUM, sum);
    }
    Ok(())
}

/// A list of entries that begins at `base`; value offsets count from the start of `bytes`.
struct Reader<'s, 'a> {
    sb: &'s Superblock,
    ino: Ino,
    at: Place,
    base: usize,
    bytes: &'a [u8],
}

impl<'a> Reader<'_, 'a> {
    fn entries(&self) -> Result<Vec<XattrEntry<'a>>> {
        let names_end = self.find_end()?;
        let mut list = Vec::new();
        let mut at = self.base;
        // `find_end` made the same steps, each of at least 16 bytes.
        while at.saturating_add(4) < names_end {
            let slot = self.bytes.get(at..).unwrap_or(&[]);
            list.push(self.entry(at, slot, names_end)?);
            at = at.saturating_add(entry_len(slot));
        }
        Ok(list)
    }

    /// The position after the four zero bytes that end the list.
    fn find_end(&self) -> Result<usize> {
        let mut at = self.base;
        loop {
            let slot = self.bytes.get(at..).unwrap_or(&[]);
            if slot.len() < 4 {
                return self.wrong(at, "the list does not end within its area");
            }
            if le32(slot, 0) == 0 {
                return Ok(at.saturating_add(4));
            }
            let len = entry_len(slot);
            if len > slot.len() {
                return self.wrong(at, "reaches past the end of its area");
            }
            at = at.saturating_add(len);
        }
    }

    fn entry(&self, at: usize, slot: &'a [u8], names_end: usize) -> Result<XattrEntry<'a>> {
        let end = xe::SIZE.saturating_add(usize::from(u8_at(slot, xe::NAME_LEN)));
        let name = slot.get(xe::SIZE..end).unwrap_or(&[]);
        if name.contains(&0) {
            return self.wrong(at, "a NUL byte in the name");
        }
        Ok(XattrEntry {
            index: NameIndex(u8_at(slot, xe::NAME_INDEX)),
            name,
            value: self.value(at, slot, names_end)?,
            hash: le32(slot, xe::HASH),
        })
    }

    fn value(&self, at: usize, slot: &[u8], names_end: usize) -> Result<XattrValue<'a>> {
        let (offset, size) = (le16(slot, xe::VALUE_OFFS), le32(slot, xe::VALUE_SIZE));
        let number = le32(slot, xe::VALUE_INUM);
        if number != 0 {
            return self.inode_value(at, number, size);
        }
        if size == 0 {
            return Ok(XattrValue::Bytes(&[]));
        }
        let start = num::usize16(offset);
        let end = start.saturating_add(num::usize32(size));
        let why = match self.bytes.get(start..end) {
            Some(value) if start >= names_end => return Ok(XattrValue::Bytes(value)),
            Some(_) => "overlaps the list of entries",
            None => "reaches past the end of its area",
        };
        let offset32 = num::sat32(num::wide(at));
        bad(Corrupt::XattrValue {
            ino: self.ino,
            at: self.at,
            offset: offset32,
            value_offset: u32::from(offset),
            size,
            why,
        })
    }

    fn inode_value(&self, at: usize, number: u32, size: u32) -> Result<XattrValue<'a>> {
        if !self.sb.features().incompat.has(Incompat::EA_INODE) {
            return self.wrong(at, "a value in an inode on a volume without ea_inode");
        }
        if size == 0 || size > MAX_EA_INODE {
            return self.wrong(at, "a value in an inode has an impossible size");
        }
        match self.sb.check_ino(number) {
            Ok(ino) if ino != self.ino => Ok(XattrValue::Inode { ino, size }),
            _ => self.wrong(at, "the value's inode is out of range or the file itself"),
        }
    }

    fn wrong<T>(&self, at: usize, why: &'static str) -> Result<T> {
        bad(Corrupt::XattrEntry {
            ino: self.ino,
            at: self.at,
            offset: num::sat32(num::wide(at)),
            why,
        })
    }
}

/// Bytes of an entry: fixed part and name, rounded up to 4.
fn entry_len(slot: &[u8]) -> usize {
    xe::SIZE
        .saturating_add(usize::from(u8_at(slot, xe::NAME_LEN)))
        .saturating_add(3)
        & !3
}
