//! An inode's attribute block: read, created, changed, copied, dropped.
//!
//! Input: the block's contents and the entries that it is to have; a handle, and the map lock. Output: the inode with that block, or
//! without one. Invariants: a block that other inodes share is not changed: the inode gets a copy of its own; the user count is read and
//! changed in one step, so if two inodes drop a block concurrently, exactly one of them is the last user; the step that may fail for lack
//! of space is the first, and a failure of it has changed nothing. Limits: entries that do not fit into one block are refused.

use super::value::Holder;
use super::value::{add_users, holders, take_back_users};
use crate::alloc::{Alloc, Run};
use crate::disk::cache::{Kind, MetaRef};
use crate::error::Error;
use crate::inode::{CAPABILITY, Inode};
use crate::journal::JournalHandle;
use crate::space::Left;
use diorite_format::xattr::{self, NameIndex, XattrEntry, Xattrs};
use diorite_format::{FormatError, FsBlock};

/// An inode's attribute block, as it was read; `at` is none if it has no block.
pub(super) struct Block {
    pub(super) at: Option<FsBlock>,
    pub(super) raw: Vec<u8>,
}

impl Block {
    /// The block's entries; empty if the inode has no block.
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

/// The attribute block, checked, if the inode has one. Blocks while it is read.
pub(super) fn read_attribute_block(inode: &Inode) -> Result<Option<(FsBlock, MetaRef)>, Error> {
    let (volume, at) = (&inode.volume, inode.disk().file_acl);
    if at.is_none() {
        return Ok(None);
    }
    let check = check_of_block(inode, at)?;
    let read = volume.cache.read(&volume.blocking, at, Kind::Xattr, check);
    Ok(Some((at, read?)))
}

/// The attribute block as the running transaction has it, for a caller that changes it.
pub(super) fn block_now(inode: &Inode, handle: &JournalHandle<'_>) -> Result<Block, Error> {
    let at = inode.disk().file_acl;
    if at.is_none() {
        let (at, raw) = (None, Vec::new());
        return Ok(Block { at, raw });
    }
    let raw = handle.read(at, Kind::Xattr, check_of_block(inode, at)?)?;
    Ok(Block {
        at: Some(at),
        raw: raw.to_vec(),
    })
}

/// Do these entries fit into one block?
pub(super) fn fit_block(inode: &Inode, entries: &[XattrEntry<'_>]) -> bool {
    let mut scratch = vec![0; inode.volume.block_size() as usize];
    xattr::write_block(&inode.volume.sb, FsBlock::NONE, entries, 1, &mut scratch).is_ok()
}

/// Gives the inode an attribute block with these entries, which must fit, instead of its present one. Without entries it gets none.
pub(super) fn replace_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    block: &Block,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    let Some(at) = block.at else {
        return new_block(inode, handle, entries);
    };
    if entries.is_empty() {
        let named = holders(inode, block.parse(inode)?.entries.iter())?;
        leave_named(inode, handle, at, &named)?;
        return name_no_block(inode, handle);
    }
    let sb = &inode.volume.sb;
    let check = check_of_block(inode, at)?;
    let changed = handle.update(at, Kind::Xattr, check, |raw| {
        let users = Xattrs::parse_block(sb, inode.ino, at, raw)?.refcount;
        if users <= 1 {
            xattr::write_block(sb, at, entries, 1, raw)?;
        }
        Ok(users <= 1)
    })?;
    if changed {
        inode.volume.equal_blocks.note(at, entries);
        return Ok(());
    }
    copy_block(inode, handle, block, at, entries)
}

/// Copies the inode's attribute block if it is shared and contains the access ACL or the capability. Later changes of these (by chmod, or
/// by a write) then need no space.
pub(crate) fn own_attribute_block(inode: &Inode, handle: &JournalHandle<'_>) -> Result<(), Error> {
    let block = block_now(inode, handle)?;
    let attrs = block.parse(inode)?;
    match block.at {
        Some(at) if attrs.refcount > 1 && follows_others(&attrs) => {
            copy_block(inode, handle, &block, at, &attrs.entries)
        }
        _ => Ok(()),
    }
}

/// Replaces a shared block by the inode's own block with these entries.
fn copy_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    block: &Block,
    old: FsBlock,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    let named = holders(inode, block.parse(inode)?.entries.iter())?;
    let new = inode.volume.alloc()?;
    let new = new.allocate(handle, old, 1, inode.volume.reach)?.start;
    handle.or_abort((|| {
        write_new(inode, handle, new, entries)?;
        leave_named(inode, handle, old, &named)?;
        inode.change(handle, |disk| disk.file_acl = new)
    })())
}

