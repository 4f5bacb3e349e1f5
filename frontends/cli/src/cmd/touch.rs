//! `diorite touch`: sets the times of files in an image, with coreutils' options and messages.
//!
//! Input: an image, paths. Output: nothing. Invariant: a missing file is created, unless `-c` or `--no-dereference` is given.
//! Limits: new files belong to root and have mode 0644.

use crate::args::{Global, TouchArgs};
use crate::images::image::{self, NEW_FILE, bytes};
use crate::output::report::Report;
use crate::walking::paths;
use diorite::{Error, SetAttr, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &TouchArgs) -> ExitCode {
    image::change("touch", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &TouchArgs) {
    let times = match wanted(volume, args) {
        Ok(times) => times,
        Err((path, error)) => return report.file(path, error),
    };
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err(error) = one(volume, path, args, &times) {
            report.file(path, error);
        }
    }
}

/// The times to set.
fn wanted<'a>(volume: &Volume, args: &'a TouchArgs) -> Result<SetAttr, (&'a [u8], Error)> {
    let (atime, mtime) = match (args.date.or(args.stamp), &args.reference) {
        (Some(date), _) => (date, date),
        (None, Some(path)) => {
            let path = bytes(path);
            let found = volume.resolve(path, !args.no_dereference);
            let like = found.and_then(|ino| paths::inode(volume, ino));
            let like = like.map_err(|error| (path, error))?;
            (like.atime, like.mtime)
        }
        (None, None) => {
            let now = volume.now();
            (now, now)
        }
    };
    let both = args.access == args.modification;
    Ok(SetAttr::default()
        .atime((both || args.access).then_some(atime))
        .mtime((both || args.modification).then_some(mtime)))
}

fn one(volume: &Volume, path: &[u8], args: &TouchArgs, times: &SetAttr) -> Result<(), Error> {
    let ino = match paths::look(volume, path, !args.no_dereference)? {
        Some(inode) => inode.ino,
        None if args.no_create => return Ok(()),
        None if args.no_dereference => {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(Error::NotFound { path });
        }
        None => volume.create(path, NEW_FILE)?.ino(),
    };
    volume.set_attr(ino, times)
}
