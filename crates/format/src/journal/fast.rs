//! The fast-commit area: does it hold something that follows a transaction?
//! Input: its first block. Output: the transaction that its records follow. Invariant: none but the length.
//! Limit: the records themselves are not taken apart: a volume that needs them is recovered elsewhere.
//! Source: the kernel's documentation, "fast commits" (a head record names the transaction); the record's number and
//! layout by experiment with a crash image of a mount with fast_commit and `debugfs logdump`.

use crate::le::{le16, le32};
use crate::types::Tid;

use super::JournalSuper;

/// The record that begins an area in use: 8 bytes, features and transaction.
const HEAD: (u16, u16) = (9, 8);

/// The number of the transaction that would have come next when the records in this block were written, or `None` if
/// there are none.
#[must_use]
pub fn fast_commit_follows(block: &[u8]) -> Option<Tid> {
    let head = (le16(block, 0), le16(block, 2));
    (head == HEAD).then(|| Tid::new(le32(block, 8)))
}

impl JournalSuper {
    /// The first block of the fast-commit area, if there is one: a block is left free between it and the log.
    #[must_use]
    pub fn fast_commit_start(&self) -> Option<u32> {
        let start = self.log_end().saturating_add(1);
        (self.fast_commit_blocks() > 1 && start < self.maxlen).then_some(start)
    }
}
