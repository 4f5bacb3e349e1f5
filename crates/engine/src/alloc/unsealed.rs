//! Groups whose inode bitmap has changed several times in one transaction: its checksum, and the descriptor that has it, are written once,
//! when the transaction is committed.
//!
//! Input: groups, noted under their locks. Output: bitmap and descriptor that agree, in the last handle of the transaction. Invariants: a
//! group is noted only if the same transaction has changed its bitmap and its descriptor in full before, so both blocks are in memory and
//! in the transaction, and writing them needs neither the device nor credits; in memory the descriptor has the right counts always. Limits:
//! a volume's groups share 4096 marks, so a commit looks at some groups in vain on volumes with more.

use super::Alloc;
use super::bits::write_desc;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use diorite_format::GroupNo;

const WORDS: u32 = 64;
const MARKS: u32 = WORDS * u64::BITS;

/// A mark for each group that may have to be written, by its number.
#[derive(Debug)]
pub(super) struct Unsealed(Box<[AtomicU64]>);

impl Unsealed {
    pub(super) fn new() -> Unsealed {
        Unsealed((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    fn note(&self, group: GroupNo) {
        let mark = group.get() % MARKS;
        let word = &self.0[(mark / u64::BITS) as usize];
        word.fetch_or(1 << (mark % u64::BITS), Ordering::AcqRel);
    }

    /// The marks, which are taken back.
    fn take(&self) -> impl Iterator<Item = u32> {
        let words = (0..WORDS).zip(&self.0);
        words.flat_map(|(n, word)| {
            let set = match word.load(Ordering::Acquire) {
                0 => 0,
                _ => word.swap(0, Ordering::AcqRel),
            };
            let marks = (0..u64::BITS).filter(move |bit| set & 1 << bit != 0);
            marks.map(move |bit| n * u64::BITS + bit)
        })
    }
}

impl Alloc {
    /// Notes that the group, which is locked, is to be written by the commit.
    pub(super) fn note_unsealed(&self, group: GroupNo, is_noted: &mut bool) {
        if !std::mem::replace(is_noted, true) {
            self.unsealed.note(group);
        }
    }

    /// Writes what the transaction still owes to bitmaps and descriptors. Call in its last handle.
    ///
    /// # Errors
    /// Damage; then the transaction must not be committed.
    pub(crate) fn seal(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        for mark in self.unsealed.take() {
            for group in (mark..self.group_count()).step_by(MARKS as usize) {
                self.seal_group(handle, GroupNo::new(group))?;
            }
        }
        Ok(())
    }

    fn seal_group(&self, handle: &JournalHandle<'_>, group: GroupNo) -> Result<(), Error> {
        let mut locked = self.slot(group).lock();
        if !std::mem::take(&mut locked.group.is_unsealed) {
            return Ok(());
        }
        let desc = &mut locked.group.desc;
        let map = handle.read(desc.inode_bitmap, Kind::Bitmap, |_| Ok(()))?;
        desc.seal_inode_bitmap(&handle.store().sb, &map)?;
        write_desc(handle, desc)
    }
}
