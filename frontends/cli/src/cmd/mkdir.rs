//! `diorite mkdir`: makes directories in an image, with coreutils' options and messages.
//!
//! Input: an image, paths. Output: with `-v` a line for each directory. Invariant: with `-p` directories that exist are not
//! changed. Limits: new directories belong to root, and no umask is used, because the users of the image are not known.

use crate::args::{Global, MkdirArgs};
use crate::images::image::{self, bytes};
use crate::output::report::Report;
use crate::walking::paths;
use crate::words::modes::ModeChange;
use crate::words::names::in_quotes;
use diorite::{Error, SetAttr, Volume};
use std::process::ExitCode;

/// The permissions of a new directory.
const NEW: u16 = 0o755;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &MkdirArgs) -> ExitCode {
    image::change("mkdir", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &MkdirArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err((at, error)) = one(volume, report, path, args) {
            report.file(&at, error);
        }
    }
}

fn one(
    volume: &Volume,
    report: &Report,
    path: &[u8],
    args: &MkdirArgs,
) -> Result<(), (Vec<u8>, Error)> {
    let at = |error| (path.to_vec(), error);
    let tell = |path: &[u8], made: bool| {
        if args.verbose.on && made {
            let path = in_quotes(path);
            report.done(format_args!("mkdir: created directory {path}"));
        }
    };
    if args.parents {
        for end in (1..path.len()).filter(|end| path[*end] == b'/') {
            let above = &path[..end];
            let made = make(volume, above, true).map_err(|e| (above.to_vec(), e))?;
            tell(above, made);
        }
    }
    let made = make(volume, path, args.parents).map_err(at)?;
    if let (Some(mode), true) = (&args.mode, made) {
        set_mode(volume, path, mode).map_err(at)?;
    }
    tell(path, made);
    Ok(())
}

/// Makes a directory; false if it existed and may exist.
fn make(volume: &Volume, path: &[u8], may_exist: bool) -> Result<bool, Error> {
    let there = || paths::look(volume, path, true).is_ok_and(|i| i.is_some_and(|i| i.is_dir()));
    match volume.mkdir(path, NEW) {
        Ok(_) => Ok(true),
        Err(Error::Exists { .. }) if may_exist && there() => Ok(false),
        Err(error) => Err(error),
    }
}

fn set_mode(volume: &Volume, path: &[u8], mode: &ModeChange) -> Result<(), Error> {
    let ino = volume.resolve(path, false)?;
    let before = paths::inode(volume, ino)?.mode;
    volume.set_attr(
        ino,
        &SetAttr::default().permissions(mode.of(before & 0o7777, true)),
    )
}
