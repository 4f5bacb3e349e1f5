//! The orphan file: inode numbers in slots, instead of a chain.
//!
//! Input: inode numbers, under a handle. Output: slots filled and emptied. Invariants: each slot belongs to one inode; every change
//! updates the block's checksum. Limits: when all slots are full the chain is used; a volume without the file has no slots.

use super::damaged;
use crate::disk::Disk;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, orphan};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The orphan file: its inode and its blocks.
pub(crate) struct SlotFile {
    pub(crate) inode: Arc<DiskInode>,
    pub(crate) blocks: Vec<FsBlock>,
}

/// The place of an inode's number in the orphan file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    block: FsBlock,
    slot: u32,
}

impl Slot {
    pub(super) fn moved(&mut self, from: FsBlock, to: FsBlock) {
        if self.block == from {
            self.block = to;
        }
    }
}

/// The orphan file's blocks; none if the volume has no orphan file.
#[derive(Debug, Default)]
pub(super) struct Slots {
    file: Option<Arc<DiskInode>>,
    blocks: Vec<FsBlock>,
}

impl Slots {
    /// Reads the orphan file, if the volume has one: its blocks, and the numbers in them.
    pub(super) fn load(
        disk: &Disk,
        file: Option<SlotFile>,
    ) -> Result<(Slots, BTreeMap<Ino, Slot>), Error> {
        let mut found = BTreeMap::new();
        let Some(SlotFile { inode, blocks }) = file else {
            return Ok((Slots::default(), found));
        };
        for block in &blocks {
            let raw = disk
                .cache
                .read(&disk.blocking, *block, Kind::Data, |_| Ok(()))?;
            for orphan in orphan::parse_block(&disk.sb, &inode, *block, &raw)? {
                let slot = orphan::find_slot(&disk.sb, &raw, orphan);
                let slot = slot.expect("the block was parsed a line above");
                let here = Slot {
                    block: *block,
                    slot,
                };
                if found.insert(orphan, here).is_some() {
                    return Err(damaged(orphan, "comes a second time"));
                }
            }
        }
        let slots = Slots {
            file: Some(inode),
            blocks,
        };
        Ok((slots, found))
    }

    /// A block of the file has moved.
    pub(super) fn moved(&mut self, from: FsBlock, to: FsBlock) {
        let same = self.blocks.iter_mut().filter(|block| **block == from);
        same.for_each(|block| *block = to);
    }

    /// Puts a number into a free slot; None if there is none.
    pub(super) fn take(&self, handle: &JournalHandle<'_>, ino: Ino) -> Result<Option<Slot>, Error> {
        let free = self.find_free(handle)?;
        free.map_or(Ok(()), |slot| self.set(handle, slot, ino))?;
        Ok(free)
    }

    /// A free slot, whose block is in memory then.
    pub(super) fn find_free(&self, handle: &JournalHandle<'_>) -> Result<Option<Slot>, Error> {
        for block in &self.blocks {
            let raw = handle.read(*block, Kind::Data, |_| Ok(()))?;
            if let Some(slot) = orphan::free_slot(&handle.store().sb, &raw, 0) {
                let block = *block;
                return Ok(Some(Slot { block, slot }));
            }
        }
        Ok(None)
    }

    /// Loads a slot's block.
    pub(super) fn prepare(&self, handle: &JournalHandle<'_>, slot: Slot) -> Result<(), Error> {
        handle.read(slot.block, Kind::Data, |_| Ok(())).map(drop)
    }

    /// Empties a slot.
    pub(super) fn give_back(&self, handle: &JournalHandle<'_>, slot: Slot) -> Result<(), Error> {
        self.set(handle, slot, Ino::new(0))
    }

    fn set(&self, handle: &JournalHandle<'_>, at: Slot, ino: Ino) -> Result<(), Error> {
        let file = self.file.as_ref().expect("a slot is in the file");
        let sb = &handle.store().sb;
        handle.update(
            at.block,
            Kind::Data,
            |_| Ok(()),
            |raw| orphan::set_slot(sb, file, at.block, raw, at.slot, ino).map_err(Error::from),
        )
    }
}
