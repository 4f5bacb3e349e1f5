//! Names removed, and further names added to an inode.
//!
//! Input: places of names. Output: the name is gone, and its inode with the last name; or an inode has one name more. Invariants: a name
//! and the link count change in one handle; a file that is in use when it loses its last name stays complete, on the orphan list, until its
//! last user drops it; a directory is removed only while it is locked and empty. Limits: a directory has only one name.

use super::durable::commit_names;
use super::edit::{put, take_out};
use super::inline_dir::inline_entries;
use super::links::{self, one_less};
use super::lookup::Found;
use super::spot::{Spot, lock_all};
use super::{blocks, names_in, read_block};
use crate::delete;
use crate::delete::check_deletable;
use crate::dir::inline_dir;
use crate::dir::placement::find_placement;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::{Inode, timestamp};
use crate::journal::JournalHandle;
use crate::orphan::ORPHAN_CREDITS;
use diorite_format::{FileType, Ino};
use std::sync::Arc;

/// Removes a name that is not a directory's; the file is deleted with its last name and last user.
pub(crate) fn unlink(spot: &Spot<'_>) -> Result<(), Error> {
    if spot.is_special() {
        return Err(spot.a_directory());
    }
    let volume = &spot.dir.volume;
    let is_orphan = remove_name(volume, spot)?;
    commit_names(&[&spot.dir])?;
    if is_orphan {
        delete::delete_unlinked_best_effort(volume);
    }
    Ok(())
}

/// Removes an empty directory.
pub(crate) fn rmdir(spot: &Spot<'_>) -> Result<(), Error> {
    let path = spot.shown();
    match spot.name {
        b"" => return Err(Error::Busy { path }),
        b"." => return Err(Error::Invalid(format!("{path}: not by this name"))),
        b".." => return Err(Error::NotEmpty { path }),
        _ => {}
    }
    let volume = &spot.dir.volume;
    remove_directory(volume, spot)?;
    commit_names(&[&spot.dir])?;
    delete::delete_unlinked_best_effort(volume);
    Ok(())
}

/// Gives an inode one more name.
pub(crate) fn link(inode: &Arc<Inode>, spot: &Spot<'_>) -> Result<(), Error> {
    let volume = &spot.dir.volume;
    volume.with_space_of_others(|| link_locked(inode, spot))?;
    commit_names(&[&spot.dir])
}

fn link_locked(inode: &Arc<Inode>, spot: &Spot<'_>) -> Result<(), Error> {
    let volume = &spot.dir.volume;
    if !Arc::ptr_eq(volume, &inode.volume) {
        let what = format!("{}: the file is on another volume", spot.shown());
        return Err(Error::Invalid(what));
    }
    if spot.is_special() {
        return Err(spot.exists());
    }
    if inode.is_dir() {
        let (ino, flag) = (inode.ino, "a directory");
        return Err(Error::NotPermitted { ino, flag });
    }
    inode.check_settable()?;
    let kind = kind_of(inode)?;
    let dir = &spot.dir;
    let names = dir.lock_exclusive(false)?;
    spot.check_can_add()?;
    let searched = spot.search_by(&names)?;
    if searched.found().is_some() {
        return Err(spot.exists());
    }
    if spot.slash {
        return Err(spot.missing());
    }
    // Checked here and again in the handle: a link that is refused here has not made the directory grow.
    check_countable(inode, inode.disk().links)?;
    let room = find_placement(dir, spot.name, searched.room())?;
    let credits = room.credits(dir) + 2 + ORPHAN_CREDITS;
    let linked = volume.in_handle(credits, |handle| {
        inode.prepare_orphan(handle)?;
        put(handle, dir, &room, (spot.name, inode.ino, kind))?;
        let counted = handle.or_abort(count_name(handle, inode))?;
        if counted.is_err() {
            // The directory is locked, so nobody has seen the name.
            let at = handle
                .or_abort(spot.find())?
                .expect("it was just put there");
            handle.or_abort(take_out(handle, dir, &at, spot.name))?;
        }
        Ok(counted)
    });
    if linked.is_err() {
        room.give_back(dir);
    }
    linked?
}

/// Can an inode with so many links get another name? One without a name can only if it never had one (O_TMPFILE).
fn check_countable(inode: &Inode, links: u16) -> Result<(), Error> {
    match links {
        0 if !inode.is_temporary() => {
            let path = format!("inode {}", inode.ino);
            Err(Error::NotFound { path })
        }
        links::MOST.. => Err(links::too_many(inode)),
        _ => Ok(()),
    }
}

/// Counts one more name of an inode. After the inner error nothing has changed; the outer one may have left changes.
pub(super) fn count_name(
    handle: &JournalHandle<'_>,
    inode: &Arc<Inode>,
) -> Result<Result<(), Error>, Error> {
    let now = timestamp(handle.now_nanos());
    let (mut counted, mut was_temporary) = (Ok(()), false);
    inode.change(handle, |disk| {
        counted = check_countable(inode, disk.links);
        if counted.is_ok() {
            was_temporary = disk.links == 0;
            disk.links += 1;
            disk.ctime = inode.volume.later_change(disk.ctime, now);
        }
    })?;
    if was_temporary {
        // After a failed truncation the inode stays on the orphan list, because of the blocks that are left behind its size.
        if !inode.is_cut() {
            inode.end_orphan(handle, 0)?;
        }
        inode.note_named();
    }
    Ok(counted)
}

