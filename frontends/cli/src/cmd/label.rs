//! `diorite label` and `diorite uuid`: the label and the UUID of an image.
//!
//! Input: an image, and a new value or none. Output: a line with the present value, or nothing. Invariant: without a new value nothing is
//! opened for writing. Limits: those of `tune -U`.

use crate::args::{Global, LabelArgs, UuidArgs};
use crate::cmd::mkfs::identity;
use crate::cmd::tune;
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::{Reason, Report};
use crate::words::names;
use diorite::{Error, Volume};
use std::process::ExitCode;

/// Runs `label`.
pub(crate) fn run(global: &Global, args: &LabelArgs) -> ExitCode {
    let mut report = Report::new("label", &args.img);
    match &args.label {
        None => print(&args.img, global, &mut report, |volume| {
            volume.superblock().info().label.clone()
        }),
        Some(label) => change(&args.img, global, &mut report, |volume| {
            volume.set_label(bytes(label))
        }),
    }
    report.exit_code()
}

/// Runs `uuid`.
pub(crate) fn run_uuid(global: &Global, args: &UuidArgs) -> ExitCode {
    let mut report = Report::new("uuid", &args.img);
    match args.uuid.as_deref().map(identity::uuid) {
        None => print(&args.img, global, &mut report, |volume| {
            names::uuid(volume.superblock().uuid()).unwrap_or_default()
        }),
        Some(Ok(uuid)) => tune::set_uuid(global, &args.img, uuid, &mut report),
        Some(Err(why)) => report.image(Reason::new(why)),
    }
    report.exit_code()
}

fn print(img: &str, global: &Global, report: &mut Report, what: impl FnOnce(&Volume) -> String) {
    if let Some(volume) = image::open(img, global, report) {
        let mut out = Out::new();
        out.line(what(&volume));
        out.finish();
    }
}

fn change(
    img: &str,
    global: &Global,
    report: &mut Report,
    what: impl FnOnce(&Volume) -> Result<(), Error>,
) {
    if let Some(volume) = image::open_for_writing(img, global, report) {
        if let Err(error) = what(&volume) {
            report.image(&error);
        }
        image::close(volume, report);
    }
}
