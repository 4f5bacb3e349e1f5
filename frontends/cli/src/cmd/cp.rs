//! `diorite cp`: copies files into an image, out of one, or from image to image; the form of each path says whether it is in an
//! image.
//!
//! Input: paths of the host, and `IMG:/path` or `IMG!/path`. Output: copies, as `put` and `get` make them. Invariant: a word
//! that names an existing file of the host is that file. Limits: at least one side is an image; all SOURCEs are in one image or
//! all on the host.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `pair` | two images -> two open volumes, or one if both are the same image |

mod pair;

use crate::args::{CpArgs, GetArgs, Global, PutArgs};
use crate::cmd::{get, put};
use crate::output::report::Report;
use crate::usage;
use diorite_block::Locator;
use pair::Pair;
use put::{Image, Origin};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::rc::Rc;

/// The name in messages.
const NAME: &str = "cp";

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CpArgs) -> ExitCode {
    let Some((dest, sources)) = args.paths.split_last() else {
        usage::wrong("cp needs a SOURCE and a DEST");
    };
    let from: Vec<Option<Inside>> = sources.iter().map(|word| Inside::of(word)).collect();
    let first = from.iter().flatten().next();
    let Some((image, prefix)) = first.map(|side| (side.image.clone(), side.prefix.clone())) else {
        return match Inside::of(dest) {
            Some(dest) => {
                let args = dest.put(args, sources.to_vec());
                put::run_as((NAME, &dest.prefix), global, &args)
            }
            None => usage::wrong("neither side is in an image: IMG:/path, where IMG is there"),
        };
    };
    let paths = from
        .into_iter()
        .map(|side| Some(side.filter(|s| s.image == image)?.path));
    let Some(paths) = paths.collect::<Option<Vec<OsString>>>() else {
        usage::wrong("the SOURCEs are to be in one image, or all on the host");
    };
    match Inside::of(dest) {
        Some(dest) => between(global, args, (&prefix, paths), &dest),
        None if args.copies.has_image_only_options() => {
            usage::wrong("--owner, --group, --mode and --no-clobber are for copies in an image")
        }
        None => get::run_as((NAME, &prefix), global, &out_of(args, &prefix, paths, dest)),
    }
}

/// Copies from image to image.
fn between(
    global: &Global,
    args: &CpArgs,
    (prefix, paths): (&str, Vec<OsString>),
    dest: &Inside,
) -> ExitCode {
    let args = dest.put(args, paths);
    put::check(&args).unwrap_or_else(|why| usage::wrong(why));
    let mut report = Report::new(NAME, &args.img);
    let images = (image_of(prefix), &args.img[..]);
    if let Some(pair) = Pair::open(images, global, &mut report) {
        let source = Image::new(pair.source.clone(), prefix, pair.nesting);
        let origin = Origin::Image(Rc::new(source));
        put::copy(&pair.dest, &mut report, &args, (&origin, &dest.prefix));
        drop(origin);
        pair::close(pair, &mut report);
    }
    report.exit_code()
}

/// A path in an image.
struct Inside {
    image: Locator,
    /// The image as it was given, with the colon or `!` before the path.
    prefix: String,
    path: OsString,
}

/// The image in a prefix: all but its last character.
fn image_of(prefix: &str) -> &str {
    &prefix[..prefix.len() - 1]
}

impl Inside {
    /// Parses a path; none if it is a path of the host.
    fn of(word: &OsStr) -> Option<Inside> {
        let text = word.to_str()?;
        let inside = |text: &str| match Locator::parse(text) {
            Ok(Locator::Inside { outer, path, .. }) => Some((outer, path)),
            _ => None,
        };
        let (mut outer, mut path) = inside(text)?;
        if !text.ends_with(&path) {
            // The whole path is a name: a question mark at the end says that there are no parameters.
            (outer, path) = inside(&format!("{text}?"))?;
        }
        let prefix = text.strip_suffix(&path)?.to_owned();
        let image = image_of(&prefix);
        if Locator::parse(image).ok().as_ref() != Some(&*outer) {
            usage::wrong(&format!(
                "{text} has two meanings, since a file here has a part of it as its name: write '!' for the colon in front of a \
                 path in an image"
            ));
        }
        Some(Inside {
            image: *outer,
            prefix,
            path: path.into(),
        })
    }

    fn put(&self, args: &CpArgs, sources: Vec<OsString>) -> PutArgs {
        let mut paths = sources;
        paths.push(self.path.clone());
        PutArgs {
            recursive: true,
            copies: args.copies.clone(),
            target_directory: None,
            no_target_directory: false,
            img: image_of(&self.prefix).to_owned(),
            paths,
        }
    }
}

fn out_of(args: &CpArgs, prefix: &str, paths: Vec<OsString>, dest: &OsStr) -> GetArgs {
    GetArgs {
        recursive: true,
        same_owner: false,
        no_same_owner: false,
        chmod: None,
        no_xattrs: args.copies.no_xattrs,
        verbose: args.copies.verbose,
        quiet: args.copies.quiet,
        img: image_of(prefix).to_owned(),
        paths,
        dest: dest.into(),
    }
}
