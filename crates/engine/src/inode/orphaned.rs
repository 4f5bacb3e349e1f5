//! Puts an inode on the orphan list, and takes it off.
//!
//! Input: inodes, under a handle. Output: the list changed, with the `i_dtime` fields that chain it. Invariants: those of `orphan`.
//! Limits: a change needs at most [`crate::orphan::ORPHAN_CREDITS`] credits, beside the inode's own.

use super::Inode;
use super::times::is_tid;
use crate::error::Error;
use crate::journal::JournalHandle;

impl Inode {
    /// Loads its block of the inode table, so that a change of it needs no device. Blocks while metadata is read.
    pub(crate) fn prepare_to_change(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        // What the handle's transaction has changed stays in memory.
        if is_tid(&self.table_tid, handle.tid()) {
            return Ok(());
        }
        self.volume.prepare_to_change(handle, self.ino)
    }

    /// Loads what putting it on the orphan list or taking it off changes, so that neither needs the device: for a change that cannot be
    /// undone. Blocks while metadata is read.
    pub(crate) fn prepare_orphan(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let volume = &self.volume;
        let prepare = |ino| volume.prepare_to_change(handle, ino);
        volume.orphans.prepare(handle, self.ino, prepare)
    }

    /// Puts it on the orphan list, unless it is there. Blocks while metadata is read.
    pub(crate) fn begin_orphan(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let set_dtime = |dtime| self.change(handle, |disk| disk.dtime = dtime);
        self.volume.orphans.add(handle, self.ino, set_dtime)
    }

    /// Takes it off the orphan list, if it is there; `dtime` is its deletion time afterwards. Blocks while metadata is read.
    ///
    /// # Errors
    /// Then it is still on the list, in memory and on disk; or the journal is aborted.
    pub(crate) fn end_orphan(&self, handle: &JournalHandle<'_>, dtime: u32) -> Result<(), Error> {
        let volume = &self.volume;
        let set_dtime = |of, dtime| match volume.known_inode(of) {
            _ if of == self.ino => self.change(handle, |disk| disk.dtime = dtime),
            Some(inode) => inode.change(handle, |disk| disk.dtime = dtime),
            None => volume.change_on_disk(handle, of, |disk| disk.dtime = dtime),
        };
        volume.orphans.remove(handle, self.ino, dtime, set_dtime)
    }
}
