//! Fast commits: records, in an area after the log, of changes since the last transaction.
//! Input: the area's blocks in their order, and the transaction that would have been next in the log. Output: [`FastCommits`],
//! the records of complete fast commits. Invariants: a fast commit counts if its checksum is valid, it names that transaction,
//! and all before it count; every length is bounded by its block; a record that is not understood is an error in a fast commit
//! that counts, and otherwise the end. Limits: inode and block numbers are not compared with a volume here. Source: the
//! kernel's ext4 documentation, "fast commits"; numbers and layouts of records, the extent of the checksum and the padding of
//! blocks by experiment with crash images of mounts with fast_commit.
//!
//! | tag | record | value |
//! |---|---|---|
//! | 1 | add range | inode, an entry of an extent tree's leaf |
//! | 2 | remove range | inode, first file block, count |
//! | 3, 4, 5 | create, link, unlink | directory, inode, name |
//! | 6 | inode | inode, its bytes without the attributes in it |
//! | 7 | pad | fills the block |
//! | 8 | tail | transaction, checksum; fills the block |
//! | 9 | head | features, transaction; at the area's start |
//!
//! All values are little-endian. A tag and a length of two bytes each precede the value. The checksum is a crc32c from 0, over
//! all bytes from the end of the previous tail to the checksum itself.

use crate::csum;
use crate::error::{Corrupt, FormatError, Result, Unsupported, bad};
use crate::extent::{Extent, decode_extent};
use crate::le::{le16, le32};
use crate::num;
use crate::types::{Ino, Tid};

use super::JournalSuper;

#[cfg(test)]
mod tests;

const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Bytes of a tag and a length.
const PREFIX: usize = 4;
/// Bytes of the values that have a fixed part.
const HEAD_LEN: usize = 8;
const TAIL_LEN: usize = 8;
const ADD_LEN: usize = 16;
const DEL_LEN: usize = 12;
const NAME_AT: usize = 8;
const INODE_AT: usize = 4;
/// The shortest inode.
const OLD_INODE: usize = 128;
/// The longest name.
const MOST_NAME: usize = 255;
/// Extents end at or before this block.
const LAST_END: u64 = 0xFFFF_FFFF;

/// A directory entry: a name and its inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastName {
    /// The directory.
    pub parent: Ino,
    /// The inode.
    pub ino: Ino,
    /// 1 to 255 bytes, without NUL and slash.
    pub name: Vec<u8>,
}

/// A recorded change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FastRecord {
    /// The inode gets this extent, which replaces what it had there. Its file blocks end below 2^32 - 1.
    AddRange {
        /// The inode.
        ino: Ino,
        /// The extent.
        extent: Extent,
    },
    /// Nothing remains mapped from `start` on, for `len` file blocks.
    RemoveRange {
        /// The inode.
        ino: Ino,
        /// First file block.
        start: u32,
        /// How many, possibly more than a file can have.
        len: u32,
    },
    /// A new inode got its first name.
    Create(FastName),
    /// An inode got another name.
    Link(FastName),
    /// A name was removed.
    Unlink(FastName),
    /// The new contents of an inode: its first bytes, 128 of them or more.
    Inode {
        /// Its number.
        ino: Ino,
        /// The bytes.
        raw: Vec<u8>,
    },
}

/// The records of one fast commit.
pub type FastCommit = Vec<FastRecord>;

/// The contents of an area.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FastCommits {
    /// The fast commits that count, in their order.
    pub commits: Vec<FastCommit>,
}

/// The scan of an area: see the module.
#[derive(Debug)]
pub struct FastScan {
    expected: Tid,
    at_start: bool,
    sum: u32,
    running: FastCommit,
    /// A record of the current fast commit is not understood.
    doubt: Option<FormatError>,
    whole: FastCommits,
}

/// The effect of a record on the scan.
enum Step {
    Record(FastRecord),
    Filler,
    Tail,
    End,
}

impl FastScan {
    /// A scan of an area whose records must name the transaction `expected`.
    #[must_use]
    pub fn new(expected: Tid) -> Self {
        Self {
            expected,
            at_start: true,
            sum: 0,
            running: Vec::new(),
            doubt: None,
            whole: FastCommits::default(),
        }
    }

    /// Parses the next block; returns false if nothing follows.
    ///
    /// # Errors
    /// `FastCommitRecord`, `Unsupported`: a record of a fast commit that counts is not understood.
    pub fn block(&mut self, block: &[u8]) -> Result<bool> {
        let mut at = 0usize;
        while at < block.len() {
            let rest = block.get(at..).unwrap_or(&[]);
            let len = num::usize16(le16(rest, 2));
            let end = PREFIX.saturating_add(len);
            let (Some(whole), Some(value)) = (rest.get(..end), rest.get(PREFIX..end)) else {
                return Ok(false);
            };
            match self.step(le16(rest, 0), value)? {
                Step::Record(record) => self.running.push(record),
                Step::Filler => {}
                Step::End => return Ok(false),
                Step::Tail => {
                    if !self.tail(whole, value)? {
                        return Ok(false);
                    }
                    at = at.saturating_add(end);
                    continue;
                }
            }
            self.sum = csum::crc32c(self.sum, whole);
            at = at.saturating_add(end);
        }
        Ok(true)
    }

