//! Changes of an inode's flags and generation: what `chattr` changes.
//!
//! Input: the flags that the inode shall have. Output: those of them that a user may set are set, in one handle; from then on every queue
//! applies them to its writes. Invariants: flags that describe the contents of the inode are not changed; whether data goes through the
//! journal changes only while no request is under way and the log has nothing of the file. Limits: permissions of callers are not checked;
//! the kind of a map does not change; flags that this engine does not act on are only stored. Source: man 1 chattr, man 2 ioctl_iflags;
//! every bit tried on files and directories of the kernel's mount.

use super::Quiesced;
use super::times::reads_matter;
use super::{Inode, journalled, timestamp};
use crate::error::Error;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{Inode as DiskInode, InodeFlags};
use std::sync::Arc;

/// Flags that may be set on every inode.
const OF_ALL: InodeFlags = InodeFlags::NODUMP.with(InodeFlags::NOATIME);
/// Flags that may be set on files, and on directories.
const OF_FILES: InodeFlags = OF_ALL
    .with(InodeFlags::SECRM)
    .with(InodeFlags::UNRM)
    .with(InodeFlags::COMPR)
    .with(InodeFlags::SYNC)
    .with(InodeFlags::IMMUTABLE)
    .with(InodeFlags::APPEND)
    .with(InodeFlags::JOURNAL_DATA)
    .with(InodeFlags::NOTAIL)
    .with(InodeFlags::DAX);
/// Flags that may be set on directories.
const OF_DIRS: InodeFlags = OF_FILES
    .with(InodeFlags::DIRSYNC)
    .with(InodeFlags::TOPDIR)
    .with(InodeFlags::PROJINHERIT);
/// Flags that keep their values whether they are asked for or not, as they describe the contents of the inode.
const KEPT: InodeFlags = InodeFlags::DIRTY
    .with(InodeFlags::COMPRBLK)
    .with(InodeFlags::NOCOMPR)
    .with(InodeFlags::ENCRYPT)
    .with(InodeFlags::INDEX)
    .with(InodeFlags::VERITY)
    .with(InodeFlags::INLINE_DATA)
    .with(InodeFlags::EOFBLOCKS);

/// Flags that describe how a file or a directory is stored. Changing one is refused.
const FIXED: InodeFlags = InodeFlags::EXTENTS.with(InodeFlags::CASEFOLD);

impl Inode {
    /// See [`crate::Volume::set_flags`].
    pub(crate) fn set_flags(self: &Arc<Self>, wanted: InodeFlags) -> Result<(), Error> {
        self.volume.check_writable()?;
        let (mut claim, mut alone) = (None, None);
        let before = loop {
            if let Some(before) = self.write_flags(wanted, alone.as_ref())? {
                break before;
            }
            // Pages go to the device as they were promised a place there.
            claim = Some(self.claim_pages()?);
            alone = Some(self.quiesce());
            self.checkpoint_data()?;
            // The cache may have blocks from before they were this file's, as when somebody read attributes that were removed since.
            self.volume.cache.drop_all_clean();
        };
        drop(alone);
        drop(claim);
        // The removal of the flag `S` is the last change that has to be durable at once.
        match before.has(InodeFlags::SYNC) {
            true => self.commit_change(),
            false => self.sync_if_flagged(),
        }
    }

    /// See [`crate::Volume::set_generation`].
    pub(crate) fn set_generation(&self, generation: u32) -> Result<(), Error> {
        let volume = &self.volume;
        volume.check_writable()?;
        if volume.sb.has_metadata_csum() {
            let what = "a new generation where checksums have the old one in them (metadata_csum)";
            return Err(Error::NotSupported(what.to_owned()));
        }
        self.check_settable()?;
        let now = timestamp(volume.now_nanos());
        volume.in_handle(1, |handle| {
            self.change(handle, |disk| {
                disk.set_generation(&volume.sb, generation);
                disk.ctime = now;
            })
        })?;
        self.sync_if_flagged()
    }

