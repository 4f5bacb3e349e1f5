//! Commands that read little: what processors do for one from its start to its end, for `diorite info` and for `dumpe2fs -h`.
//!
//! Input: an image. Output: `start`, the ratio of user and system time. Invariants: both are started in the same way, by a path, with the
//! same environment, and in turn; their output is read. Limits: the time that the parent spends on starting them is not theirs.

use super::super::super::args::Options;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::host::{CpuTime, Usage};
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, Plan, interleave};
use super::super::super::{signals, tool};
use super::{DEVICE, job};
use std::path::Path;
use std::time::Instant;

/// Starts of a program in a row, and how many such batches of each program there are in a round that was asked for.
const BATCH: u32 = 20;
const BATCHES: usize = 10;

/// `exe` is this program.
pub(super) fn run(
    (exe, image): (&Path, &Path),
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let heading = "start, read the superblock, end";
    report.heading(heading)?;
    let found = tool::find("dumpe2fs");
    let Some(dumpe2fs) = report.unless_skipped("start", found)? else {
        return Ok(());
    };
    let arm = |name, program: &'_ Path, word| {
        let words = [program.as_os_str(), word, image.as_os_str()].map(ToOwned::to_owned);
        Arm::new(name, job(heading), move |_| {
            measured(|| tool::run(&words[0], &words[1..]).map(drop))
        })
    };
    let arms = [
        arm("diorite info", exe, "info".as_ref()),
        arm("dumpe2fs -h", &dumpe2fs, "-h".as_ref()),
    ];
    let rounds = options.plan().least * BATCHES;
    let plan = Plan {
        least: rounds,
        most: rounds,
    };
    let rounds = interleave(&arms, plan)?;
    report.rows(&rounds, DEVICE)?;
    report.ratio("start", &rounds.ratio_of(0, 1, Run::cpu_us), DEVICE, true)
}

/// A batch of starts, each of which counts as a request.
fn measured(start: impl Fn() -> Result<(), Failure>) -> Result<Run, Failure> {
    let (before, since) = (CpuTime::of_children(), Instant::now());
    for _ in 0..BATCH {
        signals::check()?;
        start()?;
    }
    let wall = since.elapsed();
    let usage = Usage {
        cpu: CpuTime::of_children().since(before),
        ..Usage::default()
    };
    Ok(Run {
        wall,
        usage,
        ..Run::of_calls(f64::from(BATCH) / wall.as_secs_f64())
    })
}
