//! One attribute taken away.
//!
//! Input: an inode and an attribute, under a handle and the map lock. Output: the inode's own area, or its block of attributes, without
//! it; a value in an inode of its own is named by one less. Invariants: what may fail for space comes first and has changed nothing.
//! Limits: none of its own.

use super::acl;
use super::acl::set_acl;
use super::block::Block;
use super::block::{block_now, read_attribute_block, replace_block};
use super::set::note_attributes;
use super::value::{holders, let_go};
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::orphan::ORPHAN_CREDITS;
use diorite_format::Ino;
use diorite_format::xattr::{NameIndex, XattrEntry, XattrValue, Xattrs};

/// The block of attributes, one that may be equal and a new one, their bitmaps and descriptors, the inode; the inode of a value that
/// comes, and of one that goes.
const CHANGE_CREDITS: u32 = 8 + 2 * (1 + ORPHAN_CREDITS);

/// Which attribute, as it is stored.
pub(crate) type Named<'n> = (NameIndex, &'n [u8]);

/// Takes an attribute away; false if it is not there. What it alone named is doomed; the caller deletes it, and settles the inode. Blocks; no
/// lock may be held.
pub(crate) fn remove(inode: &Inode, which: Named<'_>) -> Result<bool, Error> {
    if acl::is_acl(which) {
        return set_acl(inode, which, &[], None).map(|()| true);
    }
    inode.volume.in_handle(attribute_credits(inode)?, |handle| {
        let _map = inode.map_lock.lock();
        let is_there = remove_xattr(inode, handle, which)?;
        if is_there {
            handle.or_abort(note_attributes(inode, handle, None, 0))?;
        }
        Ok(is_there)
    })
}

/// What a handle needs that changes one attribute: of a block that is shared each value in an inode of its own gets another user.
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

/// Takes an attribute away, wherever it is; false, and nothing done, if it is not there. Blocks; the map lock is held, so that nobody
/// else does.
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

/// The first attribute whose value is in an inode of its own and named by this inode alone.
pub(crate) fn held_attribute(inode: &Inode) -> Result<Option<(NameIndex, Vec<u8>)>, Error> {
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

impl Block {
    /// Its entries; none of no block.
    pub(super) fn parse(&self, inode: &Inode) -> Result<Xattrs<'_>, Error> {
        match self.at {
            None => Ok(Xattrs::default()),
            Some(at) => Ok(Xattrs::parse_block(
                &inode.volume.sb,
                inode.ino,
                at,
                &self.raw,
            )?),
        }
    }
}

/// The inode that holds an entry's value, if one does, and the value's length.
pub(super) fn held(entry: &XattrEntry<'_>) -> Option<(Ino, u32)> {
    match entry.value {
        XattrValue::Inode { ino, size } => Some((ino, size)),
        XattrValue::Bytes(_) => None,
    }
}
