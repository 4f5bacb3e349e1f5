//! A block of directory entries, or one part of an inline directory.
//! Input: a directory's inode and one of its blocks. Output: [`DirBlock`], which iterates over entries; [`DirBlockEdit`], which
//! changes them. Invariant: the whole chain of records was checked at parsing (lengths, names, inode numbers, the checksum);
//! iterating cannot fail and ends with the block. Limit: names are bytes; those of encrypted directories are not text, and only
//! their length is checked.
//! Source: the kernel's ext4 documentation, "directory entries"; compared with `debugfs -R "ls -l"` in tests.

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::features::Compat;
use crate::inode::{Inode, InodeFlags};
use crate::layout::{de, de_tail};
use crate::le::{le16, le32, u8_at};
use crate::num;
use crate::record::{record_len, record_len_of};
use crate::superblock::Superblock;
use crate::types::{FileBlock, Ino};

mod edit;
mod inline;
mod renumber;
mod retail;
mod spread;
#[cfg(test)]
mod tests;
mod walk;

pub use edit::{
    DirBlockEdit, Inserted, MAX_NAME, entries_len, init_block, init_first_block, seal, seal_with,
};
pub use inline::{InlineDirEdit, begins_inline, init_inline};
pub use renumber::{renumber, renumber_inline};
pub use retail::reform;
pub use spread::{High, Spread, block_of, block_with, spread};
pub use walk::{DirEntry, Entries, Sought, record_size};

/// Smallest record: the fixed part and a name of up to four bytes.
const MIN_RECORD: u32 = 12;
/// The type byte that marks the checksum record.
const TAIL_TYPE: u8 = 0xDE;

/// The kind of a directory's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirBlockKind {
    /// Entries.
    Linear,
    /// Block 0 of a hashed directory: "." and "..", and the root of the tree.
    DxRoot,
    /// An inner node of the tree: no entries.
    DxNode,
    /// The part of an inline directory at this byte of the inline data.
    Inline,
}

/// A checked block.
#[derive(Debug, Clone, Copy)]
pub struct DirBlock<'a> {
    bytes: &'a [u8],
    kind: DirBlockKind,
    format: Format,
    covered: usize,
}

/// How a directory is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirForm {
    /// Block by block.
    Linear,
    /// By its hash tree.
    Hashed,
}

impl DirForm {
    /// The form of this directory.
    #[must_use]
    pub fn of(sb: &Superblock, dir: &Inode) -> Self {
        Self::by_flags(sb, dir.flags)
    }

    /// The form of a directory with these flags: hashed if it is flagged so, on a volume with dir_index.
    #[must_use]
    #[inline]
    pub fn by_flags(sb: &Superblock, flags: InodeFlags) -> Self {
        match sb.features().compat.has(Compat::DIR_INDEX) && flags.has(InodeFlags::INDEX) {
            true => Self::Hashed,
            false => Self::Linear,
        }
    }
}

/// How records are encoded.
#[derive(Debug, Clone, Copy)]
struct Format {
    /// With blocks of 64 KiB, record lengths that need more than 16 bits are encoded.
    huge_block: bool,
    /// The byte after the name length is a file type, not the high half of the length.
    has_type: bool,
}

/// The directory and block being read, for checks and messages.
#[derive(Clone, Copy)]
struct Reader<'a> {
    sb: &'a Superblock,
    dir: &'a Inode,
    block: FileBlock,
}

impl<'a> DirBlock<'a> {
    /// Checks block `block` of the directory `dir`.
    ///
    /// # Errors
    /// `Short`; `DirRecord`, `DirName`, `DirInode`; with metadata_csum `DirTail`, `DirChecksum`, and the
    /// `Dx...` variants for the nodes of a hash tree.
    pub fn parse(
        sb: &'a Superblock,
        dir: &'a Inode,
        block: FileBlock,
        raw: &'a [u8],
    ) -> Result<Self> {
        let size = num::usize32(sb.block_size());
        want("a directory block", raw, size)?;
        let bytes = raw.get(..size).unwrap_or(&[]);
        let reader = Reader { sb, dir, block };
        let kind = kind_of(sb, DirForm::of(sb, dir), block, bytes);
        let covered = match kind {
            DirBlockKind::Linear => reader.verify_tail(bytes)?,
            _ => {
                crate::dx::verify_block(sb, dir, block, bytes)?;
                size
            }
        };
        let this = Self {
            bytes,
            kind,
            format: Format::of(sb),
            covered,
        };
        reader.check_chain(&this)?;
        Ok(this)
    }

    /// Checks one part of an inline directory: bytes 4..60 of `i_block` (`offset` 4), or the value of the
    /// attribute `system.data` (`offset` 60). Neither holds "." or "..": the parent is the first word of `i_block`.
    ///
    /// # Errors
    /// `DirRecord`, `DirName`, `DirInode`.
    pub fn parse_inline(sb: &'a Superblock, dir: &'a Inode, part: &'a [u8]) -> Result<Self> {
        let this = Self {
            bytes: part,
            kind: DirBlockKind::Inline,
            format: Format::of_inline(sb),
            covered: part.len(),
        };
        Reader {
            sb,
            dir,
            block: FileBlock::new(0),
        }
        .check_chain(&this)?;
        Ok(this)
    }

