//! `diorite put`: copies files and whole directories into an image, with their metadata, from the host or, for `cp`, from an
//! image.
//!
//! Input: an image, paths of the host or of an image, a place in the image. Output: files in the image. Invariants: a file is
//! written without a name and gets the name, replacing the old file, when it is complete, so a failure leaves no part of a
//! file; symbolic links in the source are never followed, and names are looked up relative to open directories; everything is
//! committed at the end. Limits: those of the pools for data in flight; the names of the directories from SOURCE to the present
//! place are held; a file that changes while it is copied may be copied in a mixed state.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `source` | a name in an open directory -> its type, its attributes, the ranges of its data |
//! | `place` | SOURCE and DEST -> the path of the copy |
//! | `itself` | a SOURCE in the image that is written -> whether it would be copied into itself |
//! | `tree` | directories -> their entries, one after the other, on an explicit stack |
//! | `node` | one entry -> a file, directory, link, pipe or device in the image |
//! | `data` | one regular file -> writes of its pieces, and its name at the end |
//! | `crate::copying::files` | pieces of files -> requests in flight |
//! | `stream` | standard input -> writes of the pieces of a file |
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
use crate::cmd::mount::descriptor;
use crate::copying::files::{Flow, MEMORY};
use crate::host::process::check_memory;
use crate::images::image;
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report};
use crate::usage;
use crate::words::names::in_quotes;
use data::Copying;
use diorite::{Error, Volume};
use diorite_block::{Locator, check_stdin};
use links::Links;
use meta::Meta;
use place::Place;
use source::{Identity, Source};
pub(crate) use source::{Image, Nesting, Origin};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &PutArgs) -> ExitCode {
    run_as(("put", ""), global, args)
}

/// Runs the command under another name (`cp`), with the prefix that this one prints before paths of the image.
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

/// Checks the arguments for combinations that make no sense.
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

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &PutArgs) {
    copy(volume, report, args, (&Origin::Host, ""));
}

/// Copies from the host or from an image into an open image. Messages have `prefix` before paths of the image.
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
    crate::host::process::prepare();
    let flow = || match origin.volume() {
        None => Flow::new(volume),
        Some(source) => Flow::between(source, volume, Copying::unread),
    };
    let flow = match check_memory(MEMORY).and_then(|()| Ok(flow()?)) {
        Ok(flow) => flow,
        Err(why) => return report.image(why),
    };
    let progress = Progress::new(args.copies.quiet, report);
    let mut putter = Putter {
        volume,
        origin,
        prefix,
        args,
        flow,
        small: vec![0; data::SMALL as usize],
        cached: Vec::new(),
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

/// The files that hold the images in use: they are not copied.
fn images(img: &str, origin: &Origin) -> Vec<Identity> {
    let inside = match origin {
        Origin::Host => None,
        Origin::Image(image) => match image.nesting {
            Nesting::DestInSource(ino) => Some(Identity::Image(ino)),
            Nesting::Same | Nesting::SourceInDest(_) | Nesting::Apart => None,
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

/// The SOURCE that stands for standard input. A file with this name is given as `./-`.
pub(crate) const STDIN: &str = "-";

/// The state of one run.
struct Putter<'a> {
    volume: &'a Volume,
    origin: &'a Origin,
    /// The prefix of paths of the image in lines of -v.
    prefix: &'a str,
    args: &'a PutArgs,
    flow: Flow<Copying>,
    /// For the bytes of small files.
    small: Vec<u8>,
    /// Small files, complete but for their write-back.
    cached: Vec<Rc<Copying>>,
    report: &'a mut Report,
    progress: Progress,
    meta: Meta,
    links: Links,
    /// Files that are not copied, because they hold the images in use.
    images: Vec<Identity>,
    /// The volume accepts no more changes: nothing else is tried.
    over: bool,
}

/// Why a file could not be copied: an error of the source, or of the image that is written.
enum Trouble {
    Source(Reason),
    Image(Error),
    /// Neither failed; the copy is refused.
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

    /// Copies one SOURCE of the command line, with everything below it.
    fn one(&mut self, path: &OsStr, dest: &OsStr, many: bool) {
        if path == STDIN && matches!(self.origin, Origin::Host) {
            return self.stdin(image::bytes(dest));
        }
        if matches!(self.origin, Origin::Host)
            && let Some(number) = descriptor::number(Path::new(path))
        {
            let found = Path::new(path);
            if number == 0
                && let Err(why) = check_stdin()
            {
                let why = Reason::host("cannot read it", why);
                return self.report.elsewhere(found, why);
            }
            if stream::is_stream(found) {
                return self.of_descriptor(path, dest, many);
            }
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
            (image::bytes(path), source.is_dir()),
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

    /// Copies what a descriptor gives that a path names, and not the link that the path is.
    fn of_descriptor(&mut self, path: &OsStr, dest: &OsStr, many: bool) {
        let dest = image::bytes(dest);
        let named = (image::bytes(path), false);
        match place::choose(self.volume, self.args, named, dest, many) {
            Ok(Place::Inside(at) | Place::Whole(at)) => self.descriptor(Path::new(path), &at),
            Err(reason) => self.report.file(dest, reason),
        }
    }

    /// Reports a failure, with the path of the source for errors of the source, and the path of the copy otherwise.
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

    /// Prints with -v that a copy is complete.
    fn tell(&self, found: &Path, path: &[u8]) {
        if self.args.copies.verbose {
            let path = [self.prefix.as_bytes(), path].concat();
            let (from, to) = (in_quotes(found.as_os_str().as_bytes()), in_quotes(&path));
            self.report.done(format_args!("{from} -> {to}"));
        }
    }
}
