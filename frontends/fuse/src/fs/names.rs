//! Names: found, made, moved, removed.
//!
//! Input: a directory's node and a name. Output: entries. Invariants: what is made belongs to the caller of the request; the kernel holds
//! the locks of the directories, so a name that was found is there until the reply. Limits: permissions are checked by the kernel.

use super::{Asker, FileSystem, Help, no};
use crate::wire::input::{Body, Header, groups};
use crate::wire::op;
use crate::wire::output::{put_no_entry, put_open, rdev};
use diorite::{Caller, File, FileType, Ino, OpenFlags, RenameFlags, Volume};
use rustix::io::Errno;

impl FileSystem {
    /// The volume, for what this caller makes in the directory.
    fn maker(&self, asker: &Asker<'_>, umask: u32) -> Result<Volume, Errno> {
        /// `s_default_mount_opts`: bsdgroups (man 5 ext4).
        const GROUPS: u32 = 0x2;
        let by_default = || self.volume.superblock().info().default_mount_opts & GROUPS != 0;
        let mut caller = match self.options.fakeroot {
            true => Caller {
                uid: 0,
                gids: vec![0],
            },
            false => {
                let mut gids = vec![asker.header.gid];
                gids.extend(groups(asker.extensions));
                Caller {
                    uid: asker.header.uid,
                    gids,
                }
            }
        };
        if self.options.grpid.unwrap_or_else(by_default) {
            let dir = self.ino(asker.header.node)?;
            caller
                .gids
                .insert(0, self.volume.metadata(dir).map_err(no)?.0.gid);
        }
        Ok(self.volume.for_caller(&caller, (umask & 0o777) as u16))
    }

    pub(super) fn lookup(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let name = body.name()?;
        let dir = self.ino(header.node)?;
        if name == b"." {
            return self.reopened(header, dir, out);
        }
        match self.volume.lookup(dir, name).map_err(no)? {
            Some(ino) => self.put_known(header, ino, out),
            None => {
                put_no_entry(out);
                Ok(())
            }
        }
    }

    /// An inode that somebody has a handle of (open_by_handle_at, NFS), which the kernel may have forgotten. It compares the generations.
    fn reopened(&self, header: &Header, ino: Ino, out: &mut Vec<u8>) -> Result<(), Errno> {
        let (inode, _) = self.volume.metadata(ino).map_err(no)?;
        // Whoever still has it open has it from the kernel, which does not ask then.
        match inode.holds_value() || inode.links == 0 {
            true => Err(Errno::STALE),
            false => self.put_known(header, ino, out),
        }
    }

    pub(super) fn forget_one(&self, node: u64, times: u64) {
        if let Ok(ino) = self.ino(node)
            && node != 0
        {
            self.volume.forget(ino, times);
        }
    }

    pub(super) fn forget(&self, header: &Header, mut body: Body<'_>) {
        if header.op == op::FORGET {
            self.forget_one(header.node, body.u64().unwrap_or(0));
            return;
        }
        let count = body.u32().unwrap_or(0);
        let _dummy = body.u32();
        for _ in 0..count {
            let (Ok(node), Ok(times)) = (body.u64(), body.u64()) else {
                return;
            };
            self.forget_one(node, times);
        }
    }

    pub(super) fn create(
        &self,
        asker: &Asker<'_>,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let (flags, mode, umask, _more) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
        let name = body.name()?;
        let dir = self.ino(asker.header.node)?;
        let volume = self.maker(asker, umask)?;
        let made = self.with_space(help, || volume.create((dir, name), permissions(mode)));
        let file = made.map_err(no)?;
        self.names_changed(asker.header, dir)?;
        self.put_made(asker, file, flags.cast_signed(), out)
    }

    /// The reply that names a new file and opens it.
    fn put_made(
        &self,
        asker: &Asker<'_>,
        file: File,
        flags: i32,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let ino = file.ino();
        // It is open before its attributes are told.
        let (number, how) = self.add_opened(self.opened(file, flags)?, flags);
        if let Err(error) = self.put_known(asker.header, ino, out) {
            self.files.remove(number);
            return Err(error);
        }
        put_open(number, how, out);
        Ok(())
    }

    pub(super) fn temporary(
        &self,
        asker: &Asker<'_>,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let (flags, mode, umask) = (body.u32()?, body.u32()?, body.u32()?);
        let dir = self.ino(asker.header.node)?;
        let volume = self.maker(asker, umask)?;
        let made = self.with_space(help, || volume.temporary_in(dir, permissions(mode)));
        let file = made.map_err(no)?;
        self.put_made(asker, file, flags.cast_signed(), out)
    }

