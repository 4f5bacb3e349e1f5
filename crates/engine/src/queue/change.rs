//! Calls that change an open file without writing data: size, allocation, attributes; and the search for data and holes.
//!
//! Input: an open file. Output: requests on a queue for blocking calls, or changes of the inode. Invariants: a change that has to wait for
//! direct requests in flight is a request itself. Limits: every call blocks.

use super::File;
use crate::attr::{SetAttr, clear_rights, keep_inside, set_attr};
use crate::caller::Caller;
use crate::error::Error;
use crate::op::{Fallocate, Seek};
use crate::range;
use crate::request::{FileId, Request};
use diorite_format::InodeFlags;

impl File {
    /// Makes the file `size` bytes long. Blocks behind the new end are freed; bytes that are new read as zeros. Waits for direct requests
    /// in flight. Blocks. After a crash the file has the old size or the new one. Inline data stays in the inode as long as it fits
    /// there.
    ///
    /// # Errors
    /// The file or the volume may not be changed; `TooBig`; damage; a device that fails.
    pub fn truncate(&self, size: u64) -> Result<(), Error> {
        let request = Request::truncate(FileId::NONE, size, 0);
        self.run(request).result.map(|_| ())
    }

    /// Changes what `len` bytes at `pos` are mapped to. Waits for direct requests in flight. Blocks. After a crash a part of the range
    /// may be done. A shift ([`Fallocate::CollapseRange`], [`Fallocate::InsertRange`]) is done wholly or not at all if the map behind the
    /// range fits into one transaction; else a crash may leave the hole at any place between the start of the range and the end of the
    /// file.
    ///
    /// # Errors
    /// `NotSupported` for a file without extents, in which holes can be punched but nothing else; `Invalid` for an empty range, or one
    /// that the mode does not allow; `NoSpace`, with nothing changed; those of [`File::truncate`].
    pub fn fallocate(&self, mode: Fallocate, pos: u64, len: u64) -> Result<(), Error> {
        let request = Request::fallocate(FileId::NONE, mode, pos, len, 0);
        self.run(request).result.map(|_| ())
    }

    /// The first byte of data, or of a hole, at or behind `from` (lseek with SEEK_DATA, SEEK_HOLE). None if `from` is at or behind the
    /// file's end, or if no data follows. What is not written back yet is data. Blocks while the map is read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub fn seek_next(&self, from: u64, what: Seek) -> Result<Option<u64>, Error> {
        range::seek_with_pages(self.inode(), from, what)
    }

    /// Stores the whole contents of an empty file in its inode, on a volume with inline data. Returns false, and does nothing, if `data`
    /// does not fit there or the file is not empty: then write it. Durable when the call returns if a write would be. Waits for direct
    /// requests in flight. Blocks.
    ///
    /// # Errors
    /// The file or the volume may not be changed; damage; a device that fails.
    pub fn keep_inside(&self, data: &[u8]) -> Result<bool, Error> {
        self.inode().volume.check_open()?;
        keep_inside(self.open_file(), data)
    }

    /// As [`crate::Volume::set_attr`]; works for a file without a name, too.
    ///
    /// # Errors
    /// Those of [`crate::Volume::set_attr`].
    pub fn set_attr(&self, set: &SetAttr) -> Result<(), Error> {
        self.inode().volume.check_open()?;
        set_attr(self.inode(), set, None)
    }

    /// Clears set-user-id and set-group-id as far as a write by this caller does ([`Caller::mode_after_write`]), with the time of the
    /// change. Returns whether there was something to clear. For frontends: see [`crate::Volume::leave_rights_to_frontend`]. Blocks.
    ///
    /// # Errors
    /// Those of [`crate::Volume::set_attr`].
    pub fn clear_rights(&self, by: &Caller) -> Result<bool, Error> {
        self.inode().volume.check_open()?;
        self.inode().check_settable()?;
        clear_rights(self.inode(), by)
    }

    /// As [`crate::Volume::set_flags`]; works for a file without a name, too.
    ///
    /// # Errors
    /// Those of [`crate::Volume::set_flags`].
    pub fn set_flags(&self, flags: InodeFlags) -> Result<(), Error> {
        self.inode().volume.check_open()?;
        self.inode().set_flags(flags)
    }
}
