//! The log (jbd2): makes transactions durable before their blocks are written home.
//!
//! Input: frozen transactions. Output: descriptors, blocks, revokes and a commit block in the log; later the blocks at home. Invariants:
//! everything else of a transaction is durable before its commit block is written; a block is written home only after its transaction is
//! committed; the log's tail advances over a transaction only when the blocks of that transaction are durable at home. Limits: one writer,
//! the holder of the journal's medium; a checkpoint writes everything home at once.

use super::commit::Frozen;
use super::transaction::Resize;
use crate::disk::Disk;
use crate::disk::cache::MetaRef;
use crate::error::Error;
use diorite_block::{Blocking, Buf};
use diorite_format::journal::JournalSuper;
use diorite_format::journal::write::{self, LogPosition, Tag};
use diorite_format::{FsBlock, Tid};
use std::collections::BTreeMap;
use std::ops::Deref;

mod size;
#[cfg(test)]
mod tests;

/// Most bytes of blocks that are kept in memory between their commit and the checkpoint: 20 MiB.
const MOST_BYTES: u32 = 0x0140_0000;
/// But at least so many blocks, however large they are: a handle may need a quarter of them.
const LEAST_BLOCKS: u32 = 512;

/// Where the log's blocks are on its device, as runs.
#[derive(Debug)]
pub(crate) struct Places {
    /// First block of the log in the run, first block on the device, length.
    pub(crate) runs: Vec<(u32, FsBlock, u32)>,
}

impl Places {
    pub(super) fn of(&self, block: u32) -> FsBlock {
        let after = self.runs.partition_point(|(first, ..)| *first <= block);
        let (first, at, _) = self.runs[after.checked_sub(1).expect("the runs begin at block 0")];
        FsBlock::new(at.get() + u64::from(block - first))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    /// The log's own device, if the journal is external.
    external: Option<Blocking>,
    places: Places,
    /// The block with the journal superblock.
    super_at: u32,
    /// That superblock, parsed and as raw bytes.
    journal: JournalSuper,
    raw: Vec<u8>,
    /// The next block of the log to write, and the number of blocks with transactions that are not home.
    head: u32,
    used: u32,
    /// The log's superblock names the start of the log: recovery has something to do.
    announced: bool,
    checkpoints: u64,
    next: Tid,
    /// The newest committed bytes of blocks that are not home.
    home: BTreeMap<FsBlock, MetaRef>,
}

impl Log {
    /// A log that is empty. `raw` is its superblock, at block `super_at`. Writes nothing yet.
    pub(crate) fn new(
        external: Option<Blocking>,
        (places, super_at): (Places, u32),
        journal: JournalSuper,
        raw: Vec<u8>,
    ) -> Log {
        Log {
            head: journal.first,
            next: journal.sequence,
            used: 0,
            announced: false,
            checkpoints: 0,
            home: BTreeMap::new(),
            external,
            places,
            super_at,
            journal,
            raw,
        }
    }

    /// The number of the next transaction.
    pub(crate) fn next_tid(&self) -> Tid {
        self.next
    }

    /// How many times the log was emptied.
    pub(super) fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    /// The largest number of blocks that one transaction may change.
    pub(crate) fn most_blocks(&self) -> u32 {
        (self.capacity() / 4).min(self.most_in_memory() / 2)
    }

    /// The largest number of blocks that any transaction can change: as many as the log holds, with their descriptors.
    pub(crate) fn most_alone(&self) -> u32 {
        (self.capacity() / 16 * 15).saturating_sub(8)
    }

    /// The largest number of blocks kept in memory because they are not home, however large the log is.
    fn most_in_memory(&self) -> u32 {
        (MOST_BYTES / self.journal.block_size).max(LEAST_BLOCKS)
    }

    fn capacity(&self) -> u32 {
        self.journal.log_end() - self.journal.first
    }

    /// Makes a transaction durable. Makes a checkpoint first if there is no room for it, and afterwards if the log is half full.
    pub(super) fn commit(&mut self, disk: &Disk, frozen: &Frozen) -> Result<(), Error> {
        match frozen.transaction.resize {
            Some(Resize::Larger { from }) => return self.commit_larger(disk, frozen, from),
            Some(Resize::Smaller) => return self.commit_smaller(disk, frozen),
            None => self.write_to_log(disk, frozen)?,
        }
        let many = self.home.len() >= self.most_in_memory() as usize;
        if many || self.used > self.capacity() / 2 {
            self.checkpoint(disk)?;
        }
        Ok(())
    }

