//! Deleting an inode that nothing names and nobody uses.
//!
//! Input: an inode on the list. Output: its blocks, its attributes' block and its number free. Invariants: its blocks go in pieces, in
//! handles of their own, and so do attributes with values in inodes of their own; the last handle takes it off the list and frees its
//! number, so a crash leaves an orphan or nothing. Limits: blocks.

use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::range;
use crate::volume::VolumeShared;
use diorite_format::features::Incompat;
use diorite_format::{Ino, MapKind};
use std::sync::Arc;

/// The number's bitmap and descriptor, the attributes' block, its bitmap and descriptor, the inode.
const DELETE_CREDITS: u32 = 6;

impl VolumeShared {
    /// Names went: whatever nobody uses any more of what they named is deleted. What fails does not undo that they went: it stays on the
    /// list, and is tried again. Blocks; no lock may be held.
    pub(crate) fn delete_unlinked_best_effort(self: &Arc<Self>) {
        if self.orphans.any() {
            self.let_go_of_unlinked();
        }
        self.delete_doomed_best_effort();
    }

    /// May it be deleted in the handle that takes its last name? Nothing is to be freed but its number, and nobody seems to have it but
    /// the caller, with the one reference that it hands in.
    pub(crate) fn may_go_at_once(&self, inode: &Arc<Inode>) -> bool {
        let disk = inode.disk();
        disk.blocks == 0
            && disk.file_acl.is_none()
            && !disk.is_dir()
            && !self.sb.features().incompat.has(Incompat::EA_INODE)
            && Arc::strong_count(inode) == 1
    }

    /// The time of deletion that its place is to have then.
    pub(crate) fn time_of_deletion(&self) -> u32 {
        u32::try_from(self.now().as_secs()).map_or(u32::MAX, |now| now.max(1))
    }

    /// Deletes such an inode, in the same handle, unless somebody has found it meanwhile: then its place has no time of deletion again.
    /// Changes as many blocks as [`super::ORPHAN_CREDITS`].
    ///
    /// The order: its place says that it has no name and was deleted; it leaves the table of inodes in memory, so that who looks for it
    /// from now on finds what that place says; its number is free. Who found it before keeps it from being deleted here.
    pub(crate) fn go_at_once(
        &self,
        handle: &JournalHandle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<bool, Error> {
        if !self.forget_if_sole(inode) {
            inode.change(handle, |disk| disk.dtime = 0)?;
            return Ok(false);
        }
        inode.note_deleted();
        self.alloc()?.free_inode(handle, inode.ino, false)?;
        Ok(true)
    }

    /// Deletes what has lost its last name and its last user; while a group is open that waits, on the list. Blocks; no lock may be held.
    pub(crate) fn delete_doomed(self: &Arc<Self>) -> Result<(), Error> {
        if self.has_group() {
            return Ok(());
        }
        while let Some(ino) = self.orphans.next_doomed() {
            self.delete_orphan(ino)
                .inspect_err(|_| self.orphans.doom_later(ino))?;
        }
        Ok(())
    }

    /// Deletes an inode that is on the list. Blocks; no lock may be held.
    pub(crate) fn delete_orphan(self: &Arc<Self>, ino: Ino) -> Result<(), Error> {
        let inode = self.orphans.read(self, ino)?;
        delete(&inode).map_err(|e| e.at(format!("deleting inode {ino}")))
    }
}

fn delete(inode: &Inode) -> Result<(), Error> {
    let volume = &inode.volume;
    inode.check_map()?;
    if matches!(
        inode.disk().map_kind(),
        MapKind::Extents | MapKind::Indirect
    ) {
        range::shrink(inode, 0)?;
    }
    let now = volume.time_of_deletion();
    let is_dir = inode.disk().is_dir();
    let credits = DELETE_CREDITS + super::ORPHAN_CREDITS;
    loop {
        drop_values(inode)?;
        let deleted = volume.in_handle(credits, |handle| {
            // The last of those who shared the block has its values: asked and left in one step, so that one of them is the last.
            if !inode.release_xattr_block(handle)? {
                return Ok(false);
            }
            volume.orphans.remove(handle, inode, now)?;
            // Off the list, it is not found again by who would try once more.
            handle.or_abort((|| {
                inode.change(handle, |disk| disk.size = 0)?;
                volume.alloc()?.free_inode(handle, inode.ino, is_dir)
            })())?;
            Ok(true)
        })?;
        if deleted {
            return Ok(());
        }
    }
}

/// Takes away the attributes whose values are in inodes of their own, each in a handle: these go when nothing else names them.
fn drop_values(inode: &Inode) -> Result<(), Error> {
    while let Some((index, name)) = inode.held_attribute()? {
        let credits = inode.attribute_credits()?;
        inode.volume.in_handle(credits, |handle| {
            let _map = inode.map_lock.lock();
            inode.remove_xattr(handle, (index, &name))
        })?;
    }
    Ok(())
}

/// Can it be deleted? Asked before a name of it goes: once the last one has gone it can only stay on the list, where whoever opens the
/// volume next for writing meets the same damage.
pub(crate) fn check_deletable(inode: &Inode) -> Result<(), Error> {
    inode.check_map()?;
    let disk = inode.disk();
    if disk.links > 1 && !disk.is_dir() {
        return Ok(());
    }
    inode.check_nodes(0)?;
    inode.held_attribute().map(drop)
}
