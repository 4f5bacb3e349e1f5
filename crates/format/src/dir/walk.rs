//! Iterates over the records of a checked directory block.
//! Input: the bytes with entries. Output: an iterator of [`DirEntry`]. Invariant: it never panics and always advances; for
//! checked bytes it returns every record. Source: the kernel's ext4 documentation, "directory entries"; the 64 KiB encoding
//! found by experiment with mke2fs -b 65536.

use crate::inode::FileType;
use crate::layout::de;
use crate::le::{le16, le32, u8_at};
use crate::num;
use crate::types::Ino;

use super::Format;
use crate::record::record_len;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode; 0 for an unused record.
    pub ino: Ino,
    /// The name, 1..=255 bytes (anything for an unused record).
    pub name: &'a [u8],
    /// The stored file type; `None` if the volume stores none, or for an unknown one.
    pub file_type: Option<FileType>,
    /// Byte of the record within its block.
    pub offset: u32,
    /// Bytes to the next record.
    pub rec_len: u32,
}

/// Where a name is, or where it would go: see [`super::DirBlock::seek`]. Numbers are bytes of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// The name's inode and record, and the record before it.
    At {
        /// The inode that the name refers to.
        ino: Ino,
        /// The record.
        offset: u32,
        /// The record before it; `None` for the first one.
        before: Option<u32>,
    },
    /// The name is not there; this is the first record with room for it.
    Room(u32),
    /// The name is not there, and no record has room for it.
    Full,
}

/// The position of a record.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) offset: u32,
    pub(super) len: u32,
}

/// Bytes that an entry with a name of this length needs: the fixed part and the name, in multiples of 4.
#[must_use]
pub fn record_size(name_len: usize) -> u32 {
    num::count32(de::SIZE.saturating_add(name_len)).saturating_add(3) & !3
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

    /// The same, beginning with the record at this byte.
    pub(super) fn from(self, offset: u32) -> Self {
        Self { offset, ..self }
    }
}

/// Iterates over the fixed parts of records with their positions: what the searches need.
struct Heads<'a> {
    bytes: &'a [u8],
    huge_block: bool,
    /// The bits of a name's stored length that belong to it: the upper eight are none where a type is stored.
    len_bits: u16,
    offset: u32,
}

/// The fixed part of a record.
#[derive(Clone, Copy)]
struct Head {
    offset: u32,
    used: bool,
    rec_len: u32,
    name_len: u16,
}

impl Iterator for Heads<'_> {
    type Item = Head;

    #[inline]
    fn next(&mut self) -> Option<Head> {
        let rest = self.bytes.get(num::usize32(self.offset)..)?;
        let (lens, ino) = num::split(u64::from_le_bytes(*rest.first_chunk::<{ de::SIZE }>()?));
        let (name_len, rec_len) = num::halves(lens);
        let rec_len = record_len(rec_len, self.huge_block);
        let head = Head {
            offset: self.offset,
            used: ino != 0,
            rec_len,
            name_len: name_len & self.len_bits,
        };
        self.offset = head.end();
        Some(head)
    }
}

fn heads(bytes: &[u8], format: Format) -> Heads<'_> {
    heads_from(bytes, format, 0)
}

/// As [`heads`], beginning with the record at this byte.
fn heads_from(bytes: &[u8], format: Format, offset: u32) -> Heads<'_> {
    Heads {
        bytes,
        huge_block: format.huge_block,
        len_bits: if format.has_type { 0xFF } else { u16::MAX },
        offset,
    }
}

/// See [`super::DirBlock::seek`].
pub(super) fn seek(bytes: &[u8], format: Format, name: &[u8]) -> Sought {
    // The more bytes of a name are compared at once, the fewer other names look like it.
    if let Some(last) = name.last_chunk::<8>() {
        return seek_by(bytes, format, (name, last));
    }
    if let Some(last) = name.last_chunk::<4>() {
        return seek_by(bytes, format, (name, last));
    }
    let last = name.last_chunk::<1>().unwrap_or(&[0]);
    seek_by(bytes, format, (name, last))
}

/// As [`seek`], for a name with its last bytes.
fn seek_by<const N: usize>(
    bytes: &[u8],
    format: Format,
    (name, last): (&[u8], &[u8; N]),
) -> Sought {
    let need = record_size(name.len());
    let mut stops = Stops {
        last,
        last_at: de::SIZE.saturating_add(name.len()).saturating_sub(N),
        // A name has a byte at least.
        roomy: need.saturating_add(super::MIN_RECORD),
        all: format.huge_block,
    };
    let (mut before, mut offset, mut room) = (None, 0, None);
    while let Some((passed, at)) = stops.next(bytes, offset) {
        let Some(head) = heads_from(bytes, format, at).next() else {
            break;
        };
        before = passed.or(before);
        if head.is_of(bytes, name) {
            let at = num::usize32(head.offset).saturating_add(de::INODE);
            return Sought::At {
                ino: Ino::new(le32(bytes, at)),
                offset: head.offset,
                before,
            };
        }
        if room.is_none() && head.room() >= need {
            room = Some(head.offset);
            stops.roomy = u32::MAX;
        }
        before = Some(head.offset);
        offset = head.end();
    }
    room.map_or(Sought::Full, Sought::Room)
}

