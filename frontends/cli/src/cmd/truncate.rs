//! `diorite truncate`: files of an image become shorter or longer, in coreutils' words.
//!
//! Input: a size, an image, paths. Output: nothing. Invariant: a file that is not there is made, unless `-c`; what is added reads as
//! zeros and takes no space. Limits: new files belong to root and are mode 0644, as no user of the image is known here.

use crate::args::{Global, TruncateArgs};
use crate::image::{self, bytes};
use crate::report::{Reason, Report};
use diorite::Volume;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &TruncateArgs) -> ExitCode {
    let mut report = Report::new("truncate", &args.img);
    let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err(reason) = one(&volume, path, args) {
            report.file(path, reason);
        }
    }
    image::close(volume, &mut report);
    report.exit_code()
}

fn one(volume: &Volume, path: &[u8], args: &TruncateArgs) -> Result<(), Reason> {
    let Some(file) = image::find_or_create(volume, path, !args.no_create)? else {
        return Ok(());
    };
    let size = args.size.of(file.size());
    let size = size.ok_or_else(|| Reason::new("no file can be as large"))?;
    Ok(file.truncate(size)?)
}
