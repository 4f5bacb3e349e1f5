//! One attribute removed.
//!
//! Input: an inode and an attribute; a handle, and the map lock. Output: the inode's own area, or its attribute block, without the
//! attribute; if the value was in a value inode, that has one reference less. Invariants: the step that may fail for lack of space is the
//! first, and a failure of it has changed nothing. Limits: none of its own.

use super::block::{block_now, read_attribute_block, replace_block};
use super::names::Named;
use super::value::{holders, let_go};
use crate::error::Error;
use crate::inode::{CAPABILITY, Inode};
use crate::journal::JournalHandle;
use crate::orphan::ORPHAN_CREDITS;
use diorite_format::xattr::{NameIndex, XattrEntry, XattrValue, Xattrs};

/// Credits: the attribute block, an equal block, a new one, bitmaps and group descriptors, the inode; the value inodes of the new and of
/// the old value.
const CHANGE_CREDITS: u32 = 8 + 2 * (1 + ORPHAN_CREDITS);

/// Credits for changing one attribute. If the attribute block is shared, every value inode to which it refers gets another reference.
pub(crate) fn attribute_credits(inode: &Inode) -> Result<u32, Error> {
    let held = match read_attribute_block(inode)? {
        None => 0,
        Some((at, raw)) => {
            let attrs = Xattrs::parse_block(&inode.volume.sb, inode.ino, at, &raw)?;
            attrs.entries.iter().filter(|e| e.is_held()).count()
        }
    };
    Ok(CHANGE_CREDITS + u32::try_from(held).expect("fewer than a block has bytes"))
}

/// Removes an attribute, wherever it is stored. Returns false, and does nothing, if there is none. Blocks; the map lock is held, so no
/// other thread changes attributes.
pub(crate) fn remove_xattr(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    which: Named<'_>,
) -> Result<bool, Error> {
    let (index, name) = which;
    let (sb, disk, raw) = (&inode.volume.sb, inode.disk(), inode.raw());
    let inside = Xattrs::parse_inode(sb, &disk, &raw)?;
    let block = block_now(inode, handle)?;
    let beside = block.parse(inode)?;
    let old = [inside.get(index, name), beside.get(index, name)];
    let holders = holders(inode, old.into_iter().flatten())?;
    if let Some(kept) = beside.without(index, name) {
        replace_block(inode, handle, &block, &kept)?;
    }
    if let Some(kept) = inside.without(index, name) {
        handle.or_abort(inode.replace_inside(handle, &kept))?;
    }
    handle.or_abort(let_go(inode, handle, &holders))?;
    Ok(old != [None, None])
}

/// Removes the capability, as [`remove_xattr`] does. One whose value is empty gives no right that could be taken away: it stays.
pub(crate) fn remove_capability(inode: &Inode, handle: &JournalHandle<'_>) -> Result<(), Error> {
    let (index, name) = CAPABILITY;
    let (sb, disk, raw) = (&inode.volume.sb, inode.disk(), inode.raw());
    let inside = Xattrs::parse_inode(sb, &disk, &raw)?;
    let block = block_now(inode, handle)?;
    let beside = block.parse(inode)?;
    let found = inside.get(index, name).or_else(|| beside.get(index, name));
    match found.map(|entry| entry.value) {
        None | Some(XattrValue::Bytes([])) => Ok(()),
        Some(_) => remove_xattr(inode, handle, CAPABILITY).map(drop),
    }
}

/// The first attribute that has a value inode and has to be removed before this inode is deleted. An attribute in a block that is shared
/// does not count.
pub(crate) fn held_attribute(inode: &Inode) -> Result<Option<(NameIndex, Vec<u8>)>, Error> {
    if !inode.may_have_attributes() {
        return Ok(None);
    }
    let sb = &inode.volume.sb;
    let (disk, raw) = (inode.disk(), inode.raw());
    let named = |e: &XattrEntry<'_>| (e.index, e.name.to_vec());
    let inside = Xattrs::parse_inode(sb, &disk, &raw)?;
    if let Some(entry) = inside.entries.iter().find(|e| e.is_held()) {
        return Ok(Some(named(entry)));
    }
    let Some((at, raw)) = read_attribute_block(inode)? else {
        return Ok(None);
    };
    let attrs = Xattrs::parse_block(sb, inode.ino, at, &raw)?;
    let held = attrs.entries.iter().find(|e| e.is_held());
    Ok(held.filter(|_| attrs.refcount <= 1).map(named))
}
