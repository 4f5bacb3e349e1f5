//! The orphan file: inodes' numbers in slots, so that they need no chain.
//!
//! Input: numbers, under a handle. Output: slots taken and emptied. Invariants: a slot is one inode's; its block is sealed with every change.
//! Limits: when all slots are taken the chain serves; a volume without the file has none.

use crate::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, orphan};
use std::sync::Arc;

/// Where an inode's number is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) block: FsBlock,
    pub(super) slot: u32,
}

/// The blocks of the file. None: there is no file.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) file: Option<Arc<DiskInode>>,
    pub(super) blocks: Vec<FsBlock>,
}

impl Slots {
    /// Puts a number into a free slot, if there is one.
    pub(super) fn take(&self, handle: &JournalHandle<'_>, ino: Ino) -> Result<Option<Slot>, Error> {
        for block in &self.blocks {
            let raw = handle.read(*block, Kind::Data, |_| Ok(()))?;
            let free = orphan::free_slot(&handle.volume().sb, &raw, 0);
            drop(raw);
            if let Some(slot) = free {
                let slot = Slot {
                    block: *block,
                    slot,
                };
                self.set(handle, slot, ino)?;
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// Empties a slot.
    pub(super) fn give_back(&self, handle: &JournalHandle<'_>, slot: Slot) -> Result<(), Error> {
        self.set(handle, slot, Ino::new(0))
    }

    fn set(&self, handle: &JournalHandle<'_>, at: Slot, ino: Ino) -> Result<(), Error> {
        let file = self.file.as_ref().expect("a slot is in the file");
        let sb = &handle.volume().sb;
        handle.update(
            at.block,
            Kind::Data,
            |_| Ok(()),
            |raw| orphan::set_slot(sb, file, at.block, raw, at.slot, ino).map_err(Error::from),
        )
    }
}
