//! Names put into a directory, taken out, and made to stand for another inode.
//!
//! Input: a directory, locked by the caller, and a name. Output: blocks of it changed in the caller's handle. Invariants: new blocks are made
//! before the map points to them, and the map is shown before the size; what fails before the first change leaves all as it was, what
//! fails after it aborts the journal. Limits: a directory that is encrypted or folds case is refused by name.

use crate::dir::inline_dir;
use crate::dir::placement::Placement;
use crate::dir::remade::Remade;
use crate::disk::cache::{Kind, Unsealed, UsedAs};
use crate::error::{Error, NotYet};
use crate::inode::{Inode, timestamp};
use crate::journal::{JournalHandle, NamesAt};
use diorite_format::dir::{DirBlock, DirBlockEdit, Inserted, is_hashed};
use diorite_format::dx;
use diorite_format::error::Unfit;
use diorite_format::{
    FileBlock, FileType, FormatError, FsBlock, Ino, Inode as DiskInode, InodeFlags,
};

/// May names of this directory be changed?
pub(super) fn check_changeable(dir: &Inode) -> Result<(), Error> {
    let (disk, ino) = (dir.disk(), dir.ino);
    if disk.flags.has(InodeFlags::IMMUTABLE) {
        let flag = "immutable";
        return Err(Error::NotPermitted { ino, flag });
    }
    let special = disk.flags.has(InodeFlags::ENCRYPT) || disk.flags.has(InodeFlags::CASEFOLD);
    if special {
        return Err(Error::NotYet(NotYet::SpecialDirectory { ino }));
    }
    Ok(())
}

