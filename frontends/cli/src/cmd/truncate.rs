//! `diorite truncate`: makes files in an image shorter or longer, with coreutils' options and messages.
//!
//! Input: a size, an image, paths. Output: nothing. Invariant: a missing file is created, unless `-c` is given; the added part
//! reads as zeros and takes no space. Limits: new files belong to root and have mode 0644, because the users of the image are
//! not known.

use crate::args::{Global, TruncateArgs};
use crate::images::image::{self, bytes};
use crate::output::report::{Reason, Report};
use crate::usage;
use diorite::Volume;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &TruncateArgs) -> ExitCode {
    check(args).unwrap_or_else(|why| usage::wrong(why));
    image::change("truncate", &args.img, global, |volume, report| {
        apply(volume, report, args);
    })
}

/// Checks the arguments for combinations that make no sense.
pub(crate) fn check(args: &TruncateArgs) -> Result<(), &'static str> {
    let absolute = args.size.is_some_and(|s| !s.is_relative());
    match absolute && args.reference.is_some() {
        true => Err("with --reference a --size says by how much: +, -, <, >, / or %"),
        false => Ok(()),
    }
}

/// Runs the command on an open image.
pub(crate) fn apply(volume: &Volume, report: &mut Report, args: &TruncateArgs) {
    let reference = args.reference.as_deref().map(bytes);
    let change = match reference.map(|path| size_of(volume, path)).transpose() {
        Ok(base) => Change { args, base },
        Err(reason) => return report.file(reference.unwrap_or_default(), reason),
    };
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err(reason) = one(volume, path, &change) {
            report.file(path, reason);
        }
    }
}

/// The change of a file's size.
struct Change<'a> {
    args: &'a TruncateArgs,
    /// The size that a relative change starts from, if it is not each file's own.
    base: Option<u64>,
}

impl Change<'_> {
    /// The new size of a file of `size` bytes; none on overflow.
    fn of(&self, size: u64, block: u64) -> Option<u64> {
        let base = self.base.unwrap_or(size);
        let unit = if self.args.io_blocks { block } else { 1 };
        match self.args.size {
            None => Some(base),
            Some(change) => change.in_units(unit)?.of(base),
        }
    }
}

fn size_of(volume: &Volume, path: &[u8]) -> Result<u64, Reason> {
    Ok(image::find(volume, path, true)?.size())
}

fn one(volume: &Volume, path: &[u8], change: &Change<'_>) -> Result<(), Reason> {
    let create = !change.args.no_create;
    let Some(file) = image::find_or_create(volume, path, create)? else {
        return Ok(());
    };
    let block = u64::from(volume.superblock().block_size());
    let size = change.of(file.size(), block);
    let size = size.ok_or_else(|| Reason::new("no file can be as large"))?;
    Ok(file.truncate(size)?)
}
