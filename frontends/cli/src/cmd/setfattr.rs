//! `diorite setfattr`: sets or removes an extended attribute of files in an image.
//!
//! Input: an image, a name, a value, paths. Output: nothing. Invariants: those of the engine: an attribute is set completely or
//! not at all. Limits: one attribute.

use crate::args::{Global, SetfattrArgs};
use crate::images::image::{self, bytes};
use crate::output::report::Report;
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &SetfattrArgs) -> ExitCode {
    image::change("setfattr", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &SetfattrArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err(error) = one(volume, path, args) {
            report.file(path, error);
        }
    }
}

fn one(volume: &Volume, path: &[u8], args: &SetfattrArgs) -> Result<(), Error> {
    let ino = volume.resolve(path, !args.no_dereference)?;
    if let Some(name) = &args.remove {
        return volume.remove_xattr(ino, bytes(name));
    }
    let value = args.value.as_ref().map_or(&[][..], |value| &value.0);
    args.name
        .as_ref()
        .map_or(Ok(()), |name| volume.set_xattr(ino, bytes(name), value))
}
