//! The loop device: its two modes under the published loads, its memory, discards, the cost of layers, and the kernel's beside it.
//!
//! | file | measures |
//! |---|---|
//! | `nest` | - (volumes inside files of volumes, whose bytes say where they belong) |
//! | `set` | - (an inner volume in an outer one on a simulated disk, opened anew for every run) |
//! | `buffered` | `loop-randwrite-16`, `-1`, the same for `write`, `read`, `randread`; `loop-switches`; `loop-disk-...` on a hard disk |
//! | `direct` | `loop-direct-16` |
//! | `discard` | `loop-discard` |
//! | `layers` | `loop-layer`, `loop-layer3` |
//! | `memory` | `loop-memory` |
//! | `kernel` | `loop-kernel` |
//!
//! Input: devices made here. Output: the rows and ratios above. Invariants: both modes run on the same images, with the same calls and the
//! same budget of memory; every read of the buffered loads is checked. Limits: reads and overwrites of written blocks.

mod buffered;
mod direct;
mod discard;
mod kernel;
pub(in super::super) mod layers;
pub(super) mod memory;
mod nest;
mod set;

use super::super::args::Options;
use super::super::failure::Failure;
use super::super::job::parse_bytes;
use super::super::report::{Published, Report};
use super::super::rounds::Plan;
use super::super::targets::{least, most};
use super::{Experiment, OwnOptions};
use diorite::Policy;
use diorite::policy::LoopMode;
use set::Set;
use std::path::PathBuf;

/// The simulated disk of the targets, and a hard disk.
const SIM: &str = "latency=100us,parallel=32,seed=1";
const HARD_DISK: &str = "latency=8ms,parallel=1,seed=1";
/// The working set on the hard disk is so much smaller.
const HARD_DISK_SHARE: u64 = 128;
/// The working set that the targets are for.
pub(in super::super) const WORKING_SET: u64 = 64 << 20;
/// Both modes, by the names of their rows. The first is the reference.
const MODES: [(&str, LoopMode); 2] = [
    ("direct-async", LoopMode::DirectAsync),
    ("buffered-sync", LoopMode::BufferedSync),
];
/// What T5 brought, inside an image on a hard disk.
const PUBLISHED: [Published; 2] = [
    Published {
        what: "randwrite, 16 jobs, buffered inside an image on loop",
        before: 3763.0,
        after: 4577.0,
        unit: "IOPS",
    },
    Published {
        what: "the same, 1 job",
        before: 4192.0,
        after: 5404.0,
        unit: "IOPS",
    },
];

fn policy(mode: LoopMode) -> Policy {
    Policy {
        loop_mode: mode,
        ..Policy::DIORITE
    }
}

/// The volumes of the experiment `loop`.
#[derive(Clone, clap::Args)]
struct Loops {
    /// Bytes that the buffered loads read or write; the pages of both volumes have an eighth of that, and a hard disk's load 1/128. The
    /// targets apply to the default
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_bytes)]
    set: u64,
    /// Keep the images: write them as outer.img and inner.img to this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "loop",
    about: "T5: the loop device, direct and asynchronous against one worker with buffered I/O; its memory, its layers, the kernel's",
    goals: &[
        least(
            "loop-randwrite-16",
            1.22,
            "4k random writes, buffered inside an image on loop, 16 jobs, sim at 100 us: direct-async / buffered-sync",
        ),
        least("loop-randwrite-1", 1.29, "the same, 1 job"),
        least("loop-write-16", 0.95, "sequential writes, 16 jobs"),
        least("loop-write-1", 0.95, "the same, 1 job"),
        least("loop-read-16", 0.95, "sequential reads, 16 jobs"),
        least("loop-read-1", 0.95, "the same, 1 job"),
        least("loop-randread-16", 0.95, "4k random reads, 16 jobs"),
        least("loop-randread-1", 0.95, "the same, 1 job"),
        most(
            "loop-switches",
            0.5,
            "context switches per request of loop-randread-16: direct-async / buffered-sync",
        ),
        least(
            "loop-direct-16",
            4.0,
            "16 direct random readers in the inner volume: direct-async / buffered-sync",
        ),
        most(
            "loop-memory",
            32.0,
            "all of an image read and written through loop: page cache and resident memory grown by, MiB",
        ),
        least(
            "loop-kernel",
            1.0,
            "4k random read of a file of the host, depth 64: in process / the kernel's loop, direct I/O",
        ),
        least(
            "loop-kernel-write",
            1.0,
            "4k random overwrite of it, depth 64: in process / the kernel's loop, direct I/O",
        ),
    ],
    own: Some(OwnOptions::of::<Loops>()),
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_some() {
        return Err(Failure::usage(
            "this experiment makes images of its own: --image is not for it",
        ));
    }
    // Most runs take as long as the set does, so noise is not measured away for many rounds.
    let options = &Options {
        max_rounds: options.max_rounds.min(options.rounds + 1),
        ..options.clone()
    };
    on_sim(options, report)?;
    on_hard_disk(options, report)?;
    options.on_each(report, |bed, report| {
        layers::on(options, bed, report)?;
        memory::run(bed, report)
    })?;
    kernel::run(options, report)
}

fn on_sim(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let Loops { set: bytes, keep } = options.own()?;
    let set = Set::make(SIM, bytes, bytes == WORKING_SET)?;
    report.device(set.label(), "sim")?;
    report.published(&PUBLISHED)?;
    buffered::run(options, &set, ("loop", options.plan()), report)?;
    direct::run(options, &set, report)?;
    discard::run(options, &set, report)?;
    match keep {
        Some(dir) => set.keep(&dir),
        None => Ok(()),
    }
}

/// One round, without targets: each run takes seconds.
fn on_hard_disk(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let bytes = options.own::<Loops>()?.set / HARD_DISK_SHARE;
    if bytes < set::LEAST {
        let least = (set::LEAST * HARD_DISK_SHARE) >> 20;
        return report.note(format!("loop-disk: skipped, it takes a --set of {least}M"));
    }
    let set = Set::make(HARD_DISK, bytes, false)?;
    report.device(set.label(), "sim")?;
    let once = Plan { least: 1, most: 1 };
    buffered::run(options, &set, ("loop-disk", once), report)
}
