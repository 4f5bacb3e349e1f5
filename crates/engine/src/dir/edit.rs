//! Names added to a directory, removed from it, and redirected to another inode.
//!
//! Input: a directory that the caller has locked, and a name. Output: its blocks, changed in the caller's handle. Invariants: new blocks
//! are written before the map refers to them, and the map is published before the size; a failure before the first change leaves everything
//! as it was, and a later one aborts the journal. Limits: an encrypted or case-folding directory is refused with [`NotYet`].

use super::form_of;
use super::lookup::Found;
use crate::dir::inline_dir;
use crate::dir::placement::Placement;
use crate::dir::remade::Remade;
use crate::disk::cache::{Kind, Unsealed, UsedAs};
use crate::error::{Error, NotYet};
use crate::inode::{Inode, timestamp};
use crate::journal::{JournalHandle, NamesAt};
use diorite_format::dir::{DirBlock, DirBlockEdit, DirForm, Inserted};
use diorite_format::dx;
use diorite_format::error::Unfit;
use diorite_format::{
    FileBlock, FileType, FormatError, FsBlock, Ino, Inode as DiskInode, InodeFlags,
};
use std::sync::Arc;

/// May names of this directory be changed?
pub(super) fn check_changeable(dir: &Inode) -> Result<(), Error> {
    let (flags, ino) = (dir.flags(), dir.ino);
    if flags.has(InodeFlags::IMMUTABLE) {
        let flag = "immutable";
        return Err(Error::NotPermitted { ino, flag });
    }
    let special = flags.has(InodeFlags::ENCRYPT) || flags.has(InodeFlags::CASEFOLD);
    if special {
        return Err(Error::NotYet(NotYet::SpecialDirectory { ino }));
    }
    Ok(())
}

/// Adds a name that is not there, at the place `room`; returns the directory's inode as it is then. A failure has changed nothing, or
/// aborts the journal.
pub(super) fn put(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    room: &Placement,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<Arc<DiskInode>, Error> {
    dir.prepare_to_change(handle)?;
    match room {
        Placement::Inside => {
            inline_dir::put(handle, dir, (name, ino, kind))?;
            handle.or_abort(touch(handle, dir))
        }
        Placement::Block(room) => {
            let put = |edit: &mut DirBlockEdit<'_>| edit.insert_from(room.offset, name, ino, kind);
            let put = change_block(dir, handle, (room.block, room.place), put)?;
            if !matches!(put, Inserted::At(_)) {
                return Err(damaged(dir, room.block, "room for a name that is none"));
            }
            handle.or_abort(touch(handle, dir))
        }
        Placement::Remade(remade) => {
            remake(handle, dir, remade)?;
            let block = Some(remade.with_name);
            handle.or_abort(stand_for(handle, dir, block, (name, ino, kind)))?;
            Ok(dir.disk())
        }
    }
}

/// Writes the rebuilt blocks of a directory and appends the new ones.
fn remake(handle: &JournalHandle<'_>, dir: &Inode, remade: &Remade) -> Result<(), Error> {
    dir.note_remade();
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
    remap.written_at(timestamp(handle.now_nanos()));
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

/// Removes a name from where it was found: the block that has it, or the inode.
pub(super) fn take_out(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    found: &Found,
    name: &[u8],
) -> Result<(), Error> {
    dir.prepare_to_change(handle)?;
    match found.record() {
        Some((block, record)) => {
            let remove = |edit: &mut DirBlockEdit<'_>| edit.remove_at(record.at, name);
            change_block(dir, handle, (block, record.place), remove).map(drop)?;
        }
        None => inline_dir::remove(handle, dir, name)?,
    }
    handle.or_abort(touch(handle, dir)).map(drop)
}

/// Makes an existing name, which may be "..", refer to another inode. If `block` is none, the name is in the directory's inode.
pub(super) fn stand_for(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    block: Option<u64>,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<(), Error> {
    let before = match block {
        Some(block) => {
            let at = (block, present_place(dir, block)?);
            change_block(dir, handle, at, |edit| edit.replace(name, ino, kind))?
        }
        None => inline_dir::replace(handle, dir, (name, ino, kind))?,
    };
    let missing = || {
        let name = String::from_utf8_lossy(name);
        damaged(dir, block.unwrap_or(0), &format!("{name} is not there"))
    };
    before.map(|_| ()).ok_or_else(missing)
}

/// The place of the names in this block of a directory, or of those in its inode if `block` is none; for the order of writes without a
/// journal.
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

/// Sets the directory's mtime and ctime to now; returns its inode as it is then.
pub(super) fn touch(handle: &JournalHandle<'_>, dir: &Inode) -> Result<Arc<DiskInode>, Error> {
    let now = timestamp(handle.now_nanos());
    dir.changed(handle, |d| (d.mtime, d.ctime) = (now, now))
}

/// Changes names in a block at this place on the volume. The commit updates its checksum, unless it is the root of a hash tree.
fn change_block<R>(
    dir: &Inode,
    handle: &JournalHandle<'_>,
    (block, at): (u64, FsBlock),
    change: impl FnOnce(&mut DirBlockEdit<'_>) -> Result<R, Unfit>,
) -> Result<R, Error> {
    let (sb, form) = (&dir.volume.sb, form_of(dir));
    let verify = |raw: &[u8]| verify(dir, &dir.disk(), block, raw);
    let used = UsedAs::of_directory(Kind::Directory, dir.ino, block);
    handle.names(NamesAt::Block(at));
    let with = |raw: &mut [u8]| {
        let mut edit = DirBlockEdit::open_checked_before(sb, form, FileBlock::new(block), raw);
        change(&mut edit).map_err(Error::from)
    };
    if block == 0 && form == DirForm::Hashed {
        // Block 0 is the root of the tree, whose checksum is computed in another way. It changes rarely, so the checksum is updated here.
        // Taken before the change, during which the cache is locked: the lock of an inode's state comes before that one.
        let disk = dir.disk();
        return handle.update(at, used, verify, |raw| {
            let changed = with(raw)?;
            dx::seal(sb, &disk, FileBlock::new(0), raw)?;
            Ok(changed)
        });
    }
    let owner = Unsealed::Names(dir.csum_seed());
    handle.update_unsealed((at, used, owner), verify, with)
}

fn verify(dir: &Inode, disk: &DiskInode, block: u64, raw: &[u8]) -> Result<(), FormatError> {
    DirBlock::parse(&dir.volume.sb, disk, FileBlock::new(block), raw).map(|_| ())
}

fn present_place(dir: &Inode, block: u64) -> Result<FsBlock, Error> {
    super::place_of(dir, block)?.ok_or_else(|| super::hole(dir, block))
}
