//! A file, changed: its size, what it is mapped to, what its inode says.
//!
//! Input: an open file. Output: requests of it, or changes of its inode. Invariants: what waits for direct requests is a request itself. Limits:
//! all of it blocks.

use super::File;
use crate::attr::{SetAttr, keep_inside, set_attr};
use crate::error::Error;
use crate::op::{Fallocate, Seek};
use crate::range;
use crate::request::{FileId, Request};
use diorite_format::InodeFlags;

impl File {
    /// Makes the file `size` bytes long: what lies behind is given back, what is new reads as zeros. Waits for direct requests in flight.
    /// Blocks. A crash shows the old size or the new one. Data in the inode stays there if that has room for so much.
    ///
    /// # Errors
    /// The file or the volume may not be changed; `TooBig`; damage; a device that fails.
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        let request = Request::truncate(FileId::NONE, size, 0);
        self.run(request).result.map(|_| ())
    }

    /// Changes what a range of the file is mapped to. Waits for direct requests in flight. Blocks. A crash shows a part of the range done;
    /// of a shift, see [`Fallocate::CollapseRange`], all or nothing as long as the map behind the range fits one transaction, and else the
    /// hole on its way.
    ///
    /// # Errors
    /// `NotSupported` for a file without extents, which can only be punched; `Invalid` for an empty range or one that is not as the mode
    /// wants it; `NoSpace`, with nothing changed; as [`File::truncate`].
    pub fn fallocate(&self, mode: Fallocate, pos: u64, len: u64) -> Result<(), Error> {
        let request = Request::fallocate(FileId::NONE, mode, pos, len, 0);
        self.run(request).result.map(|_| ())
    }

    /// The first byte of data or of a hole from `from` on; none from the file's end on, or if there is no more data. Blocks while the map
    /// is read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub fn seek(&self, from: u64, what: Seek) -> Result<Option<u64>, Error> {
        range::seek(self.inode(), from, what)
    }

    /// Puts the whole contents of an empty file into its inode, on a volume that keeps small files there. False, and nothing done, if
    /// there is no room for it, or something is in the file: then it has to be written. Durable when the call returns where a write would
    /// be. Waits for direct requests in flight. Blocks.
    ///
    /// # Errors
    /// The file or the volume may not be changed; damage; a device that fails.
    pub fn keep_inside(&self, data: &[u8]) -> Result<bool, Error> {
        keep_inside(self.open_file(), data)
    }

    /// As [`crate::Volume::set_attr`], also for a file without a name.
    ///
    /// # Errors
    /// Those of [`crate::Volume::set_attr`].
    pub fn set_attr(&self, set: &SetAttr) -> Result<(), Error> {
        set_attr(self.inode(), set, None)
    }

    /// As [`crate::Volume::set_flags`], also for a file without a name.
    ///
    /// # Errors
    /// Those of [`crate::Volume::set_flags`].
    pub fn set_flags(&self, flags: InodeFlags) -> Result<(), Error> {
        self.inode().set_flags(flags)
    }
}
