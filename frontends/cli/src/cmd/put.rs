//! `diorite put`: files and whole directories into an image, as they are on the host, or for `cp` in another image.
//!
//! Input: an image, paths of the host or of an image, a place in the image. Output: files in the image. Invariants: a file is written
//! without a name, and gets it, in the place of what had it, when all of it is there: whatever fails leaves no part of a file; what is
//! met in the source is never followed, and looked up in directories that are open; all is committed at the end. Limits: those of the
//! pools for data in flight; the names of the directories on the way are held; a file that changes while it is read is copied as it was
//! read.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `source` | a name in an open directory -> what it is, its attributes, where its data is |
//! | `place` | SOURCE and DEST -> the path to begin with |
//! | `itself` | a SOURCE in the image itself -> whether its copy would be in it |
//! | `tree` | directories -> their entries, one after the other, on an explicit stack |
//! | `node` | one entry -> a directory, link, pipe, device in the image |
//! | `data` | one regular file -> pieces of it on their way, and its name at the end |
//! | `crate::flow` | pieces of files -> requests in flight |
//! | `stream` | standard input -> pieces of a file on their way |
//! | `links` | files with several names -> hard links |
//! | `meta` | owners, attributes, modes, times |

mod data;
mod itself;
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
use crate::names::in_quotes;
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
pub(crate) use source::{Image, Lies, Origin};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &PutArgs) -> ExitCode {
    run_as(("put", ""), global, args)
}

/// Runs it for a command of another name, with what that writes before paths of the image.
pub(crate) fn run_as(
    (name, prefix): (&'static str, &str),
    global: &Global,
    args: &PutArgs,
) -> ExitCode {
    check(args).unwrap_or_else(|why| usage::wrong(why));
    image::change(name, &args.img, global, |volume, report| {
        copy(volume, report, args, (&Origin::Host, prefix));
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
    copy(volume, report, args, (&Origin::Host, ""));
}

/// Copies from anywhere into an open image. What is told has `prefix` before its paths of the image.
pub(crate) fn copy(
    volume: &Volume,
    report: &mut Report,
    args: &PutArgs,
    (origin, prefix): (&Origin, &str),
) {
    let (sources, dest) = match place::split(args) {
        Ok(both) => both,
        Err(why) => return report.host(why),
    };
    crate::process::prepare();
    let flow = match origin.volume() {
        None => Flow::new(volume),
        Some(source) => Flow::between(source, volume, Copying::unread),
    };
    let flow = match flow {
        Ok(flow) => flow,
        Err(error) => return report.image(error),
    };
    let progress = Progress::new(args.copies.quiet, report);
    let mut putter = Putter {
        volume,
        origin,
        prefix,
        args,
        flow,
        report,
        progress,
        meta: Meta::new(&args.copies),
        links: Links::default(),
        images: images(&args.img, origin),
        over: false,
    };
    putter.all(sources, dest);
    putter.progress.finish();
    putter.meta.summary(putter.report);
}

/// The files that hold the image itself: it is not put into itself.
fn images(img: &str, origin: &Origin) -> Vec<Identity> {
    let inside = match origin {
        Origin::Host => None,
        Origin::Image(image) => match image.lies {
            Lies::DestInSource(ino) => Some(Identity::Image(ino)),
            Lies::Same | Lies::SourceInDest(_) | Lies::Apart => None,
        },
    };
    inside.into_iter().chain(image_file(img)).collect()
}

/// The file of the host that holds an image, if there is one.
fn image_file(img: &str) -> Option<Identity> {
    let mut locator = Locator::parse(img).ok()?;
    loop {
        match locator {
            Locator::File(file) => return Identity::of_path(&file.path),
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
    origin: &'a Origin,
    /// What stands before paths of the image in lines of -v.
    prefix: &'a str,
    args: &'a PutArgs,
    flow: Flow<Copying>,
    report: &'a mut Report,
    progress: Progress,
    meta: Meta,
    links: Links,
    /// What is not copied.
    images: Vec<Identity>,
    /// The volume takes no more changes: nothing else is tried.
    over: bool,
}

/// Why something could not be copied: what was said where it was found, or by the image.
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
            self.finish_all();
        }
    }

    /// One SOURCE of the command line, with everything below it.
    fn one(&mut self, path: &OsStr, dest: &OsStr, many: bool) {
        if path == STDIN && matches!(self.origin, Origin::Host) {
            return self.stdin(image::bytes(dest));
        }
        let source = match Source::of_path(self.origin, path) {
            Ok(source) => source,
            Err((found, reason)) => return self.report.elsewhere(&found, reason),
        };
        self.progress.expect(source.size_if_file());
        let dest = image::bytes(dest);
        let place = place::choose(
            self.volume,
            self.args,
            (image::bytes(path), &source),
            dest,
            many,
        );
        let place = place.and_then(|place| {
            self.refuse_itself(&source, &place)?;
            Ok(place)
        });
        match place {
            Err(reason) => self.report.file(dest, reason),
            Ok(Place::Inside(at)) => self.top(source, at),
            Ok(Place::Whole(at)) => self.merge(source, at),
        }
    }

    /// Something failed; where it was found and its path in the image are told by who has them.
    fn fail(&mut self, found: &Path, path: &[u8], trouble: Trouble) {
        match trouble {
            Trouble::Source(reason) => self.report.elsewhere(found, reason),
            Trouble::Refused(reason) => self.report.file(path, reason),
            Trouble::Image(error) => {
                self.over |= matches!(error.root(), Error::Aborted(_) | Error::ShutDown);
                self.report.file(path, error);
            }
        }
    }

    /// Says that a copy is there, if somebody wants to know.
    fn tell(&self, found: &Path, path: &[u8]) {
        if self.args.copies.verbose {
            let path = [self.prefix.as_bytes(), path].concat();
            let (from, to) = (in_quotes(found.as_os_str().as_bytes()), in_quotes(&path));
            self.report.done(format_args!("{from} -> {to}"));
        }
    }
}
