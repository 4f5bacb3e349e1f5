//! Random writes into preallocated space: against overwrites, and how many share a journal handle.
//!
//! Input: devices made new for every run; beds for the overwrites. Output: `unwritten-overwrite`, `handles`, `handles-holes`.
//! Invariant: both arms take every block once, in the same order. Limits: whole blocks.

use super::super::args::Options;
use super::super::bed::On;
use super::super::bed::{Fresh, HANDLES, Space};
use super::super::failure::Failure;
use super::super::job::Rw;
use super::super::report::Report;
use super::super::rounds::interleave;
use super::super::targets::{least, most};
use super::Experiment;
use super::{file_arm, fresh_arm, fresh_per_thousand, fresh_rows, fresh_sim};
use diorite::Policy;

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "unwritten",
    about: "Random writes into preallocated space, against overwrites; journal handles used",
    goals: &[
        least(
            "unwritten-overwrite",
            0.85,
            "random 4k writes, depth 64: into preallocated space / overwrites",
        ),
        most(
            "handles",
            100.0,
            "journal handles per 1,000 converted 4k writes, depth 64, sim at 80 us",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each_fresh(report, |on, fresh, report| {
        report.device(fresh.label(), &fresh.ready(Space::Empty)?.io_engine()?)?;
        beside_overwrites(options, on, fresh, report)
    })?;
    on_sim(options, report)
}

fn beside_overwrites(
    options: &Options,
    on: On,
    fresh: &Fresh,
    report: &mut Report,
) -> Result<(), Failure> {
    report.heading("random writes into preallocated space, beside overwrites")?;
    let job = options.job(Rw::Randwrite, 4096, 64).once();
    let bed = options.bed(on)?;
    let open = bed.open(true)?;
    let arms = [
        fresh_arm("unwritten", &job, fresh, Space::Unwritten, Policy::DIORITE),
        file_arm("overwrite", job, &open, Policy::DIORITE),
    ];
    let rounds = interleave(&arms, options.plan())?;
    fresh_rows(report, &rounds, fresh)?;
    let ratio = rounds.ratio(0, 1);
    report.ratio("unwritten-overwrite", &ratio, fresh.label(), fresh.counts)
}

fn on_sim(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let fresh = fresh_sim(options)?;
    report.device(fresh.label(), "sim")?;
    report.heading("handles of the journal per 1,000 writes")?;
    let job = options.job(Rw::Randwrite, 4096, 64).once();
    for (id, space) in [
        ("handles", Space::Unwritten),
        ("handles-holes", Space::Hole),
    ] {
        fresh_per_thousand(id, options, &job, (&fresh, space), HANDLES, report)?;
    }
    Ok(())
}
