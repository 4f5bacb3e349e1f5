//! `diorite recover`: an image that was not unmounted becomes a clean one.
//!
//! Input: an image. Output: a line for everything that was done, or that nothing had to be; or a JSON object. Invariant: what is
//! refused stays as it is. Limits: what e2fsck alone can mend is left to it.

use crate::args::{Global, RecoverArgs};
use crate::image;
use crate::output::Out;
use crate::report::Report;
use diorite::Volume;
use serde_json::json;
use std::process::ExitCode;

/// How notes begin that are about how the device was opened, not about what is on it.
const ABOUT_OPENING: [&str; 2] = ["opened buffered", "buffered:"];

/// Runs the command.
pub(crate) fn run(global: &Global, args: &RecoverArgs) -> ExitCode {
    let mut report = Report::new("recover", &args.img);
    let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let done = done(&volume);
    image::close(volume, &mut report);
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "image": args.img, "recovered": !done.is_empty(), "done": done }));
    } else if done.is_empty() {
        out.line(format_args!("{}: clean, nothing to recover", args.img));
    } else {
        for what in &done {
            out.line(format_args!("{}: {what}", args.img));
        }
    }
    out.finish();
    report.exit_code()
}

/// What opening has done to the image.
fn done(volume: &Volume) -> Vec<String> {
    let opened = volume.device().report().fallbacks;
    let about_image = |note: &&String| {
        !opened.contains(*note) && !ABOUT_OPENING.iter().any(|b| note.starts_with(b))
    };
    volume.notes().iter().filter(about_image).cloned().collect()
}
