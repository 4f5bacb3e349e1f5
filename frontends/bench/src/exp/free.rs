//! A load of the user's own: any locator raw, or a file in an image under each policy in turn.
//!
//! Input: options with fio's names. Output: a row per policy. Invariant: nothing is written unless the load writes and the user
//! allowed that for its target. Limits: one run per row; no ratios.

use super::super::args::RunOptions;
use super::super::bed::{Bed, BedOptions};
use super::super::drive::{Run, drive};
use super::super::failure::Failure;
use super::super::job::Job;
use super::super::raw::RawTarget;
use super::super::report::{Print, Report};
use super::super::rounds::Measured;
use diorite_block::{Locator, OpenOptions, locator};

pub(in super::super) fn run(options: &RunOptions, out: Print) -> Result<(), Failure> {
    let mut report = Report::new("run", options.json, Vec::new(), out);
    let job = job(options);
    match (&options.device, &options.image, &options.file) {
        (Some(device), _, _) => raw(device, &job, options, &mut report)?,
        (None, Some(image), Some(file)) => in_image(image, file, &job, options, &mut report)?,
        _ => return Err(Failure::usage("name --device, or --image and --file")),
    }
    report.finish()
}

fn job(options: &RunOptions) -> Job {
    let job = Job::new(options.rw, options.bs, options.iodepth);
    let job = Job {
        numjobs: options.numjobs,
        runtime: options.runtime,
        ramp_time: options.ramp_time,
        size: options.size,
        seed: options.seed,
        verify: options.verify,
        batch_submit: options
            .iodepth_batch_submit
            .unwrap_or(job.batch_submit)
            .max(1),
        batch_complete: options
            .iodepth_batch_complete_min
            .unwrap_or(job.batch_complete)
            .max(1),
        dsync: options.dsync,
        atomic: options.atomic,
        one_cpu: options.one_cpu,
        polled: options.polled,
        ..job
    };
    if options.blocking {
        job.blocking()
    } else {
        job
    }
}

fn raw(device: &str, job: &Job, options: &RunOptions, report: &mut Report) -> Result<(), Failure> {
    let write = job.rw.writes();
    let locator = Locator::parse(device)?;
    let in_memory = matches!(locator, Locator::Mem { .. } | Locator::Sim { .. });
    if write && !options.overwrite && !in_memory {
        return Err(Failure::usage(format!(
            "this load overwrites {device}: say --overwrite if it may"
        )));
    }
    let open = OpenOptions::default()
        .read_only(!write)
        .io_engine(options.common.io_engine)
        .force(options.common.force);
    let device_below = locator::open(&locator, &open)?;
    job.check(device_below.geometry().size)?;
    report.device(device, &device_below.report().engine)?;
    let run = drive(&RawTarget::whole(device_below), job)?;
    row("raw device", job, run, device, report)
}

fn in_image(
    image: &str,
    file: &str,
    job: &Job,
    options: &RunOptions,
    report: &mut Report,
) -> Result<(), Failure> {
    let bed_options = BedOptions {
        io_engine: options.common.io_engine,
        force: options.common.force,
        file_size: 0,
        inodes: None,
    };
    let bed = Bed::given(image, file, &bed_options);
    let open = bed.open(job.rw.writes())?;
    job.check(open.region.len)?;
    report.device(bed.label(), &open.io_engine())?;
    let target = open.in_file();
    let one = [options.common.policy];
    let policies = if options.policies.is_empty() {
        &one[..]
    } else {
        &options.policies
    };
    for policy in policies {
        open.volume.set_policy(*policy);
        let run = drive(&target, job)?;
        row(&policy.to_string(), job, run, bed.label(), report)?;
    }
    Ok(())
}

fn row(name: &str, job: &Job, run: Run, device: &str, report: &mut Report) -> Result<(), Failure> {
    let measured = Measured {
        name: name.into(),
        job: job.clone(),
        runs: vec![run],
    };
    report.row(&measured, device)
}