/// Counts one name less. With the last name the inode is deleted here if only its number has to be freed, else it is put onto the orphan
/// list. Returns whether it is on that list now.
pub(super) fn count_out(handle: &JournalHandle<'_>, inode: &Arc<Inode>) -> Result<bool, Error> {
    let now = timestamp(handle.now_nanos());
    let (mut links, at_once) = (0, delete::may_go_at_once(inode));
    inode.change(handle, |disk| {
        disk.links = match disk.is_dir() {
            true => 0,
            false => disk.links.saturating_sub(1),
        };
        disk.ctime = inode.volume.later_change(disk.ctime, now);
        links = disk.links;
        if links == 0 && at_once {
            disk.dtime = delete::time_of_deletion(handle);
        }
    })?;
    if links == 0 {
        handle.goes(inode.ino);
    }
    if links > 0 || at_once && delete::go_at_once(handle, inode)? {
        return Ok(false);
    }
    inode.begin_orphan(handle)?;
    Ok(true)
}

/// The file type that a directory entry of the inode stores.
pub(super) fn kind_of(inode: &Inode) -> Result<FileType, Error> {
    known_kind(inode.ino, inode.file_type())
}

/// As [`kind_of`], of an inode of this type.
pub(super) fn known_kind(ino: Ino, kind: Option<FileType>) -> Result<FileType, Error> {
    let unknown = || Error::Damaged(format!("inode {ino} has a name and no type; run e2fsck"));
    kind.ok_or_else(unknown)
}

/// Removes the name under the directory's lock. Returns whether the inode is on the orphan list now.
fn remove_name(volume: &Arc<Fs>, spot: &Spot<'_>) -> Result<bool, Error> {
    let dir = &spot.dir;
    let names = dir.lock_exclusive(false)?;
    spot.check_can_remove()?;
    let found = spot.search_by(&names)?.found();
    let found = found.ok_or_else(|| spot.missing())?;
    if remove_unheld(volume, spot, &found)? {
        return Ok(false);
    }
    let inode = volume.inode(found.ino)?;
    if inode.is_dir() {
        return Err(spot.a_directory());
    }
    if spot.slash {
        return Err(spot.no_directory());
    }
    inode.check_settable()?;
    check_deletable(&inode)?;
    // Nobody else has it, and nobody gets it from now on, so the orphan list is not needed.
    let at_once = delete::condemn(&inode);
    let removed = volume.in_handle(4 + ORPHAN_CREDITS, |handle| {
        match at_once {
            true => delete::prepare_condemned(handle, &inode)?,
            false => delete::prepare_to_lose_name(handle, &inode)?,
        }
        take_out(handle, dir, &found, spot.name)?;
        handle.or_abort(match at_once {
            true => delete::delete_condemned(handle, &inode).map(|()| false),
            false => count_out(handle, &inode),
        })
    });
    if at_once && removed.is_err() {
        inode.note_kept();
    }
    let is_orphan = removed?;
    if is_orphan {
        inode.note_unlinked();
    }
    Ok(is_orphan)
}

/// Removes the last name of a file that nobody has in memory and that has nothing to free but its number, with the file. Returns false,
/// with nothing changed, if it is no such file.
fn remove_unheld(volume: &Arc<Fs>, spot: &Spot<'_>, found: &Found) -> Result<bool, Error> {
    let seen = volume.glance(found.ino);
    let Some(seen) = seen.filter(|seen| delete::has_only_number_of(volume, seen)) else {
        return Ok(false);
    };
    if spot.slash {
        return Err(spot.no_directory());
    }
    seen.check_settable(volume)?;
    volume.in_handle(4 + ORPHAN_CREDITS, |handle| {
        let take_out = || take_out(handle, &spot.dir, found, spot.name);
        delete::delete_unheld(volume, handle, &seen, take_out)
    })
}

fn remove_directory(volume: &Arc<Fs>, spot: &Spot<'_>) -> Result<(), Error> {
    loop {
        let gone = spot.look()?.ok_or_else(|| spot.missing())?;
        if !gone.is_dir() {
            return Err(spot.no_directory());
        }
        let _locks = lock_all([&spot.dir, &gone]);
        let found = spot.find()?.ok_or_else(|| spot.missing())?;
        if found.ino != gone.ino {
            // Another thread has replaced it meanwhile.
            continue;
        }
        spot.check_can_remove()?;
        gone.check_settable()?;
        check_deletable(&gone)?;
        check_empty(&gone, spot)?;
        volume.in_handle(5 + ORPHAN_CREDITS, |handle| {
            spot.dir.prepare_to_change(handle)?;
            gone.prepare_orphan(handle)?;
            take_out(handle, &spot.dir, &found, spot.name)?;
            handle.or_abort(spot.dir.change(handle, one_less))?;
            handle.or_abort(count_out(handle, &gone))
        })?;
        gone.note_unlinked();
        return Ok(());
    }
}

/// Checks that a directory, which is locked, has no names but "." and "..".
pub(super) fn check_empty(dir: &Inode, spot: &Spot<'_>) -> Result<(), Error> {
    let is_own = |name: &[u8]| name == b"." || name == b"..";
    let full = || Err(Error::NotEmpty { path: spot.shown() });
    if inline_dir::is_inside(dir) {
        let all = inline_entries(dir)?;
        return match all.iter().all(|e| is_own(&e.name)) {
            true => Ok(()),
            false => full(),
        };
    }
    for block in 0..blocks(dir)? {
        let Some(raw) = read_block(dir, block)? else {
            continue;
        };
        let parsed = names_in(dir, block, &raw);
        if !parsed.entries().all(|e| is_own(e.name)) {
            return full();
        }
    }
    Ok(())
}
