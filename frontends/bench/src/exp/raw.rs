//! Checks the reference: diorite's queue of the raw device against fio's io_uring engine, on the same range with the same
//! batches.
//!
//! Input: a bed. Output: `raw-fio-read`, `raw-fio-write`. Invariant: the raw rows must reach 0.95 of fio; otherwise comparisons
//! with them mean nothing. Limits: fio's row has a rate only.

use super::super::args::Options;
use super::super::bed::Bed;
use super::super::drive::{Run, drive};
use super::super::failure::Failure;
use super::super::fio;
use super::super::job::Rw;
use super::super::raw::RawTarget;
use super::super::report::Report;
use super::super::rounds::{Arm, interleave};
use super::super::targets::least;
use super::Experiment;
use super::{raw_arm, rows};

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "raw",
    about: "diorite's queue of the raw device against fio's io_uring engine",
    goals: &[
        least(
            "raw-fio-read",
            0.95,
            "4k random read, depth 64: raw queue / fio's io_uring",
        ),
        least(
            "raw-fio-write",
            0.95,
            "4k random overwrite, depth 64: raw queue / fio's io_uring",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each(report, |bed, report| {
        let open = bed.open(true)?;
        report.device(bed.label(), &open.io_engine())?;
        drop(open);
        beside_fio("raw-fio-read", Rw::Randread, options, bed, report)?;
        beside_fio("raw-fio-write", Rw::Randwrite, options, bed, report)
    })
}

fn beside_fio(
    id: &str,
    rw: Rw,
    options: &Options,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let Some(path) = bed.host_path() else {
        return report.note(format!("{id}: skipped, fio cannot open {}", bed.label()));
    };
    let open = bed.open(true)?;
    let job = options.job(rw, 4096, 64);
    let (base, len) = (open.region.device_pos, open.region.len);
    let owned = RawTarget {
        owned_by_reaper: true,
        ..open.raw()
    };
    let arms = [
        raw_arm(job.clone(), &open),
        Arm::new("fio io_uring", job.clone(), |job| {
            fio::run(&path, base, len, job).map(|iops| Run::of_rate(iops, job))
        }),
        Arm::new("raw, ring owned by reaper", job, |job| drive(&owned, job)),
    ];
    let rounds = interleave(&arms, options.plan());
    let Some(rounds) = report.unless_skipped(id, rounds)? else {
        return Ok(());
    };
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)
}
