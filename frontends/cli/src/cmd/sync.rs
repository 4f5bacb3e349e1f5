//! `diorite sync`: makes durable what was written to an image, or to files in it.
//!
//! Input: an image, and paths or none. Output: nothing. Invariant: the journal of the image is replayed first if necessary, as
//! whenever an image is opened for writing. Limits: data that another process still buffers is not included.

use crate::args::{Global, SyncArgs};
use crate::images::image::{self, bytes};
use crate::output::report::Report;
use diorite::File;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &SyncArgs) -> ExitCode {
    let mut report = Report::new("sync", &args.img);
    let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    for path in args.paths.iter().map(|p| bytes(p)) {
        let sync = if args.data {
            File::sync_data
        } else {
            File::sync
        };
        let synced = image::find_for_writing(&volume, path).and_then(|file| sync(&file));
        if let Err(error) = synced {
            report.file(path, error);
        }
    }
    // Closing the volume commits, checkpoints and flushes the device.
    image::close(volume, &mut report);
    report.exit_code()
}