/// Puts a name that is not there where there is room. What fails here has changed nothing, or aborts the journal.
pub(super) fn put(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    room: &Placement,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<(), Error> {
    match room {
        Placement::Inside => {
            inline_dir::put(handle, dir, (name, ino, kind))?;
            handle.or_abort(touch(handle, dir))
        }
        Placement::Block(block) => {
            let put = change_block(dir, handle, *block, |edit| edit.insert_new(name, ino, kind))?;
            if !matches!(put, Inserted::At(_)) {
                return Err(damaged(dir, *block, "room for a name that is none"));
            }
            handle.or_abort(touch(handle, dir))
        }
        Placement::Remade(remade) => {
            remake(handle, dir, remade)?;
            let block = Some(remade.with_name);
            handle.or_abort(stand_for(handle, dir, block, (name, ino, kind)))
        }
    }
}

/// Writes the blocks of a directory anew, and those behind its last.
fn remake(handle: &JournalHandle<'_>, dir: &Inode, remade: &Remade) -> Result<(), Error> {
    let mut from = Vec::with_capacity(remade.changed.len());
    for (block, _) in &remade.changed {
        from.push(NamesAt::Block(present_place(dir, *block)?));
    }
    let mut remap = dir.remap(handle)?;
    remap.map_claimed(&remade.runs)?;
    handle.spread(dir.ino, &from, remade.places());
    if !remade.made.is_empty() {
        let blocks = remade.first_new + remade.made.len() as u64;
        remap.disk.size = blocks * u64::from(dir.volume.block_size());
    }
    remap.written_at(timestamp(dir.volume.now_nanos()));
    for (at, bytes) in remade.places().zip(&remade.made) {
        handle.create(at, Kind::Directory, |raw| raw.copy_from_slice(bytes));
    }
    for (block, bytes) in &remade.changed {
        handle.or_abort(rewrite(handle, dir, *block, bytes))?;
    }
    if remade.becomes_hashed {
        let flag = |d: &mut DiskInode| d.flags = d.flags.with(InodeFlags::INDEX);
        handle.or_abort(dir.change(handle, flag))?;
    }
    remap.publish()
}

fn rewrite(handle: &JournalHandle<'_>, dir: &Inode, block: u64, bytes: &[u8]) -> Result<(), Error> {
    let at = present_place(dir, block)?;
    let verify = |raw: &[u8]| verify(dir, &dir.disk(), block, raw);
    let used = UsedAs::of_directory(Kind::Directory, dir.ino, block);
    handle.names(NamesAt::Block(at));
    handle.update(at, used, verify, |raw| {
        raw.copy_from_slice(bytes);
        Ok(())
    })
}

/// Takes a name out of the block that has it, or, without one, out of the inode.
pub(super) fn take_out(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    block: Option<u64>,
    name: &[u8],
) -> Result<(), Error> {
    match block {
        Some(block) => change_block(dir, handle, block, |edit| edit.remove(name)).map(drop)?,
        None => inline_dir::remove(handle, dir, name)?,
    }
    handle.or_abort(touch(handle, dir))
}

/// Lets a name in a block, also "..", stand for another inode; or, without a block, one inside the directory's inode.
pub(super) fn stand_for(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    block: Option<u64>,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<(), Error> {
    let before = match block {
        Some(block) => change_block(dir, handle, block, |edit| edit.replace(name, ino, kind))?,
        None => inline_dir::replace(handle, dir, (name, ino, kind))?,
    };
    let missing = || {
        let name = String::from_utf8_lossy(name);
        damaged(dir, block.unwrap_or(0), &format!("{name} is not there"))
    };
    before.map(|_| ()).ok_or_else(missing)
}

/// Where the names are that are in this block of a directory, or in its inode.
pub(super) fn names_at(dir: &Inode, block: Option<u64>) -> Result<NamesAt, Error> {
    block.map_or(Ok(NamesAt::Inode(dir.ino)), |block| {
        Ok(NamesAt::Block(present_place(dir, block)?))
    })
}

fn damaged(dir: &Inode, block: u64, why: &str) -> Error {
    let ino = dir.ino;
    Error::Damaged(format!(
        "directory inode {ino}, block {block}: {why}; run e2fsck"
    ))
}

/// The names of a directory have changed now.
pub(super) fn touch(handle: &JournalHandle<'_>, dir: &Inode) -> Result<(), Error> {
    let now = timestamp(dir.volume.now_nanos());
    dir.change(handle, |d| (d.mtime, d.ctime) = (now, now))
}

/// Changes names in a block, which gets its sum at the commit.
fn change_block<R>(
    dir: &Inode,
    handle: &JournalHandle<'_>,
    block: u64,
    change: impl FnOnce(&mut DirBlockEdit<'_>) -> Result<R, Unfit>,
) -> Result<R, Error> {
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    let at = present_place(dir, block)?;
    let verify = |raw: &[u8]| verify(dir, &disk, block, raw);
    let used = UsedAs::of_directory(Kind::Directory, dir.ino, block);
    handle.names(NamesAt::Block(at));
    let with = |raw: &mut [u8]| {
        let mut edit = DirBlockEdit::open_checked_before(sb, &disk, FileBlock::new(block), raw);
        change(&mut edit).map_err(Error::from)
    };
    if block == 0 && is_hashed(sb, &disk) {
        // Not names alone: the root of the tree, whose sum is another and which changes seldom.
        return handle.update(at, used, verify, |raw| {
            let changed = with(raw)?;
            dx::seal(sb, &disk, FileBlock::new(0), raw)?;
            Ok(changed)
        });
    }
    let owner = Unsealed::Names(disk.csum_seed());
    handle.update_unsealed((at, used, owner), verify, with)
}

fn verify(dir: &Inode, disk: &DiskInode, block: u64, raw: &[u8]) -> Result<(), FormatError> {
    DirBlock::parse(&dir.volume.sb, disk, FileBlock::new(block), raw).map(|_| ())
}

fn present_place(dir: &Inode, block: u64) -> Result<FsBlock, Error> {
    super::place_of(dir, block)?.ok_or_else(|| super::hole(dir, block))
}
