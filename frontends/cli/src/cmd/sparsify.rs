//! `diorite sparsify`: discards the free blocks of an image, as fstrim does of a mount, so that its file takes no space for them.
//!
//! Input: an image, a range, the least length. Output: a line with the number of bytes, or a JSON object. Invariant: only what is durably
//! free is discarded. Limits: a file is smaller afterwards only if its file system has holes; a device, only if it is thin below.

use crate::args::{Global, SparsifyArgs};
use crate::images::image;
use crate::output::Out;
use crate::output::report::{Reason, Report};
use crate::words::sizes::human;
use diorite::{Error, Volume};
use serde_json::json;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &SparsifyArgs) -> ExitCode {
    let mut report = Report::new("sparsify", &args.img);
    let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let done = sparsify(&volume, args);
    image::close(volume, &mut report);
    match done {
        Ok(_) if report.has_failed() => {}
        Ok(bytes) => {
            let mut out = Out::new();
            if args.json.on {
                out.json(&json!({ "image": args.img, "discarded": bytes }));
            } else {
                let told = human(bytes);
                out.line(format_args!(
                    "{}: {bytes} bytes ({told}) of free blocks discarded",
                    args.img
                ));
            }
            out.finish();
        }
        Err(error @ Error::NotSupported(_)) => {
            let what = format!("{error}; 'diorite zerofree' writes zeros to free blocks instead");
            report.image(Reason::new(what));
        }
        Err(error) => report.image(&error),
    }
    report.exit_code()
}

fn sparsify(volume: &Volume, args: &SparsifyArgs) -> Result<u64, Error> {
    // What orphans held is free only when their deletion is durable.
    volume.sync()?;
    let end = args.length.map(|len| args.offset.saturating_add(len));
    volume.trim(args.offset..end.unwrap_or(u64::MAX), args.minimum)
}
