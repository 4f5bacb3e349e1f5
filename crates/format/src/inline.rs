//! Inline data: small files and directories stored inside the inode. Input: an inode flagged INLINE_DATA and the value of its
//! attribute `system.data`. Output: the two parts. Invariants: the parts together are no more than `size` bytes; only in a
//! regular file they may be fewer, and the rest is zeros. Limit: directories use bytes 0..4 for their parent
//! ([`crate::dir::inline_parent`]). Source: the kernel's ext4 documentation, "inline data"; how mke2fs stores files of zeros.

use crate::error::{Corrupt, Result, bad};
use crate::inode::{I_BLOCK_SIZE, Inode, MapKind};
use crate::num;
use crate::xattr::{NameIndex, XattrEntry};

/// The attribute for the data that does not fit into `i_block`.
pub const REST: (NameIndex, &[u8]) = (NameIndex::SYSTEM, b"data");

/// The entry of that attribute: without a hash, as the kernel writes it.
#[must_use]
pub fn rest_entry(value: &[u8]) -> XattrEntry<'_> {
    let (index, name) = REST;
    XattrEntry {
        hash: 0,
        ..XattrEntry::new(index, name, value)
    }
}

/// A file's inline data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlineData<'a> {
    /// The first 60 bytes, or fewer.
    pub head: &'a [u8],
    /// The bytes after them.
    pub tail: &'a [u8],
}

impl<'a> InlineData<'a> {
    /// The inline data of `inode`; `rest` is the value of `system.data`, empty if there is none. The size of a regular file may
    /// exceed the stored data by any amount: mke2fs stores nothing for a file that has only zeros or a hole.
    ///
    /// # Errors
    /// `WrongMap` if the inode has no inline data, `InlineSize` if it is not a regular file and its size exceeds the stored
    /// data.
    pub fn new(inode: &'a Inode, rest: &'a [u8]) -> Result<Self> {
        if inode.map_kind() != MapKind::Inline {
            return bad(Corrupt::WrongMap {
                ino: inode.ino,
                what: "inline data",
            });
        }
        let size = num::index(inode.size);
        let in_head = size.min(I_BLOCK_SIZE);
        let in_tail = size.saturating_sub(I_BLOCK_SIZE);
        let tail = match inode.is_file() {
            true => rest.get(..in_tail.min(rest.len())),
            false => rest.get(..in_tail),
        };
        match (inode.i_block.get(..in_head), tail) {
            (Some(head), Some(tail)) => Ok(Self { head, tail }),
            _ => {
                let have = num::wide(rest.len().saturating_add(I_BLOCK_SIZE));
                bad(Corrupt::InlineSize {
                    ino: inode.ino,
                    size: inode.size,
                    have,
                })
            }
        }
    }

    /// The parts of a directory that hold entries: the head without the parent's inode number, and the tail.
    #[must_use]
    pub fn dir_parts(&self) -> [&'a [u8]; 2] {
        [self.head.get(4..).unwrap_or(&[]), self.tail]
    }

    /// Bytes in both parts: the size, or less in a regular file that continues with zeros.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len().saturating_add(self.tail.len())
    }

    /// Whether the file is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// Copies bytes from `offset` on into `out`; returns how many, fewer at the end of the data.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> usize {
        let skip = num::index(offset);
        let bytes = self.head.iter().chain(self.tail).skip(skip);
        let mut n = 0usize;
        for (to, from) in out.iter_mut().zip(bytes) {
            *to = *from;
            n = n.saturating_add(1);
        }
        n
    }
}