    /// Checks which flags may be changed, and returns the settable ones. The map lock is held.
    fn check_flags(&self, wanted: InodeFlags) -> Result<InodeFlags, Error> {
        let (ino, disk) = (self.ino, self.disk());
        if self.volume.is_own_inode(ino) || disk.holds_value() {
            let flag = "one of the volume's own";
            return Err(Error::NotPermitted { ino, flag });
        }
        let settable = match () {
            () if disk.is_dir() => OF_DIRS,
            () if disk.is_file() => OF_FILES,
            () => OF_ALL,
        };
        // A flag that the inode has already may be named even if it is not settable.
        let others = wanted.without(settable.with(KEPT).with(disk.flags));
        let lost = FIXED.without(wanted);
        let lost = lost.without(lost.without(disk.flags));
        if others.with(lost).bits() != 0 {
            return Err(Error::NotSupported(why_not(others, lost)));
        }
        let stays = disk.flags.has(InodeFlags::IMMUTABLE) && wanted.has(InodeFlags::IMMUTABLE);
        if stays && changed(&disk, wanted, settable) != disk.flags {
            let flag = "immutable";
            return Err(Error::NotPermitted { ino, flag });
        }
        Ok(settable)
    }

    /// Sets the flags, and returns those that the inode had. Returns None, and does nothing, if the flag `j` of a file changes and the
    /// caller has not the turn. That is checked under the lock, as other threads change flags too; only with the turn does it stay as
    /// found here whether data goes through the journal.
    fn write_flags(
        &self,
        wanted: InodeFlags,
        alone: Option<&Quiesced<'_>>,
    ) -> Result<Option<InodeFlags>, Error> {
        let now = timestamp(self.volume.now_nanos());
        self.volume.in_handle(1, |handle| {
            let _map = self.map_lock.lock();
            let settable = self.check_flags(wanted)?;
            let (before, data) = (self.disk().flags, InodeFlags::JOURNAL_DATA);
            let moves_data = self.disk().is_file() && before.has(data) != wanted.has(data);
            if moves_data && alone.is_none() {
                return Ok(None);
            }
            self.change(handle, |disk| {
                disk.flags = changed(disk, wanted, settable);
                disk.ctime = now;
            })?;
            let disk = self.disk();
            let journalled = journalled::is_journalled(&self.volume, &disk);
            self.note_flags(disk.flags, journalled);
            self.read_matters
                .store(reads_matter(&self.volume, &disk), Ordering::Relaxed);
            if self.journalled.swap(journalled, Ordering::AcqRel) != journalled {
                // Makes queues forget the runs that they have found last.
                self.map.publish(self.map.load());
            }
            Ok(Some(before))
        })
    }
}

/// The reason why the flags `more` cannot be set, or `fewer` not be cleared, in words.
fn why_not(more: InodeFlags, fewer: InodeFlags) -> String {
    let why = match () {
        () if more.has(InodeFlags::EXTENTS) => {
            "a map of blocks does not turn into extents (e); a copy of the file has them"
        }
        () if fewer.has(InodeFlags::EXTENTS) => "extents (e) do not turn into a map of blocks",
        () if more.has(InodeFlags::CASEFOLD) => {
            "no directory begins to fold case (F): no names could be made there"
        }
        () if fewer.has(InodeFlags::CASEFOLD) => "a directory that folds case (F) goes on with it",
        () => {
            let letters = more.letters().replace('-', "");
            return format!(
                "flags {letters} ({:#x}) of an inode of this kind",
                more.bits()
            );
        }
    };
    why.to_owned()
}

fn changed(disk: &DiskInode, wanted: InodeFlags, settable: InodeFlags) -> InodeFlags {
    let new = InodeFlags::from_bits(wanted.bits() & settable.bits());
    disk.flags.without(settable).with(new)
}

#[cfg(test)]
mod tests;
