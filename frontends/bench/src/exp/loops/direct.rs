//! Direct random readers of a file of the inner volume, in both modes of the loop device.
//!
//! Input: a working set. Output: `loop-direct-16`. Invariant: each reader has one blocking read under way. Limits: one file.

use super::super::super::args::Options;
use super::super::super::drive::{Run, drive};
use super::super::super::failure::Failure;
use super::super::super::image::FileTarget;
use super::super::super::job::{Job, Rw};
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, interleave};
use super::MODES;
use super::nest::BLOCK;
use super::set::{JOBS, Set};
use diorite::policy::LoopMode;

pub(super) fn run(options: &Options, set: &Set, report: &mut Report) -> Result<(), Failure> {
    report.heading("16 direct random readers of one file in the inner volume")?;
    let readers = JOBS as u32;
    let job = options.job(Rw::Randread, BLOCK as u32, 1);
    let job = job.blocking().jobs(readers);
    let arm = |(name, mode)| Arm::new(name, job.clone(), move |job| one(set, mode, job));
    let rounds = interleave(&MODES.map(arm), options.plan())?;
    report.rows(&rounds, set.label())?;
    let ratio = rounds.ratio(0, 1);
    report.ratio("loop-direct-16", &ratio, set.label(), set.counts)
}

fn one(set: &Set, mode: LoopMode, job: &Job) -> Result<Run, Failure> {
    let open = set.open(mode)?;
    let parts = open.parts(1, set.last_run())?;
    let target = FileTarget {
        volume: open.inner.clone(),
        file: parts[0].file.clone(),
        base: 0,
        len: parts[0].len,
    };
    drop(parts);
    let run = drive(&target, job)?;
    drop(target);
    open.close()?;
    Ok(run)
}
