//! `diorite chown`: owners of files in an image, in coreutils' words.
//!
//! Input: an image, an owner, a group, paths. Output: nothing. Invariant: of links met on the way the links themselves are given away. Limits: numbers only,
//! as the image's names of users are not looked up.

use crate::args::{ChownArgs, Global};
use crate::image::{self, bytes};
use crate::paths;
use crate::report::Report;
use diorite::{Error, SetAttr, Volume};
use diorite_format::Ino;
use std::process::ExitCode;

/// `5`, `5:7`, `:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Owner {
    /// Reads it.
    pub(crate) fn parse(text: &str) -> Result<Owner, String> {
        let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
        let number = |word: &str| match word {
            "" => Ok(None),
            word => word.parse().map(Some).map_err(|_| {
                format!("invalid owner: {text}: owners and groups are given as numbers")
            }),
        };
        Ok(Owner {
            uid: number(uid)?,
            gid: number(gid)?,
        })
    }
}

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ChownArgs) -> ExitCode {
    image::change("chown", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &ChownArgs) {
    for path in args.paths.iter().map(|p| bytes(p)) {
        if args.recursive {
            paths::walk(volume, path, |path, found| {
                if let Err(error) = found.and_then(|i| set(volume, i.ino, args.owner)) {
                    report.file(path, error);
                }
            });
            continue;
        }
        let found = volume.resolve(path, !args.no_dereference);
        if let Err(error) = found.and_then(|ino| set(volume, ino, args.owner)) {
            report.file(path, error);
        }
    }
}

fn set(volume: &Volume, ino: Ino, owner: Owner) -> Result<(), Error> {
    let Owner { uid, gid } = owner;
    let set = SetAttr {
        uid,
        gid,
        ..SetAttr::default()
    };
    volume.set_attr(ino, &set)
}
