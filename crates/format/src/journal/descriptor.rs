//! Descriptor blocks: the volume's blocks that the next log blocks are copies of.
//! Input: a descriptor block and the log's form. Output: its [`Tag`]s, in the order of the copies.
//! Invariant: no tag reaches past the block (before its checksum, if it has one), so the count is bounded by its size.
//! Limit: block numbers are not compared with the volume's size here. Source: the kernel's documentation, "journal
//! (jbd2)"; tags of 10 and 14 bytes with v2 checksums, by experiment with debugfs `journal_open -v 2`.

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::le::{be16, be32};
use crate::num;
use crate::types::{FsBlock, Tid};

use super::block::{HEADER, LogForm};
use super::{JournalChecksum, MAGIC};

/// The copy begins with the journal's magic number, replaced by zeros in the log.
pub(super) const ESCAPED: u32 = 0x1;
/// No UUID follows the tag.
pub(super) const SAME_UUID: u32 = 0x2;
/// The block was deleted by this transaction.
const DELETED: u32 = 0x4;
/// The last tag.
pub(super) const LAST: u32 = 0x8;
pub(super) const UUID: usize = 16;

/// One copied block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The block that the copy belongs to.
    pub block: FsBlock,
    /// The copy's first four bytes were the magic number, and are zeros in the log.
    pub escaped: bool,
    /// Marked as deleted by the transaction; no writer is known to set it, and recovery ignores it.
    pub deleted: bool,
    /// The copy's checksum, if the log's blocks have any: 32 bits (v3), or the low 16 (v2).
    pub checksum: Option<u32>,
}

impl LogForm {
    /// Bytes of a tag without a UUID.
    pub(super) const fn tag_size(&self) -> usize {
        match (self.checksum, self.is_64bit) {
            (JournalChecksum::V3, _) => 16,
            (JournalChecksum::V2, true) => 14,
            (JournalChecksum::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// The tags of the descriptor block at block `at` of the log. The checksum is not checked: see [`Self::verify_descriptor`].
    ///
    /// # Errors
    /// `Short`.
    pub fn tags(&self, raw: &[u8]) -> Result<Vec<Tag>> {
        want("a descriptor block", raw, self.size())?;
        let (mut tags, mut at, size) = (Vec::new(), HEADER, self.tag_size());
        while at.saturating_add(size) <= self.entries_end() {
            let (tag, flags) = self.tag(raw.get(at..).unwrap_or(&[]));
            tags.push(tag);
            let uuid = if flags & SAME_UUID == 0 { UUID } else { 0 };
            at = at.saturating_add(size).saturating_add(uuid);
            if flags & LAST != 0 {
                break;
            }
        }
        Ok(tags)
    }

    /// The checksum of a copy as stored in the log: over its transaction's sequence, then the copy.
    pub(super) fn copy_sum(&self, sequence: Tid, copy: &[u8]) -> u32 {
        let sum = csum::crc32c(self.seed, &sequence.get().to_be_bytes());
        csum::crc32c(sum, copy)
    }

    fn tag(&self, b: &[u8]) -> (Tag, u32) {
        let (flags, checksum) = match self.checksum {
            JournalChecksum::V3 => (be32(b, 4), Some(be32(b, 12))),
            JournalChecksum::V2 => (u32::from(be16(b, 6)), Some(u32::from(be16(b, 4)))),
            JournalChecksum::V1 | JournalChecksum::None => (u32::from(be16(b, 6)), None),
        };
        let high = if self.is_64bit { be32(b, 8) } else { 0 };
        let tag = Tag {
            block: FsBlock::new(num::join(high, be32(b, 0))),
            escaped: flags & ESCAPED != 0,
            deleted: flags & DELETED != 0,
            checksum,
        };
        (tag, flags)
    }

    /// Compares a descriptor block with its checksum, if the log's blocks have any.
    ///
    /// # Errors
    /// `Short`, `JournalDescriptorChecksum` naming block `at` of the log.
    pub fn verify_descriptor(&self, at: u32, raw: &[u8]) -> Result<()> {
        want("a descriptor block", raw, self.size())?;
        match self.tail_sums(raw.get(..self.size()).unwrap_or(&[])) {
            Some((stored, computed)) if stored != computed => {
                bad(Corrupt::JournalDescriptorChecksum {
                    at,
                    stored,
                    computed,
                })
            }
            _ => Ok(()),
        }
    }
}

impl Tag {
    /// Compares the copy at block `at` of the log with the tag's checksum, over the sequence and the copy as stored in the log.
    ///
    /// # Errors
    /// `JournalCopyChecksum`.
    pub fn verify(&self, form: &LogForm, sequence: Tid, at: u32, copy: &[u8]) -> Result<()> {
        let Some(stored) = self.checksum else {
            return Ok(());
        };
        let full = form.copy_sum(sequence, copy);
        let computed = match form.checksum {
            JournalChecksum::V2 => full & 0xFFFF,
            _ => full,
        };
        if stored != computed {
            let block = self.block;
            return bad(Corrupt::JournalCopyChecksum {
                at,
                block,
                stored,
                computed,
            });
        }
        Ok(())
    }

    /// Restores the magic number of an escaped copy.
    pub fn unescape(&self, copy: &mut [u8]) {
        if let (true, Some(first)) = (self.escaped, copy.first_chunk_mut::<4>()) {
            *first = MAGIC.to_be_bytes();
        }
    }
}
