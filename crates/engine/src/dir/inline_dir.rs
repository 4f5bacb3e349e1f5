//! Names of an inline directory (feature inline_data), searched and changed in its inode.
//!
//! Input: an inline directory that the caller has locked, and a name. Output: the inode, changed in the caller's handle. Invariants: no
//! block is needed, so names can be added and removed on a full volume, too; free room of the inode is taken for the names before the
//! handle of a change begins, because an attribute could take it meanwhile. Limits: if the inode has no room, the names move into a block
//! (`leave_inline`), and never back.
//!
//! The names are in two parts: `i_block` and the attribute `system.data`. When the first part is full, the second one takes all the room
//! that is left in the inode, as the kernel does it; later attributes go into the attribute block.

use super::entry::DirEntry;
use super::remade::STAND_IN;
use crate::error::Error;
use crate::inode::Inode;
use crate::inode::{INSIDE_CREDITS, inline_tail, inline_value};
use crate::journal::{JournalHandle, NamesAt};
use diorite_format::dir::{self, DirBlock, InlineDirEdit, Inserted, inline_parent};
use diorite_format::inline::{self, InlineData};
use diorite_format::xattr::{Xattrs, write_inode};
use diorite_format::{FileType, Ino};
use std::ops::Range;

/// Is it an inline directory?
pub(super) fn is_inside(dir: &Inode) -> bool {
    dir.is_inline()
}

/// The inode that a name refers to.
pub(super) fn find(dir: &Inode, name: &[u8]) -> Result<Option<Ino>, Error> {
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    match name {
        b"." => return Ok(Some(dir.ino)),
        b".." => return Ok(Some(inline_parent(sb, &disk)?)),
        _ => {}
    }
    let rest = inline_tail(&dir.volume, &disk, &dir.raw())?;
    let data = InlineData::new(&disk, &rest)?;
    for part in data.dir_parts().into_iter().filter(|p| !p.is_empty()) {
        if let Some(found) = DirBlock::parse_inline(sb, &disk, part)?.find(name) {
            return Ok(Some(found.ino));
        }
    }
    Ok(None)
}

/// The entries of an inline directory. "." and ".." are not stored in it, and are added here.
pub(super) fn inline_entries(dir: &Inode) -> Result<Vec<DirEntry>, Error> {
    let sb = &dir.volume.sb;
    let made = |name: &[u8], ino| DirEntry {
        name: name.to_vec(),
        ino,
        file_type: Some(FileType::Directory),
    };
    let mut entries = vec![
        made(b".", dir.ino),
        made(b"..", dir::inline_parent(sb, &dir.disk())?),
    ];
    let records = inline_records(dir)?.into_iter();
    entries.extend(records.map(|(entry, _)| entry));
    Ok(entries)
}

/// The entries that an inline directory stores, each with its bytes: offsets in both parts of the names, one behind the other.
pub(super) fn inline_records(dir: &Inode) -> Result<Vec<(DirEntry, Range<u64>)>, Error> {
    let (sb, disk) = (&dir.volume.sb, dir.disk());
    let rest = inline_tail(&dir.volume, &disk, &dir.raw())?;
    let data = InlineData::new(&disk, &rest)?;
    let (mut records, mut first) = (Vec::new(), 0);
    for part in data.dir_parts().into_iter().filter(|p| !p.is_empty()) {
        let parsed = DirBlock::parse_inline(sb, &disk, part)?;
        records.extend(parsed.entries().map(|e| {
            let start = first + u64::from(e.offset);
            (DirEntry::from(e), start..start + u64::from(e.rec_len))
        }));
        first += part.len() as u64;
    }
    Ok(records)
}

