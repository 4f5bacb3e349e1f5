//! `diorite chown`: owners of files in an image, in coreutils' words.
//!
//! Input: an image, an owner, a group, paths. Output: nothing. Invariant: of links met on the way the links themselves are given away. Limits: numbers only,
//! as the image's names of users are not looked up.

use crate::args::{ChownArgs, Global};
use crate::image;
use crate::owners::Owner;
use crate::paths;
use crate::report::Report;
use diorite::{Error, SetAttr, Volume};
use diorite_format::Ino;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ChownArgs) -> ExitCode {
    image::change("chown", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &ChownArgs) {
    let how = (args.recursive, !args.no_dereference);
    paths::change_each(volume, report, &args.paths, how, |inode| {
        set(volume, inode.ino, args.owner)
    });
}

fn set(volume: &Volume, ino: Ino, owner: Owner) -> Result<(), Error> {
    let Owner { uid, gid } = owner;
    let set = SetAttr {
        uid,
        gid,
        ..SetAttr::default()
    };
    volume.set_attr(ino, &set)
}
