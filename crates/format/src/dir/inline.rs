//! Changes to the names of an inline directory: insert, remove, point to another inode.
//! Input: the directory's inode and the value of its attribute `system.data`. Output: both parts, changed. Invariants:
//! [`DirBlock::parse_inline`] accepts each part, and no record crosses from one part into the other. Limits: "." and ".." are
//! not records here; the caller knows the maximum length of the second part.
//! Source: the kernel's ext4 documentation, "inline directories"; experiments with the kernel's mount, debugfs and e2fsck.

use crate::error::{Result, Unfit};
use crate::features::Incompat;
use crate::inline::{InlineData, rest_entry};
use crate::inode::{FileType, I_BLOCK_SIZE, Inode, InodeFlags, fresh_xattr_len};
use crate::layout::de;
use crate::le::{put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::Ino;

use super::{DirBlock, DirBlockEdit, Inserted, MIN_RECORD};

/// Bytes of the parent's inode number, before the first record.
const PARENT: usize = 4;

/// The names of an inline directory being changed.
#[derive(Debug, Clone)]
pub struct InlineDirEdit<'a> {
    sb: &'a Superblock,
    dir: &'a Inode,
    i_block: [u8; I_BLOCK_SIZE],
    /// Bytes of `i_block` that the directory's size covers.
    covered: usize,
    rest: Vec<u8>,
}

impl<'a> InlineDirEdit<'a> {
    /// Checks both parts; `rest` is the value of `system.data`, empty if there is none.
    ///
    /// # Errors
    /// The errors of [`InlineData::new`] and [`DirBlock::parse_inline`].
    pub fn open(sb: &'a Superblock, dir: &'a Inode, rest: &[u8]) -> Result<Self> {
        let data = InlineData::new(dir, rest)?;
        for part in data.dir_parts().into_iter().filter(|p| !p.is_empty()) {
            DirBlock::parse_inline(sb, dir, part)?;
        }
        Ok(Self {
            sb,
            dir,
            i_block: dir.i_block,
            covered: data.head.len(),
            rest: data.tail.to_vec(),
        })
    }

    /// Inserts a name that does not exist into the first record with room for it.
    ///
    /// # Errors
    /// As [`DirBlockEdit::insert_new`].
    pub fn insert_new(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: FileType,
    ) -> core::result::Result<Inserted, Unfit> {
        let inserted = self.first_of(|part| match part.insert_new(name, ino, kind)? {
            Inserted::Full => Ok(None),
            other => Ok(Some(other)),
        })?;
        Ok(inserted.unwrap_or(Inserted::Full))
    }

    /// Removes a name and returns its inode.
    ///
    /// # Errors
    /// As [`DirBlockEdit::remove`].
    pub fn remove(&mut self, name: &[u8]) -> core::result::Result<Option<Ino>, Unfit> {
        self.first_of(|part| part.remove(name))
    }

    /// Points a name to another inode; returns the former one, or `None` if the name is not here.
    ///
    /// # Errors
    /// As [`DirBlockEdit::replace`].
    pub fn replace(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: FileType,
    ) -> core::result::Result<Option<Ino>, Unfit> {
        self.first_of(|part| part.replace(name, ino, kind))
    }

    /// Extends the second part to `len` bytes, a multiple of 4, by extending its last record or adding the only one. Returns
    /// false, with nothing changed, if that would not make room.
    #[must_use]
    pub fn stretch(&mut self, len: usize) -> bool {
        let more = num::count32(len.saturating_sub(self.rest.len()));
        let last = DirBlock::parse_inline(self.sb, self.dir, &self.rest)
            .ok()
            .and_then(|part| part.slots().last().map(|e| (e.offset, e.rec_len)));
        let (offset, rec_len) = last.unwrap_or((0, 0));
        let longer = rec_len.saturating_add(more);
        let fits = longer >= MIN_RECORD && longer <= u32::from(u16::MAX);
        if more == 0 || len & 3 != 0 || !fits || self.covered < I_BLOCK_SIZE {
            return false;
        }
        self.rest.resize(len, 0);
        let at = num::usize32(offset).saturating_add(de::REC_LEN);
        put_le16(&mut self.rest, at, num::low16(longer));
        true
    }

    /// The new contents of `i_block` and `system.data`.
    #[must_use]
    pub fn into_parts(self) -> ([u8; I_BLOCK_SIZE], Vec<u8>) {
        (self.i_block, self.rest)
    }

    /// The first result of any part.
    fn first_of<R>(
        &mut self,
        mut ask: impl FnMut(&mut DirBlockEdit<'_>) -> core::result::Result<Option<R>, Unfit>,
    ) -> core::result::Result<Option<R>, Unfit> {
        let head = self.i_block.get_mut(PARENT..self.covered);
        for part in [head.unwrap_or(&mut []), &mut self.rest[..]] {
            let found = ask(&mut DirBlockEdit::of_inline(self.sb, self.dir, part))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// Whether new directories of this volume begin inline. They need room in the inode for an attribute without a value.
#[must_use]
pub fn begins_inline(sb: &Superblock) -> bool {
    let empty = rest_entry(&[]);
    sb.features().incompat.has(Incompat::INLINE_DATA) && empty.fits_in(fresh_xattr_len(sb))
}

/// Makes a new directory an inline one, without names. The caller adds the attribute `system.data`, with an empty value.
pub fn init_inline(dir: &mut Inode, parent: Ino) {
    let flags = dir.flags.without(InodeFlags::EXTENTS);
    dir.flags = flags.with(InodeFlags::INLINE_DATA);
    dir.i_block = [0; I_BLOCK_SIZE];
    put_le32(&mut dir.i_block, 0, parent.get());
    let only = num::count32(I_BLOCK_SIZE.saturating_sub(PARENT));
    let at = PARENT.saturating_add(de::REC_LEN);
    put_le16(&mut dir.i_block, at, num::low16(only));
    dir.size = num::wide(I_BLOCK_SIZE);
}
