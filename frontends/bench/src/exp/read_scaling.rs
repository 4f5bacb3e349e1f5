//! T3, reading: threads that read one file with no inode lock, a shared one and an exclusive one, against the raw device.
//!
//! Input: a bed. Output: `read-raw-1`, `read-raw-4`, `contended`, `read-kernel`, `cpu-raw`, `cpu-kernel`, and the rows. Invariant: all
//! arms of a number of threads are in the same rounds. Limits: one file.

use super::super::args::Options;
use super::super::bed::{Bed, OpenBed};
use super::super::failure::Failure;
use super::super::job::Rw;
use super::super::report::{Published, Report};
use super::super::rounds::{Measured, Spread, interleave};
use super::super::targets::{least, most};
use super::Experiment;
use super::{beside_kernel, cpu_beside, file_arm, raw_arm, rows};
use diorite::Policy;
use diorite::policy::ReadLock;

const PUBLISHED: [Published; 1] = [Published {
    what: "multi-threaded 4k random reads of one file, share of the raw device",
    before: 0.5,
    after: 0.99,
    unit: "of raw",
}];

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "read-scaling",
    about: "T3: 1, 2 and 4 threads that read one file with no inode lock, a shared one and an exclusive one",
    goals: &[
        least(
            "read-raw-1",
            0.99,
            "4k random read, depth 64, 1 thread: file in image / raw",
        ),
        least(
            "read-raw-4",
            0.97,
            "4k random read, depth 64, 4 threads on one file: file in image / raw",
        ),
        least(
            "read-kernel",
            1.2,
            "4k random read, depth 64, 1 thread: diorite / the kernel's ext4",
        ),
        most(
            "contended",
            0.0,
            "contended lock acquisitions, 4 threads reading one file",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each(report, |bed, report| {
        let open = bed.open(false)?;
        report.device(bed.label(), &open.io_engine())?;
        report.published(&PUBLISHED)?;
        for threads in [1, 2, 4] {
            report.heading(&format!("{threads} threads"))?;
            scale(threads, options, &open, bed, report)?;
        }
        drop(open);
        report.heading("reads beside the kernel")?;
        let job = options.job(Rw::Randread, 4096, 64);
        beside_kernel("read-kernel", options, &job, bed, report)
    })
}

fn scale(
    threads: u32,
    options: &Options,
    open: &OpenBed,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let job = options.job(Rw::Randread, 4096, 64).jobs(threads);
    let locked = |read_lock| Policy {
        read_lock,
        ..Policy::DIORITE
    };
    let arms = [
        file_arm("no inode lock", job.clone(), open, Policy::DIORITE),
        raw_arm(job.clone(), open),
        file_arm(
            "shared inode lock",
            job.clone(),
            open,
            locked(ReadLock::Shared),
        ),
        file_arm(
            "exclusive inode lock",
            job,
            open,
            locked(ReadLock::Exclusive),
        ),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    let mut ratio = |id: &str, spread: Spread| report.ratio(id, &spread, bed.label(), bed.counts);
    let beside_raw = format!("read-raw-{threads}");
    ratio(&beside_raw, rounds.ratio(0, 1))?;
    ratio(&format!("none-shared-{threads}"), rounds.ratio(0, 2))?;
    ratio(&format!("none-exclusive-{threads}"), rounds.ratio(0, 3))?;
    if threads == 4 {
        ratio("contended", contended(&rounds.arms[0]))?;
    }
    cpu_beside("cpu-raw", &beside_raw, (&rounds, 1), bed, report)
}

/// Contended acquisitions of every lock class, per run.
fn contended(arm: &Measured) -> Spread {
    let per_run = arm
        .runs
        .iter()
        .map(|run| run.locks.iter().map(|(_, s)| s.contended as f64).sum());
    Spread::of(&per_run.collect::<Vec<f64>>())
}
