//! `diorite mv`: moves and renames files within an image, with coreutils' options and messages.
//!
//! Input: an image, paths. Output: with `-v` a line for each file. Invariant: each move is atomic: the file has the old name or
//! the new one. Limits: within one image; it never asks before it replaces a file.

use crate::args::{Global, MvArgs};
use crate::images::image::{self, bytes};
use crate::output::report::Report;
use crate::walking::paths;
use crate::words::names;
use crate::words::names::in_quotes;
use diorite::dir::RenameFlags;
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &MvArgs) -> ExitCode {
    image::change("mv", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &MvArgs) {
    let dest = bytes(&args.dest);
    if args.paths.len() > 1 && !is_dir(volume, dest, report) {
        return;
    }
    for path in args.paths.iter().map(|p| bytes(p)) {
        match one(volume, path, dest, args) {
            Ok(Some(to)) if args.verbose.on => {
                let (from, to) = (in_quotes(path), in_quotes(&to));
                report.done(format_args!("renamed {from} -> {to}"));
            }
            Ok(_) => {}
            Err((at, error)) => report.file(&at, error),
        }
    }
}

/// Checks that DEST is a directory, which it must be for several files.
fn is_dir(volume: &Volume, dest: &[u8], report: &mut Report) -> bool {
    let path = || String::from_utf8_lossy(dest).into_owned();
    match paths::look(volume, dest, true) {
        Ok(Some(inode)) if inode.is_dir() => return true,
        Ok(Some(_)) => report.file(dest, Error::NotADirectory { path: path() }),
        Ok(None) => report.file(dest, Error::NotFound { path: path() }),
        Err(error) => report.file(dest, error),
    }
    false
}

/// Moves one file. Returns its new name, none if -n kept it where it was, or an error with the path that caused it.
fn one(
    volume: &Volume,
    path: &[u8],
    dest: &[u8],
    args: &MvArgs,
) -> Result<Option<Vec<u8>>, (Vec<u8>, Error)> {
    volume
        .resolve(path, false)
        .map_err(|error| (path.to_vec(), error))?;
    let name = names::last_name(path);
    let to = paths::into(volume, dest, name, args.no_target_directory)
        .map_err(|error| (dest.to_vec(), error))?;
    let flags = RenameFlags::default().no_replace(args.no_clobber);
    match volume.rename(path, &to, flags) {
        Err(Error::Exists { .. }) if args.no_clobber => Ok(None),
        Err(error) if is_of_new_name(&error) => Err((to, error)),
        Err(error) => Err((path.to_vec(), error)),
        Ok(()) => Ok(Some(to)),
    }
}

/// Whether an error is about the new name: the old name was found before, so these errors cannot be about it.
fn is_of_new_name(error: &Error) -> bool {
    matches!(
        error.root(),
        Error::NotFound { .. }
            | Error::NotADirectory { .. }
            | Error::IsADirectory { .. }
            | Error::NotEmpty { .. }
            | Error::NameTooLong { .. }
            | Error::SymlinkLoop { .. }
    )
}