    /// A block whose bytes passed [`DirBlock::parse`] as this block of a directory of this form before, and were since changed
    /// only by this crate. Other bytes show wrong entries or none, but do no other harm.
    #[must_use]
    pub fn checked_before(sb: &Superblock, form: DirForm, block: FileBlock, raw: &'a [u8]) -> Self {
        let bytes = raw.get(..num::usize32(sb.block_size())).unwrap_or(raw);
        let kind = kind_of(sb, form, block, bytes);
        let tail = match kind {
            DirBlockKind::Linear if sb.has_metadata_csum() => de_tail::SIZE,
            _ => 0,
        };
        Self {
            bytes,
            kind,
            format: Format::of(sb),
            covered: bytes.len().saturating_sub(tail),
        }
    }

    /// What the block is.
    #[must_use]
    pub fn kind(&self) -> DirBlockKind {
        self.kind
    }

    /// Entries in use, in the order of the block, "." and ".." included.
    pub fn entries(&self) -> impl Iterator<Item = DirEntry<'a>> + use<'a> {
        self.slots().filter(|e| !e.ino.is_none())
    }

    /// All records, also unused ones (inode 0).
    #[must_use]
    pub fn slots(&self) -> Entries<'a> {
        Entries::new(
            self.bytes.get(..self.covered).unwrap_or(&[]),
            self.format.huge_block,
            self.format.has_type,
        )
    }

    /// The entry with this name, compared byte by byte.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<DirEntry<'a>> {
        let offset = walk::find(self.bytes.get(..self.covered)?, self.format, name)?;
        self.slots_from(offset).next()
    }

    /// Where this name is, compared byte by byte; if it is not there, where it would go. One pass over the block.
    #[must_use]
    pub fn seek(&self, name: &[u8]) -> Sought {
        let bytes = self.bytes.get(..self.covered).unwrap_or(&[]);
        match (walk::seek(bytes, self.format, name), self.kind) {
            (Sought::Room(_), DirBlockKind::DxRoot | DirBlockKind::DxNode) => Sought::Full,
            (sought, _) => sought,
        }
    }

    /// Whether a record has room for a name of this length, which is not in the block.
    #[must_use]
    pub fn has_room(&self, name_len: usize) -> bool {
        let bytes = self.bytes.get(..self.covered).unwrap_or(&[]);
        let holds_names = matches!(self.kind, DirBlockKind::Linear | DirBlockKind::Inline);
        holds_names && walk::find_room(bytes, self.format, record_size(name_len), 0).is_some()
    }

    fn slots_from(&self, offset: u32) -> Entries<'a> {
        self.slots().from(offset)
    }

    /// Whether a NUL follows the name of an entry, as after "." and "..".
    #[must_use]
    pub fn is_terminated(&self, entry: &DirEntry<'_>) -> bool {
        let name = num::usize32(entry.offset).saturating_add(de::SIZE);
        self.bytes.get(name.saturating_add(entry.name.len())) == Some(&0)
    }

    /// The part of an entry's record before the name.
    pub(crate) fn fixed_part(&self, entry: &DirEntry<'_>) -> &'a [u8] {
        let start = num::usize32(entry.offset);
        self.bytes
            .get(start..start.saturating_add(de::SIZE))
            .unwrap_or(&[])
    }

    /// The directory itself and its parent, from "." and ".." at the start of block 0.
    ///
    /// # Errors
    /// `DirDots` if they are missing or "." is another inode than `dir`.
    pub fn dots(&self, dir: Ino) -> Result<(Ino, Ino)> {
        let wrong = |why| bad(Corrupt::DirDots { ino: dir, why });
        let mut slots = self.slots();
        let (Some(dot), Some(dotdot)) = (slots.next(), slots.next()) else {
            return wrong("no \".\" and \"..\"");
        };
        if dot.name != b"." || dot.ino != dir {
            return wrong("the first entry is not \".\" with its own number");
        }
        if dotdot.name != b".." || dotdot.ino.is_none() {
            return wrong("the second entry is not \"..\"");
        }
        Ok((dot.ino, dotdot.ino))
    }
}

/// Parent of an inline directory: the first word of `i_block`.
///
/// # Errors
/// `DirDots` if it is not an inode of the volume.
pub fn inline_parent(sb: &Superblock, dir: &Inode) -> Result<Ino> {
    let parent = le32(&dir.i_block, 0);
    sb.check_ino(parent).or_else(|_| {
        bad(Corrupt::DirDots {
            ino: dir.ino,
            why: "inline: the parent's number is out of range",
        })
    })
}

/// Whether the directory is hashed: flagged so, on a volume with dir_index.
#[must_use]
pub fn is_hashed(sb: &Superblock, dir: &Inode) -> bool {
    DirForm::of(sb, dir) == DirForm::Hashed
}

