//! Splits a block of entries into one or two blocks with room for a new name, and copies the entries out of a directory's first
//! block.
//! Input: a checked block and a name that does not fit into it. Output: whole blocks with checksums, in memory. Invariant:
//! every entry is in exactly one of them, as it was stored. If there are two, the second has the higher hashes, and the
//! boundary lies between two hashes unless the entries fit only if names of one hash are separated. Limit: a block with one
//! entry has room for a second, so there are at least two entries to divide.
//! Source: the kernel's ext4 documentation, "hash tree directories"; bit 0 of the boundary from FreeBSD's ext2fs (BSD licence).

use crate::error::{Unfit, fit};
use crate::inode::{FileType, Inode};
use crate::layout::de;
use crate::le::{put, put_le16};
use crate::num;
use crate::superblock::Superblock;
use crate::types::Ino;

use super::edit::{check_name, entries_len, finish, put_record, stored_len};
use super::walk::{Slot, record_size};
use super::{DirBlock, Format};
use std::borrow::Cow;

type Fitted<T> = core::result::Result<T, Unfit>;

/// The result: a block's entries and a new name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// The block, or its part with the lower hashes.
    pub low: Vec<u8>,
    /// The part with the higher hashes, if there are two.
    pub high: Option<High>,
    /// Whether the new name is in the high part.
    pub in_high: bool,
}

/// The part with the higher hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct High {
    /// Its lowest hash; with bit 0 set, names of that hash are also in the lower part.
    pub from: u32,
    /// The block.
    pub block: Vec<u8>,
}

/// An entry being moved: its hash, and its record without the space after the name.
struct Moving<'a> {
    hash: u32,
    record: Cow<'a, [u8]>,
    is_new: bool,
}

impl Moving<'_> {
    fn size(&self) -> u32 {
        num::count32(self.record.len())
    }
}

/// Inserts a name into a block in which no record has room for it: packs the block if that makes room, otherwise splits it by
/// hash. Omits "." and "..".
///
/// # Errors
/// `Rule` and `Value` for a name that no entry can have.
pub fn spread(
    sb: &Superblock,
    dir: &Inode,
    block: &DirBlock<'_>,
    hash: impl Fn(&[u8]) -> u32,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Fitted<Spread> {
    check_name(name)?;
    let names = block
        .entries()
        .filter(|e| e.name != b"." && e.name != b"..");
    let mut all: Vec<Moving<'_>> = names
        .map(|e| Moving {
            hash: hash(e.name),
            record: Cow::Borrowed(stored(block, e.offset, e.name)),
            is_new: false,
        })
        .collect();
    all.push(Moving {
        hash: hash(name),
        record: Cow::Owned(record(sb, ino, name, kind)),
        is_new: true,
    });
    all.sort_by_key(|m| m.hash);
    let sum: u32 = all.iter().map(Moving::size).sum();
    if sum <= entries_len(sb) {
        let low = pack(sb, dir, &all);
        return Ok(Spread {
            low,
            high: None,
            in_high: false,
        });
    }
    let at = boundary(&all, sum, entries_len(sb));
    let (low, high) = all.split_at(at.min(all.len()));
    let goes_on = |first: &Moving<'_>| low.last().is_some_and(|last| last.hash == first.hash);
    let from = high
        .first()
        .map_or(0, |first| first.hash | u32::from(goes_on(first)));
    Ok(Spread {
        low: pack(sb, dir, low),
        in_high: high.iter().any(|m| m.is_new),
        high: Some(High {
            from,
            block: pack(sb, dir, high),
        }),
    })
}

/// A block with one name in it.
///
/// # Errors
/// `Rule` and `Value` for a name that no entry can have.
pub fn block_with(
    sb: &Superblock,
    dir: &Inode,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Fitted<Vec<u8>> {
    block_of(sb, dir, &[(name, ino, kind)])
}

/// A block with these names in it, in this order. They fit if the sum of their [`super::record_size`] is at most
/// [`super::entries_len`].
///
/// # Errors
/// `Rule` and `Value` for a name that no entry can have; `Value` if they do not fit.
pub fn block_of(sb: &Superblock, dir: &Inode, names: &[(&[u8], Ino, FileType)]) -> Fitted<Vec<u8>> {
    let mut all = Vec::with_capacity(names.len());
    for (name, ino, kind) in names {
        check_name(name)?;
        all.push(Moving {
            hash: 0,
            record: Cow::Owned(record(sb, *ino, name, *kind)),
            is_new: true,
        });
    }
    let sum: u32 = all.iter().map(Moving::size).sum();
    fit(
        "a directory block's entries",
        u64::from(sum),
        u64::from(entries_len(sb)),
    )?;
    Ok(pack(sb, dir, &all))
}

/// How many entries stay in the lower part: the parts as equal as possible, divided between two hashes if both parts fit then.
fn boundary(all: &[Moving<'_>], sum: u32, most: u32) -> usize {
    let mut best: Option<((bool, u32), usize)> = None;
    let mut low = 0u32;
    for (at, pair) in all.windows(2).enumerate() {
        let [before, next] = pair else { continue };
        low = low.saturating_add(before.size());
        let larger = low.max(sum.saturating_sub(low));
        if larger <= most {
            let rank = (before.hash == next.hash, larger);
            if best.is_none_or(|(found, _)| rank < found) {
                best = Some((rank, at.saturating_add(1)));
            }
        }
    }
    // An entry is at most 264 bytes, so every block can be divided into two parts that fit: see the module.
    best.map_or(1, |(_, at)| at)
}

fn stored<'a>(block: &DirBlock<'a>, offset: u32, name: &[u8]) -> &'a [u8] {
    let start = num::usize32(offset);
    let end = start.saturating_add(num::usize32(record_size(name.len())));
    block.bytes.get(start..end).unwrap_or(&[])
}

fn record(sb: &Superblock, ino: Ino, name: &[u8], kind: FileType) -> Vec<u8> {
    let len = record_size(name.len());
    let mut bytes = vec![0; num::usize32(len)];
    put_record(
        &mut bytes,
        Format::of(sb),
        Slot { offset: 0, len },
        ino,
        name,
        kind,
    );
    bytes
}

/// A block of these entries in sequence; the last record gets the remaining space.
fn pack(sb: &Superblock, dir: &Inode, all: &[Moving<'_>]) -> Vec<u8> {
    let (format, end) = (Format::of(sb), entries_len(sb));
    let mut b = vec![0; num::usize32(sb.block_size())];
    let mut at = 0u32;
    for (n, moving) in all.iter().enumerate() {
        let is_last = n.saturating_add(1) == all.len();
        let size = moving.size();
        let len = if is_last {
            end.saturating_sub(at)
        } else {
            size
        };
        let start = num::usize32(at);
        put(&mut b, start, &moving.record);
        put_le16(
            &mut b,
            start.saturating_add(de::REC_LEN),
            stored_len(format, len),
        );
        at = at.saturating_add(size);
    }
    finish(sb, dir, &mut b);
    b
}
