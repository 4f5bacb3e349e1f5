//! Appends to one file: against the kernel, against appends that wait for the size, and how many share a commit.
//!
//! Input: devices made new for every run. Output: `append-kernel`, `append-async`, `commits-dsync`. Invariant: a run begins
//! with an empty file. Limits: one file; the kernel runs appends to one file one after the other, so its load generator gives
//! the offsets itself.

use super::super::args::Options;
use super::super::bed::{COMMITS, Space};
use super::super::failure::Failure;
use super::super::job::{Job, Rw};
use super::super::report::Report;
use super::super::targets::{least, most};
use super::Experiment;
use super::{fresh_beside_kernel, fresh_per_thousand, fresh_policies, fresh_sim};
use diorite::Policy;
use diorite::policy::Extending;

const WAITING: Policy = Policy {
    extending: Extending::Waiting,
    ..Policy::DIORITE
};

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "append",
    about: "Appends to one file: against the kernel; asynchronous and waiting; durable",
    goals: &[
        least(
            "append-kernel",
            4.0,
            "append 4k, depth 64, one file: diorite / the kernel's ext4",
        ),
        least(
            "append-async",
            20.0,
            "4k writes past the end, depth 64, sim at 80 us: async / waiting",
        ),
        most(
            "commits-dsync",
            50.0,
            "commits per 1,000 O_DSYNC 4k appends, depth 64, sim at 80 us",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each_fresh(report, |_, fresh, report| {
        report.device(fresh.label(), &fresh.ready(Space::Empty)?.io_engine()?)?;
        report.heading("appends to one file, beside the kernel")?;
        let job = options.job(Rw::Write, 4096, 64).appending();
        fresh_beside_kernel(
            "append-kernel",
            options,
            &job,
            (fresh, Space::Empty),
            report,
        )
    })?;
    on_sim(options, report)
}

fn on_sim(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let fresh = fresh_sim(options)?;
    let on = (&fresh, Space::Empty);
    report.device(fresh.label(), "sim")?;
    report.heading("writes past the end, one behind the other")?;
    let arms = [("async", Policy::DIORITE), ("waiting", WAITING)];
    let job = options.job(Rw::Write, 4096, 64).once();
    fresh_policies("append-async", options, &job, on, arms, report)?;
    report.heading("durable appends: commits per 1,000")?;
    let job = Job {
        dsync: true,
        ..options.job(Rw::Write, 4096, 64).appending()
    };
    fresh_per_thousand("commits-dsync", options, &job, on, COMMITS, report)
}
