//! Deletes an inode that has no name and no user.
//!
//! Input: an inode on the orphan list. Output: its blocks, its block of attributes and its number are free. Invariants: its blocks are
//! freed in pieces, in handles of their own, and so are attributes with values in inodes of their own; the last handle takes it off the
//! list and frees its number. So a crash leaves an orphan or nothing. Limits: blocks.

use crate::error::Error;
use crate::inode::{Fs, Glance, Inode, read_orphan, timestamp};
use crate::journal::JournalHandle;
use crate::orphan::ORPHAN_CREDITS;
use crate::range;
use crate::xattr;
use diorite_block::Epoch;
use diorite_format::features::Incompat;
use diorite_format::{Ino, Inode as DiskInode, MapKind};
use std::sync::Arc;

/// For the bitmap and descriptor of its number, the block of attributes with its bitmap and descriptor, and the inode.
const DELETE_CREDITS: u32 = 6;

/// Call after names were removed: deletes unlinked inodes that have no user. Failures are not reported: such inodes stay on the orphan
/// list, and their deletion is tried again. Blocks; no lock may be held.
pub(crate) fn delete_unlinked_best_effort(fs: &Arc<Fs>) {
    if fs.orphans.any() {
        fs.let_go_of_unlinked();
    }
    delete_doomed_best_effort(fs);
}

/// May the inode be deleted in the handle that removes its last name? It may if only its number has to be freed, and the caller's
/// reference is the only one.
pub(crate) fn may_go_at_once(inode: &Arc<Inode>) -> bool {
    Arc::strong_count(inode) == 1 && has_only_number(inode, &inode.disk())
}

/// Does the inode have nothing to free but its number?
fn has_only_number(inode: &Inode, disk: &DiskInode) -> bool {
    disk.blocks == 0
        && disk.file_acl.is_none()
        && !disk.is_dir()
        && !inode.volume.sb.features().incompat.has(Incompat::EA_INODE)
}

/// Is the name that a caller removes the last one of an inode that may be deleted in the same handle, and does nobody else have the inode?
/// Then nobody gets it from now on: who asks for its number is told that it is not in use. If the name stays after all, call
/// [`Inode::note_kept`].
pub(crate) fn condemn(inode: &Arc<Inode>) -> bool {
    let may = |disk: &DiskInode| has_only_number(inode, disk);
    Arc::strong_count(inode) == 1 && inode.volume.condemn_if_sole(inode, may)
}

/// Loads what the removal of one of the names of an inode changes in it: where it goes onto the orphan list, or its number is freed.
pub(crate) fn prepare_to_lose_name(handle: &JournalHandle<'_>, inode: &Inode) -> Result<(), Error> {
    inode.prepare_orphan(handle)?;
    let disk = inode.disk();
    if disk.links > 1 || !has_only_number(inode, &disk) {
        return Ok(());
    }
    let alloc = inode.volume.alloc()?;
    alloc.prepare_to_free_inode(handle, inode.ino)
}

/// Loads what [`delete_condemned`] changes.
pub(crate) fn prepare_condemned(handle: &JournalHandle<'_>, inode: &Inode) -> Result<(), Error> {
    inode.prepare_to_change(handle)?;
    let alloc = inode.volume.alloc()?;
    alloc.prepare_to_free_inode(handle, inode.ino)
}

/// Removes the last link of an inode for which [`condemn`] was true, and frees its number. Its place in the inode table says that it is
/// deleted before another inode can get the number.
pub(crate) fn delete_condemned(handle: &JournalHandle<'_>, inode: &Inode) -> Result<(), Error> {
    let fs = &inode.volume;
    inode.change(handle, |disk| {
        disk.links = 0;
        disk.ctime = timestamp(handle.now_nanos());
        disk.dtime = time_of_deletion(handle);
    })?;
    handle.goes(inode.ino);
    free_number(fs, handle, inode.ino)
}

/// Frees the number of an inode whose place in the inode table says that it is deleted.
fn free_number(fs: &Fs, handle: &JournalHandle<'_>, ino: Ino) -> Result<(), Error> {
    let alloc = fs.alloc()?;
    alloc.free_inode(handle, ino, false)?;
    alloc.note_written(handle, ino);
    Ok(())
}

/// Is an inode that nobody has in memory a file with one name, and with nothing to free but its number?
pub(crate) fn has_only_number_of(fs: &Fs, seen: &Glance) -> bool {
    let disk = &seen.disk;
    let has_values = fs.sb.features().incompat.has(Incompat::EA_INODE);
    disk.links == 1 && disk.blocks == 0 && seen.is_empty && !disk.is_dir() && !has_values
}

/// Deletes an inode for which [`has_only_number_of`] was true, with its name, which `take_out` removes. Returns false, with nothing
/// changed, if it is in memory by now. From the beginning on its place in the inode table says that it is deleted, so nobody gets it by its
/// number; if `take_out` fails, which has changed nothing then, the place is as it was.
pub(crate) fn delete_unheld(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    seen: &Glance,
    take_out: impl FnOnce() -> Result<(), Error>,
) -> Result<bool, Error> {
    let ino = seen.disk.ino;
    fs.alloc()?.prepare_to_free_inode(handle, ino)?;
    let deleted = fs.change_absent(handle, seen, |disk| {
        disk.links = 0;
        disk.ctime = timestamp(handle.now_nanos());
        disk.dtime = time_of_deletion(handle);
    })?;
    if !deleted {
        return Ok(false);
    }
    if let Err(error) = take_out() {
        let back = fs.change_on_disk(handle, ino, |disk| disk.clone_from(&seen.disk));
        return handle.or_abort(back).and(Err(error));
    }
    handle.goes(ino);
    let freed = free_number(fs, handle, ino);
    handle.or_abort(freed).map(|()| true)
}

