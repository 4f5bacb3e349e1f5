//! Names: made, moved, removed, looked up.
//!
//! Input: paths, or directories and names in them: [`At`]. Output: inodes and files; directories' entries. Invariants: those of the room
//! `dir`. Limits: all of it blocks; who may do what is the caller's policy.

use super::Volume;
use crate::dir::{self, At, ReadDir, RenameFlags, Spot};
use crate::error::Error;
use crate::inode::Inode;
use crate::options::OpenFlags;
use crate::queue::File;
use diorite_format::dir::MAX_NAME;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino};
use std::sync::Arc;

const WRITABLE: OpenFlags = OpenFlags {
    write: true,
    dsync: false,
    sync: false,
};

impl Volume {
    fn spot<'s, 'a: 's>(&'s self, at: impl Into<At<'a>>) -> Result<Spot<'s>, Error> {
        dir::spot(self.inner(), at.into(), self.maker())
    }

    /// The inode at `path`, bytes from the volume's root; a leading slash makes no difference. A symbolic link at the end is followed if
    /// `follow` says so, one on the way always. Blocks while metadata is read.
    ///
    /// # Errors
    /// The path leads nowhere, through a file, or in circles; damaged directories.
    pub fn resolve(&self, path: &(impl AsRef<[u8]> + ?Sized), follow: bool) -> Result<Ino, Error> {
        dir::resolve(self.inner(), path.as_ref(), follow).map(|inode| inode.ino)
    }

    /// What a name in a directory stands for; none if it is not there. A symbolic link is not followed. Blocks while metadata is read.
    ///
    /// # Errors
    /// `NotADirectory`; `NameTooLong` for what can be no name; damaged directories.
    pub fn lookup(
        &self,
        dir: Ino,
        name: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<Option<Ino>, Error> {
        let name = name.as_ref();
        if name.len() > MAX_NAME {
            let path = At::In(dir, name).to_string();
            return Err(Error::NameTooLong { path });
        }
        self.inner().bound_noted_times_best_effort();
        let found = dir::lookup(&*self.inner().inode(dir)?, name)?;
        Ok(found.map(|inode| inode.ino))
    }

    /// The entries of a directory. Blocks while metadata is read.
    ///
    /// # Errors
    /// It is no directory, or damaged.
    pub fn read_dir(&self, ino: Ino) -> Result<ReadDir, Error> {
        self.inner().bound_noted_times_best_effort();
        ReadDir::new(self.inner().inode(ino)?)
    }

    /// The entries of a directory from a position on that [`ReadDir::position`] gave, of this stream or an earlier one of the same directory;
    /// 0 is the beginning. Blocks while metadata is read.
    ///
    /// # Errors
    /// `Invalid` for a position that is none of this directory's; as [`Volume::read_dir`].
    pub fn read_dir_from(&self, ino: Ino, position: u64) -> Result<ReadDir, Error> {
        self.inner().bound_noted_times_best_effort();
        ReadDir::from(self.inner().inode(ino)?, position)
    }

    /// Where a symbolic link points. Blocks while metadata is read.
    ///
    /// # Errors
    /// It is no symbolic link, or damaged.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        self.inner().bound_noted_times_best_effort();
        dir::link_target(&self.inner().inode(ino)?)
    }

