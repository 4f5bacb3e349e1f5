//! The size of a volume.
//!
//! Input: a size. Output: the volume with it, durable. Invariants: files stay open, and requests go on. Limits: the device is made larger
//! by its owner, before.

use super::Volume;
use crate::error::Error;
use crate::inode::Fs;
use crate::relocate::{Moved, Progress};
use crate::resize::{self, Spare};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Volume {
    /// Makes the file system larger, to at most `bytes` bytes, while it is in use: whole blocks, and a last group only if it has room for
    /// more than its own metadata. The device must have that size already ([`diorite_block::Device::refresh`] looks at it again). Returns
    /// the bytes that the file system has afterwards; that it has these already is no error. Blocks, requests of others do not.
    ///
    /// # Errors
    /// `Invalid`: fewer bytes than it has, or more than the format allows, or more than the device has; `NotSupported`: the group
    /// descriptors cannot grow that far; the volume may not be written; damage; errors of the device. After an error of the device the
    /// copies of the superblock may be those of the old size; e2fsck replaces them.
    pub fn grow(&self, bytes: u64) -> Result<u64, Error> {
        let fs = self.inner();
        fs.check_open()?;
        resize::grow(fs, bytes / u64::from(fs.block_size()))?;
        Ok(fs.sb.geometry().volume_bytes())
    }

    /// The size in bytes that [`Volume::grow`] would give the file system for these `bytes`, on a device that has room for it. Does not
    /// block on I/O.
    ///
    /// # Errors
    /// As [`Volume::grow`], as far as the size alone decides.
    pub fn grown_bytes(&self, bytes: u64) -> Result<u64, Error> {
        let fs = self.inner();
        let size = u64::from(fs.block_size());
        Ok(resize::grown(fs, bytes / size)?.saturating_mul(size))
    }

    /// The size in bytes that [`Volume::enlarge`] would give the file system for these `bytes`, on a device that has room for it. Does not
    /// block on I/O.
    ///
    /// # Errors
    /// As [`Volume::enlarge`], as far as the size alone decides.
    pub fn enlarged_bytes(&self, bytes: u64) -> Result<u64, Error> {
        let fs = self.inner();
        let size = u64::from(fs.block_size());
        Ok(resize::enlarged(fs, bytes / size)?.saturating_mul(size))
    }

    /// Makes the file system larger as [`Volume::grow`] does, also where the group descriptors have no room: what lies behind them moves
    /// first, each move in a transaction of its own; and closes it. Nobody else may use the volume: it has no open file, no queue and no
    /// other handle. `progress` is told of what has moved, and ends it with false. Returns the bytes that it has then. Blocks.
    ///
    /// # Errors
    /// As [`Volume::grow`] and [`Volume::shrink`]; after a crash or an error the volume has one of the two sizes, and all its files.
    pub fn enlarge(
        self,
        bytes: u64,
        progress: &mut dyn FnMut(&Moved) -> bool,
    ) -> Result<u64, Error> {
        let size = u64::from(self.inner().block_size());
        self.change_alone(progress, |fs, progress| {
            Ok(resize::enlarge(fs, bytes / size, progress)? * size)
        })
    }

    /// Switches the feature 64bit, which gives group descriptors 64 bytes in place of 32, and closes the volume; that it has it already, or
    /// has not, is no error. Where longer descriptors have no room, what lies behind them moves first. Nobody else may use the volume.
    /// `progress` as of [`Volume::shrink`]. Blocks.
    ///
    /// # Errors
    /// `NotSupported`: 64bit without extents, or descriptors have no room; `Invalid`: more blocks than 32 bits count, or the volume is in
    /// use; else as [`Volume::shrink`]. After a crash the volume is the old one or the new one when it is opened here; e2fsck may need a
    /// copy of the superblock.
    pub fn set_64bit(
        self,
        on: bool,
        progress: &mut dyn FnMut(&Moved) -> bool,
    ) -> Result<(), Error> {
        self.change_alone(progress, |fs, progress| resize::convert(fs, on, progress))
    }

    /// What [`Volume::grow`] or [`Volume::enlarge`] to these `bytes` writes behind the end of the file system before the end moves, by the
    /// byte where each piece begins; all else that it writes there is zeros. So nothing else is there when each byte behind the end is 0 or
    /// what is told here: a growth that was interrupted can be repeated. Does not block on I/O.
    ///
    /// # Errors
    /// As [`Volume::grown_bytes`].
    pub fn grow_writes(&self, bytes: u64) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
        let fs = self.inner();
        fs.check_open()?;
        resize::before_commit(fs, bytes / u64::from(fs.block_size()))
    }

    /// Makes the file system smaller, to at most `bytes` bytes, and closes it: whole blocks, and a last group only if it has room for more
    /// than its own metadata. What lies behind the new end moves to the front first: data, directories, inodes, which get other numbers,
    /// and the journal. Each move is a transaction of its own, and the last one moves the end; after a crash the volume has one of the two
    /// sizes and all its files. If the journal had to move, a crash may leave blocks that nobody uses, which a check finds and frees.
    /// Returns the bytes that it has then; what is behind them on the device is of no use any more. Nobody else may use the volume: it has
    /// no open file, no queue and no other handle. `progress` is told of what has moved, and ends it with false. Blocks.
    ///
    /// # Errors
    /// `Invalid`: the volume is in use, or more bytes than it has, or too few for its structures, or `progress` ended it; `NoSpace`,
    /// `NoInodes`: its files need more; `NotSupported`, `Refused`: something behind the end cannot move; the volume may not be written;
    /// damage; errors of the device. The volume is closed then, too, unless it is in use: then it is as before, and goes on to serve those
    /// who use it.
    pub fn shrink(
        self,
        bytes: u64,
        progress: &mut dyn FnMut(&Moved) -> bool,
    ) -> Result<u64, Error> {
        let size = u64::from(self.inner().block_size());
        self.change_alone(progress, |fs, progress| {
            Ok(resize::shrink(fs, bytes / size, progress)? * size)
        })
    }

    /// Changes a volume that nobody else uses, and closes it. Blocks.
    fn change_alone<R>(
        self,
        progress: &mut dyn FnMut(&Moved) -> bool,
        change: impl FnOnce(&Arc<Fs>, Progress<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let fs = self.inner();
        fs.check_open()?;
        self.check_unused()?;
        self.pool().end_blocking_calls();
        fs.known.clear();
        fs.recent.close();
        // Clean pages keep their inodes in memory, and dirty ones have contents that are on no device yet.
        fs.cached.close();
        fs.write_back_all()?;
        fs.cached.clear();
        let mut goes_on = |moved: &Moved| match progress(moved) {
            true => Ok(()),
            false => Err(Error::Invalid("it was ended by its caller".to_owned())),
        };
        let done = change(fs, &mut goes_on);
        let closed = self.close();
        let done = done?;
        closed.map(|()| done)
    }

    /// Checks that nobody else uses the volume, in which case nobody will begin to. Background write-back rests then; if somebody does use
    /// it, it goes on. Blocks.
    fn check_unused(&self) -> Result<(), Error> {
        let (pool, fs) = (self.pool(), self.inner());
        pool.rest();
        // Idle queues have the file of their last call, which counts as open.
        pool.close_idle_queues();
        let handles = Arc::strong_count(&self.shared) + Arc::strong_count(pool);
        let checked = if handles > 2 || !self.service().open_queues().is_empty() {
            Err(Error::Invalid(format!(
                "{} is in use: it has open files, queues or other handles, and cannot be changed as a whole",
                fs.name()
            )))
        } else if fs.has_atomic() {
            Err(Error::InAtomic)
        } else {
            Ok(())
        };
        if checked.is_err() {
            pool.look_for_dirty();
        }
        checked
    }

    /// About the smallest size in bytes to which [`Volume::shrink`] can make the file system, if `headroom` bytes of it are to be free
    /// afterwards. Does not block on I/O.
    #[must_use]
    pub fn least_bytes(&self, headroom: u64) -> u64 {
        self.least(headroom, Spare::ForMaps)
    }

    /// As [`Volume::least_bytes`], with nothing left for maps that need more blocks when their files move: where they do,
    /// [`Volume::shrink`] says `NoSpace`. Does not block on I/O.
    #[must_use]
    pub fn tightest_bytes(&self, headroom: u64) -> u64 {
        self.least(headroom, Spare::Nothing)
    }

    fn least(&self, headroom: u64, spare: Spare) -> u64 {
        let fs = self.inner();
        let size = u64::from(fs.block_size());
        resize::least(fs, headroom.div_ceil(size), spare).saturating_mul(size)
    }
}
