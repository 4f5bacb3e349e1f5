//! `diorite readlink`: prints the targets of symbolic links.
//!
//! Input: an image and paths. Output: the text of each link. Invariant: as in readlink(1), a path that is not a link gives exit
//! status 1, and a message only with `-v`. Limits: only the last name of a path is read as a link; the target is not resolved.

use crate::args::{Global, ReadlinkArgs};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::{Reason, Report};
use diorite::Volume;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ReadlinkArgs) -> ExitCode {
    let mut report = Report::new("readlink", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut out = Out::new();
    let end: &[u8] = match (args.zero, args.no_newline && args.paths.len() == 1) {
        (_, true) => b"",
        (true, _) => b"\0",
        (false, _) => b"\n",
    };
    for path in args.paths.iter().map(|p| bytes(p)) {
        match target(&volume, path) {
            Ok(target) => {
                out.bytes(&target);
                out.bytes(end);
            }
            Err(reason) if args.verbose => report.file(path, reason),
            Err(_) => report.failed(1),
        }
    }
    out.finish();
    report.exit_code()
}

fn target(volume: &Volume, path: &[u8]) -> Result<Vec<u8>, Reason> {
    let file = image::find(volume, path, false)?;
    match image::target(volume, &file.metadata()) {
        Some(target) => Ok(target?),
        None => Err(Reason::new("Invalid argument: it is no symbolic link")),
    }
}
