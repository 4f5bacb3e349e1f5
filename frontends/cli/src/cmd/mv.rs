//! `diorite mv`: names moved within an image, in coreutils' words.
//!
//! Input: an image, paths. Output: with `-v` lines. Invariant: each move is one step: the file has the old name or the new one. Limits: within one image;
//! asks nobody.

use crate::args::{Global, MvArgs};
use crate::image::{self, bytes};
use crate::names::in_quotes;
use crate::paths;
use crate::report::Report;
use diorite::dir::RenameFlags;
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &MvArgs) -> ExitCode {
    image::change("mv", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &MvArgs) {
    let dest = bytes(&args.dest);
    if args.paths.len() > 1 && !is_dir(volume, dest, report) {
        return;
    }
    for path in args.paths.iter().map(|p| bytes(p)) {
        match one(volume, path, dest, args) {
            Ok(Some(to)) if args.verbose => {
                let (from, to) = (in_quotes(path), in_quotes(&to));
                report.done(format_args!("renamed {from} -> {to}"));
            }
            Ok(_) => {}
            Err((at, error)) => report.file(&at, error),
        }
    }
}

/// Several files go into a directory only.
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

/// Gives back the new name, if it has one; what fails with the path that is to blame.
fn one(
    volume: &Volume,
    path: &[u8],
    dest: &[u8],
    args: &MvArgs,
) -> Result<Option<Vec<u8>>, (Vec<u8>, Error)> {
    volume
        .resolve(path, false)
        .map_err(|error| (path.to_vec(), error))?;
    let name = paths::last_name(path);
    let to = paths::into(volume, dest, name, args.no_target_directory)
        .map_err(|error| (dest.to_vec(), error))?;
    let flags = RenameFlags {
        no_replace: args.no_clobber,
        ..RenameFlags::default()
    };
    match volume.rename(path, &to, flags) {
        Err(Error::Exists { .. }) if args.no_clobber => Ok(None),
        Err(error) if is_of_new_name(&error) => Err((to, error)),
        Err(error) => Err((path.to_vec(), error)),
        Ok(()) => Ok(Some(to)),
    }
}

/// The old name is there: these can only be of the new one.
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
