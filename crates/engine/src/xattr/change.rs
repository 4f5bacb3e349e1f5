//! One attribute set or taken away, whatever it is: access control lists change the permissions with them.
//!
//! Input: an inode, a stored name, a value. Output: the change, in a handle of its own. Invariants: those of `set`, `remove` and `acl`.
//! Limits: what nothing names any more is the caller's to delete.

use super::MOST_VALUE;
use super::acl::set_acl;
use super::names::{Named, is_acl};
use super::remove::{attribute_credits, remove_xattr};
use super::set::{Setting, XattrWhen, note_attributes, set_attribute};
use crate::error::Error;
use crate::inode::Inode;

/// Sets an attribute. What was named before, or was made in vain, is doomed; the caller deletes it, and syncs the inode if it is flagged. Blocks; no lock may be
/// held.
pub(crate) fn set(
    inode: &Inode,
    which: Named<'_>,
    value: &[u8],
    when: XattrWhen,
) -> Result<(), Error> {
    if value.len() > MOST_VALUE as usize {
        let (ino, len) = (inode.ino, value.len());
        return Err(Error::AttributeTooBig { ino, len });
    }
    if is_acl(which) {
        return set_acl(inode, which, value);
    }
    set_attribute(
        inode,
        &Setting {
            which,
            value: Some(value),
            when,
            holder: None,
            permissions: None,
            shares: true,
        },
    )
}

/// Takes an attribute away; false if it is not there. What it alone named is doomed; the caller deletes it, and syncs the inode if it is flagged. Blocks; no
/// lock may be held.
pub(crate) fn remove(inode: &Inode, which: Named<'_>) -> Result<bool, Error> {
    if is_acl(which) {
        return set_acl(inode, which, &[]).map(|()| true);
    }
    inode.volume.in_handle(attribute_credits(inode)?, |handle| {
        let _map = inode.map_lock.lock();
        let is_there = remove_xattr(inode, handle, which)?;
        if is_there {
            handle.or_abort(note_attributes(inode, handle, None))?;
        }
        Ok(is_there)
    })
}
