//! Writes attributes back, with one removed, added or changed.
//! Input: checked entries, one of them removed or new. Output: an inode's area or a block, packed: entries from the front,
//! values from the back, both in order. Invariant: what is packed parses to the same entries; an inode's area without
//! attributes is zeros. Limit: entries that do not fit are refused. Source: the kernel's ext4 documentation, "extended
//! attributes"; the header's hash compared with blocks that the kernel made.

use crate::error::{Unfit, room};
use crate::inode::Inode;
use crate::layout::{xe, xh};
use crate::le::{put, put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::FsBlock;

use super::{MAGIC, NameIndex, XattrEntry, XattrValue, Xattrs, entry_hash, set_refcount};

/// Bytes of an inode's area that are not entries: the magic number, and the zeros after the last entry.
const AROUND: usize = 8;

type Packed = core::result::Result<(), Unfit>;

/// Writes the attributes after an inode's fields; `raw` is what the inode was parsed from; its checksum is not updated. On an
/// error nothing changes.
///
/// # Errors
/// `Rule` if they do not fit.
pub fn write_inode(inode: &Inode, entries: &[XattrEntry<'_>], raw: &mut [u8]) -> Packed {
    let Some(area) = inode.xattr_area().and_then(|r| raw.get_mut(r)) else {
        return pack(&mut [], 0, entries);
    };
    let mut new = vec![0; area.len()];
    if !entries.is_empty() {
        put_le32(&mut new, 0, MAGIC);
        pack(new.get_mut(4..).unwrap_or(&mut []), 0, entries)?;
    }
    put(area, 0, &new);
    Ok(())
}

/// Writes an attribute block with its checksum. On an error nothing changes.
///
/// # Errors
/// `Short`; `Rule` if they do not fit.
pub fn write_block(
    sb: &Superblock,
    block: FsBlock,
    entries: &[XattrEntry<'_>],
    refcount: u32,
    raw: &mut [u8],
) -> Packed {
    let what = "a block of extended attributes";
    let b = room(what, raw, num::usize32(sb.block_size()))?;
    let mut new = vec![0; b.len()];
    pack(&mut new, xh::SIZE, entries)?;
    put_le32(&mut new, xh::MAGIC, MAGIC);
    put_le32(&mut new, xh::BLOCKS, 1);
    put_le32(&mut new, xh::HASH, block_hash(entries));
    put(b, 0, &new);
    set_refcount(sb, block, b, refcount)
}

/// The hash over all entries' hashes; 0, which is never shared, if an entry has none.
#[must_use]
pub fn block_hash(entries: &[XattrEntry<'_>]) -> u32 {
    if entries.iter().any(|e| e.hash == 0) {
        return 0;
    }
    entries
        .iter()
        .fold(0u32, |hash, e| hash.rotate_left(16) ^ e.hash)
}

impl<'a> XattrEntry<'a> {
    /// An attribute with its value in the same area.
    #[must_use]
    pub fn new(index: NameIndex, name: &'a [u8], value: &'a [u8]) -> Self {
        Self {
            index,
            name,
            value: XattrValue::Bytes(value),
            hash: entry_hash(name, value),
        }
    }
}

impl<'a> Xattrs<'a> {
    /// All entries with one added, or with a new value of one, in the order of blocks.
    #[must_use]
    pub fn with(&self, new: XattrEntry<'a>) -> Vec<XattrEntry<'a>> {
        let others = self.without(new.index, new.name);
        let mut all = others.unwrap_or_else(|| self.entries.clone());
        all.push(new);
        all.sort_by_key(|e| (e.index, e.name.len(), e.name));
        all
    }

    /// All entries but one; `None` if it does not exist.
    #[must_use]
    pub fn without(&self, index: NameIndex, name: &[u8]) -> Option<Vec<XattrEntry<'a>>> {
        self.get(index, name)?;
        let others = self.entries.iter().copied();
        Some(
            others
                .filter(|e| e.index != index || e.name != name)
                .collect(),
        )
    }

    /// The longest value, in multiples of 4, with which an attribute fits into the inode next to the others of these. None: not
    /// even an empty value fits.
    #[must_use]
    pub fn room_for(&self, inode: &Inode, (index, name): (NameIndex, &[u8])) -> Option<usize> {
        let area = inode.xattr_area()?.len();
        let new = XattrEntry::new(index, name, &[]);
        let others = self.entries.iter();
        let others = others.filter(|e| e.index != index || e.name != name);
        let taken = others.chain([&new]).map(XattrEntry::packed_len);
        Some(area.checked_sub(taken.fold(AROUND, usize::saturating_add))? & !3)
    }
}

impl XattrEntry<'_> {
    /// Whether it fits alone into this many bytes of an inode.
    pub(crate) fn fits_in(&self, area: usize) -> bool {
        self.packed_len().saturating_add(AROUND) <= area
    }

    /// Bytes of the entry and, if it is in the same area, of the value.
    fn packed_len(&self) -> usize {
        let value = match self.value {
            XattrValue::Inode { .. } => 0,
            XattrValue::Bytes(value) => up(value.len()),
        };
        up(xe::SIZE.saturating_add(self.name.len())).saturating_add(value)
    }
}

/// Writes entries from `base` on, values from the end.
fn pack(bytes: &mut [u8], base: usize, entries: &[XattrEntry<'_>]) -> Packed {
    let (mut at, mut values) = (base, bytes.len());
    for entry in entries {
        let len = up(xe::SIZE.saturating_add(entry.name.len()));
        let (number, size, value): (u32, usize, &[u8]) = match entry.value {
            XattrValue::Inode { ino, size } => (ino.get(), num::usize32(size), &[]),
            XattrValue::Bytes(value) => (0, value.len(), value),
        };
        values = values.saturating_sub(up(value.len()));
        // Four zero bytes follow the last entry.
        if at.saturating_add(len).saturating_add(4) > values {
            return Err(Unfit::Rule {
                what: "extended attributes",
                why: "more than there is room for",
            });
        }
        let slot = bytes.get_mut(at..).unwrap_or(&mut []);
        let name_len = u8::try_from(entry.name.len()).unwrap_or(u8::MAX);
        put(slot, xe::NAME_LEN, &[name_len, entry.index.0]);
        let offset = if value.is_empty() { 0 } else { values };
        put_le16(
            slot,
            xe::VALUE_OFFS,
            num::low16(num::sat32(num::wide(offset))),
        );
        put_le32(slot, xe::VALUE_INUM, number);
        put_le32(slot, xe::VALUE_SIZE, num::sat32(num::wide(size)));
        put_le32(slot, xe::HASH, entry.hash);
        put(slot, xe::SIZE, entry.name);
        put(bytes, values, value);
        at = at.saturating_add(len);
    }
    Ok(())
}

/// Rounded up to 4.
fn up(len: usize) -> usize {
    len.saturating_add(3) & !3
}
