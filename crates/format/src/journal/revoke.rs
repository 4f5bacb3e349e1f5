//! Revocation blocks: blocks of the volume whose copies up to this transaction must not be replayed.
//! Input: a revocation block and the log's form. Output: the block numbers in it.
//! Invariant: the count lies inside the block, before its checksum if it has one. Limit: block numbers are not
//! compared with the volume's size here. Source: the kernel's documentation, "journal (jbd2)".

use crate::error::{Corrupt, Result, bad, want};
use crate::le::be32;
use crate::num;
use crate::types::FsBlock;

use super::block::{HEADER, LogForm};

/// Bytes before the first entry: the header and the count.
pub(super) const ENTRIES: usize = 16;

impl LogForm {
    /// The revoked blocks in the revocation block at block `at` of the log.
    ///
    /// # Errors
    /// `Short`, `JournalRevokeChecksum`, `JournalRevokeCount`.
    pub fn revoked(&self, at: u32, raw: &[u8]) -> Result<Vec<FsBlock>> {
        want("a revocation block", raw, self.size())?;
        let b = raw.get(..self.size()).unwrap_or(&[]);
        match self.tail_sums(b) {
            Some((stored, computed)) if stored != computed => {
                return bad(Corrupt::JournalRevokeChecksum {
                    at,
                    stored,
                    computed,
                });
            }
            _ => {}
        }
        // The count is in bytes, and includes itself and the header.
        let (bytes, max) = (be32(b, HEADER), self.entries_end());
        if num::usize32(bytes) > max {
            let max = num::sat32(num::wide(max));
            return bad(Corrupt::JournalRevokeCount { at, bytes, max });
        }
        let entries = b.get(ENTRIES..num::usize32(bytes)).unwrap_or(&[]);
        let width = if self.is_64bit { 8 } else { 4 };
        let number = |e: &[u8]| {
            FsBlock::new(if self.is_64bit {
                num::join(be32(e, 0), be32(e, 4))
            } else {
                u64::from(be32(e, 0))
            })
        };
        Ok(entries.chunks_exact(width).map(number).collect())
    }
}
