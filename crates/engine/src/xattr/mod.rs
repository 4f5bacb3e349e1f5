//! The xattr room: extended attributes, wherever they are.
//!
//! Input: an inode with its own bytes. Output: names and values; the tail of inline data. Invariants: entry hashes and
//! checksums are verified; a value in an inode of its own is bounded before it is read. Limits: values up to 64 KiB, which is
//! what the kernel's interface can carry.

mod remove;
mod set;

pub(crate) use remove::REMOVE_CREDITS;

use crate::cache::Kind;
use crate::error::Error;
use crate::file::{File, OpenFlags};
use crate::inode::Inode;
use crate::volume::{Volume, VolumeShared};
use diorite_format::inline::InlineData;
use diorite_format::xattr::{NameIndex, XattrEntry, XattrValue, Xattrs, verify_ea_inode};
use diorite_format::{Ino, Inode as DiskInode};

/// The largest value of an attribute, in bytes.
const MOST_VALUE: u32 = 64 << 10;

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// The whole name, as `getfattr` shows it; `system.posix_acl_access` for ACLs.
    pub name: Vec<u8>,
    /// The value, as the kernel's interface gives it.
    pub value: Vec<u8>,
}

/// The part of inline data that is kept as the attribute `system.data`.
pub(crate) fn inline_tail(
    volume: &VolumeShared,
    disk: &DiskInode,
    raw: &[u8],
) -> Result<Vec<u8>, Error> {
    let attrs = Xattrs::parse_inode(&volume.sb, disk, raw)?;
    match attrs.get(NameIndex::SYSTEM, b"data").map(|e| e.value) {
        Some(XattrValue::Bytes(value)) => Ok(value.to_vec()),
        Some(XattrValue::Inode { .. }) => Err(Error::Damaged(format!(
            "inode {}: its inline data is in another inode; run e2fsck",
            disk.ino
        ))),
        None => Ok(Vec::new()),
    }
}

/// The whole contents of a file whose data is in its inode.
pub(crate) fn inline_contents(
    volume: &VolumeShared,
    disk: &DiskInode,
    raw: &[u8],
) -> Result<Vec<u8>, Error> {
    let rest = inline_tail(volume, disk, raw)?;
    let data = InlineData::new(disk, &rest)?;
    Ok([data.head, data.tail].concat())
}

impl Volume {
    /// Every extended attribute of an inode, those kept inside it first. Blocks while metadata is read.
    ///
    /// # Errors
    /// Damaged attributes.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, Error> {
        let inode = self.inner().inode(ino)?;
        let mut all = Vec::new();
        let (disk, raw) = (inode.disk(), inode.raw());
        let inside = Xattrs::parse_inode(&self.inner().sb, &disk, &raw)?;
        self.collect(&inode, &inside, &mut all)?;
        let block = inode.disk().file_acl;
        if !block.is_none() {
            let volume = self.inner();
            if let Some(what) = volume.metadata_in(block, 1) {
                return Err(Error::Damaged(format!(
                    "inode {ino}: its attribute block {block} holds {what}; run e2fsck"
                )));
            }
            let check = |raw: &[u8]| Xattrs::parse_block(&volume.sb, ino, block, raw).map(|_| ());
            let raw = volume
                .cache
                .read(&volume.blocking, block, Kind::Xattr, check)?;
            self.collect(
                &inode,
                &Xattrs::parse_block(&volume.sb, ino, block, &raw)?,
                &mut all,
            )?;
        }
        Ok(all)
    }

    fn collect(
        &self,
        inode: &Inode,
        attrs: &Xattrs<'_>,
        all: &mut Vec<Xattr>,
    ) -> Result<(), Error> {
        for entry in &attrs.entries {
            let is_inline_data = entry.index == NameIndex::SYSTEM && entry.name == b"data";
            let Some(name) = entry.full_name().filter(|_| !is_inline_data) else {
                continue;
            };
            let value = match entry.value {
                XattrValue::Bytes(value) => {
                    entry.verify_hash(inode.ino)?;
                    value.to_vec()
                }
                XattrValue::Inode { ino, size } => self.ea_value(inode.ino, entry, ino, size)?,
            };
            let acl = matches!(entry.index, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT);
            let value = if acl {
                diorite_format::acl::from_disk(&value)?
            } else {
                value
            };
            all.push(Xattr { name, value });
        }
        Ok(())
    }

    fn ea_value(
        &self,
        owner: Ino,
        entry: &XattrEntry<'_>,
        ino: Ino,
        size: u32,
    ) -> Result<Vec<u8>, Error> {
        let file: File = self.open_ino(ino, OpenFlags::default())?;
        if size > MOST_VALUE || u64::from(size) > file.size() {
            let what = format!(
                "inode {owner}: an attribute's value in inode {ino} is {size} bytes; run e2fsck"
            );
            return Err(Error::Damaged(what));
        }
        let mut value = vec![0; size as usize];
        file.read_bytes(0, &mut value)?;
        verify_ea_inode(&self.inner().sb, owner, entry, &file.metadata(), &value)?;
        Ok(value)
    }
}
