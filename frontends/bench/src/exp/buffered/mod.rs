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
use super::super::targets::{least, most};
use super::{Experiment, OwnOptions};

/// The options of its own.
#[derive(clap::Args)]
struct SmallFiles {
    /// Small files created, written and closed
    #[arg(long, default_value_t = 100_000)]
    files: u64,
}

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "buffered",
    about: "The page cache: buffered writes and reads against the kernel and the raw device; direct writes beside cached pages",
    goals: &[
        least(
            "buf-seqwrite",
            1.0,
            "a file written in calls of 1 MiB, then fsync: buffered / the kernel's ext4, buffered",
        ),
        least(
            "buf-seqread",
            0.95,
            "the cold half of a file read behind another half, sim at 2 GB/s: buffered / raw, 1 MiB at depth 4",
        ),
        least(
            "buf-cached",
            2.0,
            "4k random read of cached bytes, 1 thread: diorite / the kernel's pread",
        ),
        least(
            "buf-small",
            1.2,
            "100,000 files of 8 KiB, created, written, closed, synced: diorite / the kernel's ext4",
        ),
        least(
            "buf-sync",
            1.0,
            "appends of 16 KiB, each with fdatasync, 4 threads: diorite / the kernel's ext4",
        ),
        most(
            "buf-extents",
            4.0,
            "extents per file after 16 buffered writers side by side, 64 MiB each: median",
        ),
        least(
            "dio-beside-cache",
            0.99,
            "direct 4k overwrites, depth 64: with cached pages elsewhere in the file / with none",
        ),
    ],
    own: Some(OwnOptions::of::<SmallFiles>()),
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    // Inodes for the small files and their directories, and the reserved ones.
    let fresh_options = Options {
        inodes: Some(options.own::<SmallFiles>()?.files + 1000),
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
