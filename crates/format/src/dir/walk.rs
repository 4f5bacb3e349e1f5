//! Walking the records of a checked directory block.
//! Input: the bytes that hold entries. Output: an iterator of [`DirEntry`]. Invariant: it never panics and always
//! advances; on bytes that were checked it shows every record. Source: the kernel's ext4 documentation,
//! "directory entries"; the 64 KiB encoding found by experiment with mke2fs -b 65536.

use crate::inode::FileType;
use crate::layout::de;
use crate::le::{le16, le32, u8_at};
use crate::num;
use crate::types::Ino;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// What it names; 0 for an unused record.
    pub ino: Ino,
    /// The name, 1..=255 bytes (anything for an unused record).
    pub name: &'a [u8],
    /// The type stored beside it; `None` where the volume stores none, or an unknown one.
    pub file_type: Option<FileType>,
    /// Byte of the record within its block.
    pub offset: u32,
    /// Bytes to the next record.
    pub rec_len: u32,
}

/// Iterator over the records of a block.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    offset: u32,
    huge_block: bool,
    has_type: bool,
}

impl<'a> Entries<'a> {
    pub(super) fn new(bytes: &'a [u8], huge_block: bool, has_type: bool) -> Self {
        Self {
            bytes,
            offset: 0,
            huge_block,
            has_type,
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = DirEntry<'a>;

    fn next(&mut self) -> Option<DirEntry<'a>> {
        let slot = self
            .bytes
            .get(num::usize32(self.offset)..)
            .filter(|s| s.len() >= de::SIZE)?;
        let rec_len = record_len(le16(slot, de::REC_LEN), self.huge_block);
        let end = de::SIZE.saturating_add(num::usize16(name_len(slot, self.has_type)));
        let kind = if self.has_type {
            FileType::from_dirent(u8_at(slot, de::FILE_TYPE))
        } else {
            None
        };
        let entry = DirEntry {
            ino: Ino::new(le32(slot, de::INODE)),
            name: slot.get(de::SIZE..end).unwrap_or(&[]),
            file_type: kind,
            offset: self.offset,
            rec_len,
        };
        self.offset = self.offset.saturating_add(rec_len.max(super::MIN_RECORD));
        Some(entry)
    }
}

/// A stored record length. With 64 KiB blocks the two low bits, always clear in a length, hold bits 16 and 17, and
/// both 0 and 65,535 stand for the whole block.
pub(super) fn record_len(stored: u16, huge_block: bool) -> u32 {
    let v = u32::from(stored);
    if !huge_block {
        return v;
    }
    if stored == 0 || stored == u16::MAX {
        return 65536;
    }
    (v & 0xFFFC) | ((v & 3) << 16)
}

/// One byte, or two where no type is stored.
pub(super) fn name_len(slot: &[u8], has_type: bool) -> u16 {
    if has_type {
        u16::from(u8_at(slot, de::NAME_LEN))
    } else {
        le16(slot, de::NAME_LEN)
    }
}
