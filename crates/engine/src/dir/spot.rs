//! Where a name is, or is going to be: the directory in which a path ends, and the last name.
//!
//! Input: a path, or a directory and a name. Output: a [`Spot`]. Invariants: the directory is one; the name is no longer than one can be. Limits: whether the
//! name is there, and stays there, is known only under the directory's lock.

use super::edit::check_changeable;
use super::lookup::{self, Found};
use super::path::resolve;
use crate::caller::Maker;
use crate::error::Error;
use crate::inode::{Fs, Inode};
use diorite_block::sync::RwLockWriteGuard;
use diorite_format::dir::MAX_NAME;
use diorite_format::{Ino, InodeFlags};
use std::sync::Arc;

/// See the module.
pub(crate) struct Spot<'p> {
    pub(super) dir: Arc<Inode>,
    /// The last name; empty for the root.
    pub(super) name: &'p [u8],
    /// It ends with a slash: only a directory will do.
    pub(super) slash: bool,
    /// Who makes something there.
    pub(super) maker: &'p Maker,
    at: At<'p>,
}

/// Where a name is, or is going to be: a path, bytes from the volume's root, or the inode of a directory and the name in it. Made of either:
/// `"/dir/name"`, or `(ino, "name")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At<'a> {
    /// A path. A leading slash makes no difference; symbolic links on the way are followed.
    Path(&'a [u8]),
    /// A name in this directory: one name, without a slash.
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

/// The directory and the name that `at` says, in a volume that can be changed. What is made there is made by `maker`.
///
/// # Errors
/// The path leads nowhere; the directory is none; a name that cannot be one.
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
    if !dir.disk().is_dir() {
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

/// A path: the way to its last name, that name, and whether a slash follows it.
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
