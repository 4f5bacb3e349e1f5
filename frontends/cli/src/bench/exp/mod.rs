//! The experiments: one file each.
//!
//! Input: options and a report. Output: rows and ratios in the report. Invariant: an experiment that a machine cannot do
//! in part says what it skipped. Limits: arms run one at a time.

pub(super) mod completion;
pub(super) mod cost;
pub(super) mod cost_child;
pub(super) mod free;
pub(super) mod loop_layer;
pub(super) mod raw;
pub(super) mod read_scaling;
pub(super) mod unaligned;

use super::args::{Options, Peer};
use super::bed::{Bed, OpenBed};
use super::drive::{Run, drive};
use super::failure::{Failure, FailureKind};
use super::image::Region;
use super::job::Job;
use super::peer;
use super::report::Report;
use super::rounds::{Arm, Measured, Rounds, interleave};
use diorite::Policy;
use diorite::policy::CompletionPolicy;

/// The bed's file under a policy.
fn file_arm<'a>(name: impl Into<String>, job: Job, open: &'a OpenBed, policy: Policy) -> Arm<'a> {
    let target = open.in_file();
    Arm::new(name, job, move |job| {
        target.volume.set_policy(policy);
        drive(&target, job)
    })
}

/// The same blocks without a volume.
fn raw_arm<'a>(job: Job, open: &OpenBed) -> Arm<'a> {
    let target = open.raw();
    Arm::new("raw device", job, move |job| drive(&target, job))
}

fn deferred() -> Policy {
    Policy {
        completion: CompletionPolicy::Deferred,
        ..Policy::DIORITE
    }
}

/// A row for every arm.
fn rows(report: &mut Report, rounds: &Rounds, bed: &Bed) -> Result<(), Failure> {
    rounds
        .arms
        .iter()
        .try_for_each(|arm| report.row(arm, bed.label()))
}

/// The file, and the same blocks raw: two rows and a ratio.
fn file_beside_raw(
    id: &str,
    options: &Options,
    job: &Job,
    open: &OpenBed,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let arms = [
        file_arm("file in image", job.clone(), open, Policy::DIORITE),
        raw_arm(job.clone(), open),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)
}

/// The file, and the kernel's ext4 on the same device: each opens the device for its own run.
fn beside_kernel(
    id: &str,
    options: &Options,
    job: &Job,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    if options.peer != Some(Peer::Kernel) {
        return report.note(format!(
            "{id}: skipped, ask for it with --peer kernel (root)"
        ));
    }
    let write = job.rw.writes();
    let region = bed.open(write)?.region;
    let ours = Arm::new("file in image", job.clone(), |job| {
        let open = bed.open(write)?;
        drive(&open.in_file(), job)
    });
    let kernel = Arm::new("kernel's ext4", job.clone(), |job| {
        peer::run(bed, region, options.io_engine, job)
    });
    match interleave(&[ours, kernel], options.plan()) {
        Ok(rounds) => {
            rows(report, &rounds, bed)?;
            cross_check(region, job, bed, report)?;
            report.ratio(id, &rounds.ratio(0, 1), bed.label(), bed.counts)
        }
        Err(e) if e.kind == FailureKind::Unavailable => report.note(format!("{id}: skipped: {e}")),
        Err(e) => Err(e),
    }
}

/// The kernel's row once more, by fio.
fn cross_check(region: Region, job: &Job, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    match peer::by_fio(bed, region, job) {
        Ok(iops) => {
            let measured = Measured {
                name: "kernel's ext4, by fio".into(),
                job: job.clone(),
                runs: vec![Run::of_rate(iops, job)],
            };
            report.row(&measured, bed.label())
        }
        Err(e) if e.kind == FailureKind::Unavailable => report.note(format!("fio: skipped: {e}")),
        Err(e) => Err(e),
    }
}
