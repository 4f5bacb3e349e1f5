//! ACLs (access control lists): how they and the permissions change each other, and what a new inode inherits from its directory.
//!
//! Input: a new ACL; new permissions; a directory and the type of a new inode in it. Output: the attribute and the mode, changed in one
//! handle. Invariants: the mode always agrees with the access ACL; an access ACL that says no more than the mode is not stored. Limits: an
//! ACL that is stored in a value inode can follow a change of the mode only if it fits into the inode or its attribute block. Source: man 5
//! acl, man 2 chmod; experiments with setfacl, chmod, umask and new files on the kernel's mount.

use super::attribute;
use super::block::{fit_block, put_block};
use super::names::Named;
use super::set::{Setting, XattrWhen};
use super::set::{set_attribute, set_xattr};
use super::shared::share_instead;
use crate::alloc::Run;
use crate::caller::Maker;
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use diorite_format::acl::Acl;
use diorite_format::dir::begins_inline;
use diorite_format::inline::rest_entry;
use diorite_format::inode::{GROUP_EXECUTES, NewInode, SETGID};
use diorite_format::xattr::{self, NameIndex, XattrEntry, Xattrs};
use diorite_format::{FileType, Inode as DiskInode, InodeFlags};

const ACCESS: Named<'_> = (NameIndex::ACL_ACCESS, b"");
const DEFAULT: Named<'_> = (NameIndex::ACL_DEFAULT, b"");

/// What a new inode gets from its maker and from its directory's default ACL.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// User and group. A set-group-id directory gives its own group instead.
    pub(crate) owner: (u32, u32),
    pub(crate) permissions: u16,
    /// The ACLs do not fit into the new inode, so it needs an attribute block.
    pub(crate) needs_block: bool,
    /// It is an inline directory: its first attribute is `system.data`, for the second part of its names.
    pub(crate) begins_inside: bool,
    lists: Vec<(Named<'static>, Vec<u8>)>,
}

/// Sets an ACL, given in the form of the kernel's interface, in a handle of its own. One without entries removes the ACL. Set-group-id is
/// cleared if `maker` may not give it. Blocks; no lock may be held.
pub(super) fn set_acl(
    inode: &Inode,
    which: Named<'_>,
    value: &[u8],
    maker: Option<&Maker>,
) -> Result<(), Error> {
    let acl = Acl::parse(value).map_err(|error| Error::Invalid(error.to_string()))?;
    let mut permissions = None;
    let mut stored = acl.as_ref().map(Acl::to_stored);
    match (&acl, which) {
        (None, _) => {}
        (Some(_), DEFAULT) if !inode.disk().is_dir() => {
            let (ino, flag) = (inode.ino, "no directory");
            return Err(Error::NotPermitted { ino, flag });
        }
        (Some(_), DEFAULT) => {}
        (Some(acl), _) => {
            permissions = Some(acl.permissions());
            stored = stored.filter(|_| !acl.is_minimal());
        }
    }
    set_attribute(
        inode,
        &Setting {
            which,
            value: stored.as_deref(),
            when: XattrWhen::Always,
            holder: None,
            permissions,
            maker,
            shares: true,
        },
    )
}

/// Adapts the access ACL to the permissions that the mode will have. A failure has changed nothing. The map lock is held.
pub(crate) fn follow_mode(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    permissions: u16,
) -> Result<(), Error> {
    let Some(mut acl) = stored_acl(inode, ACCESS)? else {
        return Ok(());
    };
    let before = acl.clone();
    acl.set_permissions(permissions);
    if acl == before {
        return Ok(());
    }
    let stored = acl.to_stored();
    set_xattr(
        inode,
        handle,
        &Setting {
            which: ACCESS,
            value: Some(&stored),
            when: XattrWhen::Always,
            holder: None,
            permissions: None,
            maker: None,
            shares: false,
        },
    )
    .map(drop)
}

