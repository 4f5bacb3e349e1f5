//! Commits that change the size of the volume, or of its group descriptors.
//!
//! Input: a frozen transaction with the superblock of another size. Output: that transaction, durable and home; an empty log. Invariants:
//! the kernel counts groups and reads their descriptors before it replays a log, and it leaves a log alone if the superblock does not say
//! that recovery is needed. So a log that the kernel would replay never has a superblock of another size than the volume, and the groups
//! that the superblock counts are home. At every moment recovery by any driver leaves the volume as it was before or as it is afterwards:
//! one write of the superblock decides. Limits: between the writes that are marked with (*) e2fsck asks whether the journal is to be
//! replayed; both answers are right.
//!
//! A volume becomes larger by a log that undoes:
//!
//! 1. What is home of the changed blocks goes to the log, as a transaction: who replays it undoes the steps that follow.
//! 2. The changed blocks go home, all but the superblock.
//! 3. (*) The superblock goes home with the new size, and says that no recovery is needed.
//! 4. (*) The log is emptied.
//! 5. The superblock says again that the volume is in use.
//!
//! It becomes smaller by a log that is not in force yet:
//!
//! 1. The superblock says that no recovery is needed: the log is empty.
//! 2. (*) The transaction goes to the log.
//! 3. (*) The superblock goes home with the new size, and says that recovery is needed. It counts groups whose descriptors are home.
//! 4. A checkpoint.
//!
//! Descriptors get another size in the second way. Then the superblock does not fit the descriptors at home between steps 3 and 4, and only
//! who knows that reads the log: the engine does, the kernel refuses the volume, and e2fsck takes a copy of the superblock.

use super::Log;
use crate::disk::{Disk, edit_superblock, read_bytes};
use crate::error::Error;
use crate::journal::commit::{Frozen, FrozenBlock};
use diorite_format::FsBlock;

impl Log {
    /// Commits a volume that had `from` blocks and has more now.
    pub(super) fn commit_larger(
        &mut self,
        disk: &Disk,
        frozen: &Frozen,
        from: u64,
    ) -> Result<(), Error> {
        self.checkpoint(disk)?;
        let before = at_home(disk, frozen, from)?;
        self.write_transaction(disk, frozen, Vec::new(), &before)?;
        let sb = superblock(disk, frozen)?;
        let others = frozen.blocks.iter().filter(|block| block.at != sb.at);
        disk.write_blocks_durably(others.map(|block| (block.at, &*block.bytes)))?;
        let mut clean = sb.bytes.to_vec();
        disk.edit_super_in(&mut clean, |edit| edit.set_needs_recovery(false))?;
        disk.write_blocks_durably(std::iter::once((sb.at, &*clean)))?;
        self.empty(disk)?;
        write_home(disk, sb)?;
        for block in &frozen.blocks {
            disk.cache.is_home(block.at, &block.bytes);
        }
        Ok(())
    }

    /// Commits a volume that has fewer blocks now.
    pub(super) fn commit_smaller(&mut self, disk: &Disk, frozen: &Frozen) -> Result<(), Error> {
        self.checkpoint(disk)?;
        let clean = |sb: &mut diorite_format::superblock::SuperblockEdit<'_>| {
            sb.set_needs_recovery(false);
        };
        edit_superblock(&disk.blocking, disk.block_size(), clean)?;
        self.write_to_log(disk, frozen)?;
        write_home(disk, superblock(disk, frozen)?)?;
        self.checkpoint(disk)
    }
}

/// What is home of the changed blocks of a volume of `from` blocks.
fn at_home(disk: &Disk, frozen: &Frozen, from: u64) -> Result<Vec<(FsBlock, Vec<u8>)>, Error> {
    let size = disk.block_size() as usize;
    // Blocks behind the old end need no undoing, and whoever replays the log might refuse them.
    let inside = frozen.blocks.iter().filter(|block| block.at.get() < from);
    let read = |block: &FrozenBlock| {
        let bytes = read_bytes(&disk.blocking, disk.sb.byte_of(block.at).get(), size)?;
        Ok((block.at, bytes))
    };
    inside.map(read).collect()
}

fn superblock<'f>(disk: &Disk, frozen: &'f Frozen) -> Result<&'f FrozenBlock, Error> {
    let at = disk.sb.super_block();
    let found = frozen.blocks.iter().find(|block| block.at == at);
    found.ok_or_else(|| Error::Invalid("a change of the size without a superblock".to_owned()))
}

fn write_home(disk: &Disk, block: &FrozenBlock) -> Result<(), Error> {
    disk.write_blocks_durably(std::iter::once((block.at, &*block.bytes)))
}
