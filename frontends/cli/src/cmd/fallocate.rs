//! `diorite fallocate`: allocates, punches, zeroes, collapses or inserts a range of a file, with the options of util-linux.
//!
//! Input: a mode, a range, an image, a path. Output: nothing. Invariant: a missing file is created only by the plain mode,
//! which allocates and sets the size. Limits: as for `truncate`, new files belong to root and have mode 0644.

mod dig;

use crate::args::{FallocateArgs, Global};
use crate::images::image::{self, bytes};
use crate::output::report::{Reason, Report};
use diorite::{Fallocate, Volume};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &FallocateArgs) -> ExitCode {
    let mut report = Report::new("fallocate", &args.img);
    let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let path = bytes(&args.path);
    if let Err(reason) = one(&volume, path, args) {
        report.file(path, reason);
    }
    image::close(volume, &mut report);
    report.exit_code()
}

fn one(volume: &Volume, path: &[u8], args: &FallocateArgs) -> Result<(), Reason> {
    let mode = mode(args);
    let create = mode == Fallocate::Allocate { keep_size: false } && !args.dig_holes;
    let file = image::find_or_create(volume, path, create)?;
    let file = file.ok_or_else(|| Reason::new("No such file or directory"))?;
    if args.dig_holes {
        let end = args.length.map(|len| args.offset.saturating_add(len));
        return dig::dig(volume, &file, args.offset..end.unwrap_or(u64::MAX));
    }
    let len = args.length.unwrap_or_default();
    Ok(file.fallocate(mode, args.offset, len)?)
}

/// The mode of the engine. The command line allows at most one of these options.
fn mode(args: &FallocateArgs) -> Fallocate {
    let keep_size = args.keep_size;
    let modes = [
        (args.punch_hole, Fallocate::PunchHole),
        (args.zero_range, Fallocate::ZeroRange { keep_size }),
        (args.collapse_range, Fallocate::CollapseRange),
        (args.insert_range, Fallocate::InsertRange),
        (args.write_zeroes, Fallocate::WriteZeroes { keep_size }),
    ];
    let asked = modes.into_iter().find(|(asked, _)| *asked);
    asked.map_or(Fallocate::Allocate { keep_size }, |(_, mode)| mode)
}