/// The deletion time for `i_dtime`, in seconds since 1970; never 0.
pub(crate) fn time_of_deletion(handle: &JournalHandle<'_>) -> u32 {
    let seconds = timestamp(handle.now_nanos()).secs;
    u32::try_from(seconds).map_or(u32::MAX, |seconds| seconds.max(1))
}

/// Deletes an inode for which [`may_go_at_once`] was true, in the same handle. Returns false if somebody has found it meanwhile; its
/// deletion time is cleared again then. Needs at most [`ORPHAN_CREDITS`] credits.
///
/// The order: its place in the inode table says that it has no name and is deleted; it leaves the table of in-core inodes, so that a later
/// lookup finds what its place says; its number is freed. A reference from an earlier lookup prevents the deletion, also one by number.
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

/// Deletes all inodes without a name that have lost their last user. Those that cannot be deleted stay on the orphan list, and their
/// deletion is tried again by the next call. While an atomic change is open they all wait on the list. Blocks; no lock may be held.
pub(crate) fn delete_doomed_best_effort(fs: &Arc<Fs>) {
    if fs.has_atomic() {
        return;
    }
    let mut stay = Vec::new();
    while let Some(ino) = fs.orphans.next_doomed() {
        if let Err(error) = delete_orphan(fs, ino) {
            stay.push(ino);
            if matches!(error.root(), Error::Aborted(_)) {
                break;
            }
        }
    }
    stay.into_iter().for_each(|ino| fs.orphans.doom(ino));
}

/// Deletes unused inodes and commits, so that their space can be used. Blocks; no lock may be held.
pub(crate) fn commit_deleted(fs: &Arc<Fs>) -> Result<(), Error> {
    if fs.takes_overwrites_alone() {
        return Ok(());
    }
    // An inode that cannot be deleted must still be committed as an orphan, so errors do not matter here.
    delete_doomed_best_effort(fs);
    fs.commit_running()
}

/// As [`commit_deleted`], for a search for space: in the middle of an atomic change none comes of it, which is no error.
pub(crate) fn free_deleted(fs: &Arc<Fs>) -> Result<(), Error> {
    match commit_deleted(fs) {
        Err(Error::InAtomic) => Ok(()),
        done => done,
    }
}

/// Deletes unused inodes, and makes everything durable that was acknowledged. `since`: as for [`Fs::make_all_durable`]. Blocks; no lock
/// may be held.
pub(crate) fn sync(fs: &Arc<Fs>, since: Epoch) -> Result<(), Error> {
    if !fs.is_writable() {
        return Ok(());
    }
    let pages = fs.write_back_all();
    delete_doomed_best_effort(fs);
    fs.make_all_durable(since).and(pages)
}

/// Deletes an inode that is on the orphan list. Blocks; no lock may be held.
pub(crate) fn delete_orphan(fs: &Arc<Fs>, ino: Ino) -> Result<(), Error> {
    let inode = read(fs, ino)?;
    delete(&inode).map_err(|e| e.at(format!("deleting inode {ino}")))
}

/// Reads an inode that is on the orphan list and is to be deleted, and puts it into the table. The list must not change meanwhile: a
/// neighbour that leaves the list changes this inode, and would do so on disk only if it did not find it in memory.
pub(super) fn read(fs: &Arc<Fs>, ino: Ino) -> Result<Arc<Inode>, Error> {
    fs.orphans.while_still(|| {
        let inode = read_orphan(fs, ino)?;
        // From now on no lookup may return it, as another inode may get its number soon.
        inode.note_deleted();
        fs.know(&inode);
        Ok(inode)
    })
}

fn delete(inode: &Inode) -> Result<(), Error> {
    let volume = &inode.volume;
    inode.check_map(&inode.disk())?;
    if matches!(
        inode.disk().map_kind(),
        MapKind::Extents | MapKind::Indirect
    ) {
        range::shrink(inode, 0)?;
    }
    let is_dir = inode.is_dir();
    let credits = DELETE_CREDITS + ORPHAN_CREDITS;
    loop {
        drop_values(inode)?;
        let deleted = volume.in_handle(credits, |handle| {
            inode.prepare_orphan(handle)?;
            let alloc = volume.alloc()?;
            alloc.prepare_to_free_inode(handle, inode.ino)?;
            // Only the last inode that shares the block has its values. Asking and leaving are one step, so exactly one inode is the last.
            if !xattr::release_xattr_block(inode, handle)? {
                return Ok(false);
            }
            inode.end_orphan(handle, time_of_deletion(handle))?;
            // It is off the list now, so nobody would try again: a failure aborts the journal.
            handle.or_abort((|| {
                inode.change(handle, |disk| disk.size = 0)?;
                alloc.free_inode(handle, inode.ino, is_dir)
            })())?;
            Ok(true)
        })?;
        if deleted {
            return Ok(());
        }
    }
}

/// Removes the attributes with values in inodes of their own, each in a handle. A value inode is deleted when no attribute refers to it.
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

/// Checks that it can be deleted, before one of its names is removed. An inode that has lost its last name and cannot be deleted could
/// only stay on the orphan list, where the next opening for writing would meet the same damage.
pub(crate) fn check_deletable(inode: &Inode) -> Result<(), Error> {
    let disk = inode.disk();
    inode.check_map(&disk)?;
    if !inode.is_dir() && disk.links > 1 {
        return Ok(());
    }
    inode.check_nodes(&disk, 0)?;
    xattr::held_attribute(inode).map(drop)
}
