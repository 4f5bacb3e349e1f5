//! Which blocks of attributes are known, by the hash of their entries.
//!
//! Input: blocks as they are made, and as their last users leave them. Output: a block that may have the same entries. Invariants: a block is
//! known from when it is made until its last user leaves it, and both, as the look and the count of a new user, are one step under the lock;
//! so what is found is in use. Limits: the last [`SLOTS`] or fewer blocks that were written since the volume was opened; none with a value in
//! an inode of its own, which counts the blocks that name it.

use crate::error::Error;
use crate::locks::EQUAL_BLOCKS;
use diorite_block::sync::Mutex;
use diorite_format::FsBlock;
use diorite_format::xattr::{self, XattrEntry};

/// Who has a block that an inode was to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Others.
    ToOthers,
    /// Nobody: it is free.
    ToNobody,
    /// The inode still.
    NotYet,
}

/// Blocks known at most.
const SLOTS: usize = 1024;

/// The blocks of attributes that are known, by the hash of their entries.
#[derive(Debug)]
pub(crate) struct EqualBlocks(Mutex<Vec<Known>>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    hash: u32,
    /// None: nothing is known here.
    at: Option<FsBlock>,
}

impl EqualBlocks {
    pub(crate) fn new(level: u8) -> EqualBlocks {
        EqualBlocks(Mutex::at_level(&EQUAL_BLOCKS, level, Vec::new()))
    }

    /// A block that is in use has these entries now.
    pub(crate) fn note(&self, at: FsBlock, entries: &[XattrEntry<'_>]) {
        let Some(hash) = hash_of(entries) else { return };
        let mut slots = self.0.lock();
        if slots.is_empty() {
            slots.resize(SLOTS, Known::default());
        }
        slots[slot_of(hash)] = Known { hash, at: Some(at) };
    }

    /// Does `with` while no block begins or ends to be known, with the one that is by this hash.
    pub(crate) fn holding<R>(&self, hash: u32, with: impl FnOnce(Option<FsBlock>) -> R) -> R {
        let slots = self.0.lock();
        let known = slots.get(slot_of(hash)).filter(|known| known.hash == hash);
        with(known.and_then(|known| known.at))
    }

    /// Does `leave`, which says who has a block then: what nobody has is not known either.
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

/// By what a block with these entries is found; none if it is for one inode.
pub(crate) fn hash_of(entries: &[XattrEntry<'_>]) -> Option<u32> {
    let alone = entries.is_empty() || entries.iter().any(XattrEntry::is_held);
    let hash = xattr::block_hash(entries);
    (!alone && hash != 0).then_some(hash)
}
