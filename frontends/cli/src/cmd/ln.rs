//! `diorite ln`: second names and symbolic links in an image, in coreutils' words.
//!
//! Input: an image, what to link to, the new name. Output: nothing. Invariant: the text of a symbolic link is stored as it was given. Limits: with `-f`
//! there is a moment without the name.

use crate::args::{Global, LnArgs};
use crate::image::{self, bytes};
use crate::paths;
use crate::report::Report;
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &LnArgs) -> ExitCode {
    image::change("ln", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Does it on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &LnArgs) {
    let (target, link) = (bytes(&args.target), bytes(&args.link));
    if let Err(error) = make(volume, target, link, args) {
        report.file(link, error);
    }
}

fn make(volume: &Volume, target: &[u8], link: &[u8], args: &LnArgs) -> Result<(), Error> {
    let name = paths::last_name(target);
    let link = paths::into(volume, link, name, args.no_target_directory)?;
    let attempt = || match args.symbolic {
        true => volume.symlink(target, &link).map(drop),
        false => volume.link(target, &link),
    };
    match attempt() {
        Err(Error::Exists { .. }) if args.force => {
            let there = volume.resolve(&link, false)?;
            if !args.symbolic && there == volume.resolve(target, false)? {
                let path = String::from_utf8_lossy(&link).into_owned();
                let what = "and what it shall be a name of are the same file";
                return Err(Error::Invalid(format!("{path} {what}")));
            }
            volume.unlink(&link)?;
            attempt()
        }
        other => other,
    }
}
