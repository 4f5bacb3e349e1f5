//! `diorite rm`: removes files from an image, with coreutils' options and messages.
//!
//! Input: an image, paths. Output: with `-v` a line for each file. Invariants: without `-r` or `-d` no directory is removed; of
//! a symbolic link the link is removed, not its target; the root stays. Limits: it never asks; for a tree it holds the path of
//! one directory, and the names that are left in those above it.

use crate::args::{Global, RmArgs};
use crate::descent::{self, Descent, Visit};
use crate::image::{self, bytes};
use crate::names;
use crate::names::in_quotes;
use crate::report::{Reason, Report};
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &RmArgs) -> ExitCode {
    image::change("rm", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &RmArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        remove(volume, path, args, report);
    }
}

fn remove(volume: &Volume, path: &[u8], args: &RmArgs, report: &mut Report) {
    if matches!(names::last_name(path), b"" | b"." | b"..") {
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
        // A path through a file leads to nothing, as for rm.
        Err(Error::NotFound { .. } | Error::NotADirectory { .. }) if args.force => {}
        Err(error) => report.file(path, error),
        Ok(()) => tell(args, report, "removed", path),
    }
}

/// Prints with -v what was removed.
fn tell(args: &RmArgs, report: &Report, what: &str, path: &[u8]) {
    if args.verbose {
        report.done(format_args!("{what} {}", in_quotes(path)));
    }
}

/// Removes a directory and its contents, the deepest first. A file that cannot be removed is reported; the directories above
/// it, which then cannot be removed either, are not.
fn remove_tree(volume: &Volume, path: &[u8], args: &RmArgs, report: &mut Report) {
    let mut descent = Descent::new(volume);
    let mut next = Some(descent.begin(path));
    // The path of the deepest open directory, and the lengths of the paths of all open directories.
    let (mut dir, mut dirs) = (Vec::new(), Vec::new());
    let mut failed = false;
    loop {
        let depth = next.as_ref().map_or(0, |visit| visit.depth);
        for (len, name, above) in dirs.drain(depth.min(dirs.len())..).rev() {
            dir.truncate(len);
            match volume.rmdir(descent::at(above, &dir, &dir[len - name..])) {
                // The file that is left in it was reported.
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
            // The file is closed first: an open file would be deleted later.
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
