//! `diorite tune`: parameters and the form of a file system, with the words of tune2fs.
//!
//! Input: an image, and words. Output: with -l the superblock. Invariants: all words are read before the image is opened for writing. What
//! changes more than the superblock is done first (`form`), and what lies in the superblock alone is judged before that; 64bit follows
//! both. Limits: words of tune2fs.

mod form;
mod shown;
mod words;

use crate::args::{Global, TuneArgs};
use crate::cmd::info;
use crate::images::image;
use crate::output::report::{Reason, Report};
use crate::usage;
use diorite::Volume;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &TuneArgs) -> ExitCode {
    let mut report = Report::new("tune", &args.img).with_undo(global.undo.as_ref());
    let change = words::change(args);
    let change = match change {
        Ok(change) => change,
        Err(why) => {
            report.image(Reason::new(why));
            return report.exit_code();
        }
    };
    if change.is_nothing() && !args.list {
        usage::wrong("nothing to change: name an option, or -l to print the superblock");
    }
    for warning in words::warnings(args) {
        report.warn(warning);
    }
    let (change, width) = change.without_width();
    if !change.is_nothing() {
        form::change(global, &args.img, &change, &mut report);
    }
    if let Some(wide) = width.filter(|_| !report.has_failed()) {
        set_64bit(global, &args.img, wide, &mut report);
    }
    if args.list && !report.has_failed() {
        info::superblock(global, &args.img, args.json, &mut report);
    }
    report.exit_code()
}

/// Gives an image another UUID, and the checksums that go with it.
pub(crate) fn set_uuid(global: &Global, img: &str, uuid: [u8; 16], report: &mut Report) {
    form::change(global, img, &words::Change::of_uuid(uuid), report);
}

/// Changes what lies in the superblock alone.
fn superblock(
    global: &Global,
    img: &str,
    change: &words::Change,
    tuning: &diorite::Tuning,
    report: &mut Report,
) {
    let options = image::writable(global).ignore_read_only(change.clears_read_only());
    match Volume::open(img, &options) {
        Ok(volume) => {
            if let Err(error) = volume.tune(tuning) {
                report.image(error);
            }
            image::close(volume, report);
        }
        Err(error) => image::refused(img, report, &error),
    }
}

/// Gives group descriptors another size, in an image that nobody else uses: what is in the way of longer ones moves.
fn set_64bit(global: &Global, img: &str, wide: bool, report: &mut Report) {
    let Some(volume) = image::open_for_writing(img, global, report) else {
        return;
    };
    if let Err(error) = volume.set_64bit(wide, &mut |_| true) {
        report.image(error);
    }
}
