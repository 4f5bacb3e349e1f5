//! T1 and T2: overwrites with inline and with deferred completion, and overwrites of a file against the raw device.
//!
//! Input: a bed. Output: `inline-deferred`, `write-raw-1`, `write-raw-4`, `sync-qd1`, `write-kernel`, `cpu-raw`, `cpu-kernel`, and rows
//! over sizes, depths and CPUs, and with a cached reader. Invariant: the deferred arm is the same code under another policy. Limits:
//! overwrites only.

use super::super::args::Options;
use super::super::bed::{Bed, OpenBed};
use super::super::failure::Failure;
use super::super::job::{Job, Rw};
use super::super::report::{Published, Report};
use super::super::rounds::{Arm, Plan, interleave};
use super::super::targets::{least, most};
use super::Experiment;
use super::buffered::elsewhere;
use super::{beside_kernel, deferred, file_arm, file_beside_raw, rows};
use diorite::Policy;

const PUBLISHED: [Published; 4] = [
    figure(
        "4k AIO direct writes, depth 64, 1 thread, completed inline",
        1004.0,
        1193.0,
        "MiB/s",
    ),
    figure("the same, 8k", 2074.0, 2258.0, "MiB/s"),
    figure(
        "4k random overwrite, depth 128, one CPU, pure overwrites inline",
        234_000.0,
        288_000.0,
        "IOPS",
    ),
    figure("12k and 16k: level", 1.0, 1.0, "of before"),
];

const fn figure(what: &'static str, before: f64, after: f64, unit: &'static str) -> Published {
    Published {
        what,
        before,
        after,
        unit,
    }
}

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "completion",
    about: "T1, T2: inline completions against completions by a worker; overwrites against the raw device",
    goals: &[
        least(
            "write-raw-1",
            0.99,
            "4k random overwrite, depth 64, 1 thread: file in image / raw",
        ),
        least(
            "write-raw-4",
            0.97,
            "4k random overwrite, depth 64, 4 threads on one file: file in image / raw",
        ),
        least(
            "write-kernel",
            1.2,
            "4k random overwrite, depth 64, 1 thread: diorite / the kernel's ext4",
        ),
        least(
            "inline-deferred",
            1.23,
            "4k random overwrite, depth 128, one CPU: completion inline / deferred",
        ),
        least(
            "sync-qd1",
            0.97,
            "blocking 4k overwrites, one at a time: file in image / raw",
        ),
        most(
            "cpu-raw",
            1.03,
            "user and system time per request: file in image / raw, of the rows of the ratio in parentheses",
        ),
        most("cpu-kernel", 0.9, "the same: diorite / the kernel's ext4"),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each(report, |bed, report| on(options, bed, report))
}

fn on(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let open = bed.open(true)?;
    report.device(bed.label(), &open.io_engine())?;
    report.published(&PUBLISHED)?;
    let job = |bs, depth| options.job(Rw::Randwrite, bs, depth);

    report.heading("T2: everything on one CPU")?;
    pair(
        job(4096, 128).on_one_cpu(),
        options.plan(),
        &open,
        bed,
        report,
    )?;

    report.heading("overwrites beside the raw device")?;
    file_beside_raw("write-raw-1", options, &job(4096, 64), &open, bed, report)?;
    file_beside_raw(
        "write-raw-4",
        options,
        &job(4096, 64).jobs(4),
        &open,
        bed,
        report,
    )?;
    file_beside_raw(
        "sync-qd1",
        options,
        &job(4096, 1).blocking(),
        &open,
        bed,
        report,
    )?;

    report.heading("T1: sizes and depths, inline and deferred")?;
    sizes_and_depths(options, &open, bed, report)?;
    drop(open);
    report.heading("a thread reads cached bytes elsewhere in the file, by policy")?;
    beside_reader(options, bed, report)?;
    report.heading("overwrites beside the kernel")?;
    beside_kernel("write-kernel", options, &job(4096, 64), bed, report)
}

/// Cached pages of the range (`diorite`) or of the inode (`linux-6.19`) demote a completion, or all are deferred (`linux-5.10`).
fn beside_reader(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let policies = ["diorite", "linux-6.19", "linux-5.10"];
    let job = options.job(Rw::Randwrite, 4096, 64);
    let arms = policies.map(|preset| {
        let name = format!("{preset}, a cached reader");
        let policy: Policy = preset.parse().expect("a preset's name");
        Arm::new(name, job.clone(), move |job| {
            let open = bed.open(true)?;
            open.in_file().volume.set_policy(policy);
            elsewhere(&open, job)
        })
    });
    let rounds = interleave(&arms, options.short_plan())?;
    rows(report, &rounds, bed)?;
    for (n, of) in [(1, "inode"), (2, "deferred")] {
        let id = format!("cached-reader-{of}");
        report.ratio(&id, &rounds.ratio(0, n), bed.label(), bed.counts)?;
    }
    Ok(())
}

fn sizes_and_depths(
    options: &Options,
    open: &OpenBed,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let plan = options.short_plan();
    for bs in [4096, 8192, 12_288, 16_384] {
        for depth in [64, 128] {
            let job = options.job(Rw::Randwrite, bs, depth);
            pair(job.clone(), plan, open, bed, report)?;
            // The pair with these values has been measured before, for its target.
            if (bs, depth) != (4096, 128) {
                pair(job.on_one_cpu(), plan, open, bed, report)?;
            }
        }
    }
    Ok(())
}

/// Measures inline and deferred completion. A ratio with a target has its id; another one has the description of the load.
fn pair(
    job: Job,
    plan: Plan,
    open: &OpenBed,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let id = if (job.bs, job.iodepth, job.one_cpu) == (4096, 128, true) {
        "inline-deferred".to_owned()
    } else {
        let cpus = if job.one_cpu { "one-cpu" } else { "free" };
        format!("inline-deferred-{}k-{}-{cpus}", job.bs / 1024, job.iodepth)
    };
    let arms = [
        file_arm("completion inline", job.clone(), open, Policy::DIORITE),
        file_arm("completion deferred", job, open, deferred()),
    ];
    let rounds = interleave(&arms, plan)?;
    rows(report, &rounds, bed)?;
    report.ratio(&id, &rounds.ratio(0, 1), bed.label(), bed.counts)
}
