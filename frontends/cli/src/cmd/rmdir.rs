//! `diorite rmdir`: removes empty directories from an image, with coreutils' options and messages.
//!
//! Input: an image, paths. Output: with `-v` a line for each directory. Invariant: a directory that is not empty stays. Limits:
//! none of its own.

use crate::args::{Global, RmdirArgs};
use crate::images::image::{self, bytes};
use crate::output::report::Report;
use crate::words::names::in_quotes;
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &RmdirArgs) -> ExitCode {
    image::change("rmdir", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &RmdirArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        let mut path = trimmed(path);
        while remove(volume, report, path, args) && args.parents {
            match above(path) {
                Some(dir) => path = dir,
                None => break,
            }
        }
    }
}

/// Removes a directory; returns whether it was removed.
fn remove(volume: &Volume, report: &mut Report, path: &[u8], args: &RmdirArgs) -> bool {
    if args.verbose.on {
        report.done(format_args!(
            "rmdir: removing directory, {}",
            in_quotes(path)
        ));
    }
    match volume.rmdir(path) {
        Ok(()) => return true,
        Err(Error::NotEmpty { .. }) if args.ignore_fail_on_non_empty => {}
        Err(error) => report.file(path, error),
    }
    false
}

/// The path without slashes at its end; the root keeps one.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|c| *c != b'/').map_or(1, |at| at + 1);
    &path[..end.min(path.len())]
}

/// The path without its last name; none if nothing or only the root is left.
fn above(path: &[u8]) -> Option<&[u8]> {
    let cut = path.iter().rposition(|c| *c == b'/')?;
    Some(trimmed(&path[..cut])).filter(|dir| !dir.is_empty())
}