    /// Makes a transaction durable in the log, and remembers what is to go home.
    fn write_to_log(&mut self, disk: &Disk, frozen: &Frozen) -> Result<(), Error> {
        let revokes = self.revokes(frozen);
        let blocks = frozen.blocks.iter().map(|b| (b.at, b.bytes.clone()));
        let blocks: Vec<_> = blocks.collect();
        self.write_transaction(disk, frozen, revokes, &blocks)?;
        for block in &frozen.transaction.revoked {
            self.home.remove(block);
        }
        self.home.extend(blocks);
        Ok(())
    }

    /// Makes `blocks` durable in the log, as the copies of a transaction, once its data is durable. Makes a checkpoint first if there is no
    /// room.
    fn write_transaction<B: Deref<Target = [u8]>>(
        &mut self,
        disk: &Disk,
        frozen: &Frozen,
        revokes: Vec<Vec<u8>>,
        blocks: &[(FsBlock, B)],
    ) -> Result<(), Error> {
        let tid = frozen.transaction.tid;
        let each = write::tags_per_descriptor(&self.journal);
        let count = revokes.len() + blocks.len() + blocks.len().div_ceil(each);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let needed = count.saturating_add(1);
        if needed > self.capacity() {
            let what = format!(
                "a transaction of {needed} blocks does not fit into a journal of {}",
                self.capacity()
            );
            return Err(Error::Invalid(what));
        }
        if needed > self.capacity() - self.used {
            self.checkpoint(disk)?;
        }
        if !self.announced {
            self.announce(
                disk,
                LogPosition {
                    start: self.head,
                    sequence: tid,
                },
            )?;
        }
        self.append(disk, (tid, count), revokes, blocks)?;
        frozen.check_data(disk)?;
        self.append_commit(disk, tid)?;
        self.next = Tid::new(tid.get().wrapping_add(1));
        Ok(())
    }

    /// Writes everything home and empties the log.
    pub(super) fn checkpoint(&mut self, disk: &Disk) -> Result<(), Error> {
        // The log is announced while it has anything in it.
        if !self.announced {
            return Ok(());
        }
        disk.write_blocks_durably(self.home.iter().map(|(at, bytes)| (*at, &**bytes)))?;
        self.empty(disk)?;
        for (at, bytes) in std::mem::take(&mut self.home) {
            disk.cache.is_home(at, &bytes);
        }
        Ok(())
    }

    /// Empties the log: everything is home.
    fn empty(&mut self, disk: &Disk) -> Result<(), Error> {
        let position = LogPosition {
            start: 0,
            sequence: self.next,
        };
        self.announce(disk, position)?;
        self.used = 0;
        self.checkpoints += 1;
        Ok(())
    }

    /// Moves the log, which is empty: see [`super::Journal::move_log`].
    pub(super) fn move_to(
        &mut self,
        disk: &Disk,
        places: Places,
        switch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let position = LogPosition {
            start: 0,
            sequence: self.next,
        };
        write::set_position(&mut self.raw, position);
        let mut bytes = Buf::zeroed(self.journal.block_size as usize);
        bytes.copy_in(0, &self.raw);
        self.write_durably(disk, places.of(self.super_at), bytes)?;
        switch()?;
        self.places = places;
        self.head = self.journal.first;
        Ok(())
    }

    /// The revoke blocks of a transaction.
    fn revokes(&self, frozen: &Frozen) -> Vec<Vec<u8>> {
        let transaction = &frozen.transaction;
        let revoked: Vec<FsBlock> = transaction.revoked.iter().copied().collect();
        revoked
            .chunks(write::revokes_per_block(&self.journal))
            .map(|chunk| {
                let mut block = self.block();
                write::revoke(&self.journal, transaction.tid, chunk, &mut block);
                block
            })
            .collect()
    }

    /// A descriptor block, and the copies of blocks that it describes.
    fn described<B: Deref<Target = [u8]>>(
        &self,
        tid: Tid,
        blocks: &[(FsBlock, B)],
    ) -> Vec<Vec<u8>> {
        let mut out = vec![self.block()];
        let mut tags = Vec::with_capacity(blocks.len());
        for (at, bytes) in blocks {
            let mut bytes = bytes.to_vec();
            let escaped = write::escape(&mut bytes);
            let sum = write::block_sum(&self.journal, tid, &bytes);
            tags.push(Tag {
                block: *at,
                escaped,
                sum,
            });
            out.push(bytes);
        }
        write::descriptor(&self.journal, tid, &tags, &mut out[0]);
        out
    }

