//! `diorite rm`: removes files from an image, with coreutils' options and messages.
//!
//! Input: an image, paths. Output: with `-v` a line for each file. Invariants: without `-r` or `-d` no directory is removed; of
//! a symbolic link the link is removed, not its target; the root stays. Limits: it never asks; for a tree it holds the path of
//! one directory, and the names that are left in those above it.

use crate::args::{Global, RmArgs};
use crate::images::image::{self, bytes};
use crate::output::report::{Reason, Report};
use crate::walking::tree::{self, TreeWalk, Visit};
use crate::words::names;
use crate::words::names::in_quotes;
use diorite::{Error, Volume};
use diorite_format::Ino;
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
    if args.verbose.on {
        report.done(format_args!("{what} {}", in_quotes(path)));
    }
}

/// Removes a directory and its contents, the deepest first. What cannot be removed is reported; the directories above it, which then
/// cannot be removed either, are not. What keeps everything from being removed is reported once.
fn remove_tree(volume: &Volume, path: &[u8], args: &RmArgs, report: &mut Report) {
    let mut walk = TreeWalk::new(volume);
    let mut next = Some(walk.begin(path));
    let mut open = Open::default();
    loop {
        let depth = next.as_ref().map_or(0, |visit| visit.depth);
        while let Some(dir) = open.leave(depth) {
            if dir.keeps {
                open.keep();
                continue;
            }
            let name = &open.path[dir.len - dir.name..dir.len];
            match volume.rmdir(tree::at(dir.dir, &open.path[..dir.len], name)) {
                Ok(()) => tell(args, report, "removed directory", &open.path[..dir.len]),
                Err(error) => {
                    report.file(&open.path[..dir.len], &error);
                    if stops(&error) {
                        return;
                    }
                    open.keep();
                }
            }
        }
        let Some(visit) = next else { return };
        let failed = match visit.is_dir() {
            true => enter(&mut walk, &mut open, &visit, report),
            false => remove_file(volume, visit, args, report).err(),
        };
        if let Some(error) = failed {
            if stops(&error) {
                return;
            }
            open.keep();
        }
        next = walk.next();
    }
}

/// The open directories of a walk, each in the one before it.
#[derive(Default)]
struct Open {
    dirs: Vec<Dir>,
    /// The path of the deepest one.
    path: Vec<u8>,
}

struct Dir {
    /// The lengths of its path and of its name.
    len: usize,
    name: usize,
    /// The directory that it is in.
    dir: Option<Ino>,
    /// Something is left in it.
    keeps: bool,
}

impl Open {
    /// The deepest directory, if it lies at this depth or below it: its contents were visited.
    fn leave(&mut self, depth: usize) -> Option<Dir> {
        let deepest = self.dirs.len() > depth;
        self.dirs.pop_if(|_| deepest)
    }

    /// Something is left in the deepest directory.
    fn keep(&mut self) {
        if let Some(dir) = self.dirs.last_mut() {
            dir.keeps = true;
        }
    }
}

/// Goes on in a directory; returns the first error of its names.
fn enter(
    walk: &mut TreeWalk<'_>,
    open: &mut Open,
    visit: &Visit,
    report: &mut Report,
) -> Option<Error> {
    open.path.clone_from(&visit.path);
    open.dirs.push(Dir {
        len: visit.path.len(),
        name: visit.name.len(),
        dir: visit.dir,
        keeps: false,
    });
    let (all, mut first) = (|_: &_| true, None);
    walk.enter(visit, all, |error| {
        report.file(&visit.path, &error);
        first.get_or_insert(error);
    });
    first
}

fn remove_file(
    volume: &Volume,
    visit: Visit,
    args: &RmArgs,
    report: &mut Report,
) -> Result<(), Error> {
    let Visit {
        path,
        dir,
        name,
        file,
        ..
    } = visit;
    // The file is closed first: an open file would be deleted later.
    let removed = file.map(drop);
    let removed = removed.and_then(|()| volume.unlink(tree::at(dir, &path, &name)));
    match &removed {
        Ok(()) => tell(args, report, "removed", &path),
        Err(error) => report.file(&path, error),
    }
    removed
}

/// Whether nothing can be removed after this error.
fn stops(error: &Error) -> bool {
    matches!(
        error.root(),
        Error::AtomicTooLarge { .. } | Error::Aborted(_)
    )
}
