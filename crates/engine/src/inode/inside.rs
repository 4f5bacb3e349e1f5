//! What lies in an inode: its contents instead of a map, and what of them is kept as an attribute.
//!
//! Input: an inode's own bytes. Output: its inline data. Invariants: who sees that the data is inside finds it there. Limits: what changes it is
//! in `inline`.

use crate::error::Error;
use crate::inode::{Fs, Inode};
use crate::journal::JournalHandle;
use crate::locks::INODE_STATE;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, Ordering};
use diorite_format::Inode as DiskInode;
use diorite_format::inline::{self, InlineData};
use diorite_format::xattr::{self, NameIndex, XattrEntry, XattrValue, Xattrs};
use std::sync::Arc;

/// Changing the inode's own area.
pub(crate) const INSIDE_CREDITS: u32 = 1;

/// What an inode holds instead of a map, if it does.
#[derive(Debug)]
pub(super) struct Inside {
    /// Asked by every request that the fast attempt does not take.
    pub(super) there: AtomicBool,
    pub(super) bytes: Mutex<Option<Arc<[u8]>>>,
}

impl Inside {
    pub(super) fn new(level: u8, bytes: Option<Arc<[u8]>>) -> Inside {
        Inside {
            there: AtomicBool::new(bytes.is_some()),
            bytes: Mutex::at_level(&INODE_STATE, level, bytes),
        }
    }

    pub(super) fn set(&self, bytes: Option<Arc<[u8]>>) {
        let there = bytes.is_some();
        *self.bytes.lock() = bytes;
        self.there.store(there, Ordering::Release);
    }
}

/// The part of inline data that is kept as the attribute `system.data`.
pub(crate) fn inline_tail(volume: &Fs, disk: &DiskInode, raw: &[u8]) -> Result<Vec<u8>, Error> {
    let attrs = Xattrs::parse_inode(&volume.sb, disk, raw)?;
    inline_value(disk, &attrs).map(<[u8]>::to_vec)
}

/// The same, of attributes that were read.
pub(crate) fn inline_value<'a>(disk: &DiskInode, inside: &Xattrs<'a>) -> Result<&'a [u8], Error> {
    let (index, name) = inline::REST;
    match inside.get(index, name).map(|e| e.value) {
        Some(XattrValue::Bytes(value)) => Ok(value),
        Some(XattrValue::Inode { .. }) => Err(Error::Damaged(format!(
            "inode {}: its inline data is in another inode; run e2fsck",
            disk.ino
        ))),
        None => Ok(&[]),
    }
}

/// What is in an inode of the contents of its file, or of the target of its link. A file may go on behind it, in zeros.
pub(crate) fn inline_contents(volume: &Fs, disk: &DiskInode, raw: &[u8]) -> Result<Vec<u8>, Error> {
    let rest = inline_tail(volume, disk, raw)?;
    let data = InlineData::new(disk, &rest)?;
    Ok([data.head, data.tail].concat())
}

impl Inode {
    /// Takes an attribute away that can only be in its own area.
    pub(crate) fn remove_inside(
        &self,
        handle: &JournalHandle<'_>,
        (index, name): (NameIndex, &[u8]),
    ) -> Result<(), Error> {
        let (disk, raw) = (self.disk(), self.raw());
        let attrs = Xattrs::parse_inode(&self.volume.sb, &disk, &raw)?;
        match attrs.without(index, name) {
            Some(kept) => self.replace_inside(handle, &kept),
            None => Ok(()),
        }
    }

    /// Writes the entries of its own area, which fit.
    pub(crate) fn replace_inside(
        &self,
        handle: &JournalHandle<'_>,
        entries: &[XattrEntry<'_>],
    ) -> Result<(), Error> {
        self.change_attributes(handle, |disk, raw| {
            xattr::write_inode(disk, entries, raw).map_err(Error::from)
        })
    }
}