    fn block(&self) -> Vec<u8> {
        vec![0; self.journal.block_size as usize]
    }

    /// Writes blocks at the head, as long bios, durably: then the whole transaction but its commit block, and the volume's data, are
    /// durable. Writes zeros at the place of the commit block, too. So that block will differ in its first sector only from what is there,
    /// and no power cut can leave half of it over a block of an earlier lap. Such a half has a wrong checksum, which e2fsck and the kernel
    /// take for damage, not for the end of the log.
    fn append<B: Deref<Target = [u8]>>(
        &mut self,
        disk: &Disk,
        (tid, count): (Tid, u32),
        revokes: Vec<Vec<u8>>,
        blocks: &[(FsBlock, B)],
    ) -> Result<(), Error> {
        let taken = (0..count).map(|_| self.advance()).collect::<Vec<u32>>();
        let places = taken.into_iter().chain([self.head]);
        // An iterator, so that the copies are made while they are written: they have as many bytes as the transaction.
        let described = blocks
            .chunks(write::tags_per_descriptor(&self.journal))
            .flat_map(|of| self.described(tid, of));
        let blocks = revokes.into_iter().chain(described).chain([self.block()]);
        let placed = places.map(|block| self.places.of(block)).zip(blocks);
        if self.external.is_some() {
            disk.flush()?;
        }
        disk.write_blocks_durably_to(self.log_device(disk), placed)
    }

    /// Takes the next block of the log.
    fn advance(&mut self) -> u32 {
        let block = self.head;
        self.head += 1;
        self.used += 1;
        if self.head == self.journal.log_end() {
            self.head = self.journal.first;
        }
        block
    }

    fn append_commit(&mut self, disk: &Disk, tid: Tid) -> Result<(), Error> {
        let now = disk.now();
        let mut bytes = Buf::zeroed(self.journal.block_size as usize);
        write::commit(
            &self.journal,
            tid,
            now.as_secs(),
            now.subsec_nanos(),
            bytes.as_mut_slice(),
        );
        let block = self.advance();
        self.write_durably(disk, self.places.of(block), bytes)
    }

    /// Writes the log's superblock with the position at which recovery would begin; 0 for an empty log.
    fn announce(&mut self, disk: &Disk, position: LogPosition) -> Result<(), Error> {
        write::set_position(&mut self.raw, position);
        self.write_super(disk)?;
        self.announced = position.start != 0;
        Ok(())
    }

    /// Records the error that aborted the journal in the log's superblock.
    pub(super) fn note_errno(&mut self, disk: &Disk, errno: i32) -> Result<(), Error> {
        write::set_errno(&mut self.raw, errno);
        self.write_super(disk)
    }

    /// See [`super::Journal::keep_superblock`]. The next transaction begins at the same block. Nobody reads an empty log but
    /// `mount::torn`; a transaction that is torn over the copy leaves neither a descriptor nor a commit block there.
    pub(super) fn keep_superblock(&self, disk: &Disk, block: &[u8]) -> Result<(), Error> {
        let has_copies = disk.sb.groups_with_copies().next().is_some();
        if self.announced || self.external.is_some() || has_copies {
            return Ok(());
        }
        disk.write_blocks_durably(std::iter::once((self.places.of(self.head), block)))
    }

    fn write_super(&self, disk: &Disk) -> Result<(), Error> {
        let mut bytes = Buf::zeroed(self.journal.block_size as usize);
        bytes.copy_in(0, &self.raw);
        self.write_durably(disk, self.places.of(self.super_at), bytes)
    }

    fn write_durably(&self, disk: &Disk, at: FsBlock, bytes: Buf) -> Result<(), Error> {
        let pos = at.get() * u64::from(self.journal.block_size);
        let (device, len) = (self.log_device(disk), self.journal.block_size);
        let failed = |e| Error::of_write(&**device.device(), pos, len, e);
        device.write_durably(pos, bytes).map_err(failed)
    }

    fn log_device<'a>(&'a self, disk: &'a Disk) -> &'a Blocking {
        self.external.as_ref().unwrap_or(&disk.blocking)
    }
}
