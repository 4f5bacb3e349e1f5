//! Commit blocks: the transaction before them is complete.
//! Input: a commit block and the log's form; with v1 checksums also the blocks before it. Output: [`Commit`]. Invariant: only
//! the length is checked: a reader that finds a wrong checksum still needs the time, to tell the remains of an older log from
//! damage. Limit: v1 checksums are crc32 only, as every writer makes them.
//! Source: the kernel's documentation, "journal (jbd2)"; what the v1 sum covers, by experiment with debugfs and e2fsck.

use crate::csum;
use crate::error::{Result, want};
use crate::le::{be32, be64, u8_at};

use super::JournalChecksum;
use super::block::LogForm;

const CHECKSUM_TYPE: usize = 0xC;
const CHECKSUM_SIZE: usize = 0xD;
pub(super) const CHECKSUM: usize = 0x10;
pub(super) const SECONDS: usize = 0x30;
pub(super) const NANOSECONDS: usize = 0x38;
const SIZE: usize = 0x3C;
/// jbd2's code of crc32, and its length.
const CRC32: (u8, u8) = (1, 4);

/// The state of a commit block's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitSum {
    /// The log has no checksums, or this writer made none.
    None,
    /// It is valid.
    Good,
    /// It is not valid.
    Bad {
        /// As stored.
        stored: u32,
        /// As it should be.
        computed: u32,
    },
}

/// A commit block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds; not checked.
    pub nanoseconds: u32,
    /// Whether the checksum is valid: the transaction's with v1, the block's own with v2 and v3.
    pub sum: CommitSum,
}

/// The running v1 checksum of a transaction: its descriptor blocks and copies, in the order of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionSum(u32);

const CRC32_BE: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_MPEG_2);

impl Default for TransactionSum {
    fn default() -> Self {
        Self(!0)
    }
}

impl TransactionSum {
    /// The checksum after one more descriptor block or copy.
    #[must_use]
    pub fn with(self, block: &[u8]) -> Self {
        let mut digest = CRC32_BE.digest_with_initial(self.0);
        digest.update(block);
        Self(digest.finalize())
    }
}

impl LogForm {
    /// Parses a commit block. `sum` is the running checksum of its transaction; it is used with v1 checksums only.
    ///
    /// # Errors
    /// `Short`.
    pub fn commit(&self, raw: &[u8], sum: TransactionSum) -> Result<Commit> {
        want("a commit block", raw, self.size().max(SIZE))?;
        let b = raw.get(..self.size()).unwrap_or(&[]);
        let sum = match self.checksum {
            JournalChecksum::None => CommitSum::None,
            JournalChecksum::V1 => v1(b, sum),
            JournalChecksum::V2 | JournalChecksum::V3 => compare(
                be32(b, CHECKSUM),
                csum::crc32c_with_hole(self.seed, b, CHECKSUM, 4),
            ),
        };
        Ok(Commit {
            seconds: be64(b, SECONDS),
            nanoseconds: be32(b, NANOSECONDS),
            sum,
        })
    }
}

fn compare(stored: u32, computed: u32) -> CommitSum {
    if stored == computed {
        CommitSum::Good
    } else {
        CommitSum::Bad { stored, computed }
    }
}

fn v1(b: &[u8], sum: TransactionSum) -> CommitSum {
    let (kind, stored) = (
        (u8_at(b, CHECKSUM_TYPE), u8_at(b, CHECKSUM_SIZE)),
        be32(b, CHECKSUM),
    );
    let computed = sum.0;
    match kind {
        CRC32 => compare(stored, computed),
        (0, 0) if stored == 0 => CommitSum::None,
        _ => CommitSum::Bad { stored, computed },
    }
}