/// Has the inode room for a new name? If needed, and if it is enough, the names get all the room that is left in the inode, in a handle of
/// its own. Blocks.
pub(super) fn make_room(dir: &Inode, name: &[u8]) -> Result<bool, Error> {
    let fits = |edit: &InlineDirEdit<'_>| {
        let (ino, kind) = STAND_IN;
        let put = edit.clone().insert_new(name, ino, kind)?;
        Ok::<_, Error>(matches!(put, Inserted::At(_)))
    };
    let (has_room, would_have) = edited(dir, |mut edit, inode| {
        let has_room = fits(&edit)?;
        let stretched = edit.stretch(inode.most);
        Ok((has_room, stretched && fits(&edit)?))
    })?;
    if has_room || !would_have {
        return Ok(has_room);
    }
    dir.volume.in_handle(INSIDE_CREDITS, |handle| {
        let stretch = |edit: &mut InlineDirEdit<'_>, most| {
            // An attribute may have taken the room meanwhile.
            let stretched = edit.stretch(most) && fits(edit)?;
            Ok(stretched.then_some(()))
        };
        Ok(change(handle, dir, stretch)?.is_some())
    })
}

/// Adds a name, for which there must be room.
pub(super) fn put(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<(), Error> {
    let put = |edit: &mut InlineDirEdit<'_>, _| match edit.insert_new(name, ino, kind)? {
        Inserted::At(_) => Ok(Some(())),
        Inserted::Exists(_) | Inserted::Full => Ok(None),
    };
    let none = || {
        let ino = dir.ino;
        let why = "room for a name that is none";
        Error::Damaged(format!("directory inode {ino}: {why}; run e2fsck"))
    };
    change(handle, dir, put)?.ok_or_else(none)
}

/// Removes a name, if it exists.
pub(super) fn remove(handle: &JournalHandle<'_>, dir: &Inode, name: &[u8]) -> Result<(), Error> {
    change(handle, dir, |edit, _| Ok(edit.remove(name)?)).map(drop)
}

/// Makes a name refer to another inode. Returns the former one; none if the name does not exist.
pub(super) fn replace(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    (name, ino, kind): (&[u8], Ino, FileType),
) -> Result<Option<Ino>, Error> {
    change(handle, dir, |edit, _| Ok(edit.replace(name, ino, kind)?))
}

/// Gives the directory another parent. Its number is in the first 4 bytes of `i_block`.
pub(super) fn set_parent(handle: &JournalHandle<'_>, dir: &Inode, up: Ino) -> Result<(), Error> {
    let number = up.get().to_le_bytes();
    dir.change(handle, |disk| disk.i_block[..4].copy_from_slice(&number))
}

/// What else the inode contains.
struct Beside<'a> {
    attrs: &'a Xattrs<'a>,
    /// The value of `system.data`: the second part of the names.
    rest: &'a [u8],
    /// How long that value can become, in bytes.
    most: usize,
}

/// Calls `with` with a copy of the names, which it may search and change.
fn edited<R>(
    dir: &Inode,
    with: impl FnOnce(InlineDirEdit<'_>, &Beside<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let (sb, disk, raw) = (&dir.volume.sb, dir.disk(), dir.raw());
    let attrs = Xattrs::parse_inode(sb, &disk, &raw)?;
    let rest = inline_value(&disk, &attrs)?;
    let edit = InlineDirEdit::open(sb, &disk, rest)?;
    let beside = Beside {
        attrs: &attrs,
        rest,
        most: attrs.room_for(&disk, inline::REST).unwrap_or(0),
    };
    with(edit, &beside)
}

/// Changes the names on disk. Returns none, and changes nothing, if `change` does.
fn change<R>(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    change: impl FnOnce(&mut InlineDirEdit<'_>, usize) -> Result<Option<R>, Error>,
) -> Result<Option<R>, Error> {
    // Excludes changes of the attributes.
    let _map = dir.map_lock.lock();
    edited(dir, |mut edit, beside| {
        let Some(done) = change(&mut edit, beside.most)? else {
            return Ok(None);
        };
        handle.names(NamesAt::Inode(dir.ino));
        let (i_block, rest) = edit.into_parts();
        if rest == beside.rest {
            dir.change(handle, |disk| disk.i_block = i_block)?;
            return Ok(Some(done));
        }
        let entries = beside.attrs.with(inline::rest_entry(&rest));
        let size = (i_block.len() + rest.len()) as u64;
        dir.change_attributes(handle, |disk, raw| {
            write_inode(disk, &entries, raw)?;
            (disk.i_block, disk.size) = (i_block, size);
            Ok(())
        })?;
        dir.publish_size(size);
        Ok(Some(done))
    })
}
