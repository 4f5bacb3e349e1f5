//! `diorite put`: files and whole directories into an image, as they are on the host.
//!
//! Input: an image, paths of the host, a place in the image. Output: files in the image. Invariants: a file is written without a name, and
//! gets it, in the place of what had it, when all of it is there: whatever fails leaves no part of a file; what is met in the source is
//! never followed, and looked up in directories that are open; all is committed at the end. Limits: those of the pools for data in flight; the names
//! of the directories on the way are held; a file that changes while it is read is copied as it was read.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `source` | a name in an open host directory -> what it is, its attributes, where its data is |
//! | `place` | SOURCE and DEST -> the path to begin with |
//! | `tree` | directories -> their entries, one after the other, on an explicit stack |
//! | `node` | one entry -> a directory, link, pipe, device in the image |
//! | `data` | one regular file -> pieces of it on their way, and its name at the end |
//! | `crate::flow` | pieces of files -> requests in flight |
//! | `stream` | standard input -> pieces of a file on their way |
//! | `links` | files with several names -> hard links |
//! | `meta` | owners, attributes, modes, times |

mod data;
mod links;
mod meta;
mod node;
mod place;
mod source;
mod stream;
mod tree;

use crate::args::{Global, PutArgs};
use crate::flow::Flow;
use crate::image;
use crate::progress::Progress;
use crate::report::{Reason, Report};
use crate::usage;
use data::Copying;
use diorite::{Error, Volume};
use diorite_block::Locator;
use links::Links;
use meta::Meta;
use place::Place;
use source::{Identity, Source};
use std::ffi::OsStr;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &PutArgs) -> ExitCode {
    run_as("put", global, args)
}

/// Runs it for a command of another name.
pub(crate) fn run_as(name: &'static str, global: &Global, args: &PutArgs) -> ExitCode {
    check(args).unwrap_or_else(|why| usage::wrong(why));
    image::change(name, &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does the command line make sense?
pub(crate) fn check(args: &PutArgs) -> Result<(), &'static str> {
    let dir = args.target_directory.as_deref();
    if dir.is_some_and(|dir| dir.is_empty()) {
        return Err("DIR is empty");
    }
    let (sources, _) = place::split(args)?;
    let into_dir = dir.is_some() || sources.len() > 1;
    match into_dir && sources.iter().any(|source| source == STDIN) {
        true => Err("standard input has no name: DEST is its new one, and it is the only SOURCE"),
        false => Ok(()),
    }
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &PutArgs) {
    let (sources, dest) = match place::split(args) {
        Ok(both) => both,
        Err(why) => return report.host(why),
    };
    crate::process::prepare();
    let flow = match Flow::new(volume) {
        Ok(flow) => flow,
        Err(error) => return report.image(error),
    };
    let progress = Progress::new(args.quiet, report);
    let mut putter = Putter {
        volume,
        args,
        flow,
        report,
        progress,
        meta: Meta::new(args),
        links: Links::default(),
        image: image_file(&args.img),
        over: false,
    };
    putter.all(sources, dest);
    putter.progress.finish();
    putter.meta.summary(putter.report);
}

/// The image itself, if it is a file of the host: it is not put into itself.
fn image_file(img: &str) -> Option<Identity> {
    let mut locator = Locator::parse(img).ok()?;
    loop {
        match locator {
            Locator::File(file) => return Source::identity(&file.path),
            Locator::Inside { outer, .. } => locator = *outer,
            Locator::Mem { .. } | Locator::Sim { .. } => return None,
        }
    }
}

/// The SOURCE that stands for standard input; a file of that name is `./-`.
pub(crate) const STDIN: &str = "-";

/// Everything that one run shares.
struct Putter<'a> {
    volume: &'a Volume,
    args: &'a PutArgs,
    flow: Flow<Copying>,
    report: &'a mut Report,
    progress: Progress,
    meta: Meta,
    links: Links,
    image: Option<Identity>,
    /// The volume takes no more changes: nothing else is tried.
    over: bool,
}

/// Why something could not be copied: what its host said, or the image.
enum Trouble {
    Source(Reason),
    Image(Error),
    /// Neither failed, but it is not done.
    Refused(Reason),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Image(error)
    }
}

impl Putter<'_> {
    fn all(&mut self, sources: &[std::ffi::OsString], dest: &OsStr) {
        for path in sources {
            if self.over {
                return;
            }
            self.one(path, dest, sources.len() > 1);
            self.settle_all();
        }
    }

    /// One SOURCE of the command line, with everything below it.
    fn one(&mut self, path: &OsStr, dest: &OsStr, many: bool) {
        if path == STDIN {
            return self.stdin(image::bytes(dest));
        }
        let source = match Source::of_path(path) {
            Ok(source) => source,
            Err(reason) => {
                return self.report.host(format_args!(
                    "{}: {reason}",
                    std::path::Path::new(path).display()
                ));
            }
        };
        self.progress.expect(source.size_if_file());
        let dest = image::bytes(dest);
        match place::choose(
            self.volume,
            self.args,
            (image::bytes(path), &source),
            dest,
            many,
        ) {
            Err(reason) => self.report.file(dest, reason),
            Ok(Place::Inside(at)) => self.top(source, at),
            Ok(Place::Whole(at)) => self.merge(source, at),
        }
    }

    /// Something failed; the path on the host and that in the image are told by who has them.
    fn fail(&mut self, host: &std::path::Path, path: &[u8], trouble: Trouble) {
        match trouble {
            Trouble::Source(reason) => self
                .report
                .host(format_args!("{}: {reason}", host.display())),
            Trouble::Refused(reason) => self.report.file(path, reason),
            Trouble::Image(error) => {
                self.over |= matches!(error.root(), Error::Aborted(_) | Error::ShutDown);
                self.report.file(path, error);
            }
        }
    }
}
