//! `diorite touch`: times of files in an image set to now, in coreutils' words.
//!
//! Input: an image, paths. Output: nothing. Invariant: a file that is not there is made, unless `-c`. Limits: new files belong to root and are mode
//! 0644.

use crate::args::{Global, TouchArgs};
use crate::image::{self, NEW_FILE, bytes};
use crate::paths;
use crate::report::Report;
use diorite::{Error, SetAttr, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &TouchArgs) -> ExitCode {
    image::change("touch", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &TouchArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err(error) = one(volume, path, args) {
            report.file(path, error);
        }
    }
}

fn one(volume: &Volume, path: &[u8], args: &TouchArgs) -> Result<(), Error> {
    let ino = match paths::look(volume, path, !args.no_dereference)? {
        Some(inode) => inode.ino,
        None if args.no_create || args.no_dereference => return Ok(()),
        None => volume.create(path, NEW_FILE)?.ino(),
    };
    let now = volume.now();
    let both = args.access == args.modification;
    volume.set_attr(
        ino,
        &SetAttr {
            atime: (both || args.access).then_some(now),
            mtime: (both || args.modification).then_some(now),
            ..SetAttr::default()
        },
    )
}
