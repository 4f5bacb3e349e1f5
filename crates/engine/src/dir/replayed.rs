//! Names that the replay of fast commits adds to directories and removes from them.
//!
//! Input: directories and inodes, as fast commits describe them. Output: names changed, each in a handle of its own, and whether there was
//! anything to change. Invariants: a change that was made before is not made again, so a replay may be repeated; link counts are left to
//! the caller. Limits: those of other changes of names.

use super::create::{self, New};
use super::edit::{check_changeable, put, stand_for, take_out};
use super::lookup::{Search, find, search};
use super::rename::moves_up;
use crate::alloc::Reach;
use crate::dir::placement::find_placement;
use crate::error::Error;
use crate::inode::Inode;
use diorite_format::{FileType, Ino};
use std::sync::Arc;

/// Credits for giving a directory its first block.
const FIRST_CREDITS: u32 = 12;

/// Makes `name` refer to an inode. Returns false if it did before. Blocks; no handle may be open.
pub(crate) fn put_name(
    dir: &Inode,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<bool, Error> {
    let _names = dir.lock_exclusive(false)?;
    check_changeable(dir)?;
    let volume = &dir.volume;
    let searched = search(dir, None, name)?;
    if let Search::Found(found) = searched {
        if found.ino == ino {
            return Ok(false);
        }
        volume.in_handle(2, |handle| {
            stand_for(handle, dir, found.block, (name, ino, kind))
        })?;
        return Ok(true);
    }
    let room = find_placement(dir, name, searched.room())?;
    let done = volume.in_handle(room.credits(dir), |handle| {
        put(handle, dir, &room, (name, ino, kind))
    });
    done.inspect_err(|_| room.give_back(dir))?;
    Ok(true)
}

/// Removes `name` from a directory if it refers to this inode. Returns false if it does not. Blocks; no handle may be open.
pub(crate) fn take_name(dir: &Inode, name: &[u8], ino: Ino) -> Result<bool, Error> {
    let _names = dir.lock_exclusive(false)?;
    check_changeable(dir)?;
    let Some(found) = find(dir, name)?.filter(|found| found.ino == ino) else {
        return Ok(false);
    };
    dir.volume
        .in_handle(2, |handle| take_out(handle, dir, &found, name))?;
    Ok(true)
}

/// Gives a directory without a block its first one, with "." and "..". Blocks; no handle may be open.
pub(crate) fn begin(dir: &Arc<Inode>, parent: &Inode) -> Result<(), Error> {
    let volume = &dir.volume;
    volume.in_handle(FIRST_CREDITS, |handle| {
        let alloc = volume.alloc()?;
        let goal = alloc.goal_of(&volume.sb, dir.ino);
        let run = alloc.allocate(handle, goal, 1, Reach::All)?;
        handle.or_abort(create::fill(handle, dir, parent.ino, New::Directory, run))
    })
}

/// The parent of a directory. Blocks.
pub(crate) fn parent_of(dir: &Inode) -> Result<Option<Ino>, Error> {
    Ok(find(dir, b"..")?.map(|found| found.ino))
}

/// Gives a directory another parent: rewrites its "..". Blocks; no handle may be open.
pub(crate) fn set_parent(dir: &Inode, parent: &Inode) -> Result<(), Error> {
    let _names = dir.lock_exclusive(false)?;
    dir.volume
        .in_handle(2, |handle| moves_up(handle, dir, parent))
}
