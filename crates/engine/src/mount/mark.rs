//! What the superblock says of the volume's use: in use, clean, failed; how much is free.
//!
//! Input: the first change of metadata, the end of all of them, each commit. Output: the primary superblock, at home or in a transaction.
//! Invariants: it says "in use" durably before anything else changes, and "clean" only after everything is home. Limits: copies of the
//! superblock in other groups are left alone, as mounting leaves them.

use crate::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::journal::recovery::edit_superblock;
use crate::volume::VolumeShared;
use diorite_block::sync::atomic::Ordering;
use diorite_format::superblock::{
    JournalPlace, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockEdit,
};
use diorite_format::{FormatError, FsBlock, Superblock, Tid};

/// The largest size that every implementation of ext2 knows.
const MOST_OF_SMALL: u64 = (1 << 31) - 1;

impl VolumeShared {
    /// Says in the superblock that the volume is in use: with a journal that it needs recovery, without one that it is not clean. Durable
    /// when the call returns. Blocks.
    pub(crate) fn mark_in_use(&self) -> Result<(), Error> {
        let (now, journaled) = (self.now_seconds(), self.has_journal());
        let (mounts, orphan_file) = (self.sb.info().mount_count, self.sb.orphan_file().is_some());
        self.edit_super_at_home(|edit| {
            if journaled {
                edit.set_needs_recovery(true);
            } else {
                edit.set_valid(false);
            }
            if orphan_file {
                edit.set_orphan_present(true);
            }
            edit.set_mount_count(mounts.saturating_add(1));
            edit.set_mount_time(now);
            edit.set_write_time(now);
            if let Some(path) = &self.mounted_on {
                edit.set_last_mounted(path.as_bytes());
            }
        })
    }

    /// Says in the superblock that the volume is clean. Everything is home already. Durable when the call returns. Blocks.
    pub(crate) fn mark_clean(&self) -> Result<(), Error> {
        let orphans_in_file = self.orphans.in_file();
        self.edit_super_at_home(|edit| self.say_clean(edit, orphans_in_file))
    }

    /// The same where there are changes in memory that nobody will ever commit: of the superblock, too. Blocks.
    pub(crate) fn mark_clean_as_at_home(&self, orphans_in_file: bool) -> Result<(), Error> {
        let edit = |edit: &mut SuperblockEdit<'_>| self.say_clean(edit, orphans_in_file);
        edit_superblock(&self.blocking, self.block_size(), edit)
    }

    fn say_clean(&self, edit: &mut SuperblockEdit<'_>, orphans_in_file: bool) {
        if self.has_journal() {
            edit.set_needs_recovery(false);
        }
        edit.set_valid(self.sb.is_clean());
        edit.set_orphan_present(orphans_in_file);
        edit.set_write_time(self.now_seconds());
        edit.set_kbytes_written(self.kbytes_written());
    }

    /// What every commit writes: how much is free, and what has failed; one block, which the journal has kept room for. `empty`: nothing
    /// else is in it.
    pub(crate) fn before_commit(
        &self,
        handle: &JournalHandle<'_>,
        empty: bool,
    ) -> Result<(), Error> {
        let failure = self.take_record();
        if empty && failure.is_none() {
            return Ok(());
        }
        let now = self.now_seconds();
        self.edit_super(handle, |edit| {
            edit.set_write_time(now);
            edit.set_kbytes_written(self.kbytes_written());
            if let Some(alloc) = &self.alloc {
                edit.set_free_blocks(alloc.free_blocks());
                edit.set_free_inodes(alloc.free_inodes());
            }
            if let Some(failure) = &failure {
                edit.record_error(failure);
            }
        })
    }

    /// Before a size reaches 2 GiB the superblock says that there may be such files: the first time, and in the same transaction.
    pub(crate) fn announce_size(&self, handle: &JournalHandle<'_>, size: u64) -> Result<(), Error> {
        if size <= MOST_OF_SMALL || self.large_files.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.edit_super(handle, |edit| edit.set_large_file())?;
        self.large_files.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// These runs were freed by a transaction that is durable now.
    pub(crate) fn reuse(&self, freed: &[(FsBlock, u32)]) {
        for (start, len) in freed {
            if let Some(alloc) = &self.alloc {
                alloc.reuse(&self.sb, *start, *len);
            }
        }
    }

    /// Changes the superblock as a part of a transaction. Blocks while the device reads.
    pub(crate) fn edit_super(
        &self,
        handle: &JournalHandle<'_>,
        change: impl FnOnce(&mut SuperblockEdit<'_>),
    ) -> Result<(), Error> {
        let block = self.sb.super_block();
        handle.update(
            block,
            Kind::Super,
            |raw| self.verify_super(raw),
            |raw| self.edit_bytes(raw, change),
        )
    }

    /// Changes the superblock at home, past the journal.
    fn edit_super_at_home(
        &self,
        change: impl FnOnce(&mut SuperblockEdit<'_>),
    ) -> Result<(), Error> {
        let at = (self.sb.super_block(), Kind::Super.into());
        let verify = |raw: &[u8]| self.verify_super(raw);
        let edit = |raw: &mut [u8]| self.edit_bytes(raw, change);
        // In no transaction: none is running, and the block is home before one begins.
        self.cache
            .change(&self.blocking, at, Tid::new(0), verify, edit)?;
        let bytes = self
            .cache
            .freeze(at.0, |_, _| unreachable!("the superblock is no node"));
        self.write_blocks_durably(std::iter::once((at.0, &*bytes)))?;
        self.cache.is_home(at.0, &bytes);
        Ok(())
    }

    fn edit_bytes(
        &self,
        raw: &mut [u8],
        change: impl FnOnce(&mut SuperblockEdit<'_>),
    ) -> Result<(), Error> {
        let from = self.super_offset();
        let bytes: &mut [u8; SUPERBLOCK_SIZE] = (&mut raw[from..from + SUPERBLOCK_SIZE])
            .try_into()
            .expect("the slice is cut to this size");
        let mut edit = SuperblockEdit::new(bytes);
        change(&mut edit);
        edit.seal();
        Ok(())
    }

    fn verify_super(&self, raw: &[u8]) -> Result<(), FormatError> {
        let from = self.super_offset();
        let bytes: &[u8; SUPERBLOCK_SIZE] = raw[from..from + SUPERBLOCK_SIZE]
            .try_into()
            .expect("the slice is cut to this size");
        Superblock::parse(bytes).map(|_| ())
    }

    /// Where in its block the superblock begins.
    fn super_offset(&self) -> usize {
        (SUPERBLOCK_OFFSET % u64::from(self.block_size())) as usize
    }

    /// Is there a log? Else changes go home in rounds.
    pub(crate) fn has_journal(&self) -> bool {
        self.sb.journal() != JournalPlace::None
    }

    pub(crate) fn now_seconds(&self) -> i64 {
        i64::try_from(self.now().as_secs()).unwrap_or(i64::MAX)
    }
}
