//! One attribute set.
//!
//! Input: an inode, a name, a value. Output: the attribute, in the inode's own area if there is room, else in its attribute block, else,
//! with the feature ea_inode, in a value inode. Invariants: it is in only one of these places; one handle stores the new value and removes
//! the old one; the step that may fail for lack of space is the first, and a failure of it has changed nothing. Limits: values of 64 KiB;
//! without ea_inode all attributes together must fit into the inode's area and one block.

use super::block::{block_now, fit_block, replace_block};
use super::names::{Named, missing};
use super::remove::{attribute_credits, remove_xattr};
use super::shared::share_block;
use super::value::Holder;
use super::value::{adopt, holders, let_go, make_holder};
use crate::caller::Maker;
use crate::error::Error;
use crate::inode::{CAPABILITY, Inode, timestamp};
use crate::journal::JournalHandle;
use diorite_format::Inode as DiskInode;
use diorite_format::features::Incompat;
use diorite_format::xattr::{self, XattrEntry, XattrValue, Xattrs, held_hash, value_sum};

/// Whether an attribute may or must exist before it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrWhen {
    /// Sets it in either case.
    #[default]
    Always,
    /// Sets it only if it does not exist (XATTR_CREATE).
    Missing,
    /// Sets it only if it exists (XATTR_REPLACE).
    Present,
}

/// A change of one attribute.
pub(super) struct Setting<'a> {
    pub(super) which: Named<'a>,
    /// The new value; none removes the attribute.
    pub(super) value: Option<&'a [u8]>,
    pub(super) when: XattrWhen,
    /// The value inode that stores the value, if the value is not to be stored beside the entry.
    pub(super) holder: Option<&'a Holder>,
    /// Permissions that the inode's mode gets in the same handle.
    pub(super) permissions: Option<u16>,
    /// Who sets them, if a frontend's client does: set-group-id is cleared if he may not give it.
    pub(super) maker: Option<&'a Maker>,
    /// May the inode share an equal attribute block of other inodes? If not, it has a block of its own, whose next change needs no space.
    pub(super) shares: bool,
}

impl Setting<'_> {
    fn entry(&self, inode: &Inode) -> XattrEntry<'_> {
        let (index, name) = self.which;
        let value = self.value.unwrap_or_default();
        let Some(holder) = self.holder else {
            return XattrEntry::new(index, name, value);
        };
        XattrEntry {
            index,
            name,
            value: XattrValue::Inode {
                ino: holder.inode.ino,
                size: holder.size,
            },
            hash: held_hash(name, value_sum(&inode.volume.sb, value)),
        }
    }
}

/// Sets ctime after a change of attributes, and the permissions if there are new ones.
pub(super) fn note_attributes(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    permissions: Option<u16>,
    maker: Option<&Maker>,
) -> Result<(), Error> {
    let now = timestamp(inode.volume.now_nanos());
    inode.change(handle, |disk| {
        disk.ctime = now;
        if let Some(permissions) = permissions {
            // The group of now: another thread may have changed it since the request began.
            disk.mode = with_permissions(disk, permissions, maker);
        }
    })
}

/// The mode of an inode that gets these permissions from an ACL.
pub(super) fn with_permissions(disk: &DiskInode, permissions: u16, maker: Option<&Maker>) -> u16 {
    let mode = disk.mode & !0o777 | permissions;
    maker.map_or(mode, |maker| maker.without_foreign_group(mode, disk.gid))
}

/// Changes an attribute in a handle of its own. If there is no room for the value, it goes into a value inode. Blocks; no lock may be held.
pub(super) fn set_attribute(inode: &Inode, set: &Setting<'_>) -> Result<(), Error> {
    let volume = &inode.volume;
    let value = set.value.unwrap_or_default();
    let apart = volume.sb.features().incompat.has(Incompat::EA_INODE) && !value.is_empty();
    match set_in_handle(inode, set) {
        Err(Error::AttributesFull { .. }) if apart => {
            let holder = make_holder(inode, value)?;
            let holder = Some(&holder);
            set_in_handle(inode, &Setting { holder, ..*set })
        }
        done => done,
    }
}

fn set_in_handle(inode: &Inode, set: &Setting<'_>) -> Result<(), Error> {
    let credits = attribute_credits(inode)?;
    let change = |handle: &JournalHandle<'_>| {
        let _map = inode.map_lock.lock();
        let is_changed = match set.value {
            Some(_) => set_xattr(inode, handle, set)?,
            None => remove_xattr(inode, handle, set.which)?,
        };
        let disk = inode.disk();
        let permissions = set.permissions;
        let is_same_mode =
            permissions.is_none_or(|now| with_permissions(&disk, now, set.maker) == disk.mode);
        if !is_changed && is_same_mode {
            // As ext4 has it, ctime does not change.
            return Ok(());
        }
        if inode.disk().is_file() && set.which == CAPABILITY {
            inode.note_privileges();
        }
        handle.or_abort(note_attributes(inode, handle, permissions, set.maker))
    };
    let volume = &inode.volume;
    volume.with_space_of_others(|| volume.in_handle(credits, change))
}

/// Sets an attribute. Returns false, and does nothing, if it has this value already. The map lock is held, so no other thread changes
/// attributes. Blocks.
pub(super) fn set_xattr(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    set: &Setting<'_>,
) -> Result<bool, Error> {
    let (index, name) = set.which;
    let (sb, ino, disk, raw) = (&inode.volume.sb, inode.ino, inode.disk(), inode.raw());
    let inside = Xattrs::parse_inode(sb, &disk, &raw)?;
    let block = block_now(inode, handle)?;
    let beside = block.parse(inode)?;
    let old = [inside.get(index, name), beside.get(index, name)];
    check_when(set, old != [None, None])?;
    let new = set.entry(inode);
    if set.holder.is_none() && old.into_iter().flatten().any(|one| one.value == new.value) {
        return Ok(false);
    }
    let old = holders(inode, old.into_iter().flatten())?;
    let entries = inside.with(new);
    let fits = xattr::write_inode(&disk, &entries, &mut raw.to_vec()).is_ok();
    if fits {
        if let Some(kept) = beside.without(index, name) {
            replace_block(inode, handle, &block, &kept)?;
        }
        handle.or_abort(inode.replace_inside(handle, &entries))?;
    } else {
        let entries = beside.with(new);
        if !fit_block(inode, &entries) {
            return Err(Error::AttributesFull { ino });
        }
        let shared = set.shares && share_block(inode, handle, &block, &entries)?;
        if !shared {
            replace_block(inode, handle, &block, &entries)?;
        }
        if let Some(kept) = inside.without(index, name) {
            handle.or_abort(inode.replace_inside(handle, &kept))?;
        }
    }
    handle.or_abort(let_go(inode, handle, &old))?;
    if let Some(holder) = set.holder {
        handle.or_abort(adopt(inode, handle, holder))?;
    }
    Ok(true)
}

/// Checks what [`XattrWhen`] demands.
fn check_when(set: &Setting<'_>, is_there: bool) -> Result<(), Error> {
    let shown = || {
        let (index, name) = set.which;
        let entry = XattrEntry::new(index, name, &[]);
        entry.full_name().unwrap_or_default()
    };
    match (set.when, is_there) {
        (XattrWhen::Missing, true) => {
            let name = String::from_utf8_lossy(&shown()).into_owned();
            Err(Error::AttributeExists { name })
        }
        (XattrWhen::Present, false) => Err(missing(&shown())),
        _ => Ok(()),
    }
}
