//! One attribute taken away.
//!
//! Input: an inode and an attribute, under a handle and the map lock. Output: the inode's own area, or its block of attributes, without
//! it; a value in an inode of its own is named by one less. Invariants: what may fail for space comes first and has changed nothing.
//! Limits: none of its own.

use super::acl;
use super::block::Block;
use super::names;
use crate::delete;
use crate::error::Error;
use crate::inode::{Fs, Inode};
use crate::journal::JournalHandle;
use crate::orphan::ORPHAN_CREDITS;
use diorite_format::Ino;
use diorite_format::xattr::{self, NameIndex, XattrEntry, XattrValue, Xattrs};
use std::sync::Arc;

/// The block of attributes, one that may be equal and a new one, their bitmaps and descriptors, the inode; the inode of a value that
/// comes, and of one that goes.
const CHANGE_CREDITS: u32 = 8 + 2 * (1 + ORPHAN_CREDITS);

/// Which attribute, as it is stored.
pub(crate) type Named<'n> = (NameIndex, &'n [u8]);

/// Takes an attribute away, by its whole name.
pub(crate) fn remove(fs: &Arc<Fs>, ino: Ino, name: &[u8]) -> Result<(), Error> {
    let (inode, which) = names::to_change(fs, ino, name)?;
    if acl::is_acl(which) {
        return inode.set_acl(which, &[]);
    }
    fs.in_handle(inode.attribute_credits()?, |handle| {
        let _map = inode.map_lock.lock();
        if !inode.remove_xattr(handle, which)? {
            return Err(names::missing(name));
        }
        handle.or_abort(inode.note_attributes(handle, None))
    })?;
    delete::delete_doomed_best_effort(fs);
    inode.settle()
}

impl Inode {
    /// What a handle needs that changes one attribute: of a block that is shared each value in an inode of its own gets another user.
    pub(crate) fn attribute_credits(&self) -> Result<u32, Error> {
        let held = match self.read_attribute_block()? {
            None => 0,
            Some((at, raw)) => {
                let attrs = Xattrs::parse_block(&self.volume.sb, self.ino, at, &raw)?;
                attrs.entries.iter().filter(|e| e.is_held()).count()
            }
        };
        Ok(CHANGE_CREDITS + u32::try_from(held).expect("fewer than a block has bytes"))
    }

    /// Takes an attribute away, wherever it is; false, and nothing done, if it is not there. Blocks; the map lock is held, so that nobody
    /// else does.
    pub(crate) fn remove_xattr(
        &self,
        handle: &JournalHandle<'_>,
        which: Named<'_>,
    ) -> Result<bool, Error> {
        let (index, name) = which;
        let (sb, disk, raw) = (&self.volume.sb, self.disk(), self.raw());
        let inside = Xattrs::parse_inode(sb, &disk, &raw)?;
        let block = self.block_now(handle)?;
        let beside = block.parse(self)?;
        let old = [inside.get(index, name), beside.get(index, name)];
        let holders = self.holders(old.into_iter().flatten())?;
        if let Some(kept) = beside.without(index, name) {
            self.replace_block(handle, &block, &kept)?;
        }
        if let Some(kept) = inside.without(index, name) {
            handle.or_abort(self.replace_inside(handle, &kept))?;
        }
        handle.or_abort(self.let_go(handle, &holders))?;
        Ok(old != [None, None])
    }

    /// Takes an attribute away that can only be in its own area.
    pub(crate) fn remove_inside(
        &self,
        handle: &JournalHandle<'_>,
        (index, name): Named<'_>,
    ) -> Result<(), Error> {
        let (disk, raw) = (self.disk(), self.raw());
        let attrs = Xattrs::parse_inode(&self.volume.sb, &disk, &raw)?;
        match attrs.without(index, name) {
            Some(kept) => self.replace_inside(handle, &kept),
            None => Ok(()),
        }
    }

    /// The first attribute whose value is in an inode of its own and named by this inode alone.
    pub(crate) fn held_attribute(&self) -> Result<Option<(NameIndex, Vec<u8>)>, Error> {
        let sb = &self.volume.sb;
        let (disk, raw) = (self.disk(), self.raw());
        let named = |e: &XattrEntry<'_>| (e.index, e.name.to_vec());
        let inside = Xattrs::parse_inode(sb, &disk, &raw)?;
        if let Some(entry) = inside.entries.iter().find(|e| e.is_held()) {
            return Ok(Some(named(entry)));
        }
        let Some((at, raw)) = self.read_attribute_block()? else {
            return Ok(None);
        };
        let attrs = Xattrs::parse_block(sb, self.ino, at, &raw)?;
        let held = attrs.entries.iter().find(|e| e.is_held());
        Ok(held.filter(|_| attrs.refcount <= 1).map(named))
    }

    /// Writes the entries of its own area, which fit.
    pub(super) fn replace_inside(
        &self,
        handle: &JournalHandle<'_>,
        entries: &[XattrEntry<'_>],
    ) -> Result<(), Error> {
        self.change_attributes(handle, |disk, raw| {
            xattr::write_inode(disk, entries, raw).map_err(Error::from)
        })
    }
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
