//! Names: lookup, creation, links, rename, removal.
//!
//! Input: paths, or directories and names in them: [`At`]. Output: inodes, files, directory entries. Invariants: those of the module `dir`.
//! Limits: every call blocks; the caller's permissions are not checked: frontends do that.

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
    direct: false,
};

impl Volume {
    fn spot<'s, 'a: 's>(&'s self, at: impl Into<At<'a>>) -> Result<Spot<'s>, Error> {
        dir::spot(self.inner(), at.into(), self.maker())
    }

    /// The inode at `path`, which starts at the volume's root with or without a leading slash. Symbolic links on the way are followed;
    /// one at the end only with `follow`. Blocks while metadata is read.
    ///
    /// # Errors
    /// A part of the path does not exist or is not a directory; too many symbolic links; damaged directories.
    pub fn resolve(&self, path: &(impl AsRef<[u8]> + ?Sized), follow: bool) -> Result<Ino, Error> {
        dir::resolve(self.inner(), path.as_ref(), follow).map(|inode| inode.ino)
    }

    /// The inode that a name in a directory refers to; None if there is no such name. A symbolic link is not followed. Blocks while
    /// metadata is read.
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
    /// The inode is not a directory, or the directory is damaged.
    pub fn read_dir(&self, ino: Ino) -> Result<ReadDir, Error> {
        self.inner().bound_noted_times_best_effort();
        ReadDir::new(self.inner().inode(ino)?)
    }

    /// The entries of a directory from a position on. The position is 0 for the beginning, or one that [`ReadDir::position`] returned, in
    /// this or an earlier listing of the same directory. Blocks while metadata is read.
    ///
    /// # Errors
    /// `Invalid` for a position that this directory does not have; those of [`Volume::read_dir`].
    pub fn read_dir_from(&self, ino: Ino, position: u64) -> Result<ReadDir, Error> {
        self.inner().bound_noted_times_best_effort();
        ReadDir::from(self.inner().inode(ino)?, position)
    }