/// What a new inode in this directory inherits. Blocks while metadata is read.
pub(crate) fn inherit_acl(
    inode: &Inode,
    kind: FileType,
    permissions: u16,
    maker: &Maker,
) -> Result<Inherited, Error> {
    let default = match kind {
        FileType::Symlink => None,
        _ => stored_acl(inode, DEFAULT)?,
    };
    const AS_GROUP: u16 = SETGID | GROUP_EXECUTES;
    // A file made in a set-group-id directory gets the directory's group. Only a member of that group may make it a file that runs as that
    // group.
    let acts_as_group = kind != FileType::Directory && permissions & AS_GROUP == AS_GROUP;
    let parent = acts_as_group.then(|| inode.disk());
    let permissions = match parent.filter(|parent| parent.mode & SETGID != 0) {
        Some(parent) => maker.without_foreign_group(permissions, parent.gid),
        None => permissions,
    };
    let mut from = Inherited {
        owner: (maker.uid, maker.gid),
        permissions,
        begins_inside: kind == FileType::Directory && begins_inline(&inode.volume.sb),
        ..Inherited::default()
    };
    let Some(default) = default else {
        if kind != FileType::Symlink {
            from.permissions = maker.without_masked(permissions);
        }
        return Ok(from);
    };
    let mut access = default.clone();
    from.permissions = permissions & !0o777 | access.limit_to(permissions);
    if !access.is_minimal() {
        from.lists.push((ACCESS, access.to_stored()));
    }
    if kind == FileType::Directory {
        from.lists.push((DEFAULT, default.to_stored()));
    }
    let disk = inode.disk();
    let disk = DiskInode::fresh(
        &inode.volume.sb,
        &NewInode {
            ino: inode.ino,
            mode: kind.to_mode(),
            uid: disk.uid,
            gid: disk.gid,
            projid: 0,
            flags: InodeFlags::default(),
            generation: 0,
            time: disk.ctime,
        },
    );
    let (_, beside) = from.split(&disk, inode.raw().len());
    let (needs_block, fit) = (!beside.is_empty(), fit_block(inode, &beside));
    if !fit {
        let ino = inode.ino;
        return Err(Error::AttributesFull { ino });
    }
    from.needs_block = needs_block;
    Ok(from)
}

fn stored_acl(inode: &Inode, which: Named<'_>) -> Result<Option<Acl>, Error> {
    match attribute(inode, which)? {
        Some(value) => Ok(Acl::parse(&value)?),
        None => Ok(None),
    }
}

/// Stores the inherited ACLs of a new inode: in its own area, and those without room there in the block that was allocated for them.
pub(crate) fn put_inherited(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    from: &Inherited,
    block: Option<Run>,
) -> Result<(), Error> {
    if from.lists.is_empty() {
        return Ok(());
    }
    let _map = inode.map_lock.lock();
    let (inside, beside) = from.split(&inode.disk(), inode.raw().len());
    if !inside.is_empty() {
        inode.replace_inside(handle, &inside)?;
    }
    match block {
        Some(run) if !share_instead(inode, handle, run, &beside)? => {
            put_block(inode, handle, run.start, &beside)
        }
        _ => Ok(()),
    }
}

impl Inherited {
    /// The entries that fit into a new inode's own area, and the others.
    fn split(
        &self,
        disk: &DiskInode,
        inode_size: usize,
    ) -> (Vec<XattrEntry<'_>>, Vec<XattrEntry<'_>>) {
        let (mut inside, mut beside) = (Xattrs::default(), Xattrs::default());
        inside
            .entries
            .extend(self.begins_inside.then(|| rest_entry(&[])));
        for ((index, name), value) in &self.lists {
            let entry = XattrEntry::new(*index, name, value);
            let with = inside.with(entry);
            match xattr::write_inode(disk, &with, &mut vec![0; inode_size]) {
                Ok(()) => inside.entries = with,
                Err(_) => beside.entries = beside.with(entry),
            }
        }
        (inside.entries, beside.entries)
    }
}
