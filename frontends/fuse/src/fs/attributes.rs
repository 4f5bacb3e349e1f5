//! Attributes of inodes, and their extended attributes.
//!
//! Input: inodes. Output: what the kernel shows of them; changes. Invariants: the order of a change with several parts is rights that go
//! with the old contents, size, then owners, permissions and times. A change that fails may be there in part: then the kernel forgets what
//! it has of the inode. Limits: ctime cannot be set; it is the time of the change.

use super::{FileSystem, Help, no};
use crate::wire::input::{Body, Header};
use crate::wire::output::Put;
use crate::wire::{can, set};
use diorite::{Error, Ino, OpenFlags, SetAttr, Timestamp, XattrWhen};
use rustix::io::Errno;

/// Refuses a name that no attribute can have.
fn check_name(name: &[u8]) -> Result<(), Errno> {
    const SPACES: [&[u8]; 4] = [b"user.", TRUSTED, b"security.", b"gnu."];
    const ACLS: [&[u8]; 2] = [ACCESS_ACL, b"system.posix_acl_default"];
    match SPACES.iter().find(|space| name.starts_with(space)) {
        Some(space) if name.len() == space.len() => Err(Errno::INVAL),
        None if !ACLS.contains(&name) => Err(Errno::OPNOTSUPP),
        _ => Ok(()),
    }
}

/// The ACL that is a part of the mode.
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// What only root may see.
const TRUSTED: &[u8] = b"trusted.";

impl FileSystem {
    pub(super) fn getattr(&self, header: &Header, out: &mut Vec<u8>) -> Result<(), Errno> {
        let (inode, size) = self.told(header, self.ino(header.node)?).map_err(no)?;
        self.attr(&inode, size).put_alone(out);
        Ok(())
    }

    pub(super) fn statx(&self, header: &Header, out: &mut Vec<u8>) -> Result<(), Errno> {
        let (inode, size) = self.told(header, self.ino(header.node)?).map_err(no)?;
        self.attr(&inode, size).put_statx(out);
        Ok(())
    }

    pub(super) fn setattr(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let (valid, _) = (body.u32()?, body.u32()?);
        let (_handle, size, _owner) = (body.u64()?, body.u64()?, body.u64()?);
        let seconds = [body.u64()?, body.u64()?, body.u64()?];
        let nanos = [body.u32()?, body.u32()?, body.u32()?];
        let mode = body.u32()?;
        body.skip(4)?;
        let (uid, gid) = (body.u32()?, body.u32()?);
        let ino = self.ino(header.node)?;
        let has = |bit: u32| valid & bit != 0;
        let time = |given: u32, now: u32, at: usize| match (has(given), has(now)) {
            (false, _) => None,
            (true, true) => Some(self.volume.now()),
            (true, false) => Some(Timestamp {
                secs: seconds[at].cast_signed(),
                nanos: nanos[at],
            }),
        };
        let change = SetAttr::default()
            // The lower 12 bits of a mode.
            .permissions(has(set::MODE).then_some((mode & 0o7777) as u16))
            .uid(has(set::UID).then_some(uid))
            .gid(has(set::GID).then_some(gid))
            .atime(time(set::ATIME, set::ATIME_NOW, 0))
            .mtime(time(set::MTIME, set::MTIME_NOW, 1))
            .is_now(
                [(set::ATIME, set::ATIME_NOW), (set::MTIME, set::MTIME_NOW)]
                    .iter()
                    .all(|(given, now)| has(*now) || !has(*given)),
            );
        let kills = has(set::KILL_SUIDGID) && change.permissions.is_none();
        let done = self.change(header, ino, (has(set::SIZE).then_some(size), kills), change);
        let done = done.and_then(|()| self.sync_inode(ino));
        done.inspect_err(|_| self.forget_attributes(header.node))?;
        let (inode, size) = self.volume.metadata(ino).map_err(no)?;
        self.attr(&inode, size).put_alone(out);
        Ok(())
    }

    /// `kills`: rights go, if the caller may not keep them: before the contents change.
    fn change(
        &self,
        header: &Header,
        ino: Ino,
        (size, kills): (Option<u64>, bool),
        mut change: SetAttr,
    ) -> Result<(), Errno> {
        if let Some(size) = size {
            let flags = OpenFlags::writable();
            let file = self.volume.open_ino(ino, flags).map_err(no)?;
            if kills {
                self.clear_rights(header, &file)?;
            }
            file.truncate(size).map_err(no)?;
        }
        if kills {
            let inode = self.volume.metadata(ino).map_err(no)?.0;
            let after = self.without_rights(&inode, header);
            change.permissions = (after != inode.mode).then_some(after & 0o7777);
        }
        let nothing = SetAttr::default().is_now(change.is_now);
        match change == nothing {
            true => Ok(()),
            false => self.volume.set_attr(ino, &change).map_err(no),
        }
    }

