//! `diorite chattr`: flags of files in an image, changed.
//!
//! Input: an image, a change in chattr's letters, paths. Output: nothing. Invariants: symbolic links are not followed; one met on the way is left as it is.
//! Limits: files and directories only.

use crate::args::{ChattrArgs, Global};
use crate::image::{self, bytes};
use crate::paths;
use crate::report::Report;
use diorite::{Error, Volume};
use diorite_format::Inode;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ChattrArgs) -> ExitCode {
    image::change("chattr", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does what the arguments say.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &ChattrArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        if !args.recursive {
            if let Err(error) = one(volume, path, args) {
                report.file(path, error);
            }
            continue;
        }
        paths::walk(volume, path, |path, found| {
            let is_other = |inode: &&Inode| inode.is_file() || inode.is_dir();
            let done = match found.map(|inode| Some(inode).filter(is_other)) {
                Ok(Some(inode)) => set(volume, inode, args),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                report.file(path, error);
            }
        });
    }
}

fn one(volume: &Volume, path: &[u8], args: &ChattrArgs) -> Result<(), Error> {
    let ino = volume.resolve(path, false)?;
    let inode = paths::inode(volume, ino)?;
    if !inode.is_file() && !inode.is_dir() {
        let what = "flags of what is no file or directory";
        return Err(Error::NotSupported(what.to_owned()));
    }
    set(volume, &inode, args)
}

fn set(volume: &Volume, inode: &Inode, args: &ChattrArgs) -> Result<(), Error> {
    let flags = args.flags.of(inode.flags);
    if flags != inode.flags {
        volume.set_flags(inode.ino, flags)?;
    }
    match args.generation {
        Some(generation) => volume.set_generation(inode.ino, generation),
        None => Ok(()),
    }
}
