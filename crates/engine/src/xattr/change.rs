//! One attribute set or removed. Setting an ACL also sets the permissions.
//!
//! Input: an inode, the stored form of a name, a value. Output: the change, in a handle of its own. Invariants: those of `set`, `remove`
//! and `acl`. Limits: the caller deletes value inodes to which no attribute refers any more.

use super::MOST_VALUE;
use super::acl::set_acl;
use super::names::{Named, is_acl};
use super::remove::{attribute_credits, remove_xattr};
use super::set::{Setting, XattrWhen, note_attributes, set_attribute};
use crate::caller::Maker;
use crate::error::Error;
use crate::inode::Inode;

/// Sets an attribute. The value inode of the old value, or one that was created for a change that failed, may be on the orphan list
/// afterwards: the caller deletes it. The caller also commits the change if the inode has the flag `S` ([`Inode::sync_if_flagged`]).
/// Blocks; no lock may be held.
pub(crate) fn set(
    inode: &Inode,
    which: Named<'_>,
    value: &[u8],
    when: XattrWhen,
    maker: &Maker,
) -> Result<(), Error> {
    if value.len() > MOST_VALUE as usize {
        let (ino, len) = (inode.ino, value.len());
        return Err(Error::AttributeTooBig { ino, len });
    }
    if is_acl(which) {
        return set_acl(inode, which, value, Some(maker));
    }
    set_attribute(
        inode,
        &Setting {
            which,
            value: Some(value),
            when,
            holder: None,
            permissions: None,
            maker: None,
            shares: true,
        },
    )
}

/// Removes an attribute. Returns false if there was none; for an ACL it always returns true. The caller deletes orphans and commits as
/// after [`set`]. Blocks; no lock may be held.
pub(crate) fn remove(inode: &Inode, which: Named<'_>) -> Result<bool, Error> {
    if is_acl(which) {
        return set_acl(inode, which, &[], None).map(|()| true);
    }
    inode.volume.in_handle(attribute_credits(inode)?, |handle| {
        let _map = inode.map_lock.lock();
        let is_there = remove_xattr(inode, handle, which)?;
        if is_there {
            handle.or_abort(note_attributes(inode, handle, None, None))?;
        }
        Ok(is_there)
    })
}
