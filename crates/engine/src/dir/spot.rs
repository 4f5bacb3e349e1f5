//! The place that a caller names: a directory, and a name in it that exists or is to be created.
//!
//! Input: a path, or a directory and a name. Output: a [`Spot`]. Invariants: its inode is a directory; its name is not too long. Limits:
//! whether the name exists is known only while the directory is locked.

use super::edit::check_changeable;
use super::lookup::{self, Found, Search};
use super::path::resolve;
use crate::caller::Maker;
use crate::error::Error;
use crate::inode::{Fs, Inode, Remembered};
use diorite_block::sync::BiasedWriteGuard;
use diorite_format::dir::MAX_NAME;
use diorite_format::{Ino, InodeFlags};
use std::sync::Arc;

/// A directory and a name in it. See the module.
pub(crate) struct Spot<'p> {
    pub(super) dir: Arc<Inode>,
    /// The last component of the path; empty for the root.
    pub(super) name: &'p [u8],
    /// The path ends with a slash: the name must be that of a directory.
    pub(super) slash: bool,
    /// The identity that new inodes get: user, groups and umask.
    pub(super) maker: &'p Maker,
    at: At<'p>,
}

/// A place for a name: a path from the volume's root, or the inode of a directory and a name in it. Converts from both forms: `"/dir/name"`
/// and `(ino, "name")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At<'a> {
    /// A path from the volume's root, with or without a leading slash. Symbolic links in its directories are followed.
    Path(&'a [u8]),
    /// A single name, without a slash, in this directory.
    In(Ino, &'a [u8]),
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for At<'a> {
    fn from(path: &'a T) -> At<'a> {
        At::Path(path.as_ref())
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<(Ino, &'a T)> for At<'a> {
    fn from((dir, name): (Ino, &'a T)) -> At<'a> {
        At::In(dir, name.as_ref())
    }
}

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            At::Path(path) => write!(f, "{}", String::from_utf8_lossy(path)),
            At::In(dir, name) => {
                let name = String::from_utf8_lossy(name);
                write!(f, "{name} (in directory inode {dir})")
            }
        }
    }
}

/// Finds the directory and the name that `at` denotes, on a volume that can be changed. New inodes there will belong to `maker`.
///
/// # Errors
///
/// The path does not exist; its parent is not a directory; the name is too long, or contains a NUL or a slash.
pub(crate) fn spot<'p>(fs: &Arc<Fs>, at: At<'p>, maker: &'p Maker) -> Result<Spot<'p>, Error> {
    fs.check_open()?;
    fs.check_writable()?;
    let (parent, name, slash) = match at {
        At::Path(path) => split(path),
        At::In(_, name) => (&b""[..], name, false),
    };
    if name.len() > MAX_NAME {
        return Err(Error::NameTooLong {
            path: at.to_string(),
        });
    }
    if name.contains(&0) {
        return Err(Error::Invalid(format!("{at}: a name with a NUL")));
    }
    let dir = match at {
        At::Path(_) => resolve(fs, parent, true)?,
        At::In(_, name) if name.contains(&b'/') => {
            return Err(Error::Invalid(format!("{at}: a name with a slash")));
        }
        At::In(ino, _) => fs.inode(ino)?,
    };
    if !dir.is_dir() {
        let path = match at {
            At::Path(_) => String::from_utf8_lossy(parent).into_owned(),
            At::In(ino, _) => format!("inode {ino}"),
        };
        return Err(Error::NotADirectory { path });
    }
    Ok(Spot {
        dir,
        name,
        slash,
        maker,
        at,
    })
}

/// Splits a path: its parent, its last name, and whether a slash follows the name.
fn split(path: &[u8]) -> (&[u8], &[u8], bool) {
    let end = path.iter().rposition(|c| *c != b'/').map_or(0, |at| at + 1);
    let trimmed = &path[..end];
    let cut = trimmed
        .iter()
        .rposition(|c| *c == b'/')
        .map_or(0, |at| at + 1);
    let (parent, name) = trimmed.split_at(cut);
    (parent, name, end < path.len())
}

impl Spot<'_> {
    /// The path, for messages.
    pub(super) fn shown(&self) -> String {
        self.at.to_string()
    }

    /// Is it the root, "." or ".."? Such a name can be neither created nor removed.
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

    /// May names be added to the directory? Its lock is held.
    pub(super) fn check_can_add(&self) -> Result<(), Error> {
        if self.dir.is_unlinked() {
            return Err(self.missing());
        }
        check_changeable(&self.dir)
    }

    /// May names be removed from the directory, too? Its lock is held.
    pub(super) fn check_can_remove(&self) -> Result<(), Error> {
        self.check_can_add()?;
        match self.dir.flags().has(InodeFlags::APPEND) {
            true => Err(Error::NotPermitted {
                ino: self.dir.ino,
                flag: "append-only",
            }),
            false => Ok(()),
        }
    }

    /// The inode that the name refers to, if it exists. Takes the directory's lock and releases it, so the name may change afterwards.
    /// Blocks.
    pub(super) fn look(&self) -> Result<Option<Arc<Inode>>, Error> {
        lookup::locked(&self.dir, self.name)
    }

    /// The name's inode number and place, if it exists. The directory's lock is held exclusively. Blocks.
    pub(super) fn find(&self) -> Result<Option<Found>, Error> {
        self.search().map(Search::found)
    }

    /// As [`Spot::find`], and with the room for the name if it does not exist. Blocks.
    pub(super) fn search(&self) -> Result<Search, Error> {
        lookup::search(&self.dir, None, self.name)
    }

    /// As [`Spot::search`], with the value of the directory's lock. Blocks.
    pub(super) fn search_by(&self, names: &Remembered) -> Result<Search, Error> {
        lookup::search(&self.dir, Some(names), self.name)
    }
}

/// The exclusive locks of two directories, which may be one.
pub(super) struct Both<'a> {
    one: BiasedWriteGuard<'a, Remembered>,
    other: Option<BiasedWriteGuard<'a, Remembered>>,
}

impl Both<'_> {
    /// The value of the first directory's lock.
    pub(super) fn of_one(&self) -> &Remembered {
        &self.one
    }

    /// The value of the other directory's lock.
    pub(super) fn of_other(&self) -> &Remembered {
        self.other.as_deref().unwrap_or(&self.one)
    }
}

/// Takes the exclusive locks of two directories, in the order of their numbers. The caller may hold no inode lock.
pub(super) fn lock_both<'a>(one: &'a Inode, other: &'a Inode) -> Both<'a> {
    let is_later = other.ino > one.ino;
    let before = (other.ino < one.ino).then(|| other.lock_numbered());
    let one = one.lock_numbered();
    let other = before.or_else(|| is_later.then(|| other.lock_numbered()));
    Both { one, other }
}

/// Takes the exclusive locks of several inodes, each once, in the order of their numbers. The caller may hold no inode lock.
pub(super) fn lock_all<'a>(
    inodes: impl IntoIterator<Item = &'a Arc<Inode>>,
) -> Vec<BiasedWriteGuard<'a, Remembered>> {
    let mut all: Vec<&Arc<Inode>> = inodes.into_iter().collect();
    all.sort_by_key(|inode| inode.ino);
    all.dedup_by_key(|inode| inode.ino);
    all.into_iter().map(|inode| inode.lock_numbered()).collect()
}
