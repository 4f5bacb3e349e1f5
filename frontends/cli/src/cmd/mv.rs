//! `diorite mv`: names moved within an image, in coreutils' words.
//!
//! Input: an image, paths. Output: nothing. Invariant: each move is one step: the file has the old name or the new one. Limits: within one image;
//! asks nobody.

use crate::args::{Global, MvArgs};
use crate::image::{self, bytes};
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
        if let Err(error) = one(volume, path, dest, args) {
            report.file(path, error);
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

fn one(volume: &Volume, path: &[u8], dest: &[u8], args: &MvArgs) -> Result<(), Error> {
    let to = paths::into(
        volume,
        dest,
        paths::last_name(path),
        args.no_target_directory,
    )?;
    let flags = RenameFlags {
        no_replace: args.no_clobber,
        ..RenameFlags::default()
    };
    match volume.rename(path, &to, flags) {
        Err(Error::Exists { .. }) if args.no_clobber => Ok(()),
        other => other,
    }
}
