//! `diorite chattr`: changes the flags of files in an image.
//!
//! Input: an image, a change in chattr's letters, paths. Output: nothing. Invariants: symbolic links are not followed; with -R
//! they are skipped. Limits: files and directories only.

use crate::args::{ChattrArgs, Global};
use crate::images::image;
use crate::output::report::Report;
use crate::usage;
use crate::walking::paths;
use diorite::{Error, Volume};
use diorite_format::Inode;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ChattrArgs) -> ExitCode {
    check(args).unwrap_or_else(|why| usage::wrong(why));
    image::change("chattr", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Checks the arguments for combinations that make no sense.
pub(crate) fn check(args: &ChattrArgs) -> Result<(), &'static str> {
    let asked = args.generation.is_some() || args.project.is_some();
    match (
        asked || args.changes().next().is_some(),
        args.paths().is_empty(),
    ) {
        (false, _) => Err("flags are asked for behind the image, as in +i or -dA"),
        (true, true) => Err("no path is named behind the flags"),
        (true, false) => Ok(()),
    }
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &ChattrArgs) {
    let how = (args.recursive, false);
    paths::change_each(volume, report, &args.paths(), how, |_, inode| {
        if inode.is_file() || inode.is_dir() {
            return set(volume, inode, args).map(|()| None);
        }
        // With -R, a symbolic link is skipped.
        match args.recursive {
            true => Ok(None),
            false => {
                let what = "flags of what is no file or directory";
                Err(Error::NotSupported(what.to_owned()))
            }
        }
    });
}

fn set(volume: &Volume, inode: &Inode, args: &ChattrArgs) -> Result<(), Error> {
    if args.project.is_some_and(|project| project != inode.projid) {
        // A volume with the feature project is never opened for writing, so this one cannot have it.
        let what = "project numbers on a volume without the feature project";
        return Err(Error::NotSupported(what.to_owned()));
    }
    let flags = args
        .changes()
        .fold(inode.flags, |flags, change| change.of(flags));
    if flags != inode.flags {
        volume.set_flags(inode.ino, flags)?;
    }
    match args.generation {
        Some(generation) => volume.set_generation(inode.ino, generation),
        None => Ok(()),
    }
}
