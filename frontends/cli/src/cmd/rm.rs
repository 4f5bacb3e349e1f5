//! `diorite rm`: names taken out of an image, in coreutils' words.
//!
//! Input: an image, paths. Output: with `-v` lines. Invariants: without `-r` no directory goes; a link is removed, not what it points to; the root stays.
//! Limits: asks nobody; of a tree the path of one directory is held, and what is left of those on the way.

use crate::args::{Global, RmArgs};
use crate::descent::{self, Descent, Visit};
use crate::image::{self, bytes};
use crate::names::in_quotes;
use crate::paths;
use crate::report::{Reason, Report};
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &RmArgs) -> ExitCode {
    image::change("rm", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &RmArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        remove(volume, path, args, report);
    }
}

fn remove(volume: &Volume, path: &[u8], args: &RmArgs, report: &mut Report) {
    if matches!(paths::last_name(path), b"" | b"." | b"..") {
        return report.file(path, Reason::new("refusing to remove it"));
    }
    match volume.unlink(path) {
        Err(Error::IsADirectory { .. }) if args.recursive => {
            remove_tree(volume, path, args, report);
        }
        Err(Error::IsADirectory { .. }) if args.dir => match volume.rmdir(path) {
            Ok(()) => tell(args, report, "removed directory", path),
            Err(error) => report.file(path, error),
        },
        Err(Error::NotFound { .. }) if args.force => {}
        Err(error) => report.file(path, error),
        Ok(()) => tell(args, report, "removed", path),
    }
}

/// Says what is gone, for who wants to know.
fn tell(args: &RmArgs, report: &Report, what: &str, path: &[u8]) {
    if args.verbose {
        report.done(format_args!("{what} {}", in_quotes(path)));
    }
}

/// Removes a directory and all in it, the deepest first. What cannot be removed is told, with what is above it left out.
fn remove_tree(volume: &Volume, path: &[u8], args: &RmArgs, report: &mut Report) {
    let mut descent = Descent::new(volume);
    let mut next = Some(descent.begin(path));
    // The path of the last directory on the way; of all of them how long it is, and its name, and in which directory that is.
    let (mut dir, mut dirs) = (Vec::new(), Vec::new());
    let mut failed = false;
    loop {
        let depth = next.as_ref().map_or(0, |visit| visit.depth);
        for (len, name, above) in dirs.drain(depth.min(dirs.len())..).rev() {
            dir.truncate(len);
            match volume.rmdir(descent::at(above, &dir, &dir[len - name..])) {
                // What stands in it was told.
                Err(Error::NotEmpty { .. }) if failed => {}
                Err(error) => report.file(&dir, error),
                Ok(()) => tell(args, report, "removed directory", &dir),
            }
        }
        let Some(visit) = next else { return };
        if visit.is_dir() {
            dir.clone_from(&visit.path);
            dirs.push((dir.len(), visit.name.len(), visit.dir));
            let all = |_: &_| true;
            descent.enter(&visit, all, |error| {
                failed = true;
                report.file(&visit.path, error);
            });
        } else {
            let Visit {
                path,
                dir,
                name,
                file,
                ..
            } = visit;
            // It is let go first: what is open is deleted later.
            let removed = file.map(drop);
            let removed = removed.and_then(|()| volume.unlink(descent::at(dir, &path, &name)));
            match removed {
                Ok(()) => tell(args, report, "removed", &path),
                Err(error) => {
                    failed = true;
                    report.file(&path, error);
                }
            }
        }
        next = descent.next();
    }
}
