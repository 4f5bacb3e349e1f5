//! `diorite chown`: owners of files in an image, in coreutils' words.
//!
//! Input: an image, an owner, a group, paths. Output: with `-v` lines. Invariant: of links met on the way the links themselves are given away. Limits: numbers only,
//! as the image's names of users are not looked up.

use crate::args::{ChownArgs, Global};
use crate::image;
use crate::names::in_quotes;
use crate::owners::Owner;
use crate::paths;
use crate::report::Report;
use diorite::{Error, SetAttr, Volume};
use diorite_format::{Ino, Inode};
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
    paths::change_each(volume, report, &args.paths, how, |path, inode| {
        set(volume, inode.ino, args.owner)?;
        Ok(args.verbose.then(|| told(path, inode, args.owner)))
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

/// What became of the owner, as chown says it, in numbers: of what was asked for.
fn told(path: &[u8], before: &Inode, asked: Owner) -> String {
    let (what, was, is) = match (asked.uid, asked.gid) {
        (None, Some(gid)) => ("group", before.gid.to_string(), gid.to_string()),
        (Some(uid), Some(gid)) => (
            "ownership",
            format!("{}:{}", before.uid, before.gid),
            format!("{uid}:{gid}"),
        ),
        (uid, None) => {
            let was = before.uid;
            ("ownership", was.to_string(), uid.unwrap_or(was).to_string())
        }
    };
    let path = in_quotes(path);
    match was == is {
        true => format!("{what} of {path} retained as {is}"),
        false => format!("changed {what} of {path} from {was} to {is}"),
    }
}
