//! Changes to a directory's block: insert a name, remove a name, point a name to another inode, initialise a block.
//! Input: a directory and one of its blocks, checked when it is opened. Output: the changed block with its checksum. Invariant:
//! after every call [`super::DirBlock::parse`] accepts the block; removed names leave no bytes behind. Limits: in a hashed
//! directory, only the block that the tree names for a hash may get the name, and a full block is not split here; the caller
//! ensures that no other block has the name; encrypted names are not created.
//! Source: the kernel's ext4 documentation, "linear directories", "hash tree directories", "inline directories"; the record
//! of a whole 64 KiB block, stored as 65,535, by experiment with mke2fs -b 65536; e2fsck on changed images in tests.

use crate::dx;
use crate::error::{Result, Unfit, fit, room};
use crate::inode::{FileType, Inode};
use crate::layout::{de, de_tail};
use crate::le::{le32, put, put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FileBlock, Ino};

use super::walk::{Slot, record_size};
use super::{DirBlock, DirBlockKind, DirForm, Format, MIN_RECORD, TAIL_TYPE, checksum, walk};

/// Longest name, in bytes.
pub const MAX_NAME: usize = 255;

/// The result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// The name was inserted, in the record at this byte.
    At(u32),
    /// The name already exists; nothing changed.
    Exists(Ino),
    /// No record has room for it; nothing changed.
    Full,
}

/// A checked block being changed.
#[derive(Debug)]
pub struct DirBlockEdit<'a> {
    sb: &'a Superblock,
    block: FileBlock,
    bytes: &'a mut [u8],
    kind: DirBlockKind,
    format: Format,
    covered: usize,
    seals: Seals<'a>,
}

/// When a changed block gets its checksum.
#[derive(Debug, Clone, Copy)]
enum Seals<'a> {
    /// At once, with the seed of this directory.
    AtOnce(&'a Inode),
    /// By the caller, later.
    Later,
}

impl<'a> DirBlockEdit<'a> {
    /// Checks block `block` of the directory `dir` and opens it for changes.
    ///
    /// # Errors
    /// As [`DirBlock::parse`].
    pub fn open(
        sb: &'a Superblock,
        dir: &'a Inode,
        block: FileBlock,
        raw: &'a mut [u8],
    ) -> Result<Self> {
        let checked = DirBlock::parse(sb, dir, block, raw)?;
        let looks = (checked.kind, checked.format, checked.covered);
        let form = DirForm::of(sb, dir);
        Ok(Self::begin(
            sb,
            form,
            block,
            (looks, Seals::AtOnce(dir)),
            raw,
        ))
    }

    /// As [`DirBlockEdit::open`] for a block that was checked before: see [`DirBlock::checked_before`]. The caller writes the
    /// checksum later; the changes do not.
    #[must_use]
    pub fn open_checked_before(
        sb: &'a Superblock,
        form: DirForm,
        block: FileBlock,
        raw: &'a mut [u8],
    ) -> Self {
        let looks = DirBlock::checked_before(sb, form, block, raw);
        let looks = (looks.kind, looks.format, looks.covered);
        Self::begin(sb, form, block, (looks, Seals::Later), raw)
    }

