//! Durable writes: with an fsync after each, or as one request, against the kernel; and O_DSYNC writes against ordinary ones.
//!
//! Input: beds for overwrites, devices made new for appends, a simulated disk with a volatile cache and FUA. Output:
//! `fsync-kernel`, `fsync-linked`, `fsync-raw-kernel` (no target: the bound of the first), `fsync-append-kernel`, `dsync-fua`.
//! Invariant: a write counts when its fsync has returned. Limits: all
//! threads on one file.

use super::super::args::Options;
use super::super::bed::{Bed, BedOptions, Space};
use super::super::drive::drive;
use super::super::failure::Failure;
use super::super::host_file::HostFile;
use super::super::job::{Job, Rw};
use super::super::peer::{Kernel, Peer};
use super::super::report::Report;
use super::super::rounds::{Arm, interleave};
use super::super::targets::least;
use super::Experiment;
use super::{SIM_80, file_arm, fresh_beside_kernel, rows};
use diorite::Policy;

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "fsync",
    about: "Writes with an fsync after each, and durable writes (O_DSYNC)",
    goals: &[
        least(
            "fsync-kernel",
            1.0,
            "fsync after each 4k overwrite, 4 threads: diorite / the kernel's ext4",
        ),
        least(
            "fsync-linked",
            1.3,
            "4k overwrites, 4 threads: one request with `sync` of diorite / pwrite and fsync of the kernel's ext4",
        ),
        least(
            "fsync-append-kernel",
            1.0,
            "fsync after each 4k append, 4 threads: diorite / the kernel's ext4",
        ),
        least(
            "dsync-fua",
            0.9,
            "4k overwrites, depth 32, FUA or no volatile cache: O_DSYNC / plain",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each_fresh(report, |on, fresh, report| {
        let bed = options.bed(on)?;
        report.device(bed.label(), &bed.open(false)?.io_engine())?;
        report.heading("4 threads, an fsync after each overwrite")?;
        overwrites(options, &bed, report)?;
        report.heading("4 threads, an fsync after each append")?;
        let job = synced(options.job(Rw::Write, 4096, 1).appending());
        let on = (fresh, Space::Empty);
        fresh_beside_kernel("fsync-append-kernel", options, &job, on, report)
    })?;
    report.heading("O_DSYNC overwrites where the device has FUA, beside plain ones")?;
    let sim = BedOptions {
        file_size: options.file_size.min(256 << 20),
        ..options.bed_options()
    };
    durable(
        options,
        Bed::sim(&format!("{SIM_80},cache=volatile"), &sim),
        report,
    )?;
    report.heading("the same where the device has no volatile cache")?;
    let zram = options
        .may_use_zram()
        .and_then(|()| Bed::zram(&options.bed_options()));
    durable(options, zram, report)
}

fn synced(job: Job) -> Job {
    Job {
        fsync: true,
        ..job.jobs(4).blocking()
    }
}

fn overwrites(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let job = synced(options.job(Rw::Randwrite, 4096, 1));
    let region = bed.open(true)?.region;
    let in_file = |job: &Job| drive(&bed.open(true)?.in_file(), job);
    let calls = Arm::new("file in image", job.clone(), in_file);
    let one = Job {
        fsync: false,
        sync: true,
        ..job.clone()
    };
    let linked = Arm::new("in one request", one, in_file);
    if !options.asks_for_kernel("fsync-kernel", report)? {
        rows(
            report,
            &interleave(&[calls, linked], options.short_plan())?,
            bed,
        )?;
        return Ok(());
    }
    let kernel = Kernel::on(bed).arm(&job, |mounted, job| {
        drive(
            &HostFile::new(mounted.file(bed.file()), region.len).from(region.file_pos),
            job,
        )
    });
    let mut arms = vec![calls, linked, kernel];
    // The same calls on the device itself: what they cost without a file system is the most that either can reach.
    arms.extend(bed.host_path().map(|path| {
        Arm::new("raw device", job.clone(), move |job: &Job| {
            drive(
                &HostFile::new(path.clone(), region.len).from(region.device_pos),
                job,
            )
        })
    }));
    let rounds = interleave(&arms, options.plan());
    let Some(rounds) = report.unless_skipped("fsync-kernel", rounds)? else {
        return Ok(());
    };
    rows(report, &rounds, bed)?;
    report.ratio("fsync-kernel", &rounds.ratio(0, 2), bed.label(), bed.counts)?;
    report.ratio("fsync-linked", &rounds.ratio(1, 2), bed.label(), bed.counts)?;
    match arms.len() {
        4 => report.ratio(
            "fsync-raw-kernel",
            &rounds.ratio(3, 2),
            bed.label(),
            bed.counts,
        ),
        _ => Ok(()),
    }
}

/// Writes with and without O_DSYNC. The target is defined for these devices, not for the default one.
fn durable(
    options: &Options,
    bed: Result<Bed, Failure>,
    report: &mut Report,
) -> Result<(), Failure> {
    let Some(bed) = report.unless_skipped("dsync-fua", bed)? else {
        return Ok(());
    };
    let open = bed.open(true)?;
    report.device(bed.label(), &open.io_engine())?;
    let plain = options.job(Rw::Randwrite, 4096, 32);
    let dsync = Job {
        dsync: true,
        ..plain.clone()
    };
    let arms = [
        file_arm("O_DSYNC", dsync, &open, Policy::DIORITE),
        file_arm("plain", plain, &open, Policy::DIORITE),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, &bed)?;
    report.ratio("dsync-fua", &rounds.ratio(0, 1), bed.label(), true)
}