/// Which records a search looks at: those that may have its name, or room. It passes the others in a few instructions each, as this is most
/// of the work of a change of names.
struct Stops<'a, const N: usize> {
    /// The last bytes of the name, which mostly distinguish names of one length, and their place in a record with that name.
    last: &'a [u8; N],
    last_at: usize,
    /// A record in use of this length may have room.
    roomy: u32,
    /// All records: their lengths are encoded.
    all: bool,
}

impl<const N: usize> Stops<'_, N> {
    /// The first of these records from the one at `offset` on, and the record that was passed before it. A function of its own, so that the
    /// loop has the processor's registers for itself.
    #[inline(never)]
    fn next(&self, bytes: &[u8], offset: u32) -> Option<(Option<u32>, u32)> {
        let (last, roomy) = (*self.last, self.roomy);
        let last_in = self.last_at..self.last_at.saturating_add(N);
        let mut rest = bytes.get(num::usize32(offset)..)?;
        let mut before = None;
        loop {
            let [i0, i1, i2, i3, r0, r1, _, _] = *rest.first_chunk::<{ de::SIZE }>()?;
            let rec_len = u32::from(u16::from_le_bytes([r0, r1]));
            let unused = [i0, i1, i2, i3] == [0; 4];
            // Behind the end of the last record is no name.
            let looks_like_it = rest.get(last_in.clone()).is_none_or(|end| *end == last);
            if looks_like_it || rec_len >= roomy || unused || self.all {
                break;
            }
            if rec_len < super::MIN_RECORD {
                return None;
            }
            before = Some(rest.len());
            rest = rest.get(num::usize32(rec_len)..)?;
        }
        let at = |left: usize| num::count32(bytes.len().saturating_sub(left));
        Some((before.map(at), at(rest.len())))
    }
}

/// The record at `offset` and the one before it, if they are next to each other and the first has this name.
pub(super) fn is_at(
    bytes: &[u8],
    format: Format,
    name: &[u8],
    (before, offset): (Option<u32>, u32),
) -> Option<(Option<Slot>, Slot)> {
    let slot = |head: Head| Slot {
        offset: head.offset,
        len: head.rec_len,
    };
    let here = heads_from(bytes, format, offset).next()?;
    let before = match before {
        Some(before) => Some(slot(heads_from(bytes, format, before).next()?)),
        None => None,
    };
    let end = before.map_or(0, |before| before.offset.saturating_add(before.len));
    (end == offset && here.is_of(bytes, name)).then_some((before, slot(here)))
}

/// The position of the record with this name.
pub(super) fn find(bytes: &[u8], format: Format, name: &[u8]) -> Option<u32> {
    heads(bytes, format)
        .find(|head| head.is_of(bytes, name))
        .map(|head| head.offset)
}

/// As [`find`], with the record before it: position and length of each.
pub(super) fn find_with_before(
    bytes: &[u8],
    format: Format,
    name: &[u8],
) -> Option<(Option<Slot>, Slot)> {
    let mut before = None;
    for head in heads(bytes, format) {
        let here = Slot {
            offset: head.offset,
            len: head.rec_len,
        };
        if head.is_of(bytes, name) {
            return Some((before, here));
        }
        before = Some(here);
    }
    None
}

impl Head {
    /// Where the next record begins.
    #[inline]
    fn end(&self) -> u32 {
        let len = self.rec_len.max(super::MIN_RECORD);
        self.offset.saturating_add(len)
    }

    /// The bytes of the record that its name does not take.
    #[inline]
    fn room(&self) -> u32 {
        let name = num::usize16(self.name_len);
        let used = if self.used { record_size(name) } else { 0 };
        self.rec_len.saturating_sub(used)
    }

    /// Whether the record has this name. Names of equal length mostly differ at the end, so the last four bytes are compared first.
    #[inline]
    fn is_of(&self, bytes: &[u8], name: &[u8]) -> bool {
        if num::usize16(self.name_len) != name.len() || !self.used {
            return false;
        }
        let start = num::usize32(self.offset).saturating_add(de::SIZE);
        let there = bytes.get(start..start.saturating_add(name.len()));
        there.is_some_and(|there| there.last_chunk::<4>() == name.last_chunk() && there == name)
    }
}

/// The first record, from the one at `offset` on, that has this many bytes after its name, or is unused: its position, its length, and
/// the used part of it.
pub(super) fn find_room(
    bytes: &[u8],
    format: Format,
    need: u32,
    offset: u32,
) -> Option<(u32, u32, u32)> {
    let mut all = heads_from(bytes, format, offset);
    let head = all.find(|head| head.room() >= need)?;
    let used = head.rec_len.saturating_sub(head.room());
    Some((head.offset, head.rec_len, used))
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

/// One byte, or two where no type is stored.
pub(super) fn name_len(slot: &[u8], has_type: bool) -> u16 {
    if has_type {
        u16::from(u8_at(slot, de::NAME_LEN))
    } else {
        le16(slot, de::NAME_LEN)
    }
}