    fn begin(
        sb: &'a Superblock,
        form: DirForm,
        block: FileBlock,
        ((kind, format, covered), seals): ((DirBlockKind, Format, usize), Seals<'a>),
        raw: &'a mut [u8],
    ) -> Self {
        let bytes = raw
            .get_mut(..num::usize32(sb.block_size()))
            .unwrap_or(&mut []);
        let mut this = Self {
            sb,
            block,
            bytes,
            kind,
            format,
            covered,
            seals,
        };
        // Without checksums an inner node of the tree looks like an empty leaf; its limit field distinguishes them.
        let is_leaf = kind == DirBlockKind::Linear && form == DirForm::Hashed;
        if is_leaf && dx::looks_like_node(sb, this.bytes) {
            this.kind = DirBlockKind::DxNode;
        }
        this
    }

    /// Checks one part of an inline directory, as [`DirBlock::parse_inline`] takes it, and opens it for changes.
    ///
    /// # Errors
    /// As [`DirBlock::parse_inline`].
    pub fn open_inline(sb: &'a Superblock, dir: &'a Inode, part: &'a mut [u8]) -> Result<Self> {
        DirBlock::parse_inline(sb, dir, part)?;
        Ok(Self::of_inline(sb, dir, part))
    }

    /// As [`DirBlockEdit::open_inline`] for a part that was checked before.
    pub(super) fn of_inline(sb: &'a Superblock, dir: &'a Inode, part: &'a mut [u8]) -> Self {
        Self {
            sb,
            block: FileBlock::new(0),
            kind: DirBlockKind::Inline,
            format: Format::of_inline(sb),
            covered: part.len(),
            bytes: part,
            seals: Seals::AtOnce(dir),
        }
    }

    /// Inserts a name into the first record with room for it: an unused record, or the space after a name.
    ///
    /// # Errors
    /// `Rule` and `Value` for a name or a number that no entry can have.
    pub fn insert(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: FileType,
    ) -> core::result::Result<Inserted, Unfit> {
        check_name(name)?;
        self.check_ino(ino)?;
        if let Some(there) = self.view().find(name) {
            return Ok(Inserted::Exists(there.ino));
        }
        self.insert_new(name, ino, kind)
    }

    /// As [`DirBlockEdit::insert`] for a name that the caller knows is not in the block.
    ///
    /// # Errors
    /// As [`DirBlockEdit::insert`].
    pub fn insert_new(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: FileType,
    ) -> core::result::Result<Inserted, Unfit> {
        self.insert_from(0, name, ino, kind)
    }

    /// As [`DirBlockEdit::insert_new`], into the first record with room from the one at `offset` on, where [`DirBlock::seek`] has
    /// found room.
    ///
    /// # Errors
    /// As [`DirBlockEdit::insert`].
    pub fn insert_from(
        &mut self,
        offset: u32,
        name: &[u8],
        ino: Ino,
        kind: FileType,
    ) -> core::result::Result<Inserted, Unfit> {
        check_name(name)?;
        self.check_ino(ino)?;
        let need = record_size(name.len());
        let bytes = self.bytes.get(..self.covered).unwrap_or(&[]);
        let splittable = matches!(self.kind, DirBlockKind::Linear | DirBlockKind::Inline);
        let place = walk::find_room(bytes, self.format, need, offset).filter(|_| splittable);
        let Some((offset, len, used)) = place else {
            return Ok(Inserted::Full);
        };
        let slot = Slot { offset, len };
        if used > 0 {
            self.put_len(slot.offset, used);
        }
        let new = Slot {
            offset: slot.offset.saturating_add(used),
            len: slot.len.saturating_sub(used),
        };
        put_record(self.bytes, self.format, new, ino, name, kind);
        self.seal();
        Ok(Inserted::At(new.offset))
    }

    /// Removes a name and returns its inode. Its space goes to the record before it; the first record stays, unused.
    ///
    /// # Errors
    /// `Rule` for "." and "..".
    pub fn remove(&mut self, name: &[u8]) -> core::result::Result<Option<Ino>, Unfit> {
        check_name(name)?;
        let bytes = self.bytes.get(..self.covered).unwrap_or(&[]);
        Ok(walk::find_with_before(bytes, self.format, name).map(|at| self.take_out(at)))
    }

    /// As [`DirBlockEdit::remove`], for a name whose record and the record before it [`DirBlock::seek`] has found. The block is
    /// searched only if the name is there no more.
    ///
    /// # Errors
    /// As [`DirBlockEdit::remove`].
    pub fn remove_at(
        &mut self,
        at: (Option<u32>, u32),
        name: &[u8],
    ) -> core::result::Result<Option<Ino>, Unfit> {
        check_name(name)?;
        let bytes = self.bytes.get(..self.covered).unwrap_or(&[]);
        let there = walk::is_at(bytes, self.format, name, at);
        let there = there.or_else(|| walk::find_with_before(bytes, self.format, name));
        Ok(there.map(|at| self.take_out(at)))
    }

    fn take_out(&mut self, (before, slot): (Option<Slot>, Slot)) -> Ino {
        let at = num::usize32(slot.offset).saturating_add(de::INODE);
        let ino = Ino::new(le32(self.bytes, at));
        if let Some(before) = before {
            self.put_len(before.offset, before.len.saturating_add(slot.len));
        }
        self.wipe(slot.offset, slot.len);
        // Also if the record before it takes its space: if a torn write separates the two changes, this record is unused but
        // still leads to the next one.
        self.put_len(slot.offset, slot.len);
        self.seal();
        ino
    }

    /// Points a name, also "..", to another inode; returns the former one, or `None` if the name is not here.
    ///
    /// # Errors
    /// `Value` for a number that no entry can have.
    pub fn replace(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: FileType,
    ) -> core::result::Result<Option<Ino>, Unfit> {
        self.check_ino(ino)?;
        let Some((offset, old)) = self.view().find(name).map(|e| (e.offset, e.ino)) else {
            return Ok(None);
        };
        let at = num::usize32(offset);
        put_le32(self.bytes, at.saturating_add(de::INODE), ino.get());
        if self.format.has_type {
            put(
                self.bytes,
                at.saturating_add(de::FILE_TYPE),
                &[kind.to_dirent()],
            );
        }
        self.seal();
        Ok(Some(old))
    }

    fn view(&self) -> DirBlock<'_> {
        DirBlock {
            bytes: self.bytes,
            kind: self.kind,
            format: self.format,
            covered: self.covered,
        }
    }

