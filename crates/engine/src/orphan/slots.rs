//! The orphan file: inodes' numbers in slots, so that they need no chain.
//!
//! Input: numbers, under a handle. Output: slots taken and emptied. Invariants: a slot is one inode's; its block is sealed with every change.
//! Limits: when all slots are taken the chain serves; a volume without the file has none.

use super::recover::damaged;
use crate::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::map::MappingState;
use crate::volume::VolumeShared;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, orphan};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest orphan file that is read; mke2fs makes it of 32 to 512 blocks.
const MOST_BYTES: u64 = 64 << 20;

/// Where an inode's number is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    block: FsBlock,
    slot: u32,
}

/// The blocks of the file. None: there is no file.
#[derive(Debug, Default)]
pub(super) struct Slots {
    file: Option<Arc<DiskInode>>,
    blocks: Vec<FsBlock>,
}

impl Slots {
    /// Reads the file, if the volume has one: its blocks, and the numbers in them.
    pub(super) fn load(volume: &Arc<VolumeShared>) -> Result<(Slots, BTreeMap<Ino, Slot>), Error> {
        let (mut slots, mut found) = (Slots::default(), BTreeMap::new());
        let Some(ino) = volume.sb.orphan_file() else {
            return Ok((slots, found));
        };
        let inode = volume.inode(ino)?;
        let (disk, block_size) = (inode.disk(), u64::from(volume.block_size()));
        if inode.size() > MOST_BYTES {
            return Err(damaged(ino, "is larger than an orphan file can be"));
        }
        for mapping in inode.mappings(0..inode.size().div_ceil(block_size))? {
            let MappingState::Written(first) = mapping.state else {
                return Err(damaged(ino, "is the orphan file and has holes"));
            };
            let blocks = first.get()..first.get() + mapping.len;
            slots.blocks.extend(blocks.map(FsBlock::new));
        }
        for block in &slots.blocks {
            let raw = volume
                .cache
                .read(&volume.blocking, *block, Kind::Data, |_| Ok(()))?;
            for orphan in orphan::parse_block(&volume.sb, &disk, *block, &raw)? {
                let slot = orphan::find_slot(&volume.sb, &raw, orphan);
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
        slots.file = Some(disk);
        Ok((slots, found))
    }

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
