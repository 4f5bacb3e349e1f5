//! `diorite chmod`: changes the permissions of files in an image, with coreutils' options and messages.
//!
//! Input: an image, a mode, paths. Output: with `-v` a line for each file. Invariants: a symbolic link on the command line is
//! followed; with -R links are skipped. Limits: no umask is used.

use crate::args::{ChmodArgs, Global};
use crate::images::image;
use crate::output::report::Report;
use crate::walking::paths;
use crate::words::inode_fields::mode_string;
use crate::words::names::in_quotes;
use diorite::{Error, SetAttr, Volume};
use diorite_format::{FileType, Inode};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ChmodArgs) -> ExitCode {
    image::change("chmod", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &ChmodArgs) {
    let how = (args.recursive, true);
    paths::change_each(volume, report, &args.paths, how, |path, inode| {
        set(volume, path, inode, args)
    });
}

fn set(
    volume: &Volume,
    path: &[u8],
    inode: &Inode,
    args: &ChmodArgs,
) -> Result<Option<String>, Error> {
    if inode.file_type == Some(FileType::Symlink) {
        return Ok(None);
    }
    let before = inode.mode & 0o7777;
    let permissions = args.mode.of(before, inode.is_dir());
    let set = SetAttr::default().permissions(permissions);
    volume.set_attr(inode.ino, &set)?;
    Ok(args.verbose.on.then(|| told(path, before, permissions)))
}

/// The line of `-v` about a file's permissions, in chmod's words.
fn told(path: &[u8], before: u16, after: u16) -> String {
    let shown = |mode| format!("{mode:04o} ({})", &mode_string(None, mode)[1..]);
    let (path, was, is) = (in_quotes(path), shown(before), shown(after));
    match before == after {
        true => format!("mode of {path} retained as {is}"),
        false => format!("mode of {path} changed from {was} to {is}"),
    }
}
