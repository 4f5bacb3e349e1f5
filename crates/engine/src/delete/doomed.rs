//! Deleting an inode that nothing names and nobody uses.
//!
//! Input: an inode on the list. Output: its blocks, its attributes' block and its number free. Invariants: its blocks go in pieces, in
//! handles of their own, and so do attributes with values in inodes of their own; the last handle takes it off the list and frees its
//! number, so a crash leaves an orphan or nothing. Limits: blocks.

use crate::error::Error;
use crate::inode::{Fs, Inode, read_orphan};
use crate::journal::JournalHandle;
use crate::orphan::ORPHAN_CREDITS;
use crate::range;
use crate::xattr;
use diorite_block::Epoch;
use diorite_format::features::Incompat;
use diorite_format::{Ino, MapKind};
use std::sync::Arc;

/// The number's bitmap and descriptor, the attributes' block, its bitmap and descriptor, the inode.
const DELETE_CREDITS: u32 = 6;

/// Names went: whatever nobody uses any more of what they named is deleted. What fails does not undo that they went: it stays on the
/// list, and is tried again. Blocks; no lock may be held.
pub(crate) fn delete_unlinked_best_effort(fs: &Arc<Fs>) {
    if fs.orphans.any() {
        fs.let_go_of_unlinked();
    }
    delete_doomed_best_effort(fs);
}

/// May it be deleted in the handle that takes its last name? Nothing is to be freed but its number, and nobody seems to have it but
/// the caller, with the one reference that it hands in.
pub(crate) fn may_go_at_once(inode: &Arc<Inode>) -> bool {
    let disk = inode.disk();
    disk.blocks == 0
        && disk.file_acl.is_none()
        && !disk.is_dir()
        && !inode.volume.sb.features().incompat.has(Incompat::EA_INODE)
        && Arc::strong_count(inode) == 1
}

/// The time of deletion that its place is to have then.
pub(crate) fn time_of_deletion(fs: &Fs) -> u32 {
    u32::try_from(fs.now().as_secs()).map_or(u32::MAX, |now| now.max(1))
}

/// Deletes such an inode, in the same handle, unless somebody has found it meanwhile: then its place has no time of deletion again.
/// Changes as many blocks as [`ORPHAN_CREDITS`].
///
/// The order: its place says that it has no name and was deleted; it leaves the table of inodes in memory, so that who looks for it
/// from now on finds what that place says; its number is free. Who found it before keeps it from being deleted here.
pub(crate) fn go_at_once(handle: &JournalHandle<'_>, inode: &Arc<Inode>) -> Result<bool, Error> {
    let fs = &inode.volume;
    if !fs.forget_if_sole(inode) {
        inode.change(handle, |disk| disk.dtime = 0)?;
        return Ok(false);
    }
    inode.note_deleted();
    fs.alloc()?.free_inode(handle, inode.ino, false)?;
    Ok(true)
}

/// Deletes what has lost its last name and its last user; while a group is open that waits, on the list. Blocks; no lock may be held.
pub(crate) fn delete_doomed(fs: &Arc<Fs>) -> Result<(), Error> {
    if fs.has_group() {
        return Ok(());
    }
    while let Some(ino) = fs.orphans.next_doomed() {
        delete_orphan(fs, ino).inspect_err(|_| fs.orphans.doom_later(ino))?;
    }
    Ok(())
}

/// As [`delete_doomed`], where nobody can be told: what fails stays on the list of orphans.
pub(crate) fn delete_doomed_best_effort(fs: &Arc<Fs>) {
    let _stays = delete_doomed(fs);
}

/// Deletes what nobody uses and commits, so that its space is usable. Blocks; no lock may be held.
pub(crate) fn commit_deleted(fs: &Arc<Fs>) -> Result<(), Error> {
    if fs.takes_overwrites_alone() {
        return Ok(());
    }
    // What cannot be deleted is still to be committed as an orphan.
    delete_doomed_best_effort(fs);
    fs.commit_running()
}

/// Deletes what nobody uses, and makes durable all that was acknowledged; `since` as for [`Fs::make_all_durable`]. Blocks; no lock may be
/// held.
pub(crate) fn sync(fs: &Arc<Fs>, since: Epoch) -> Result<(), Error> {
    if !fs.is_writable() {
        return Ok(());
    }
    delete_doomed_best_effort(fs);
    fs.make_all_durable(since)
}

/// Deletes an inode that is on the list. Blocks; no lock may be held.
pub(crate) fn delete_orphan(fs: &Arc<Fs>, ino: Ino) -> Result<(), Error> {
    let inode = read(fs, ino)?;
    delete(&inode).map_err(|e| e.at(format!("deleting inode {ino}")))
}

/// Reads an inode that is on the list and is to be deleted, so that a neighbour that leaves the list finds it. The list does not change
/// meanwhile: else that neighbour would have changed it on disk only.
pub(super) fn read(fs: &Arc<Fs>, ino: Ino) -> Result<Arc<Inode>, Error> {
    fs.orphans.while_still(|| {
        let inode = Arc::new(read_orphan(fs, ino)?);
        // Nobody finds it from now on: its number may soon be another's.
        inode.note_deleted();
        fs.know(&inode);
        Ok(inode)
    })
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
    let now = time_of_deletion(volume);
    let is_dir = inode.disk().is_dir();
    let credits = DELETE_CREDITS + ORPHAN_CREDITS;
    loop {
        drop_values(inode)?;
        let deleted = volume.in_handle(credits, |handle| {
            // The last of those who shared the block has its values: asked and left in one step, so that one of them is the last.
            if !xattr::release_xattr_block(inode, handle)? {
                return Ok(false);
            }
            inode.end_orphan(handle, now)?;
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
    while let Some((index, name)) = xattr::held_attribute(inode)? {
        let credits = xattr::attribute_credits(inode)?;
        inode.volume.in_handle(credits, |handle| {
            let _map = inode.map_lock.lock();
            xattr::remove_xattr(inode, handle, (index, &name))
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
    xattr::held_attribute(inode).map(drop)
}
