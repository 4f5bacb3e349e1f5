//! `diorite chmod`: permissions of files in an image, in coreutils' words.
//!
//! Input: an image, a mode, paths. Output: nothing. Invariants: a link on the command line is followed, one met on the way is left as it is. Limits: no
//! umask.

use crate::args::{ChmodArgs, Global};
use crate::image;
use crate::paths;
use crate::report::Report;
use diorite::{Error, SetAttr, Volume};
use diorite_format::{FileType, Inode};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ChmodArgs) -> ExitCode {
    image::change("chmod", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &ChmodArgs) {
    let how = (args.recursive, true);
    paths::change_each(volume, report, &args.paths, how, |inode| {
        set(volume, inode, args)
    });
}

fn set(volume: &Volume, inode: &Inode, args: &ChmodArgs) -> Result<(), Error> {
    if inode.file_type == Some(FileType::Symlink) {
        return Ok(());
    }
    let permissions = args.mode.of(inode.mode & 0o7777, inode.is_dir());
    let set = SetAttr {
        permissions: Some(permissions),
        ..SetAttr::default()
    };
    volume.set_attr(inode.ino, &set)
}