    fn check_ino(&self, ino: Ino) -> core::result::Result<(), Unfit> {
        if ino.is_none() {
            return rule("the inode's number is 0");
        }
        let max = self.sb.geometry().inodes_count();
        fit("an entry's inode", u64::from(ino.get()), u64::from(max))
    }

    fn put_len(&mut self, offset: u32, len: u32) {
        let at = num::usize32(offset).saturating_add(de::REC_LEN);
        put_le16(self.bytes, at, stored_len(self.format, len));
    }

    fn wipe(&mut self, offset: u32, len: u32) {
        let start = num::usize32(offset);
        let end = start.saturating_add(num::usize32(len));
        self.bytes.get_mut(start..end).unwrap_or(&mut []).fill(0);
    }

    fn seal(&mut self) {
        let Seals::AtOnce(dir) = self.seals else {
            return;
        };
        match self.kind {
            DirBlockKind::Linear => seal(self.sb, dir, self.bytes),
            DirBlockKind::DxRoot | DirBlockKind::DxNode => {
                // Limit and count were checked when the block was opened.
                let _ = dx::seal(self.sb, dir, self.block, self.bytes);
            }
            DirBlockKind::Inline => {}
        }
    }
}

/// Fills `raw` with an empty block of the directory.
///
/// # Errors
/// `Short`.
pub fn init_block(sb: &Superblock, dir: &Inode, raw: &mut [u8]) -> core::result::Result<(), Unfit> {
    let (b, format) = (blank(sb, raw)?, Format::of(sb));
    put_le16(b, de::REC_LEN, stored_len(format, entries_len(sb)));
    finish(sb, dir, b);
    Ok(())
}

/// Fills `raw` with the first block of a new directory: "." and "..".
///
/// # Errors
/// `Short`.
pub fn init_first_block(
    sb: &Superblock,
    dir: &Inode,
    parent: Ino,
    raw: &mut [u8],
) -> core::result::Result<(), Unfit> {
    let (b, format) = (blank(sb, raw)?, Format::of(sb));
    let dot = Slot {
        offset: 0,
        len: MIN_RECORD,
    };
    let dotdot = Slot {
        offset: MIN_RECORD,
        len: entries_len(sb).saturating_sub(MIN_RECORD),
    };
    put_record(b, format, dot, dir.ino, b".", FileType::Directory);
    put_record(b, format, dotdot, parent, b"..", FileType::Directory);
    finish(sb, dir, b);
    Ok(())
}

