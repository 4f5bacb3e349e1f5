//! Checksums of attribute values in inodes of their own (ea_inode), which have the seed of all checksums in them.
//!
//! Input: an [`Image`], and the superblock that it is to have. Output: the checksum of each value now and then; entries with the hashes of
//! these. Invariant: a value is checked against its checksum, and an entry against its hash, before either changes. Limits: values in
//! Lustre's old form, which have no checksum, and in inodes with holes are refused.

use super::image::Image;
use crate::error::Error;
use diorite_format::features::Incompat;
use diorite_format::xattr::{
    XattrEntry, XattrValue, Xattrs, continue_value_sum, held_hash, is_held_hash, value_sum,
    write_block, write_inode,
};
use diorite_format::{FsBlock, Ino, Inode, Superblock};
use std::collections::BTreeMap;

/// The checksum of a value, now and then, by its inode.
#[derive(Default)]
pub(super) struct Values(BTreeMap<Ino, (u32, u32)>);

/// Whether values get other checksums with `new`.
pub(super) fn change(old: &Superblock, new: &Superblock) -> bool {
    old.features().incompat.has(Incompat::EA_INODE) && old.csum_seed() != new.csum_seed()
}

impl Values {
    /// Reads all values of a file system that is to have the superblock `new`. Blocks.
    pub(super) fn new(image: &mut Image, new: &Superblock) -> Result<Values, Error> {
        let mut all = BTreeMap::new();
        if change(&image.sb, new) {
            image.each_inode(&mut |image, inode| {
                if inode.holds_value() {
                    let sums = sums(image, inode, new)
                        .map_err(|e| e.at(format!("inode {}, an attribute's value", inode.ino)))?;
                    all.insert(inode.ino, sums);
                }
                Ok(())
            })?;
        }
        Ok(Values(all))
    }

    /// Gives an inode that is a value its new checksum; `raw` is its bytes. Their own checksum is the caller's.
    pub(super) fn seal_value(
        &self,
        sb: &Superblock,
        inode: &Inode,
        raw: &mut [u8],
    ) -> Result<(), Error> {
        if let Some((_, sum)) = self.0.get(&inode.ino) {
            let mut inode = inode.clone();
            inode.set_value_checksum(*sum);
            inode.write(sb, raw)?;
        }
        Ok(())
    }

    /// Gives the entries behind an inode's fields their new hashes.
    pub(super) fn rehash_inode(
        &self,
        sb: &Superblock,
        inode: &Inode,
        raw: &mut [u8],
    ) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let before = raw.to_vec();
        let entries = Xattrs::parse_inode(sb, inode, &before)?.entries;
        match self.rehashed(inode.ino, entries)? {
            Some(entries) => Ok(write_inode(inode, &entries, raw)?),
            None => Ok(()),
        }
    }

    /// Gives the entries of a block, checked by `old`, their new hashes. The checksum is that of `new`.
    pub(super) fn rehash_block(
        &self,
        (old, new): (&Superblock, &Superblock),
        (owner, at): (Ino, FsBlock),
        raw: &mut [u8],
    ) -> Result<(), Error> {
        let before = raw.to_vec();
        let found = Xattrs::parse_block(old, owner, at, &before)?;
        match self.rehashed(owner, found.entries)? {
            Some(entries) => Ok(write_block(new, at, &entries, found.refcount, raw)?),
            None => Ok(()),
        }
    }

    /// The entries with new hashes, if one of them has its value in an inode.
    fn rehashed<'e>(
        &self,
        owner: Ino,
        mut entries: Vec<XattrEntry<'e>>,
    ) -> Result<Option<Vec<XattrEntry<'e>>>, Error> {
        let mut changes = false;
        for entry in &mut entries {
            let XattrValue::Inode { ino, .. } = entry.value else {
                continue;
            };
            let sums = self.0.get(&ino);
            let fits = |(old, _): &&(u32, u32)| {
                entry.hash == 0 || is_held_hash(entry.hash, entry.name, *old)
            };
            let Some((_, sum)) = sums.filter(fits) else {
                let what = format!(
                    "inode {owner}: an attribute's value is in inode {ino}, which holds no value with that hash; run e2fsck"
                );
                return Err(Error::Damaged(what));
            };
            if entry.hash != 0 {
                entry.hash = held_hash(entry.name, *sum);
                changes = true;
            }
        }
        Ok(changes.then_some(entries))
    }
}

/// The checksum of a value now, and with another superblock.
fn sums(image: &Image, inode: &Inode, new: &Superblock) -> Result<(u32, u32), Error> {
    let (mut old, mut then) = (value_sum(&image.sb, &[]), value_sum(new, &[]));
    let mut left = inode.size;
    let map = image.map_as(&image.sb, inode)?;
    for (n, (file_block, at)) in (0..).zip(map.blocks()) {
        if left == 0 {
            break;
        }
        if file_block.get() != n {
            return Err(Error::Damaged("it has holes; run e2fsck".to_owned()));
        }
        let raw = image.block(at)?;
        let len = usize::try_from(left).map_or(raw.len(), |left| left.min(raw.len()));
        old = continue_value_sum(old, &raw[..len]);
        then = continue_value_sum(then, &raw[..len]);
        left -= len as u64;
    }
    if left > 0 || old != inode.value_checksum() {
        return Err(Error::Damaged(
            "its checksum is not that of its contents; run e2fsck".to_owned(),
        ));
    }
    Ok((old, then))
}
