//! The flags of an inode, and its generation, set: what `chattr` changes.
//!
//! Input: the flags that it shall have. Output: those of them that are a user's to set, in one handle; what they mean for writes is known to every queue
//! from then on. Invariants: flags that say what is in the inode stay as they are; whether data goes through the journal changes while no
//! request is under way and nothing of the file is in the log. Limits: who may set what is the caller's policy; the kind of a map does
//! not change; those that nobody acts on are kept, and no more.
//! Source: man 1 chattr, man 2 ioctl_iflags; every bit tried on files and directories of the kernel's mount.

use super::Quiesced;
use super::times::reads_matter;
use super::{Inode, journalled, timestamp};
use crate::error::Error;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{Inode as DiskInode, InodeFlags};

/// Of all inodes.
const OF_ALL: InodeFlags = InodeFlags::NODUMP.with(InodeFlags::NOATIME);
/// Of files and directories, too.
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
/// Of directories alone.
const OF_DIRS: InodeFlags = OF_FILES
    .with(InodeFlags::DIRSYNC)
    .with(InodeFlags::TOPDIR)
    .with(InodeFlags::PROJINHERIT);
/// Asked for or not, these stay as they are: they say what is in the inode.
const KEPT: InodeFlags = InodeFlags::DIRTY
    .with(InodeFlags::COMPRBLK)
    .with(InodeFlags::NOCOMPR)
    .with(InodeFlags::ENCRYPT)
    .with(InodeFlags::INDEX)
    .with(InodeFlags::VERITY)
    .with(InodeFlags::INLINE_DATA)
    .with(InodeFlags::EOFBLOCKS);

/// They say how a file or a directory is stored: not changed, so each change of them is refused.
const FIXED: InodeFlags = InodeFlags::EXTENTS.with(InodeFlags::CASEFOLD);

impl Inode {
    /// See [`crate::Volume::set_flags`].
    pub(crate) fn set_flags(&self, wanted: InodeFlags) -> Result<(), Error> {
        self.volume.check_writable()?;
        let mut alone = None;
        let before = loop {
            if let Some(before) = self.write_flags(wanted, alone.as_ref())? {
                break before;
            }
            alone = Some(self.quiesce());
            self.settle_data()?;
            // What was read of a block before it was this file's, as by who looked for attributes that just went, is none of its data.
            self.volume.cache.drop_all_clean();
        };
        drop(alone);
        // That the flag goes is the last change under it.
        match before.has(InodeFlags::SYNC) {
            true => self.commit_change(),
            false => self.settle(),
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
        self.settle()
    }

    /// Which flags change. The map lock is held.
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
        // One that it has may always be named.
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

    /// Gives the flags that it had. None, and nothing done, if data begins or ends to go through the journal, and the caller has not the
    /// turn. Asked of the flags that are changed, as others change them too: with the turn, whether data goes through the journal stays
    /// as it is found here.
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
                // Queues forget where they have read or written last.
                self.map.publish(self.map.load());
            }
            Ok(Some(before))
        })
    }
}

/// Which of these more or of those fewer cannot be, in words.
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
