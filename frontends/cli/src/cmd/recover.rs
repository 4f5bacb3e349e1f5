//! `diorite recover`: makes an image clean that was not unmounted.
//!
//! Input: an image. Output: a line for each action, or a line that nothing had to be done; or a JSON object. Invariant: an
//! image that is refused is not changed. Limits: damage that only e2fsck can repair is left to it.

use crate::args::{Global, RecoverArgs};
use crate::images::image;
use crate::output::Out;
use crate::output::report::Report;
use diorite::Volume;
use serde_json::json;
use std::process::ExitCode;

/// The first words of notes about how the device was opened, which are not about its contents.
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
    if args.json.on {
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

/// What was done to the image when it was opened.
fn done(volume: &Volume) -> Vec<String> {
    let opened = volume.device().report().fallbacks;
    let about_image = |note: &&String| {
        !opened.contains(*note) && !ABOUT_OPENING.iter().any(|b| note.starts_with(b))
    };
    volume.notes().iter().filter(about_image).cloned().collect()
}