    pub(super) fn mknod(
        &self,
        asker: &Asker<'_>,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let (mode, number, umask) = (body.u32()?, body.u32()?, body.u32()?);
        body.skip(4)?;
        let name = body.name()?;
        let dir = self.ino(asker.header.node)?;
        let volume = self.maker(asker, umask)?;
        let kind = FileType::from_mode((mode & 0xFFFF) as u16).ok_or(Errno::INVAL)?;
        let made = self.with_space(help, || match kind {
            FileType::Regular => {
                let file = volume.create((dir, name), permissions(mode));
                file.map(|file| file.ino())
            }
            _ => volume.mknod((dir, name), kind, permissions(mode), rdev(number)),
        });
        let ino = made.map_err(no)?;
        self.names_changed(asker.header, dir)?;
        self.put_known(asker.header, ino, out)
    }

    pub(super) fn mkdir(
        &self,
        asker: &Asker<'_>,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let (mode, umask) = (body.u32()?, body.u32()?);
        let name = body.name()?;
        let dir = self.ino(asker.header.node)?;
        let volume = self.maker(asker, umask)?;
        let made = self.with_space(help, || volume.mkdir((dir, name), permissions(mode)));
        let ino = made.map_err(no)?;
        self.names_changed(asker.header, dir)?;
        self.put_known(asker.header, ino, out)
    }

    pub(super) fn symlink(
        &self,
        asker: &Asker<'_>,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let (name, target) = (body.name()?, body.text()?);
        let dir = self.ino(asker.header.node)?;
        let volume = self.maker(asker, 0)?;
        let made = self.with_space(help, || volume.symlink(target, (dir, name)));
        let ino = made.map_err(no)?;
        self.names_changed(asker.header, dir)?;
        self.put_known(asker.header, ino, out)
    }

    pub(super) fn link(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let ino = self.ino(body.u64()?)?;
        let name = body.name()?;
        let dir = self.ino(header.node)?;
        let to = (dir, name);
        // After a crash the new name has the whole file: it may be about to take another's place.
        self.collect(ino, help);
        let file = self.volume.open_ino(ino, OpenFlags::default());
        let file = file.map_err(no)?;
        file.write_back().map_err(no)?;
        let linked = self.with_space(help, || match file.metadata().links {
            0 => self.volume.link_file(&file, to),
            _ => self.volume.link_ino(ino, to),
        });
        linked.map_err(no)?;
        self.names_changed(header, dir)?;
        self.sync_inode(ino)?;
        self.put_known(header, ino, out)
    }

    pub(super) fn remove(&self, header: &Header, mut body: Body<'_>) -> Result<(), Errno> {
        let name = body.name()?;
        let dir = self.ino(header.node)?;
        let removed = match header.op {
            op::UNLINK => self.volume.unlink((dir, name)),
            _ => self.volume.rmdir((dir, name)),
        };
        removed.map_err(no)?;
        self.names_changed(header, dir)
    }

    /// As [`FileSystem::collect`], by a name. Returns what has the name.
    fn collect_named(&self, at: (Ino, &[u8]), help: &dyn Help) -> Result<Option<Ino>, Errno> {
        let found = self.volume.lookup(at.0, at.1).map_err(no)?;
        found.inspect(|ino| self.collect(*ino, help));
        Ok(found)
    }

    pub(super) fn rename(
        &self,
        asker: &Asker<'_>,
        mut body: Body<'_>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        const NO_REPLACE: u32 = 1;
        const EXCHANGE: u32 = 2;
        const WHITEOUT: u32 = 4;
        let header = asker.header;
        let to_node = body.u64()?;
        let flags = match header.op {
            op::RENAME => 0,
            _ => {
                let flags = body.u32()?;
                body.skip(4)?;
                flags
            }
        };
        if flags & !(NO_REPLACE | EXCHANGE | WHITEOUT) != 0 {
            return Err(Errno::INVAL);
        }
        let (from, to) = (body.name()?, body.name()?);
        let (dir, to_dir) = (self.ino(header.node)?, self.ino(to_node)?);
        let how = RenameFlags::default()
            .no_replace(flags & NO_REPLACE != 0)
            .exchange(flags & EXCHANGE != 0)
            .whiteout(flags & WHITEOUT != 0);
        let (old, new) = ((dir, from), (to_dir, to));
        let source = self.collect_named(old, help)?.ok_or(Errno::NOENT)?;
        let target = match how.exchange {
            true => self.collect_named(new, help)?,
            false => None,
        };
        // What is left in the place of the name is made by the caller.
        let maker = how.whiteout.then(|| self.maker(asker, 0)).transpose()?;
        let volume = maker.as_ref().unwrap_or(&self.volume);
        let moved = self.with_space(help, || volume.rename(old, new, how));
        moved.map_err(no)?;
        for ino in [Some(source), target].into_iter().flatten() {
            if let Ok(node) = self.node(ino) {
                // Its ctime.
                self.forget_attributes(node);
            }
        }
        self.names_changed(header, dir)?;
        match to_dir == dir {
            true => Ok(()),
            false => self.names_changed(header, to_dir),
        }
    }
}

/// The permission bits of a mode.
fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}
