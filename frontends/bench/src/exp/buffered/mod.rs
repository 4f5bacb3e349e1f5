//! The page cache: buffered writes and reads against the kernel's and the raw device, and direct writes of a file with cached pages.
//!
//! | file | measures |
//! |---|---|
//! | `files` | the same calls on files of diorite and of the kernel |
//! | `writes` | `buf-seqwrite`, `buf-small`, `buf-sync`, `buf-extents` |
//! | `reads` | `buf-seqread`, `buf-cached` |
//! | `direct` | `dio-beside-cache`, `dio-over-cache` |
//!
//! Input: devices made new for every run, and beds. Output: the rows and ratios above. Invariants: both sides make the same calls with the
//! same memory from threads of this process; closing the volume and unmounting are not counted, the syncs that the target names are.
//! Limits: diorite's budget for cached pages is that of the process, the kernel's is the host's memory.

mod direct;
mod files;
mod reads;
mod writes;

pub(super) use direct::elsewhere;

use super::super::args::Options;
use super::super::bed::Space;
use super::super::failure::Failure;
use super::super::report::Report;

pub(in super::super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    // Inodes for the small files and their directories, and the reserved ones.
    let fresh_options = Options {
        inodes: Some(options.names.files + 1000),
        ..options.clone()
    };
    fresh_options.on_each_fresh(report, |_, fresh, report| {
        report.device(fresh.label(), &fresh.ready(Space::Empty)?.io_engine()?)?;
        writes::run(&fresh_options, fresh, report)
    })?;
    options.on_each(report, |bed, report| {
        reads::cached(options, bed, report)?;
        direct::run(options, bed, report)
    })?;
    reads::sequential(options, report)
}
