//! What it is: the sizes that a file may have.
//! Input: the changes of the file that had begun, and its size. Output: nothing, or why it may not have this size.
//! Invariants: a size is the one that the file began with, or the end of a write; it is never less than the end of a durable write.
//! Without a journal the map may be on disk before the inode: e2fsck then sets the size to the end of the last mapped block. Data
//! that goes through the journal may need several transactions: the size may then be the end of a block within a write.
//! Limit: an append whose position is not known may have ended at any sector.

use super::{Changes, Known};
use crate::bed::{LARGEST_BLOCK, Mode, SMALLEST_BLOCK};
use crate::history::{Action, Start};
use crate::stamp::SECTOR;

impl Known<'_> {
    pub(super) fn judge_size(
        &self,
        (number, start): (u32, &Start),
        changes: &Changes<'_>,
        size: u64,
    ) -> Result<(), String> {
        let kept = changes.iter().filter(|(_, a)| self.is_kept(a));
        let least = kept.filter_map(|(_, a)| a.reaches()).max().unwrap_or(0);
        let least = least.max(start.size);
        if size < least {
            return Err(format!("{size} bytes, but {least} are durable"));
        }
        let ends_at = |end: Option<u64>| match end {
            Some(end) => end == size,
            None => size.is_multiple_of(SECTOR as u64),
        };
        let by_fsck = |end: Option<u64>| {
            let most = end.map(|end| end.next_multiple_of(LARGEST_BLOCK));
            self.mode == Mode::None
                && size.is_multiple_of(SMALLEST_BLOCK)
                && size > start.size
                && most.is_none_or(|most| size <= most)
        };
        let in_parts = self.expect.in_parts(number, self.mode);
        let by_parts = |a: &Action| {
            let sector = size / SECTOR as u64;
            in_parts
                && size.is_multiple_of(SMALLEST_BLOCK)
                && size > start.size
                && a.sectors().is_none_or(|s| s.contains(&sector))
        };
        let may_be = size == start.size
            || changes
                .iter()
                .any(|(_, a)| ends_at(a.reaches()) || by_fsck(a.reaches()) || by_parts(a));
        if may_be {
            Ok(())
        } else {
            Err(format!("{size} bytes, where nothing ended"))
        }
    }
}
