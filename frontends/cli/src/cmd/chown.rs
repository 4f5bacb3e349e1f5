//! `diorite chown`: changes the owners of files in an image, with coreutils' options and messages.
//!
//! Input: an image, an owner, a group, paths. Output: with `-v` a line for each file. Invariant: with -R the owner of a
//! symbolic link itself is changed, not that of its target. Limits: numbers only: the image's names of users are not looked up.

use crate::args::{ChownArgs, Global};
use crate::images::image;
use crate::output::report::Report;
use crate::walking::paths;
use crate::words::names::in_quotes;
use crate::words::owners::Owner;
use diorite::{Error, SetAttr, Volume};
use diorite_format::{Ino, Inode};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ChownArgs) -> ExitCode {
    image::change("chown", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &ChownArgs) {
    let how = (args.recursive, !args.no_dereference);
    paths::change_each(volume, report, &args.paths, how, |path, inode| {
        set(volume, inode.ino, args.owner)?;
        Ok(args.verbose.on.then(|| told(path, inode, args.owner)))
    });
}

fn set(volume: &Volume, ino: Ino, owner: Owner) -> Result<(), Error> {
    let Owner { uid, gid } = owner;
    let set = SetAttr::default().uid(uid).gid(gid);
    volume.set_attr(ino, &set)
}

/// The line of `-v` about a file's owner, in chown's words and in numbers: only the ids that were given.
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
