//! Waits that look for completions before they sleep, on a device whose completions are interrupts.
//!
//! Input: a simulated disk whose waiters sleep until a thread wakes them. Output: `polled-irq`, and the rows. Invariant: both arms run on
//! the same disk. Limits: the disk needs a processor for its thread while waits sleep, so with one processor both arms share it.

use super::super::args::Options;
use super::super::bed::{Bed, BedOptions};
use super::super::failure::Failure;
use super::super::job::{Job, Rw};
use super::super::report::Report;
use super::super::rounds::interleave;
use super::super::targets::most;
use super::Experiment;
use super::{file_arm, raw_arm, rows};
use diorite::Policy;
use std::time::Duration;

/// A fast SSD.
const SIM: &str = "latency=10us,interrupts=yes,seed=1";
/// How long a wait looks at most.
const LONGEST: Duration = Duration::from_micros(100);

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "polled",
    about: "Waits that look for completions before they sleep, on a device of 10 us",
    goals: &[most(
        "polled-irq",
        0.8,
        "4k random read, depth 1, sim at 10 us: latency of waits that look / of waits that sleep",
    )],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let small = BedOptions {
        file_size: 64 << 20,
        ..options.bed_options()
    };
    let bed = Bed::sim(SIM, &small)?;
    let open = bed.open(false)?;
    report.device(bed.label(), &open.io_engine())?;
    for depth in [1, 4] {
        let sleeps = options.job(Rw::Randread, 4096, depth);
        let looks = Job {
            polled: Some(LONGEST),
            ..sleeps.clone()
        };
        let arms = [
            file_arm("sleeps", sleeps.clone(), &open, Policy::DIORITE),
            file_arm("looks first", looks, &open, Policy::DIORITE),
            raw_arm(sleeps, &open),
        ];
        let rounds = interleave(&arms, options.plan())?;
        rows(report, &rounds, &bed)?;
        // Depth and time are the same, so the mean latencies are as the inverse of the rates.
        let id = match depth {
            1 => "polled-irq".to_owned(),
            depth => format!("polled-irq-{depth}"),
        };
        report.ratio(&id, &rounds.ratio(0, 1), bed.label(), true)?;
    }
    Ok(())
}
