//! `diorite zerofree`: writes zeros to the free blocks of an image that hold anything else, with the options of zerofree(8).
//!
//! Input: an image. Output: with -n, -v or --json the counts. Invariant: with -n nothing is opened for writing. Limits: as
//! [`diorite::Volume::zero_free`].

use crate::args::{Global, ZerofreeArgs};
use crate::images::image;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::report::Report;
use diorite::{Error, FreeBlocks, Volume};
use serde_json::json;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ZerofreeArgs) -> ExitCode {
    let mut report = Report::new("zerofree", &args.img);
    let volume = match args.dry_run {
        true => image::open(&args.img, global, &mut report),
        false => image::open_for_writing(&args.img, global, &mut report),
    };
    let Some(volume) = volume else {
        return report.exit_code();
    };
    let blocks = volume.superblock().geometry().blocks_count();
    let block_size = volume.superblock().block_size();
    let done = zero(&volume, args, &mut report);
    image::close(volume, &mut report);
    match done {
        Ok(_) if report.has_failed() => {}
        Ok(found) if args.json.on => {
            let mut out = Out::new();
            out.json(&json!({
                "image": args.img,
                "blocks": blocks,
                "block_size": block_size,
                "free": found.free,
                "nonzero": found.nonzero,
                "written": !args.dry_run,
            }));
            out.finish();
        }
        Ok(found) if args.dry_run || args.verbose => {
            let mut out = Out::new();
            let what = match args.dry_run {
                true => "hold anything but zeros",
                false => "held anything but zeros, and are zeros now",
            };
            let FreeBlocks { free, nonzero } = found;
            out.line(format_args!(
                "{}: {nonzero} of {free} free blocks {what}; {blocks} blocks of {block_size} bytes",
                args.img
            ));
            out.finish();
        }
        Ok(_) => {}
        Err(error) => report.image(&error),
    }
    report.exit_code()
}

fn zero(volume: &Volume, args: &ZerofreeArgs, report: &mut Report) -> Result<FreeBlocks, Error> {
    let progress = Progress::new(false, report);
    progress.expect(Some(volume.device().geometry().size));
    let watch = |bytes| progress.entry(bytes);
    let found = match args.dry_run {
        true => volume.look_at_free(watch),
        // What orphans held is free only when their deletion is durable.
        false => volume.sync().and_then(|()| volume.zero_free(watch)),
    };
    progress.finish();
    found
}
