//! Inline data as it is stored: the first part in `i_block`, the rest as the attribute `system.data` in the inode.
//!
//! Input: an inode's own bytes. Output: its inline data; changes of the attributes in the inode. Invariants: a reader that finds the
//! flag `there` set finds the bytes, too. Limits: operations on inline data are in `inline`.

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

/// Credits of a change of the inode alone.
pub(crate) const INSIDE_CREDITS: u32 = 1;

/// The inline data of a file in memory, if it has some.
#[derive(Debug)]
pub(super) struct Inside {
    /// Is there inline data? Loaded by every request that the fast attempt does not take.
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

/// The part of inline data that is stored as the attribute `system.data`.
pub(crate) fn inline_tail(volume: &Fs, disk: &DiskInode, raw: &[u8]) -> Result<Vec<u8>, Error> {
    let attrs = Xattrs::parse_inode(&volume.sb, disk, raw)?;
    inline_value(disk, &attrs).map(<[u8]>::to_vec)
}

/// As [`inline_tail`], from attributes that were parsed already.
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

/// The contents of a file, or the target of a symbolic link, that an inode holds. The file may be longer, with zeros behind them.
pub(crate) fn inline_contents(volume: &Fs, disk: &DiskInode, raw: &[u8]) -> Result<Vec<u8>, Error> {
    let rest = inline_tail(volume, disk, raw)?;
    let data = InlineData::new(disk, &rest)?;
    Ok([data.head, data.tail].concat())
}

impl Inode {
    /// Removes an attribute that, if it is there, is inside the inode.
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

    /// Replaces all attributes inside the inode by these entries, which fit.
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
