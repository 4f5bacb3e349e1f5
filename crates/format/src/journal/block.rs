//! The header of every log block that is not a copy of a block, and the form that all blocks of one log have in common.
//! Input: a block of the log. Output: [`LogHeader`], or `None` if there is no journal block. Invariant: a header with the magic
//! number is returned as it is; the reader checks its sequence. Limit: an unknown block type is returned as a number. Source:
//! the kernel's documentation, "journal (jbd2)".

use crate::csum;
use crate::le::be32;
use crate::num;
use crate::types::Tid;

use super::{JournalChecksum, JournalSuper, MAGIC};

/// Bytes of the header.
pub(super) const HEADER: usize = 12;
/// Bytes of the checksum at the end of descriptor and revocation blocks.
pub(super) const TAIL: usize = 4;

pub(super) const DESCRIPTOR: u32 = 1;
pub(super) const COMMIT: u32 = 2;
pub(super) const REVOKE: u32 = 5;

/// The type of a log block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogBlockKind {
    /// Type 1: names the blocks whose contents follow.
    Descriptor,
    /// Type 2: the transaction is complete.
    Commit,
    /// Type 5: blocks of which older copies must not be replayed.
    Revoke,
    /// Any other type.
    Other(u32),
}

/// The first 12 bytes of a journal block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHeader {
    /// What follows.
    pub kind: LogBlockKind,
    /// The transaction that it belongs to.
    pub sequence: Tid,
}

impl LogHeader {
    /// The header, or `None` if the magic number is missing.
    #[must_use]
    pub fn parse(raw: &[u8]) -> Option<Self> {
        if be32(raw, 0) != MAGIC {
            return None;
        }
        let kind = match be32(raw, 4) {
            DESCRIPTOR => LogBlockKind::Descriptor,
            COMMIT => LogBlockKind::Commit,
            REVOKE => LogBlockKind::Revoke,
            other => LogBlockKind::Other(other),
        };
        let sequence = Tid::new(be32(raw, 8));
        Some(Self { kind, sequence })
    }
}

/// How the blocks of one log are laid out and checksummed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogForm {
    /// Bytes per block.
    pub block_size: u32,
    /// Block numbers have 64 bits.
    pub is_64bit: bool,
    /// How blocks are checksummed.
    pub checksum: JournalChecksum,
    /// Seed of the crc32c sums.
    pub seed: u32,
}

impl LogForm {
    /// Whether every block has a checksum of its own (v2, v3).
    #[must_use]
    pub const fn sums_blocks(&self) -> bool {
        matches!(self.checksum, JournalChecksum::V2 | JournalChecksum::V3)
    }

    pub(super) const fn size(&self) -> usize {
        num::usize32(self.block_size)
    }

    /// Where the entries of a descriptor or revocation block end.
    pub(super) const fn entries_end(&self) -> usize {
        if self.sums_blocks() {
            self.size().saturating_sub(TAIL)
        } else {
            self.size()
        }
    }

    /// Stored and computed checksum of a block with a checksum at its end, if the log has such checksums.
    pub(super) fn tail_sums(&self, block: &[u8]) -> Option<(u32, u32)> {
        let at = self.entries_end();
        let sums = || {
            (
                be32(block, at),
                csum::crc32c_with_hole(self.seed, block, at, TAIL),
            )
        };
        self.sums_blocks().then(sums)
    }
}

impl JournalSuper {
    /// How this log's blocks are laid out.
    #[must_use]
    pub fn form(&self) -> LogForm {
        LogForm {
            block_size: self.block_size,
            is_64bit: self.features.is_64bit(),
            checksum: self.features.checksum(),
            seed: self.csum_seed(),
        }
    }
}
