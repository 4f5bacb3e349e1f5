//! The header with which every block of the log begins that is not plain data, and the form that one log's blocks share.
//! Input: a block of the log. Output: [`LogHeader`], or `None` where no journal block begins.
//! Invariant: a header with the magic number is taken as it is; whether its sequence fits is the reader's question.
//! Limit: an unknown block type is handed on as a number. Source: the kernel's documentation, "journal (jbd2)".

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

/// What a block of the log is.
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
    /// The header, or `None` where the magic number is missing.
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

/// How the blocks of one log are laid out and protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogForm {
    /// Bytes per block.
    pub block_size: u32,
    /// Block numbers have 64 bits.
    pub is_64bit: bool,
    /// How blocks are protected.
    pub checksum: JournalChecksum,
    /// Seed of the crc32c sums.
    pub seed: u32,
}

impl LogForm {
    /// Whether blocks carry sums of their own (v2, v3).
    #[must_use]
    pub const fn sums_blocks(&self) -> bool {
        matches!(self.checksum, JournalChecksum::V2 | JournalChecksum::V3)
    }

    pub(super) const fn size(&self) -> usize {
        num::usize32(self.block_size)
    }

    /// The bytes of a descriptor or revocation block that hold entries end here.
    pub(super) const fn entries_end(&self) -> usize {
        if self.sums_blocks() {
            self.size().saturating_sub(TAIL)
        } else {
            self.size()
        }
    }

    /// Stored and computed checksum of a block that ends in one, if the log's blocks have any.
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
