//! Paths in an image, for the commands that create, move and change files.
//!
//! Input: paths of the command line, bytes. Output: other paths; inodes. Invariant: nothing is changed except by the caller's
//! functions. Limits: none.

use crate::images::image::bytes;
use crate::output::report::Report;
use crate::walking::tree::TreeWalk;
use crate::words::names::join;
use diorite::{Error, File, OpenFlags, Volume};
use diorite_format::{Ino, Inode};
use std::ffi::OsString;
use std::sync::Arc;

/// The inode at a path; none if the path does not exist.
pub(crate) fn look(
    volume: &Volume,
    path: &[u8],
    follow: bool,
) -> Result<Option<Arc<Inode>>, Error> {
    match volume.resolve(path, follow) {
        Ok(ino) => inode(volume, ino).map(Some),
        Err(error) if matches!(error.root(), Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An inode by its number.
pub(crate) fn inode(volume: &Volume, ino: Ino) -> Result<Arc<Inode>, Error> {
    Ok(volume.open_ino(ino, OpenFlags::default())?.metadata())
}

/// The path of a new name: `dest/name` if `dest` is a directory and `is_target` is not set (option -T), otherwise `dest`.
pub(crate) fn into(
    volume: &Volume,
    dest: &[u8],
    name: &[u8],
    is_target: bool,
) -> Result<Vec<u8>, Error> {
    let is_dir = !is_target && look(volume, dest, true)?.is_some_and(|i| i.is_dir());
    Ok(if is_dir {
        join(dest, name)
    } else {
        dest.to_vec()
    })
}

/// Calls `set` for each of the paths and, with `recursive`, for everything below it; then symbolic links are not followed and
/// `set` decides what to do with them. Prints the text that `set` returns, reports errors and continues after them.
pub(crate) fn change_each(
    volume: &Volume,
    report: &mut Report,
    paths: &[OsString],
    (recursive, follow): (bool, bool),
    mut set: impl FnMut(&[u8], &Inode) -> Result<Option<String>, Error>,
) {
    for path in paths.iter().map(|p| bytes(p)) {
        let mut one = |path: &[u8], found: Result<&Inode, Error>| match found
            .and_then(|inode| set(path, inode))
        {
            Ok(Some(done)) => report.done(done),
            Ok(None) => {}
            Err(error) => report.file(path, error),
        };
        if recursive {
            walk(volume, path, one);
        } else {
            let found = volume.resolve(path, follow);
            let found = found.and_then(|ino| inode(volume, ino));
            one(path, found.as_deref().map_err(Clone::clone));
        }
    }
}

/// Calls `each` with a path and with everything below it, for a directory before its contents. After an error, which it hands
/// to `each`, it continues. It enters no directory twice, even if the image is corrupt.
pub(crate) fn walk(
    volume: &Volume,
    path: &[u8],
    mut each: impl FnMut(&[u8], Result<&Inode, Error>),
) {
    let mut walk = TreeWalk::new(volume);
    let mut next = Some(walk.begin(path));
    while let Some(visit) = next {
        let found = visit.file.as_ref().map(File::metadata);
        each(&visit.path, found.as_deref().map_err(|e| (*e).clone()));
        if visit.is_dir() {
            walk.enter(&visit, |_| true, |error| each(&visit.path, Err(error)));
        }
        next = walk.next();
    }
}