    /// The target of a symbolic link. Blocks while metadata is read.
    ///
    /// # Errors
    /// The inode is not a symbolic link, or the link is damaged.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        self.inner().bound_noted_times_best_effort();
        dir::link_target(&self.inner().inode(ino)?)
    }

    /// Creates an empty regular file and opens it for writing. Durable with the next [`Volume::sync`] or commit, or with a [`File::sync`]
    /// of the file or its directory; when the call returns if the directory has the flag `D` or `S`. Blocks.
    ///
    /// # Errors
    /// `Exists`; the directory is not there, or may not be changed; no inode or block is left; damage; a device that fails.
    pub fn create<'a>(&self, at: impl Into<At<'a>>, permissions: u16) -> Result<File, Error> {
        let inode = dir::create(&self.spot(at)?, permissions)?;
        Ok(File::new(self.pool(), inode, WRITABLE))
    }

    /// Creates an empty directory. Durability and blocking as for [`Volume::create`].
    ///
    /// # Errors
    /// Those of [`Volume::create`]; `TooManyLinks`.
    pub fn mkdir<'a>(&self, at: impl Into<At<'a>>, permissions: u16) -> Result<Ino, Error> {
        Ok(dir::mkdir(&self.spot(at)?, permissions)?.ino)
    }

    /// Creates a symbolic link to `target`, which need not exist. Durability and blocking as for [`Volume::create`].
    ///
    /// # Errors
    /// Those of [`Volume::create`]; `NotFound` for an empty target, `NameTooLong` for one that does not fit into a block.
    pub fn symlink<'a>(
        &self,
        target: &(impl AsRef<[u8]> + ?Sized),
        at: impl Into<At<'a>>,
    ) -> Result<Ino, Error> {
        Ok(dir::symlink(&self.spot(at)?, target.as_ref())?.ino)
    }

    /// Creates a FIFO, a socket or a device node; `device` is used for devices only. Durability and blocking as for [`Volume::create`].
    ///
    /// # Errors
    /// Those of [`Volume::create`]; `Invalid` for other kinds, and for a device number that ext4 cannot store.
    pub fn mknod<'a>(
        &self,
        at: impl Into<At<'a>>,
        kind: FileType,
        permissions: u16,
        device: Rdev,
    ) -> Result<Ino, Error> {
        Ok(dir::mknod(&self.spot(at)?, kind, permissions, device)?.ino)
    }

    /// Creates a regular file without a name (O_TMPFILE), near the directory at `path`, and opens it for writing. It is deleted with its
    /// last user, unless [`Volume::link_file`] gives it a name. Blocks.
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

    /// As [`Volume::temporary`], with the directory's inode number instead of its path. Blocks.
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
        if !dir.is_dir() {
            return Err(Error::NotADirectory { path: shown() });
        }
        let inode = dir::temporary(dir, permissions, self.maker())?;
        Ok(File::new(self.pool(), inode, WRITABLE))
    }

    /// Removes a name. A file without a name is deleted once nobody has it open. Durability as for [`Volume::create`]. Blocks.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory`; the directory or the file may not be changed; damage; a device that fails.
    pub fn unlink<'a>(&self, at: impl Into<At<'a>>) -> Result<(), Error> {
        dir::unlink(&self.spot(at)?)
    }

    /// Removes an empty directory. Durability and blocking as for [`Volume::unlink`].
    ///
    /// # Errors
    /// `NotADirectory`; `NotEmpty`; `Busy` for the root; those of [`Volume::unlink`].
    pub fn rmdir<'a>(&self, at: impl Into<At<'a>>) -> Result<(), Error> {
        dir::rmdir(&self.spot(at)?)
    }

    /// Gives the inode at `from` another name; a symbolic link at `from` is not followed. Durability as for [`Volume::create`]. Blocks.
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

    /// As [`Volume::link`], with an inode's number instead of its path. The inode must have a name.
    ///
    /// # Errors
    /// Those of [`Volume::link`].
    pub fn link_ino<'a>(&self, ino: Ino, to: impl Into<At<'a>>) -> Result<(), Error> {
        let inode = self.in_use(ino)?;
        dir::link(&inode, &self.spot(to)?)
    }

    /// Gives an open file another name. It may be a file of [`Volume::temporary`] that has none yet, but not one that has lost its last
    /// name. Durability and blocking as for [`Volume::link`].
    ///
    /// # Errors
    /// Those of [`Volume::link`]; `NotFound` for a file that has lost its last name.
    pub fn link_file<'a>(&self, file: &File, to: impl Into<At<'a>>) -> Result<(), Error> {
        dir::link(file.inode(), &self.spot(to)?)?;
        self.pool().look_for_dirty();
        Ok(())
    }

    /// As [`Volume::link_file`], but replaces the name if it exists already. This is atomic: a lookup, or recovery after a crash, finds
    /// under the name either the old inode or the whole new file. Blocks.
    ///
    /// # Errors
    /// `IsADirectory` if the name is a directory's; those of [`File::write_back`], as cached data of the file is written back first: a
    /// failure is reported once, so a second call goes by what was written again; else those of [`Volume::link_file`] and
    /// [`Volume::unlink`].
    pub fn replace_file<'a>(&self, file: &File, to: impl Into<At<'a>>) -> Result<(), Error> {
        let to = to.into();
        file.write_back()?;
        loop {
            match self.link_file(file, to) {
                Err(Error::Exists { .. }) => {}
                linked => return linked,
            }
            if dir::replace(file.inode(), &self.spot(to)?)? {
                self.pool().look_for_dirty();
                return Ok(());
            }
        }
    }

    /// Moves the name `from` to `to`; the inode that `to` referred to loses that name. Symbolic links at the end are not followed.
    /// Durability as for [`Volume::create`], for both directories in one transaction. If `to` exists, cached data of `from` is written back
    /// first: after a crash `to` is the old file, or has all data that was written to the new one before the call. Blocks.
    ///
    /// # Errors
    /// `NotFound`; `Exists` with `no_replace`; `NotADirectory`, `IsADirectory`, `NotEmpty` if `to` exists and cannot be replaced by
    /// `from`; `Invalid` for a directory that would move into itself or below, and for flags that exclude each other; `Busy` for "." and
    /// the root; `TooManyLinks`; those of write-back, with nothing renamed; those of [`Volume::create`].
    pub fn rename<'a, 'b>(
        &self,
        from: impl Into<At<'a>>,
        to: impl Into<At<'b>>,
        flags: RenameFlags,
    ) -> Result<(), Error> {
        dir::rename(&self.spot(from)?, &self.spot(to)?, flags)
    }
}
