//! The superblock's state of use: "in use" or "clean".
//!
//! Input: the first change of metadata, and the end of all changes. Output: the primary superblock, written in place past any journal.
//! Invariants: it says "in use" durably before anything else is changed, and "clean" only after all changes are home. Limits: copies of the
//! superblock in other groups do not get the marks, as when the kernel mounts.

use super::cache::{Kind, UsedAs};
use super::{Disk, edit_kept_superblock, write_block};
use crate::error::Error;
use diorite_format::features::RoCompat;
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockEdit};
use diorite_format::{FormatError, FsBlock, GroupNo, Superblock, Tid};

impl Disk {
    /// Marks the volume as in use in the superblock: with a journal as needing recovery, without one as not clean. Durable when the call
    /// returns. `keep`: see [`Disk::edit_super_at_home`]. Blocks.
    pub(crate) fn mark_in_use(
        &self,
        keep: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (now, journaled) = (self.now_seconds(), self.has_journal());
        let (mounts, orphan_file) = (self.sb.info().mount_count, self.sb.orphan_file().is_some());
        let change = |edit: &mut SuperblockEdit<'_>| {
            if journaled {
                edit.set_needs_recovery(true);
            } else {
                edit.set_valid(false);
            }
            if orphan_file {
                edit.set_orphan_present(true);
            }
            edit.forget_orphan_file();
            edit.set_mount_count(mounts.saturating_add(1));
            edit.set_mount_time(now);
            edit.set_write_time(now);
            if let Some(path) = &self.mounted_on {
                edit.set_last_mounted(path.as_bytes());
            }
        };
        self.edit_super_at_home(change, keep)
    }

    /// Marks the volume as clean in the superblock. All changes must be home already. Durable when the call returns.
    /// `keep`: see [`Disk::edit_super_at_home`]. Blocks.
    pub(crate) fn mark_clean(
        &self,
        orphans_in_file: bool,
        keep: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.edit_super_at_home(|edit| self.say_clean(edit, orphans_in_file), keep)
    }

    /// As [`Disk::mark_clean`], but changes the superblock as it is on the device: the one in memory has changes that are never committed.
    /// Blocks.
    pub(crate) fn mark_clean_as_at_home(
        &self,
        orphans_in_file: bool,
        keep: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let edit = |edit: &mut SuperblockEdit<'_>| self.say_clean(edit, orphans_in_file);
        edit_kept_superblock(&self.blocking, self.block_size(), edit, keep)
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

    /// Loads the superblock, so that a change of it needs no read. Blocks.
    pub(crate) fn load_super(&self) -> Result<(), Error> {
        self.super_bytes().map(drop)
    }

    /// Changes the superblock and writes it in place, past the journal. `keep` gets its block before that, to keep a copy of it, as the
    /// write may be torn. Durable when the call returns. Blocks.
    pub(crate) fn edit_super_at_home(
        &self,
        change: impl FnOnce(&mut SuperblockEdit<'_>),
        keep: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let at = (self.sb.super_block(), Kind::Super.into());
        let verify = |raw: &[u8]| self.verify_super(raw);
        let change = |raw: &mut [u8]| self.edit_super_in(raw, change);
        self.change_at_home(at, verify, change, keep)
    }

    /// Changes a block that no transaction has changed since it was home, and writes it in place, past the journal. No transaction may be
    /// running. `keep` gets its bytes before they are written. Durable when the call returns. Blocks.
    pub(crate) fn change_at_home(
        &self,
        at: (FsBlock, UsedAs),
        verify: impl FnOnce(&[u8]) -> Result<(), FormatError>,
        change: impl FnOnce(&mut [u8]) -> Result<(), Error>,
        keep: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // In no transaction: none is running, and the block is home before the next one begins.
        self.cache
            .change(&self.blocking, at, Tid::new(0), verify, change)?;
        let bytes = self.cache.freeze(at.0, |_, _| {
            unreachable!("the block's checksum is up to date")
        });
        keep(&bytes)?;
        self.write_blocks_durably(std::iter::once((at.0, &*bytes)))?;
        self.cache.is_home(at.0, &bytes);
        Ok(())
    }

    /// A block with the copy of the superblock that belongs into a group. Blocks.
    fn super_copy(&self, group: GroupNo) -> Result<Vec<u8>, Error> {
        let mut copy = self.super_bytes()?;
        let mut edit = SuperblockEdit::new(&mut copy);
        edit.set_copy_in(group.get());
        edit.seal();
        let mut block = vec![0; self.block_size() as usize];
        block[..SUPERBLOCK_SIZE].copy_from_slice(&copy);
        Ok(block)
    }

    /// Writes the copies of the superblock in other groups, durably, past any journal: nothing depends on them while the original can be
    /// read. `sb` says where: the superblock that the volume has on disk. Blocks.
    pub(crate) fn write_super_copies(&self, sb: &Superblock) -> Result<(), Error> {
        for group in sb.groups_with_copies() {
            let at = sb.byte_of(sb.group_first_block(group)).get();
            write_block(&self.blocking, at, &self.super_copy(group)?)?;
            self.note_written(u64::from(self.block_size()));
        }
        self.flush()
    }

    /// Whether [`Disk::publish_super`] may be called.
    pub(crate) fn check_super_may_change(&self) -> Result<(), Error> {
        match self.sb.changes_left() {
            0 => {
                let what = "too many changes since the volume was opened: open it again";
                Err(Error::Invalid(what.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Takes over the parameters that the superblock has now, as the running transaction has it. The marks of use stay as they were when
    /// the volume was opened; `clean` says whether it was cleanly unmounted before, `errors` whether errors are recorded. One thread at a
    /// time, and while changes of the superblock are left. Blocks.
    pub(crate) fn publish_super(&self, clean: bool, errors: bool) -> Result<(), Error> {
        let mut raw = self.super_bytes()?;
        let mut edit = SuperblockEdit::new(&mut raw);
        edit.set_needs_recovery(self.sb.needs_recovery());
        edit.set_orphan_present(self.sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT));
        edit.set_valid(clean);
        edit.set_error_state(errors);
        edit.seal();
        self.sb.publish(Superblock::parse(&raw)?);
        Ok(())
    }

    /// The superblock as the running transaction has it.
    fn super_bytes(&self) -> Result<[u8; SUPERBLOCK_SIZE], Error> {
        let at = self.sb.super_block();
        let verify = |raw: &[u8]| self.verify_super(raw);
        let raw = self.cache.read(&self.blocking, at, Kind::Super, verify)?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(&raw[self.super_offset()..][..SUPERBLOCK_SIZE]);
        Ok(bytes)
    }

    /// Changes the superblock within the bytes of its block, and updates its checksum.
    pub(crate) fn edit_super_in(
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

    /// Checks that the bytes of a block contain a valid superblock.
    pub(crate) fn verify_super(&self, raw: &[u8]) -> Result<(), FormatError> {
        let from = self.super_offset();
        let bytes: &[u8; SUPERBLOCK_SIZE] = raw[from..from + SUPERBLOCK_SIZE]
            .try_into()
            .expect("the slice is cut to this size");
        Superblock::parse(bytes).map(|_| ())
    }

    /// The superblock's offset in its block.
    fn super_offset(&self) -> usize {
        (SUPERBLOCK_OFFSET % u64::from(self.block_size())) as usize
    }
}
