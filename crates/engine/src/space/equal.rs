//! Finds attribute blocks that inodes can share, by the hash of their entries.
//!
//! Input: blocks as they are written, and as their last users leave them. Output: a block that may have the same entries. Invariants: a
//! block is known from when it is written until its last user leaves it. Under one lock the last user leaves and the block is forgotten;
//! under the same lock a block is found and its new user is counted; so a block that is found is in use. Limits: at most [`SLOTS`] blocks,
//! of those written since the volume was opened; none that has a value in an inode of its own, since such an inode counts the blocks that
//! refer to it.

use crate::error::Error;
use crate::locks::EQUAL_BLOCKS;
use diorite_block::sync::Mutex;
use diorite_format::FsBlock;
use diorite_format::xattr::{self, XattrEntry};

/// Who uses a block after an inode was to leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Other inodes.
    ToOthers,
    /// Nobody: it was freed.
    ToNobody,
    /// Still the inode.
    NotYet,
}

/// The largest number of known blocks.
const SLOTS: usize = 1024;

/// The known attribute blocks, by the hash of their entries.
#[derive(Debug)]
pub(crate) struct EqualBlocks(Mutex<Vec<Known>>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    hash: u32,
    /// None if the slot is empty.
    at: Option<FsBlock>,
}

impl EqualBlocks {
    pub(crate) fn new(level: u8) -> EqualBlocks {
        EqualBlocks(Mutex::at_level(&EQUAL_BLOCKS, level, Vec::new()))
    }

    /// Notes that a block in use has these entries now.
    pub(crate) fn note(&self, at: FsBlock, entries: &[XattrEntry<'_>]) {
        let Some(hash) = hash_of(entries) else { return };
        let mut slots = self.0.lock();
        if slots.is_empty() {
            slots.resize(SLOTS, Known::default());
        }
        slots[slot_of(hash)] = Known { hash, at: Some(at) };
    }

    /// Calls `with` with the block known for this hash, if there is one, under the lock: meanwhile no block becomes known or is forgotten.
    pub(crate) fn holding<R>(&self, hash: u32, with: impl FnOnce(Option<FsBlock>) -> R) -> R {
        let slots = self.0.lock();
        let known = slots.get(slot_of(hash)).filter(|known| known.hash == hash);
        with(known.and_then(|known| known.at))
    }

    /// Calls `leave`, which returns who uses the block afterwards, under the lock. Forgets the block if nobody does.
    pub(crate) fn leaving(
        &self,
        block: FsBlock,
        leave: impl FnOnce() -> Result<Left, Error>,
    ) -> Result<Left, Error> {
        let mut slots = self.0.lock();
        let left = leave()?;
        if left == Left::ToNobody {
            let known = slots.iter_mut().filter(|known| known.at == Some(block));
            known.for_each(|known| *known = Known::default());
        }
        Ok(left)
    }
}

fn slot_of(hash: u32) -> usize {
    hash as usize % SLOTS
}

/// The hash by which a block with these entries is found; None if such a block is not shared.
pub(crate) fn hash_of(entries: &[XattrEntry<'_>]) -> Option<u32> {
    let alone = entries.is_empty() || entries.iter().any(XattrEntry::is_held);
    let hash = xattr::block_hash(entries);
    (!alone && hash != 0).then_some(hash)
}
