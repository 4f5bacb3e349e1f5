//! Random writes into holes: whole blocks against the kernel, sectors of new blocks, and memory while a huge sparse file is
//! filled.
//!
//! Input: devices made new for every run. Output: `holes-kernel`, `subblock-new`, `rss-random`. Invariant: a run begins with
//! one hole. Limits: `rss-random` needs zram (root) and takes a minute, or sixty times `--runtime` if that is less.

use super::super::args::Options;
use super::super::bed::{BedOptions, Fresh, Space};
use super::super::failure::Failure;
use super::super::job::Rw;
use super::super::report::Report;
use super::super::rounds::Spread;
use super::super::targets::{least, most};
use super::super::tool;
use super::Experiment;
use super::{fresh_beside_kernel, fresh_policies, fresh_sim};
use diorite::Policy;
use diorite::policy::{NewSpace, Unaligned};
use std::process::Command;
use std::time::Duration;

/// A policy in which a write into new space has exclusive access to the file.
const EXCLUSIVE: Policy = Policy {
    unaligned: Unaligned::Exclusive,
    new_space: NewSpace::Exclusive,
    ..Policy::DIORITE
};

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "holes",
    about: "Random writes into holes, of whole blocks and of sectors; memory while a huge sparse file is filled",
    goals: &[
        least(
            "holes-kernel",
            3.0,
            "random 4k writes into holes, depth 64: diorite / the kernel's ext4",
        ),
        least(
            "subblock-new",
            20.0,
            "512-byte writes, sectors of new blocks, 8 jobs x 32, sim at 80 us: pending map / exclusive",
        ),
        most(
            "rss-random",
            256.0,
            "a sparse file of 100 GiB written at random for a minute: resident memory, MiB",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each_fresh(report, |_, fresh, report| {
        report.device(fresh.label(), &fresh.ready(Space::Empty)?.io_engine()?)?;
        report.heading("random writes into a hole, beside the kernel")?;
        let job = options.job(Rw::Randwrite, 4096, 64).once();
        fresh_beside_kernel("holes-kernel", options, &job, (fresh, Space::Hole), report)
    })?;
    sectors(options, report)?;
    let done = memory(options, report);
    report.unless_skipped("rss-random", done).map(drop)
}

/// Eight jobs, eight sectors per block: each job writes its own sector of every block.
fn sectors(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let fresh = fresh_sim(options)?;
    report.device(fresh.label(), "sim")?;
    report.heading("sectors of new blocks, eight jobs to a block")?;
    let job = options.job(Rw::Write, 512, 32).jobs(8).once();
    let arms = [("pending map", Policy::DIORITE), ("exclusive", EXCLUSIVE)];
    let on = (&fresh, Space::Hole);
    fresh_policies("subblock-new", options, &job, on, arms, report)
}

const SPARSE: u64 = 100 << 30;

/// Runs in a process of its own, so that only its memory is measured. It writes zeros, for which zram needs no memory.
fn memory(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.may_use_zram()?;
    let bed_options = BedOptions {
        file_size: SPARSE,
        ..options.bed_options()
    };
    let fresh = Fresh::zram(&bed_options, SPARSE + SPARSE / 10)?;
    report.heading("memory while a sparse file of 100 GiB is written at random, MiB")?;
    let ready = fresh.ready(Space::Hole)?;
    let device = ready
        .block_device()
        .ok_or_else(|| Failure::unavailable("zram is no block device here"))?;
    let time = Duration::from_secs(60).min(options.runtime * 60);
    let exe = std::env::current_exe().map_err(|e| Failure::host("cannot find this program", e))?;
    let mut command = Command::new(exe);
    command.args(["bench", "cost-child", "sparse"]).arg(device);
    command.args(["--runtime", &format!("{}ms", time.as_millis())]);
    let text = tool::output("diorite", &mut command)?;
    let said: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Failure::host("the child printed no JSON", e))?;
    let resident = said["resident"].as_f64().unwrap_or(f64::NAN) / 1_048_576.0;
    report.note(format!(
        "{} writes in {} s",
        said["requests"],
        time.as_secs_f64()
    ))?;
    report.ratio(
        "rss-random",
        &Spread::of(&[resident]),
        "zram, 110 GiB",
        true,
    )
}
