//! `diorite ln`: makes hard links and symbolic links in an image, with coreutils' options and messages.
//!
//! Input: an image, what to link to, the new name. Output: with `-v` a line for each link. Invariant: the text of a symbolic
//! link is stored as it was given. Limits: with `-f` the old file is removed before the link is made, in two steps.

use crate::args::{Global, LnArgs};
use crate::images::image::{self, bytes};
use crate::output::report::Report;
use crate::walking::paths;
use crate::words::names;
use crate::words::names::in_quotes;
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &LnArgs) -> ExitCode {
    image::change("ln", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &LnArgs) {
    let (target, link) = (bytes(&args.target), bytes(&args.link));
    match make(volume, target, link, args) {
        Ok(link) if args.verbose.on => {
            let arrow = if args.symbolic { "->" } else { "=>" };
            let (link, target) = (in_quotes(&link), in_quotes(target));
            report.done(format_args!("{link} {arrow} {target}"));
        }
        Ok(_) => {}
        Err((at, error)) => report.file(&at, error),
    }
}

/// Returns the new name, or an error with the path that caused it.
fn make(
    volume: &Volume,
    target: &[u8],
    link: &[u8],
    args: &LnArgs,
) -> Result<Vec<u8>, (Vec<u8>, Error)> {
    let of_target = |error| (target.to_vec(), error);
    let first = match args.symbolic {
        true => None,
        false => Some(volume.resolve(target, false).map_err(of_target)?),
    };
    let name = names::last_name(target);
    let link = paths::into(volume, link, name, args.no_target_directory)
        .map_err(|error| (link.to_vec(), error))?;
    let attempt = || match first {
        None => volume.symlink(target, &link).map(drop),
        Some(ino) => volume.link_ino(ino, &link),
    };
    let replace = || {
        if first.is_some() && first == Some(volume.resolve(&link, false)?) {
            let path = String::from_utf8_lossy(&link).into_owned();
            let what = "and what it shall be a name of are the same file";
            return Err(Error::Invalid(format!("{path} {what}")));
        }
        volume.unlink(&link)?;
        attempt()
    };
    let made = match attempt() {
        Err(Error::Exists { .. }) if args.force => replace(),
        other => other,
    };
    match made {
        Ok(()) => Ok(link),
        // Errors of the target: it is a directory or immutable, or has the maximum number of links.
        Err(error @ (Error::NotPermitted { .. } | Error::TooManyLinks { .. }))
            if first.is_some() =>
        {
            Err(of_target(error))
        }
        Err(error) => Err((link, error)),
    }
}
