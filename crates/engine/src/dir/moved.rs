//! The inode whose name moves: in memory, or as it was seen in the inode table.
//!
//! Input: an inode, under the locks of both directories. Output: its type; its ctime, changed in the caller's handle. Invariants: an inode
//! that nobody has in memory is not brought there. Limits: directories are in memory always.

use super::remove::{kind_of, known_kind};
use crate::error::Error;
use crate::inode::{Fs, Glance, Inode, timestamp};
use crate::journal::JournalHandle;
use diorite_format::{FileType, Ino};
use std::sync::Arc;

/// The inode that moves.
#[derive(Clone, Copy)]
pub(super) enum Moved<'a> {
    InMemory(&'a Arc<Inode>),
    /// Not a directory. Nobody had it in memory; if somebody has by now, the move starts over.
    Seen(&'a Glance),
}

impl Moved<'_> {
    pub(super) fn ino(self) -> Ino {
        match self {
            Moved::InMemory(inode) => inode.ino,
            Moved::Seen(seen) => seen.disk.ino,
        }
    }

    pub(super) fn kind(self) -> Result<FileType, Error> {
        match self {
            Moved::InMemory(inode) => kind_of(inode),
            Moved::Seen(seen) => known_kind(seen.disk.ino, seen.disk.file_type),
        }
    }

    /// The inode, if it is a directory.
    pub(super) fn directory(&self) -> Option<&Arc<Inode>> {
        match self {
            Moved::InMemory(inode) => Some(*inode).filter(|inode| inode.is_dir()),
            Moved::Seen(_) => None,
        }
    }

    pub(super) fn check_settable(self, volume: &Fs) -> Result<(), Error> {
        match self {
            Moved::InMemory(inode) => inode.check_settable(),
            Moved::Seen(seen) => seen.check_settable(volume),
        }
    }

    /// Loads what a change of it changes.
    pub(super) fn prepare(self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        match self {
            Moved::InMemory(inode) => inode.prepare_to_change(handle),
            Moved::Seen(_) => Ok(()),
        }
    }

    /// Calls `put`, which makes the new name. Before it the change is noted in an inode that nobody has in memory, as nothing is changed if
    /// somebody has by now: returns false then. A `put` that fails has changed nothing, and so has this.
    pub(super) fn touch_first(
        self,
        volume: &Fs,
        handle: &JournalHandle<'_>,
        put: impl FnOnce() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let Moved::Seen(seen) = self else {
            return put().map(|()| true);
        };
        let now = timestamp(handle.now_nanos());
        let touched = volume.change_absent(handle, seen, |disk| {
            disk.ctime = volume.later_change(disk.ctime, now);
        })?;
        if !touched {
            return Ok(false);
        }
        if let Err(error) = put() {
            let (ino, ctime) = (seen.disk.ino, seen.disk.ctime);
            let back = match volume.known_inode(ino) {
                Some(inode) => inode.change(handle, |disk| disk.ctime = ctime),
                None => volume.change_on_disk(handle, ino, |disk| disk.ctime = ctime),
            };
            return handle.or_abort(back).and(Err(error));
        }
        Ok(true)
    }
}

/// Sets the ctime of an inode that moves.
pub(super) fn note_change(handle: &JournalHandle<'_>, inode: &Inode) -> Result<(), Error> {
    let now = timestamp(handle.now_nanos());
    inode.change(handle, |disk| {
        disk.ctime = inode.volume.later_change(disk.ctime, now);
    })
}