    /// Makes an empty regular file and opens it for writing. Durable with the next [`Volume::sync`] or commit, or a
    /// [`File::sync`] of it or its directory; in a directory with the flag `D` or `S` when the call returns. Blocks.
    ///
    /// # Errors
    /// `Exists`; the directory is not there, or may not be changed; no inode or block is left; damage; a device that fails.
    pub fn create<'a>(&self, at: impl Into<At<'a>>, permissions: u16) -> Result<File, Error> {
        let inode = dir::create(&self.spot(at)?, permissions)?;
        Ok(File::new(self.pool(), inode, WRITABLE))
    }

    /// Makes an empty directory. Else as [`Volume::create`].
    ///
    /// # Errors
    /// Those of [`Volume::create`]; `TooManyLinks`.
    pub fn mkdir<'a>(&self, at: impl Into<At<'a>>, permissions: u16) -> Result<Ino, Error> {
        Ok(dir::mkdir(&self.spot(at)?, permissions)?.ino)
    }

    /// Makes a symbolic link to `target`, which need not be there. Else as [`Volume::create`].
    ///
    /// # Errors
    /// Those of [`Volume::create`]; `NotFound` for an empty target, `NameTooLong` for one that does not fit a block.
    pub fn symlink<'a>(
        &self,
        target: &(impl AsRef<[u8]> + ?Sized),
        at: impl Into<At<'a>>,
    ) -> Result<Ino, Error> {
        Ok(dir::symlink(&self.spot(at)?, target.as_ref())?.ino)
    }

    /// Makes a pipe, a socket or a device; `device` counts for devices only. Else as [`Volume::create`].
    ///
    /// # Errors
    /// Those of [`Volume::create`]; `Invalid` for other kinds, or a device's number that has no room.
    pub fn mknod<'a>(
        &self,
        at: impl Into<At<'a>>,
        kind: FileType,
        permissions: u16,
        device: Rdev,
    ) -> Result<Ino, Error> {
        Ok(dir::mknod(&self.spot(at)?, kind, permissions, device)?.ino)
    }

    /// Makes a regular file without a name, near the directory at `path`, and opens it for writing. It goes with its last user, unless
    /// [`Volume::link_file`] gives it a name. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::create`].
    pub fn temporary(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        permissions: u16,
    ) -> Result<File, Error> {
        let path = path.as_ref();
        let shown = || String::from_utf8_lossy(path).into_owned();
        self.temporary_near(&dir::resolve(self.inner(), path, true)?, permissions, shown)
    }

    /// The same near the directory with this inode. Blocks.
    ///
    /// # Errors
    /// Those of [`Volume::create`].
    pub fn temporary_in(&self, dir: Ino, permissions: u16) -> Result<File, Error> {
        let shown = || format!("inode {dir}");
        self.temporary_near(&self.inner().inode(dir)?, permissions, shown)
    }

    fn temporary_near(
        &self,
        dir: &Arc<Inode>,
        permissions: u16,
        shown: impl Fn() -> String,
    ) -> Result<File, Error> {
        if !dir.disk().is_dir() {
            return Err(Error::NotADirectory { path: shown() });
        }
        let inode = dir::temporary(dir, permissions, self.maker())?;
        Ok(File::new(self.pool(), inode, WRITABLE))
    }

    /// Removes a name. With the last one the file goes too, once nobody has it open. Durable as what [`Volume::create`] does. Blocks.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory`; the directory or the file may not be changed; damage; a device that fails.
    pub fn unlink<'a>(&self, at: impl Into<At<'a>>) -> Result<(), Error> {
        dir::unlink(&self.spot(at)?)
    }

    /// Removes an empty directory. Else as [`Volume::unlink`].
    ///
    /// # Errors
    /// `NotADirectory`; `NotEmpty`; `Busy` for the root; those of [`Volume::unlink`].
    pub fn rmdir<'a>(&self, at: impl Into<At<'a>>) -> Result<(), Error> {
        dir::rmdir(&self.spot(at)?)
    }

    /// Gives the inode at `from` another name; a symbolic link there is not followed. Durable as what [`Volume::create`] does. Blocks.
    ///
    /// # Errors
    /// `Exists`; `NotPermitted` for a directory; `TooManyLinks`; those of [`Volume::create`].
    pub fn link<'a>(
        &self,
        from: &(impl AsRef<[u8]> + ?Sized),
        to: impl Into<At<'a>>,
    ) -> Result<(), Error> {
        let inode = dir::resolve(self.inner(), from.as_ref(), false)?;
        dir::link(&inode, &self.spot(to)?)
    }

    /// Gives an inode that has a name another one. Else as [`Volume::link`].
    ///
    /// # Errors
    /// Those of [`Volume::link`].
    pub fn link_ino<'a>(&self, ino: Ino, to: impl Into<At<'a>>) -> Result<(), Error> {
        let inode = self.inner().inode(ino)?;
        dir::link(&inode, &self.spot(to)?)
    }

    /// Gives an open file another name, also one that [`Volume::temporary`] made, but none that has lost its last.
    ///
    /// # Errors
    /// Those of [`Volume::link`]; `NotFound`.
    pub fn link_file<'a>(&self, file: &File, to: impl Into<At<'a>>) -> Result<(), Error> {
        dir::link(file.inode(), &self.spot(to)?)
    }

    /// As [`Volume::link_file`]; what has the name already loses it, in the same step: who looks it up, or recovers after a crash, finds what
    /// was there before or the whole new file. Blocks.
    ///
    /// # Errors
    /// `IsADirectory` for what is there; else those of [`Volume::link_file`] and [`Volume::unlink`].
    pub fn replace_file<'a>(&self, file: &File, to: impl Into<At<'a>>) -> Result<(), Error> {
        let to = to.into();
        loop {
            match self.link_file(file, to) {
                Err(Error::Exists { .. }) => {}
                linked => return linked,
            }
            if dir::replace(file.inode(), &self.spot(to)?)? {
                return Ok(());
            }
        }
    }

    /// Moves the name `from` to `to`; what `to` stood for loses that name. Symbolic links at the end are not followed. Durable
    /// as what [`Volume::create`] does, for both directories at once. Blocks.
    ///
    /// # Errors
    /// `NotFound`; `Exists` with `no_replace`; `NotADirectory`, `IsADirectory`, `NotEmpty` where one takes the other's place; `Invalid`
    /// for a directory into itself and for flags that do not go together; `Busy` for "." and the root; `TooManyLinks`; those of
    /// [`Volume::create`].
    pub fn rename<'a, 'b>(
        &self,
        from: impl Into<At<'a>>,
        to: impl Into<At<'b>>,
        flags: RenameFlags,
    ) -> Result<(), Error> {
        dir::rename(&self.spot(from)?, &self.spot(to)?, flags)
    }
}
