//! T4: sub-block overwrites, concurrent and one at a time, on a disk with latency, and on the bed against the raw device and the kernel.
//!
//! Input: a simulated disk, and a bed. Output: `unaligned-sim`, `unaligned-raw`, `unaligned-raw-seq`, `unaligned-kernel`, `cpu-raw`,
//! `cpu-kernel`, and the rows. Invariant: 8 jobs of 256 requests of half a block. Limits: devices with sectors larger than 2 KiB are
//! skipped.

use super::super::args::Options;
use super::super::bed::{Bed, BedOptions, OpenBed};
use super::super::failure::Failure;
use super::super::job::{Job, Rw};
use super::super::report::{Published, Report};
use super::super::rounds::interleave;
use super::super::targets::least;
use super::Experiment;
use super::{beside_kernel, cpu_beside, file_arm, raw_arm, rows};
use diorite::Policy;
use diorite::policy::Unaligned;
use std::time::Duration;

const PUBLISHED: [Published; 1] = [Published {
    what: "2k writes on 4k blocks, 8 jobs, depth 256",
    before: 4_328.0,
    after: 801_000.0,
    unit: "IOPS",
}];

/// A simulation of the disk of the published figures: with one request at a time it reaches 4.3k IOPS.
const SIM: &str = "latency=230us,parallel=4096,seed=1";

const EXCLUSIVE: Policy = Policy {
    unaligned: Unaligned::Exclusive,
    ..Policy::DIORITE
};

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "unaligned",
    about: "T4: overwrites of 2 KiB in blocks of 4 KiB, concurrent and one at a time",
    goals: &[
        least(
            "unaligned-sim",
            185.0,
            "2k on 4k blocks, 8 jobs x 256, sim at 230 us: concurrent / exclusive",
        ),
        least(
            "unaligned-raw",
            0.97,
            "2k random overwrite, 8 jobs x 256: file in image / raw",
        ),
        least(
            "unaligned-raw-seq",
            0.97,
            "2k sequential overwrite, 8 jobs x 256 on the same file: file in image / raw",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_none() {
        on_sim(options, report)?;
    }
    options.on_each(report, |bed, report| on(options, bed, report))
}

fn job(options: &Options, rw: Rw) -> Job {
    options.job(rw, 2048, 256).jobs(8)
}

fn on_sim(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let small = BedOptions {
        file_size: 64 << 20,
        ..options.bed_options()
    };
    let bed = Bed::sim(SIM, &small)?;
    let open = bed.open(true)?;
    report.device(bed.label(), &open.io_engine())?;
    report.published(&PUBLISHED)?;
    // One at a time, all requests of the depth take half a second: a shorter run would measure only a part of them.
    let job = Job {
        runtime: options.runtime.max(Duration::from_secs(1)),
        ..job(options, Rw::Randwrite)
    };
    let arms = [
        file_arm("concurrent", job.clone(), &open, Policy::DIORITE),
        file_arm("exclusive", job, &open, EXCLUSIVE),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, &bed)?;
    if let Some(sim) = bed.sim_device() {
        let l = sim.latency();
        report.note(format!(
            "latency that sim achieved, all runs: mean {:?}, p50 {:?}, p99 {:?}",
            l.mean, l.p50, l.p99
        ))?;
    }
    // The target is defined for this device, not for the default one.
    report.ratio("unaligned-sim", &rounds.ratio(0, 1), bed.label(), true)
}

fn on(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let open = bed.open(true)?;
    report.device(bed.label(), &open.io_engine())?;
    if open.device.geometry().logical > 2048 {
        return report.note(format!(
            "{}: skipped, its sectors are larger than 2 KiB",
            bed.label()
        ));
    }
    report.heading("random")?;
    beside_raw(
        "unaligned-raw",
        job(options, Rw::Randwrite),
        options,
        &open,
        bed,
        report,
    )?;
    report.heading("sequential, all jobs on the same file")?;
    beside_raw(
        "unaligned-raw-seq",
        job(options, Rw::Write),
        options,
        &open,
        bed,
        report,
    )?;
    drop(open);
    report.heading("random, beside the kernel")?;
    let job = job(options, Rw::Randwrite);
    beside_kernel("unaligned-kernel", options, &job, bed, report)
}

fn beside_raw(
    id: &str,
    job: Job,
    options: &Options,
    open: &OpenBed,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let arms = [
        file_arm("concurrent", job.clone(), open, Policy::DIORITE),
        raw_arm(job.clone(), open),
        file_arm("exclusive", job, open, EXCLUSIVE),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)?;
    report.ratio(
        &format!("{id}-exclusive"),
        &rounds.ratio(0, 2),
        bed.label(),
        bed.counts,
    )?;
    cpu_beside("cpu-raw", id, (&rounds, 1), bed, report)
}
