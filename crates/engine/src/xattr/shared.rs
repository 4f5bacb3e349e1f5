//! Attribute blocks that several inodes share: an equal block is found, and gets one more user.
//!
//! Input: the entries that an inode's attribute block is to have; a handle, and the inode's map lock. Output: a block with exactly these
//! entries, whose user count includes the inode. Invariants: a block can be found from its creation until its last user drops it. One lock
//! covers the search together with the increment of the user count, and a decrement together with the end of being found, so a block that
//! is found is in use. It is compared byte by byte. Limits: at most 1024 blocks can be found, all written since the volume was opened; none
//! of them refers to a value inode, because that would have to count it; [`MOST_USERS`]. Source: the kernel's ext4 documentation, "extended
//! attributes" (`h_refcount`, `h_hash`); e2fsck takes 1024 users at most.

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

/// The most inodes that may share one block.
const MOST_USERS: u32 = 1024;

/// Gives the inode an equal block of other inodes instead of its present one. Returns false, and does nothing, if no such block is found.
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

/// As [`share_block`], for a new inode: the block that was allocated for its attributes is freed.
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

/// Finds a block with exactly these entries, other than `own`, and counts one more user of it.
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

/// Counts one more user of a block. Returns false, and does nothing, if its entries are others or it has too many users.
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
