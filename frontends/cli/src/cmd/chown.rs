//! `diorite chown`: owners of files in an image, in coreutils' words.
//!
//! Input: an image, an owner, a group, paths. Output: nothing. Invariant: of links met on the way the links themselves are given away. Limits: numbers only,
//! as the image's names of users are not looked up.

use crate::args::{ChownArgs, Global};
use crate::image;
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
            // The last number stands for none.
            word => match word.parse() {
                Ok(number) if number < u32::MAX => Ok(Some(number)),
                _ => Err(format!(
                    "invalid owner: {text}: owners and groups are given as numbers"
                )),
            },
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
    let how = (args.recursive, !args.no_dereference);
    paths::change_each(volume, report, &args.paths, how, |inode| {
        set(volume, inode.ino, args.owner)
    });
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
