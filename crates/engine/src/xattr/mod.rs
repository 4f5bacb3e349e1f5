//! The xattr room: extended attributes, wherever they are.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `names` | an attribute's whole name -> how it is stored, and whether this inode may have it |
//! | `change` | a name and a value -> one of the two below, or a list with its permissions |
//! | `set`, `remove` | an attribute -> in the inode, in a block, in an inode of its own; gone |
//! | `block` | the entries of an inode's block -> that block: made, changed, copied where it is shared, let go |
//! | `shared` | the entries of a block -> an equal one that others have, which counts one user more |
//! | `acl` | a list or permissions -> both in agreement; a directory's default list -> what is in it is made with |
//! | `value` | a value -> an inode that holds it; one attribute more or less that names it |
//!
//! Input: an inode with its own bytes. Output: names and values; the tail of inline data; attributes changed, each in one handle.
//! Invariants: entry hashes and checksums are verified; a value in an inode of its own is bounded before it is read; an attribute is in
//! one place. Limits: values up to 64 KiB, which is what the kernel's interface can carry.
//!
//! # Where attributes are
//!
//! An attribute is in the inode's own area if that has room, else in its block, else - with ea_inode - its value is in an inode of its
//! own. All of a change is in one handle under the inode's map lock: the new entry, the old one gone, a block that others share copied,
//! one user more or less of a value. An inode for a value is made before, as an orphan, in handles of its own; the handle that names it
//! takes it off the list. What nothing names goes back onto it.
//!
//! Inodes with the same entries have one block (`xattr/shared.rs`): blocks that were written since the volume was opened are known by
//! the hash of their entries, until their last user leaves. The look among them, the comparison of all bytes and the count of a user
//! more are one step under a lock, as are a user less and the end of being known, so nobody gets a block that is free or changes.
//!
//! What stands between a file and plain writes - rights that a write takes away, data in the inode or through the journal, immutable,
//! append-only - is one word of the inode that every write loads, so a change of it is known to queues that have written already.

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
pub(crate) use remove::{attribute_credits, held_attribute, remove_xattr};
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
    /// The whole name, as `getfattr` shows it; `system.posix_acl_access` for ACLs.
    pub name: Vec<u8>,
    /// The value, as the kernel's interface gives it.
    pub value: Vec<u8>,
}

/// Every attribute of an inode, those kept inside it first.
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

/// One of them, by its whole name.
pub(crate) fn one(inode: &Inode, name: &[u8]) -> Result<Vec<u8>, Error> {
    let found = match NameIndex::split(name).filter(|which| *which != inline::REST) {
        Some(which) => attribute(inode, which)?,
        None => None,
    };
    found.ok_or_else(|| names::missing(name))
}

/// The value of an attribute, as the kernel's interface gives it.
pub(crate) fn attribute(inode: &Inode, (index, name): Named<'_>) -> Result<Option<Vec<u8>>, Error> {
    let mut found = None;
    each_entry(inode, |entry| {
        if entry.index == index && entry.name == name {
            found = Some(shown_value(inode, entry)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Every entry, of its own area and of its block.
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