/// Writes the checksum into the record at the end of a block of entries. Does nothing without metadata_csum.
pub fn seal(sb: &Superblock, dir: &Inode, block: &mut [u8]) {
    seal_with(sb, dir.csum_seed(), block);
}

/// As [`seal`], with the seed of the directory's checksums.
pub fn seal_with(sb: &Superblock, seed: u32, block: &mut [u8]) {
    if sb.has_metadata_csum() {
        let b = block
            .get_mut(..num::usize32(sb.block_size()))
            .unwrap_or(&mut []);
        let at = b.len().saturating_sub(de_tail::SIZE);
        let sum = checksum(seed, b);
        put_le32(b, at.saturating_add(de_tail::CHECKSUM), sum);
    }
}

fn blank<'a>(sb: &Superblock, raw: &'a mut [u8]) -> core::result::Result<&'a mut [u8], Unfit> {
    let b = room("a directory block", raw, num::usize32(sb.block_size()))?;
    b.fill(0);
    Ok(b)
}

/// Bytes of a block that entries can take.
#[must_use]
pub fn entries_len(sb: &Superblock) -> u32 {
    let tail = if sb.has_metadata_csum() {
        de_tail::SIZE
    } else {
        0
    };
    sb.block_size().saturating_sub(num::count32(tail))
}

/// Writes the record for the checksum, and the checksum.
pub(super) fn finish(sb: &Superblock, dir: &Inode, b: &mut [u8]) {
    if sb.has_metadata_csum() {
        let at = b.len().saturating_sub(de_tail::SIZE);
        let tail = b.get_mut(at..).unwrap_or(&mut []);
        put_le16(
            tail,
            de_tail::REC_LEN,
            num::low16(num::count32(de_tail::SIZE)),
        );
        put(tail, de_tail::FILE_TYPE, &[TAIL_TYPE]);
        seal(sb, dir, b);
    }
}

pub(super) fn put_record(
    b: &mut [u8],
    format: Format,
    at: Slot,
    ino: Ino,
    name: &[u8],
    kind: FileType,
) {
    let start = num::usize32(at.offset);
    let size = num::usize32(record_size(name.len()));
    let e = b
        .get_mut(start..start.saturating_add(size))
        .unwrap_or(&mut []);
    e.fill(0);
    put_le32(e, de::INODE, ino.get());
    put_le16(e, de::REC_LEN, stored_len(format, at.len));
    // At most 255, so the byte after it is the type, or the zero upper half of the length.
    put_le16(e, de::NAME_LEN, num::low16(num::count32(name.len())));
    if format.has_type {
        put(e, de::FILE_TYPE, &[kind.to_dirent()]);
    }
    put(e, de::SIZE, name);
}

/// A record length as stored; only the length of a whole 64 KiB block does not fit in 16 bits.
pub(super) fn stored_len(format: Format, len: u32) -> u16 {
    if format.huge_block && len > u32::from(u16::MAX) {
        return u16::MAX;
    }
    num::low16(len)
}

fn rule<T>(why: &'static str) -> core::result::Result<T, Unfit> {
    Err(Unfit::Rule {
        what: "a directory entry",
        why,
    })
}

pub(super) fn check_name(name: &[u8]) -> core::result::Result<(), Unfit> {
    if name.is_empty() {
        return rule("the name is empty");
    }
    if name == b"." || name == b".." {
        return rule("\".\" and \"..\" stay");
    }
    if name.iter().any(|c| *c == 0 || *c == b'/') {
        return rule("the name has a NUL or a slash");
    }
    fit(
        "a name's length",
        num::wide(name.len()),
        num::wide(MAX_NAME),
    )
}
