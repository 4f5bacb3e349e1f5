//! An existing name redirected to another file, in one step.
//!
//! Input: an open file, which may have no name, and an existing name. Output: the name refers to that file. Invariants: it is one handle,
//! so a lookup, or a recovery after a crash, finds either the old file or the complete new one; the old file is deleted with its last name
//! and user. Limits: neither is a directory.

use super::durable::commit_names;
use super::edit::{stand_for, touch};
use super::lookup::Found;
use super::remove::{count_name, count_out, kind_of};
use super::spot::Spot;
use crate::delete;
use crate::delete::check_deletable;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::orphan::ORPHAN_CREDITS;
use std::sync::Arc;

/// Credits: a block of names, its directory, and both inodes with their changes of the orphan list.
const REPLACE_CREDITS: u32 = 4 + 2 * ORPHAN_CREDITS;

/// Makes an existing name refer to `inode`. Returns false if the name is gone meanwhile.
pub(crate) fn replace(inode: &Arc<Inode>, spot: &Spot<'_>) -> Result<bool, Error> {
    if spot.is_special() {
        return Err(spot.a_directory());
    }
    let volume = &spot.dir.volume;
    let is_done = replace_locked(volume, spot, inode)?;
    if is_done {
        commit_names(&[&spot.dir])?;
        delete::delete_unlinked_best_effort(volume);
    }
    Ok(is_done)
}

fn replace_locked(volume: &Arc<Fs>, spot: &Spot<'_>, inode: &Arc<Inode>) -> Result<bool, Error> {
    let _names = spot.dir.lock_exclusive(false)?;
    spot.check_can_remove()?;
    let Some(place) = spot.find()? else {
        return Ok(false);
    };
    if place.ino == inode.ino {
        return Ok(true);
    }
    let there = volume.inode(place.ino)?;
    if there.is_dir() {
        return Err(spot.a_directory());
    }
    if spot.slash {
        return Err(spot.no_directory());
    }
    there.check_settable()?;
    check_deletable(&there)?;
    let was_last = volume.in_handle(REPLACE_CREDITS, |handle| {
        spot.dir.prepare_to_change(handle)?;
        inode.prepare_orphan(handle)?;
        delete::prepare_to_lose_name(handle, &there)?;
        // This is the first change, because it fails if the inode has too many names.
        handle.or_abort(count_name(handle, inode))??;
        handle.or_abort(put_in_place(handle, spot, place, (inode, &there)))
    })?;
    if was_last {
        there.note_unlinked();
    }
    Ok(true)
}

/// Redirects the name to `new`. Returns whether `old` has lost its last name and is on the orphan list.
fn put_in_place(
    handle: &JournalHandle<'_>,
    spot: &Spot<'_>,
    place: Found,
    (new, old): (&Inode, &Arc<Inode>),
) -> Result<bool, Error> {
    let what = (spot.name, new.ino, kind_of(new)?);
    handle.replaces();
    stand_for(handle, &spot.dir, place.block, what)?;
    touch(handle, &spot.dir)?;
    count_out(handle, old)
}