/// In a hashed directory block 0 is the root. An inner node looks like one unused record over the whole block; so does an empty
/// leaf without checksums, and then neither interpretation shows entries.
fn kind_of(sb: &Superblock, form: DirForm, block: FileBlock, b: &[u8]) -> DirBlockKind {
    if form == DirForm::Linear {
        return DirBlockKind::Linear;
    }
    if block.get() == 0 {
        return DirBlockKind::DxRoot;
    }
    let len = record_len_of(sb, le16(b, de::REC_LEN));
    if sb.has_metadata_csum() && le32(b, de::INODE) == 0 && len == sb.block_size() {
        return DirBlockKind::DxNode;
    }
    DirBlockKind::Linear
}

/// The checksum of a linear block, from the seed of its directory's checksums, over everything but the 12-byte record that
/// stores it.
#[must_use]
pub fn checksum(seed: u32, block: &[u8]) -> u32 {
    let covered = block.len().saturating_sub(de_tail::SIZE);
    csum::crc32c(seed, block.get(..covered).unwrap_or(&[]))
}

impl Format {
    fn of(sb: &Superblock) -> Self {
        Self {
            huge_block: sb.block_size() >= 65536,
            has_type: sb.has_filetype(),
        }
    }

    /// A part of an inline directory is never as long as the largest block.
    fn of_inline(sb: &Superblock) -> Self {
        Self {
            huge_block: false,
            has_type: sb.has_filetype(),
        }
    }
}

impl Reader<'_> {
    /// Length of the area with entries: the block, or the block without the checksum record.
    fn verify_tail(&self, b: &[u8]) -> Result<usize> {
        if !self.sb.has_metadata_csum() {
            return Ok(b.len());
        }
        let (ino, block) = (self.dir.ino, self.block);
        let at = b.len().saturating_sub(de_tail::SIZE);
        let tail = b.get(at..).unwrap_or(&[]);
        let is_tail = le32(tail, de_tail::ZERO_INODE) == 0
            && le16(tail, de_tail::REC_LEN) == 12
            && u8_at(tail, de_tail::ZERO_NAME_LEN) == 0
            && u8_at(tail, de_tail::FILE_TYPE) == TAIL_TYPE;
        if !is_tail {
            return bad(Corrupt::DirTail { ino, block });
        }
        let (stored, computed) = (
            le32(tail, de_tail::CHECKSUM),
            checksum(self.dir.csum_seed(), b),
        );
        if stored != computed {
            return bad(Corrupt::DirChecksum {
                ino,
                block,
                stored,
                computed,
            });
        }
        Ok(at)
    }

    fn check_chain(&self, block: &DirBlock<'_>) -> Result<()> {
        let size = num::sat32(num::wide(block.covered));
        let mut offset = 0u32;
        while offset < size {
            let slot = block
                .bytes
                .get(num::usize32(offset)..block.covered)
                .unwrap_or(&[]);
            let rec_len =
                self.check_record(block.format, offset, size.saturating_sub(offset), slot)?;
            // At least 12, so the walk ends.
            offset = offset.saturating_add(rec_len);
        }
        Ok(())
    }

    fn check_record(&self, format: Format, offset: u32, left: u32, slot: &[u8]) -> Result<u32> {
        let rec_len = record_len(le16(slot, de::REC_LEN), format.huge_block);
        let name_len = u32::from(walk::name_len(slot, format.has_type));
        let found = le32(slot, de::INODE);
        let why = if left < MIN_RECORD {
            "too few bytes left for a record"
        } else if rec_len < MIN_RECORD {
            "shorter than any record"
        } else if rec_len & 3 != 0 {
            "not a multiple of 4"
        } else if rec_len > left {
            "reaches past the end of the block"
        } else if name_len.saturating_add(8) > rec_len {
            "shorter than its name"
        } else {
            self.check_name(offset, found, slot, name_len)?;
            return Ok(rec_len);
        };
        bad(Corrupt::DirRecord {
            ino: self.dir.ino,
            block: self.block,
            offset,
            rec_len,
            why,
        })
    }

    fn check_name(&self, offset: u32, found: u32, slot: &[u8], name_len: u32) -> Result<()> {
        let (ino, block) = (self.dir.ino, self.block);
        if found == 0 {
            return Ok(());
        }
        let max = self.sb.geometry().inodes_count();
        if found > max {
            return bad(Corrupt::DirInode {
                ino,
                block,
                offset,
                found,
                max,
            });
        }
        let end = de::SIZE.saturating_add(num::usize32(name_len));
        let name = slot.get(de::SIZE..end).unwrap_or(&[]);
        let why = if name.is_empty() {
            "the name is empty"
        } else if name_len > 255 {
            "the name is longer than 255 bytes"
        } else if !self.dir.flags.has(InodeFlags::ENCRYPT)
            && name.iter().any(|c| *c == 0 || *c == b'/')
        {
            "the name has a NUL or a slash"
        } else {
            return Ok(());
        };
        bad(Corrupt::DirName {
            ino,
            block,
            offset,
            why,
        })
    }
}