    /// Are attributes of this name switched off?
    fn refuses(&self, name: &[u8]) -> bool {
        name.starts_with(b"user.") && !self.options.user_xattr
            || name.starts_with(b"system.posix_acl_") && !self.options.acl
    }

    pub(super) fn getxattr(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let (room, _) = (body.u32()?, body.u32()?);
        let name = body.text()?;
        if self.refuses(name) {
            return Err(Errno::OPNOTSUPP);
        }
        check_name(name)?;
        let value = self
            .volume
            .xattr(self.ino(header.node)?, name)
            .map_err(no)?;
        give(&value, room, out)
    }

    pub(super) fn listxattr(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let room = body.u32()?;
        let all = self.volume.xattrs(self.ino(header.node)?).map_err(no)?;
        let is_root = self.is_root(header);
        let mut names = Vec::new();
        for one in &all {
            let is_hidden = !is_root && one.name.starts_with(TRUSTED);
            if !is_hidden && !self.refuses(&one.name) {
                names.extend_from_slice(&one.name);
                names.push(0);
            }
        }
        give(&names, room, out)
    }

    pub(super) fn setxattr(
        &self,
        header: &Header,
        mut body: Body<'_>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        /// The mode loses set-group-id together with this ACL.
        const ACL_KILL_SGID: u32 = 1;
        /// It must be missing, and there.
        const BOTH: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
        let (len, flags) = (body.u32()?, body.u32()?);
        let extended = match self.has(can::SETXATTR_EXT) {
            true => {
                let extended = body.u32()?;
                body.skip(4)?;
                extended
            }
            false => 0,
        };
        let (name, value) = (body.text()?, body.bytes(len as usize)?);
        if self.refuses(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let when = match flags.cast_signed() {
            0 => XattrWhen::Always,
            libc::XATTR_CREATE => XattrWhen::Missing,
            libc::XATTR_REPLACE => XattrWhen::Present,
            // One of them is not fulfilled. What else forbids the change is told first.
            BOTH => match self.volume.xattr(self.ino(header.node)?, name) {
                Ok(_) => XattrWhen::Missing,
                Err(Error::NoAttribute { .. }) => XattrWhen::Present,
                Err(error) => return Err(no(error)),
            },
            _ => return Err(Errno::INVAL),
        };
        let ino = self.ino(header.node)?;
        let set = || self.with_space(help, || self.volume.set_xattr_when(ino, name, value, when));
        // The kernel also asks for that with a default ACL, which is no matter of the mode.
        let kills = extended & ACL_KILL_SGID != 0 && name == ACCESS_ACL;
        let done = match kills {
            true => self.without_setgid(ino, set),
            false => set(),
        };
        // The kernel takes ctime to have changed, but nothing else, and nothing at all if it fails.
        self.forget_attributes(header.node);
        done.map_err(no)?;
        self.sync_inode(ino)
    }

    /// The file loses set-group-id, then this is done; if it fails the file has that again.
    fn without_setgid(
        &self,
        ino: Ino,
        change: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        use diorite_format::inode::SETGID;
        let mode = self.volume.metadata(ino)?.0.mode;
        if mode & SETGID == 0 {
            return change();
        }
        let set = |mode: u16| {
            let change = SetAttr::default().permissions(mode & 0o7777);
            self.volume.set_attr(ino, &change)
        };
        set(mode & !SETGID)?;
        change().inspect_err(|_| {
            // The first error is the one to be told.
            let _second = set(mode);
        })
    }

    pub(super) fn removexattr(&self, header: &Header, mut body: Body<'_>) -> Result<(), Errno> {
        let name = body.text()?;
        if self.refuses(name) {
            return Err(Errno::OPNOTSUPP);
        }
        let ino = self.ino(header.node)?;
        let removed = self.volume.remove_xattr(ino, name);
        self.forget_attributes(header.node);
        removed.map_err(no)?;
        self.sync_inode(ino)
    }
}

/// A value, or, for a caller without room, its length.
fn give(value: &[u8], room: u32, out: &mut Vec<u8>) -> Result<(), Errno> {
    match room as usize {
        0 => {
            out.u32(u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?);
            out.u32(0);
        }
        room if value.len() > room => return Err(Errno::RANGE),
        _ => out.extend_from_slice(value),
    }
    Ok(())
}
