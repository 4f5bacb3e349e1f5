//! `diorite setfacl`: changes the access control lists of files in an image.
//!
//! Input: an image, changes in setfacl's notation, paths. Output: nothing. Invariants: the changes have a fixed order: -b and
//! -k, then -x, then -m; a list that does not change is not written; the mask is recalculated. Limits: a file's own list and
//! its default list are two changes, each of them atomic.

use super::getfacl::{ACCESS, DEFAULT, lists};
use crate::args::{Global, SetfaclArgs};
use crate::images::image;
use crate::output::report::Report;
use crate::usage;
use crate::walking::paths;
use crate::words::attributes::{AclChange, AclList};
use diorite::{Error, Volume};
use diorite_format::{FileType, Inode};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &SetfaclArgs) -> ExitCode {
    check(args).unwrap_or_else(|why| usage::wrong(why));
    image::change("setfacl", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Checks the arguments for combinations that make no sense.
pub(crate) fn check(args: &SetfaclArgs) -> Result<(), &'static str> {
    let changes = !args.modify.is_empty() || !args.remove.is_empty();
    match changes || args.remove_all || args.remove_default {
        true => Ok(()),
        false => Err("nothing is asked for: -m, -x, -b or -k"),
    }
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &SetfaclArgs) {
    paths::change_each(
        volume,
        report,
        &args.paths,
        (args.recursive, true),
        |_, inode| match args.recursive && inode.file_type == Some(FileType::Symlink) {
            true => Ok(None),
            false => set(volume, inode, args).map(|()| None),
        },
    );
}

fn set(volume: &Volume, inode: &Inode, args: &SetfaclArgs) -> Result<(), Error> {
    let (own, default) = lists(volume, inode)?;
    let how = (inode.is_dir(), args.no_mask);
    let removed = args.remove.iter().flat_map(|word| &word.0);
    let all: Vec<&AclChange> = removed
        .chain(args.modify.iter().flat_map(|word| &word.0))
        .collect();
    let (of_default, of_own): (Vec<&AclChange>, Vec<&AclChange>) = all
        .into_iter()
        .partition(|change| change.default || args.default);
    let kept = match args.remove_all {
        true => own.clone().base(),
        false => own.clone(),
    };
    let new = kept.changed(&of_own, how);
    if new != own {
        volume.set_xattr(inode.ino, ACCESS, &new.value())?;
    }
    // Only directories have a default list; with -R other files are skipped without an error.
    if !inode.is_dir() && args.recursive {
        return Ok(());
    }
    let kept = match args.remove_all || args.remove_default {
        true => AclList::default(),
        false => default.clone(),
    };
    let kept = match of_default.iter().any(|change| change.sets()) {
        true => kept.filled_from(&new),
        false => kept,
    };
    let new = kept.changed(&of_default, how);
    match new == default {
        true => Ok(()),
        false if new.is_empty() => volume.remove_xattr(inode.ino, DEFAULT),
        false => volume.set_xattr(inode.ino, DEFAULT, &new.value()),
    }
}
