//! Blocks of attributes that several inodes have: one with the same entries is found, and gets another user.
//!
//! Input: entries that an inode's block shall have, under a handle and the inode's map lock. Output: a block with just these bytes, which counts the inode.
//! Invariants: a block is known from when it is made until its last user leaves it, and both, as the look and the count of a new user, are one step
//! under the lock; so what is found is in use. What is found is compared byte by byte. Limits: the last 1024 or fewer blocks that were
//! written since the volume was opened; none with a value in an inode of its own, which counts the blocks that name it; [`MOST_USERS`].
//! Source: the kernel's ext4 documentation, "extended attributes" (`h_refcount`, `h_hash`); e2fsck takes 1024 users at most.

use super::block::Block;
use super::block::{check_of_block, leave_block, name_block};
use crate::alloc::Run;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::space::hash_of;
use diorite_format::FsBlock;
use diorite_format::xattr::{self, XattrEntry, Xattrs};

/// Inodes that have one block.
const MOST_USERS: u32 = 1024;
/// Gives the inode a block with these entries that others have, in the place of the one it has; false, and nothing done, if none is known.
pub(super) fn share_block(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    block: &Block,
    entries: &[XattrEntry<'_>],
) -> Result<bool, Error> {
    if block.parse(inode)?.entries.iter().any(XattrEntry::is_held) {
        return Ok(false);
    }
    let Some(found) = use_equal(inode, handle, block.at, entries)? else {
        return Ok(false);
    };
    handle.or_abort((|| {
        if let Some(old) = block.at {
            leave_block(inode, handle, old, |_| true)?;
            return inode.change(handle, |disk| disk.file_acl = found);
        }
        name_block(inode, handle, found)
    })())?;
    Ok(true)
}

/// The same for a new inode, for which a block was taken: that is free again.
pub(super) fn share_instead(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    taken: Run,
    entries: &[XattrEntry<'_>],
) -> Result<bool, Error> {
    let Some(found) = use_equal(inode, handle, None, entries)? else {
        return Ok(false);
    };
    inode.volume.alloc()?.free(handle, taken.start, taken.len)?;
    name_block(inode, handle, found)?;
    Ok(true)
}

/// A block with just these entries, other than `own`, which has one user more now.
fn use_equal(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    own: Option<FsBlock>,
    entries: &[XattrEntry<'_>],
) -> Result<Option<FsBlock>, Error> {
    let Some(hash) = hash_of(entries) else {
        return Ok(None);
    };
    inode.volume.equal_blocks.holding(hash, |known| {
        let Some(at) = known.filter(|at| Some(*at) != own) else {
            return Ok(None);
        };
        let used = handle.update(at, Kind::Xattr, check_of_block(inode, at)?, |raw| {
            add_user(inode, at, entries, raw)
        })?;
        Ok(used.then_some(at))
    })
}

/// Counts one user more of a block, if it has just these entries and not too many.
fn add_user(
    inode: &Inode,
    at: FsBlock,
    entries: &[XattrEntry<'_>],
    raw: &mut [u8],
) -> Result<bool, Error> {
    let sb = &inode.volume.sb;
    let users = Xattrs::parse_block(sb, inode.ino, at, raw)?.refcount;
    let mut equal = vec![0; raw.len()];
    xattr::write_block(sb, at, entries, users, &mut equal)?;
    let may = equal == raw && (1..MOST_USERS).contains(&users);
    if may {
        xattr::set_refcount(sb, at, raw, users + 1)?;
    }
    Ok(may)
}
