//! An inode's block of attributes: read, made, changed, copied, let go.
//!
//! Input: the block as it is, and the entries that it shall have, under a handle and the map lock. Output: the inode with that block, or without one.
//! Invariants: a block that other inodes use too is not changed, the inode gets one of its own; how many use it is asked and changed in one step, so
//! of two that leave it one is the last; what may fail for space comes first and has changed nothing. Limits: what does not fit a block is
//! refused.

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

/// An inode's block of attributes, as it was read.
pub(super) struct Block {
    pub(super) at: Option<FsBlock>,
    pub(super) raw: Vec<u8>,
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

/// The block, checked, if the inode has one. Blocks while it is read.
pub(super) fn read_attribute_block(inode: &Inode) -> Result<Option<(FsBlock, MetaRef)>, Error> {
    let (volume, at) = (&inode.volume, inode.disk().file_acl);
    if at.is_none() {
        return Ok(None);
    }
    let check = check_of_block(inode, at)?;
    let read = volume.cache.read(&volume.blocking, at, Kind::Xattr, check);
    Ok(Some((at, read?)))
}

/// The block as it is now, for who changes it.
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

/// Do these entries fit a block?
pub(super) fn fit_block(inode: &Inode, entries: &[XattrEntry<'_>]) -> bool {
    let mut scratch = vec![0; inode.volume.block_size() as usize];
    xattr::write_block(&inode.volume.sb, FsBlock::NONE, entries, 1, &mut scratch).is_ok()
}

/// Gives the inode a block with these entries, which fit, in the place of the one it has.
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

/// Makes its block its own, so that a change of the list or the capability in it does not fail for space.
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

/// A block of its own, in the place of a shared one.
fn copy_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    block: &Block,
    old: FsBlock,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    let named = holders(inode, block.parse(inode)?.entries.iter())?;
    let new = inode.volume.alloc()?;
    let new = new.allocate(handle, old, 1, inode.volume.privileged)?.start;
    handle.or_abort((|| {
        write_new(inode, handle, new, entries)?;
        leave_named(inode, handle, old, &named)?;
        inode.change(handle, |disk| disk.file_acl = new)
    })())
}

/// Leaves the block that names these values. Each inode with a value counts the blocks that name it: one more now for each value,
/// also of what is not in the block that comes instead, as that is the caller's to let go of. If nobody has the old block any more,
/// it counts no longer: then all is as it was. What fails has changed nothing, or aborts.
fn leave_named(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    old: FsBlock,
    named: &[Holder],
) -> Result<(), Error> {
    // Before it is left: who has it then may let go of all values in it.
    handle.or_abort(add_users(handle, named))?;
    let left = leave_block(inode, handle, old, |_| true);
    if !matches!(left, Ok(Left::ToOthers)) {
        handle.or_abort(take_back_users(handle, named))?;
    }
    left.map(drop)
}

/// The inode's first block of attributes.
fn new_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    let (volume, alloc) = (&inode.volume, inode.volume.alloc()?);
    let goal = alloc.goal_of(&volume.sb, inode.ino);
    let new = alloc.allocate(handle, goal, 1, volume.privileged)?.start;
    handle.or_abort(put_block(inode, handle, new, entries))
}

/// Gives an inode without a block of attributes one that was taken for it.
pub(super) fn put_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    new: FsBlock,
    entries: &[XattrEntry<'_>],
) -> Result<(), Error> {
    write_new(inode, handle, new, entries)?;
    name_block(inode, handle, new)
}

/// A block is the inode's, which had none.
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

/// Drops the inode's reference to its block of attributes. False, and nothing done, if nobody else has the block and values in inodes
/// of their own are in it: these go first, each in a handle.
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

/// The inode has left its block.
fn name_no_block(inode: &Inode, handle: &JournalHandle<'_>) -> Result<(), Error> {
    let units = u64::from(inode.volume.sb.geometry().cluster_size() / 512);
    handle.or_abort(inode.change(handle, |disk| {
        disk.file_acl = FsBlock::NONE;
        disk.blocks = disk.blocks.saturating_sub(units);
    }))
}

/// One user of a block less; with the last it is free, if it may go with these attributes.
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

/// What a block of attributes must be, where nothing else of the volume lies.
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

/// Is there anything in it that changes with mode and owner?
fn follows_others(attrs: &Xattrs<'_>) -> bool {
    let mut named = attrs.entries.iter().map(|e| (e.index, e.name));
    named.any(|which| which == CAPABILITY || which.0 == NameIndex::ACL_ACCESS)
}

#[cfg(test)]
mod tests;
