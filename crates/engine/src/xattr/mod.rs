//! The xattr module: the extended attributes of inodes.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `names` | an attribute's whole name -> its stored form, if this inode may have such an attribute |
//! | `change` | a name and a value -> `set`, `remove`, or for an ACL `acl` |
//! | `set`, `remove` | an attribute -> stored in the inode, in its attribute block or in a value inode; or removed |
//! | `block` | the entries of an attribute block -> the block: created, changed, copied if it is shared, or dropped |
//! | `shared` | the entries of an attribute block -> an equal block of other inodes, with one more user |
//! | `acl` | an ACL or permissions -> both, in agreement; a directory's default ACL -> what a new inode inherits |
//! | `value` | a value -> an inode that stores it, and how many attributes refer to that inode |
//!
//! Input: an inode and its bytes in the inode table. Output: names and values; attributes changed, each in one handle. Invariants: entry
//! hashes and checksums are verified; the length of a value in a value inode is checked before the value is read; an attribute is stored in
//! only one place. Limits: values up to 64 KiB, as much as the kernel's interface can carry.
//!
//! # Where attributes are
//!
//! An attribute is stored in the inode's own area if there is room, else in its attribute block. If that has no room either, and the volume
//! has the feature ea_inode, the value is stored in an inode of its own, a value inode. A change is one handle under the inode's map lock:
//! it adds the new entry and removes the old one, copies an attribute block that other inodes share, and updates the user counts of value
//! inodes. A new value inode is created before, as an orphan, in handles of its own; the handle that adds the attribute takes it off the
//! orphan list. A value inode to which no attribute refers any more is put onto that list.
//!
//! Inodes with the same entries share an attribute block (`xattr/shared.rs`). Blocks that were written since the volume was opened are
//! found by the hash of their entries, until their last user drops them. One lock covers the search for a block, the comparison of all
//! bytes and the increment of its user count; the same lock covers a decrement and the end of being found. So no inode gets a block that is
//! free or about to change.
//!
//! What a write has to do or check first (rights to clear, inline data, data journalling, the flags immutable and append-only) is in one
//! word of the inode that every write loads (`inode/first.rs`). So a change of it also reaches queues that had the file attached before.

mod acl;
mod block;
mod change;
mod names;
mod remove;
mod set;
mod shared;
mod value;

pub(crate) use acl::{Inherited, follow_mode, inherit_acl, put_inherited};
pub(crate) use block::{own_attribute_block, release_xattr_block};
pub(crate) use change::{remove, set};
pub(crate) use names::{Named, missing, to_change};
pub(crate) use remove::{attribute_credits, held_attribute, remove_capability, remove_xattr};
pub use set::XattrWhen;

use crate::error::Error;
use crate::inode::Inode;
use block::read_attribute_block;
use diorite_format::inline;
use diorite_format::xattr::{NameIndex, XattrEntry, XattrValue, Xattrs};
use value::held_value;

/// The largest value of an attribute, in bytes.
pub(crate) const MOST_VALUE: u32 = 64 << 10;

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// The whole name, as `getfattr` prints it; `system.posix_acl_access` or `system.posix_acl_default` for an ACL.
    pub name: Vec<u8>,
    /// The value, in the form of the kernel's interface: an ACL is converted from its form on disk.
    pub value: Vec<u8>,
}

/// All attributes of an inode, those in its own area first. Blocks.
pub(crate) fn all(inode: &Inode) -> Result<Vec<Xattr>, Error> {
    let mut all = Vec::new();
    each_entry(inode, |entry| {
        let is_inline_data = (entry.index, entry.name) == inline::REST;
        if let Some(name) = entry.full_name().filter(|_| !is_inline_data) {
            let value = shown_value(inode, entry)?;
            all.push(Xattr { name, value });
        }
        Ok(())
    })?;
    Ok(all)
}

/// The value of the attribute with this whole name; an error if there is none. Blocks.
pub(crate) fn one(inode: &Inode, name: &[u8]) -> Result<Vec<u8>, Error> {
    let found = match NameIndex::split(name).filter(|which| *which != inline::REST) {
        Some(which) => attribute(inode, which)?,
        None => None,
    };
    found.ok_or_else(|| names::missing(name))
}

/// The value of an attribute, in the form of the kernel's interface; none if there is no such attribute. Blocks.
pub(crate) fn attribute(inode: &Inode, (index, name): Named<'_>) -> Result<Option<Vec<u8>>, Error> {
    let mut found = None;
    if !inode.may_have_attributes() {
        return Ok(found);
    }
    each_entry(inode, |entry| {
        if entry.index == index && entry.name == name {
            found = Some(shown_value(inode, entry)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Calls `each` with every entry in the inode's own area, then with every entry in its attribute block.
fn each_entry(
    inode: &Inode,
    mut each: impl FnMut(&XattrEntry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let volume = &inode.volume;
    let (disk, raw) = (inode.disk(), inode.raw());
    let inside = Xattrs::parse_inode(&volume.sb, &disk, &raw)?;
    inside.entries.iter().try_for_each(&mut each)?;
    if let Some((at, raw)) = read_attribute_block(inode)? {
        let attrs = Xattrs::parse_block(&volume.sb, inode.ino, at, &raw)?;
        attrs.entries.iter().try_for_each(each)?;
    }
    Ok(())
}

fn shown_value(inode: &Inode, entry: &XattrEntry<'_>) -> Result<Vec<u8>, Error> {
    let value = match entry.value {
        XattrValue::Bytes(value) => {
            entry.verify_hash(inode.ino)?;
            value.to_vec()
        }
        XattrValue::Inode { ino, size } => held_value(inode, entry, ino, size)?,
    };
    match entry.index {
        NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT => {
            Ok(diorite_format::acl::from_disk(&value)?)
        }
        _ => Ok(value),
    }
}
