//! Where a name is, or is going to be: the directory in which a path ends, and the last name.
//!
//! Input: a path. Output: a [`Spot`]. Invariants: the directory is one; the name is no longer than one can be. Limits: whether the
//! name is there, and stays there, is known only under the directory's lock.

use super::edit::check_changeable;
use super::lookup::{self, Found};
use crate::error::Error;
use crate::inode::Inode;
use crate::volume::Volume;
use diorite_block::sync::RwLockWriteGuard;
use diorite_format::InodeFlags;
use diorite_format::dir::MAX_NAME;
use std::sync::Arc;

/// See the module.
pub(super) struct Spot<'p> {
    pub(super) dir: Arc<Inode>,
    /// The last name; empty for the root.
    pub(super) name: &'p [u8],
    /// It ends with a slash: only a directory will do.
    pub(super) slash: bool,
    /// User and group of what is made there.
    pub(super) owner: (u32, u32),
    path: &'p [u8],
}

impl Volume {
    /// The directory in which a path's last name is, and that name, of a volume that can be changed.
    pub(super) fn spot<'p>(&self, path: &'p [u8]) -> Result<Spot<'p>, Error> {
        let volume = self.inner();
        volume.check_open()?;
        volume.check_writable()?;
        let end = path.iter().rposition(|c| *c != b'/').map_or(0, |at| at + 1);
        let trimmed = &path[..end];
        let cut = trimmed
            .iter()
            .rposition(|c| *c == b'/')
            .map_or(0, |at| at + 1);
        let (parent, name) = trimmed.split_at(cut);
        let shown = || String::from_utf8_lossy(path).into_owned();
        if name.len() > MAX_NAME {
            return Err(Error::NameTooLong { path: shown() });
        }
        if name.contains(&0) {
            return Err(Error::Invalid(format!("{}: a name with a NUL", shown())));
        }
        let dir = volume.inode(self.resolve(parent, true)?)?;
        if !dir.disk().is_dir() {
            let path = String::from_utf8_lossy(parent).into_owned();
            return Err(Error::NotADirectory { path });
        }
        Ok(Spot {
            dir,
            name,
            slash: end < path.len(),
            owner: self.owner(),
            path,
        })
    }
}

impl Spot<'_> {
    /// The path, for messages.
    pub(super) fn shown(&self) -> String {
        String::from_utf8_lossy(self.path).into_owned()
    }

    /// The root, "." or "..": no name that can be made or removed.
    pub(super) fn is_special(&self) -> bool {
        matches!(self.name, b"" | b"." | b"..")
    }

    pub(super) fn exists(&self) -> Error {
        Error::Exists { path: self.shown() }
    }

    pub(super) fn missing(&self) -> Error {
        Error::NotFound { path: self.shown() }
    }

    pub(super) fn no_directory(&self) -> Error {
        Error::NotADirectory { path: self.shown() }
    }

    pub(super) fn a_directory(&self) -> Error {
        Error::IsADirectory { path: self.shown() }
    }

    /// May names be put into its directory? Asked under that directory's lock.
    pub(super) fn check_can_add(&self) -> Result<(), Error> {
        if self.dir.is_unlinked() {
            return Err(self.missing());
        }
        check_changeable(&self.dir)
    }

    /// May names be taken out of it, too?
    pub(super) fn check_can_remove(&self) -> Result<(), Error> {
        self.check_can_add()?;
        match self.dir.disk().flags.has(InodeFlags::APPEND) {
            true => Err(Error::NotPermitted {
                ino: self.dir.ino,
                flag: "append-only",
            }),
            false => Ok(()),
        }
    }

    /// What it names, if anything, under a lock that is let go again.
    pub(super) fn look(&self) -> Result<Option<Arc<Inode>>, Error> {
        lookup::locked(&self.dir, self.name)
    }

    /// What the name stands for and where it is, under the directory's lock, held alone.
    pub(super) fn find(&self) -> Result<Option<Found>, Error> {
        lookup::find(&self.dir, self.name)
    }
}

/// Takes the locks of several inodes, in the order of their numbers. No other of their kind may be held.
pub(super) fn lock_all<'a>(
    inodes: impl IntoIterator<Item = &'a Arc<Inode>>,
) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut all: Vec<&Arc<Inode>> = inodes.into_iter().collect();
    all.sort_by_key(|inode| inode.ino);
    all.dedup_by_key(|inode| inode.ino);
    all.into_iter().map(|inode| inode.lock_numbered()).collect()
}