/// Drops the inode's reference to its old attribute block, whose entries refer to the value inodes `named`. A value inode counts the blocks
/// that refer to it. If other inodes keep the old block, the inode's new block is one more, so each count is incremented. That includes
/// values that the new block does not have any more: the caller drops those. If the inode was the last user of the old block, the counts
/// stay as they were. A failure has changed nothing, or aborts the journal.
fn leave_named(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    old: FsBlock,
    named: &[Holder],
) -> Result<(), Error> {
    // Incremented before the block is left: afterwards its other users may drop all values in it.
    handle.or_abort(add_users(handle, named))?;
    let left = leave_block(inode, handle, old, |_| true);
    if !matches!(left, Ok(Left::ToOthers)) {
        handle.or_abort(take_back_users(handle, named))?;
    }
    left.map(drop)
}

/// Allocates and writes the inode's first attribute block.
fn new_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    let (volume, alloc) = (&inode.volume, inode.volume.alloc()?);
    let goal = alloc.goal_of(&volume.sb, inode.ino);
    let new = alloc.allocate(handle, goal, 1, volume.reach)?.start;
    handle.or_abort(put_block(inode, handle, new, entries))
}

/// Writes an attribute block, which is allocated already, and gives it to an inode without one.
pub(super) fn put_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    new: FsBlock,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    write_new(inode, handle, new, entries)?;
    name_block(inode, handle, new)
}

/// Sets the attribute block of an inode that had none, and adds it to `i_blocks`.
pub(super) fn name_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    at: FsBlock,
) -> Result<(), Error> {
    let units = u64::from(inode.volume.sb.geometry().cluster_size() / 512);
    inode.change(handle, |disk| {
        (disk.file_acl, disk.blocks) = (at, disk.blocks + units);
    })
}

fn write_new(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    new: FsBlock,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    let mut written = Ok(());
    handle.create(new, Kind::Xattr, |raw| {
        written = xattr::write_block(&inode.volume.sb, new, entries, 1, raw);
    });
    written?;
    inode.volume.equal_blocks.note(new, entries);
    Ok(())
}

/// Drops the inode's reference to its attribute block. Returns false, and does nothing, if the inode is its only user and the block refers
/// to value inodes: those attributes must be removed first, each in a handle.
pub(crate) fn release_xattr_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
) -> Result<bool, Error> {
    let at = inode.disk().file_acl;
    if at.is_none() {
        return Ok(true);
    }
    let names_none = |attrs: &Xattrs<'_>| !attrs.entries.iter().any(XattrEntry::is_held);
    if leave_block(inode, handle, at, names_none)? == Left::NotYet {
        return Ok(false);
    }
    name_no_block(inode, handle).map(|()| true)
}

/// Clears the inode's reference to its attribute block, and subtracts the block from `i_blocks`.
fn name_no_block(inode: &Inode, handle: &JournalHandle<'_>) -> Result<(), Error> {
    let units = u64::from(inode.volume.sb.geometry().cluster_size() / 512);
    handle.or_abort(inode.change(handle, |disk| {
        disk.file_acl = FsBlock::NONE;
        disk.blocks = disk.blocks.saturating_sub(units);
    }))
}

/// Decrements a block's user count. The last user frees the block, if `may_go` accepts its entries.
pub(super) fn leave_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    at: FsBlock,
    may_go: impl Fn(&Xattrs<'_>) -> bool,
) -> Result<Left, Error> {
    let (volume, ino) = (&inode.volume, inode.ino);
    let check = check_of_block(inode, at)?;
    let left = volume.equal_blocks.leaving(at, || {
        handle.update(at, Kind::Xattr, check, |raw| {
            let attrs = Xattrs::parse_block(&volume.sb, ino, at, raw)?;
            let users = attrs.refcount;
            if users > 1 {
                xattr::set_refcount(&volume.sb, at, raw, users - 1)?;
                return Ok(Left::ToOthers);
            }
            Ok(match may_go(&attrs) {
                true => Left::ToNobody,
                false => Left::NotYet,
            })
        })
    })?;
    if left == Left::ToNobody {
        let whole = Alloc::around(&volume.sb, Run { start: at, len: 1 })?;
        volume.alloc()?.free(handle, whole.start, whole.len)?;
        handle.forget(at);
    }
    Ok(left)
}

/// The check of an attribute block at this place. An error if the place belongs to other metadata of the volume.
pub(super) fn check_of_block(
    inode: &Inode,
    at: FsBlock,
) -> Result<impl Fn(&[u8]) -> Result<(), FormatError> + Copy + '_, Error> {
    if let Some(what) = inode.volume.metadata_in(at, 1) {
        let ino = inode.ino;
        return Err(Error::Damaged(format!(
            "inode {ino}: its attribute block {at} holds {what}; run e2fsck"
        )));
    }
    let (sb, ino) = (&inode.volume.sb, inode.ino);
    Ok(move |raw: &[u8]| Xattrs::parse_block(sb, ino, at, raw).map(|_| ()))
}

/// Has it an entry that changes with the mode or the owner: the access ACL, or the capability?
fn follows_others(attrs: &Xattrs<'_>) -> bool {
    let mut named = attrs.entries.iter().map(|e| (e.index, e.name));
    named.any(|which| which == CAPABILITY || which.0 == NameIndex::ACL_ACCESS)
}

#[cfg(test)]
mod tests;