    /// The result.
    #[must_use]
    pub fn finish(self) -> FastCommits {
        self.whole
    }

    fn step(&mut self, tag: u16, value: &[u8]) -> Result<Step> {
        if std::mem::replace(&mut self.at_start, false) {
            return self.head(tag, value);
        }
        let record = match tag {
            PAD => return Ok(Step::Filler),
            TAIL if value.len() >= TAIL_LEN => return Ok(Step::Tail),
            ADD_RANGE => add_range(value),
            DEL_RANGE => remove_range(value),
            CREATE => name(value).map(FastRecord::Create),
            LINK => name(value).map(FastRecord::Link),
            UNLINK => name(value).map(FastRecord::Unlink),
            INODE => inode(value),
            // Space that was never written.
            0 => return Ok(Step::End),
            _ => Err(unknown(format!("fast commit records with tag {tag}"))),
        };
        Ok(match record {
            Ok(record) => Step::Record(record),
            Err(wrong) => {
                self.doubt.get_or_insert(wrong);
                Step::Filler
            }
        })
    }

    /// The first record names the transaction of the whole area.
    fn head(&mut self, tag: u16, value: &[u8]) -> Result<Step> {
        if tag != HEAD || value.len() != HEAD_LEN || le32(value, 4) != self.expected.get() {
            return Ok(Step::End);
        }
        let features = le32(value, 0);
        if features != 0 {
            self.doubt = Some(unknown(format!("fast commit features {features:#x}")));
        }
        Ok(Step::Filler)
    }

    /// Whether the fast commit counts that ends with this record.
    fn tail(&mut self, whole: &[u8], value: &[u8]) -> Result<bool> {
        let summed = whole.get(..PREFIX.saturating_add(4)).unwrap_or(whole);
        let sum = csum::crc32c(std::mem::take(&mut self.sum), summed);
        if le32(value, 0) != self.expected.get() || le32(value, 4) != sum {
            return Ok(false);
        }
        if let Some(wrong) = self.doubt.take() {
            return Err(wrong);
        }
        self.whole.commits.push(std::mem::take(&mut self.running));
        Ok(true)
    }
}

fn unknown(feature: String) -> FormatError {
    FormatError::Unsupported(Unsupported {
        feature,
        read_only_would_do: false,
        help: "mount it once with the kernel that wrote it, or run e2fsck",
    })
}

fn wrong<T>(what: &'static str, value: &[u8]) -> Result<T> {
    bad(Corrupt::FastCommitRecord {
        what,
        len: num::count32(value.len()),
    })
}

fn add_range(value: &[u8]) -> Result<FastRecord> {
    let Some(raw) = value.get(4..ADD_LEN).filter(|_| value.len() == ADD_LEN) else {
        return wrong("an added range", value);
    };
    let extent = decode_extent(raw);
    if extent.len == 0 || extent.end() > LAST_END {
        return wrong("an added range", value);
    }
    Ok(FastRecord::AddRange {
        ino: Ino::new(le32(value, 0)),
        extent,
    })
}

fn remove_range(value: &[u8]) -> Result<FastRecord> {
    if value.len() != DEL_LEN {
        return wrong("a removed range", value);
    }
    Ok(FastRecord::RemoveRange {
        ino: Ino::new(le32(value, 0)),
        start: le32(value, 4),
        len: le32(value, 8),
    })
}

fn name(value: &[u8]) -> Result<FastName> {
    let name = value.get(NAME_AT..).unwrap_or(&[]);
    let fits = !name.is_empty() && name.len() <= MOST_NAME;
    let is_own = name == b"." || name == b"..";
    if !fits || is_own || name.iter().any(|c| matches!(c, 0 | b'/')) {
        return wrong("a name", value);
    }
    Ok(FastName {
        parent: Ino::new(le32(value, 0)),
        ino: Ino::new(le32(value, 4)),
        name: name.to_vec(),
    })
}

fn inode(value: &[u8]) -> Result<FastRecord> {
    let raw = value.get(INODE_AT..).unwrap_or(&[]);
    if raw.len() < OLD_INODE {
        return wrong("an inode", value);
    }
    Ok(FastRecord::Inode {
        ino: Ino::new(le32(value, 0)),
        raw: raw.to_vec(),
    })
}

impl JournalSuper {
    /// The first block of the fast-commit area, if there is one: one block between it and the log stays free.
    #[must_use]
    pub fn fast_commit_start(&self) -> Option<u32> {
        let start = self.log_end().saturating_add(1);
        (self.fast_commit_blocks() > 1 && start < self.maxlen).then_some(start)
    }
}
