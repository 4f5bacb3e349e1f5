//! `diorite cp`: files into an image or out of it, where each side says of itself what it is.
//!
//! Input: paths of the host, and `IMG:/path` or `IMG!/path`. Output: copies, as `put` and `get` make them. Invariant: a word that names a file of the host is that
//! file. Limits: one of both sides is the host.

use crate::args::{CpArgs, GetArgs, Global, PutArgs};
use crate::cmd::{get, put};
use crate::usage;
use diorite_block::Locator;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// The name in messages.
const NAME: &str = "cp";

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CpArgs) -> ExitCode {
    let Some((dest, sources)) = args.paths.split_last() else {
        usage::wrong("cp needs a SOURCE and a DEST");
    };
    let from: Vec<Option<Inside>> = sources.iter().map(|word| Inside::of(word)).collect();
    match (Inside::of(dest), from.iter().flatten().next()) {
        (Some(dest), None) => put::run_as(NAME, global, &dest.put(args, sources)),
        (None, Some(first)) => {
            let image = first.img.clone();
            let paths = from
                .into_iter()
                .map(|side| Some(side.filter(|s| s.img == image)?.path));
            match paths.collect::<Option<Vec<OsString>>>() {
                Some(paths) => get::run_as(NAME, global, &out_of(args, image, paths, dest)),
                None => usage::wrong("the SOURCEs are to be in one image, or all on the host"),
            }
        }
        (None, None) => usage::wrong("neither side is in an image: IMG:/path, where IMG is there"),
        (Some(_), Some(_)) => usage::wrong(
            "one side is to be on the host; from image to image: 'diorite get IMG PATH - | diorite put IMG - PATH'",
        ),
    }
}

/// A path in an image.
struct Inside {
    img: String,
    path: OsString,
}

impl Inside {
    /// None for a path of the host.
    fn of(word: &OsStr) -> Option<Inside> {
        match Locator::parse(word.to_str()?) {
            Ok(Locator::Inside { outer, path }) => Some(Inside {
                img: outer.to_string(),
                path: path.into(),
            }),
            _ => None,
        }
    }

    fn put(self, args: &CpArgs, sources: &[OsString]) -> PutArgs {
        PutArgs {
            recursive: true,
            owner: None,
            group: None,
            mode: None,
            no_xattrs: false,
            no_clobber: false,
            target_directory: None,
            no_target_directory: false,
            one_file_system: false,
            quiet: args.quiet,
            img: self.img,
            paths: sources.iter().cloned().chain([self.path]).collect(),
        }
    }
}

fn out_of(args: &CpArgs, img: String, paths: Vec<OsString>, dest: &OsStr) -> GetArgs {
    GetArgs {
        recursive: true,
        same_owner: false,
        no_same_owner: false,
        no_xattrs: false,
        quiet: args.quiet,
        img,
        paths,
        dest: dest.into(),
    }
}
