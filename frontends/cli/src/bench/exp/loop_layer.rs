//! The cost of one more layer: a loop device on the file, against the file and the raw device.
//!
//! Input: a bed. Output: `loop-layer`. Invariant: all three arms touch the same blocks. Limits: reads and aligned overwrites.

use super::super::args::Options;
use super::super::bed::Bed;
use super::super::drive::drive;
use super::super::failure::Failure;
use super::super::job::Rw;
use super::super::raw::RawTarget;
use super::super::report::Report;
use super::super::rounds::{Arm, interleave};
use super::{file_arm, raw_arm, rows};
use diorite::{LoopDevice, Policy};
use std::sync::Arc;

pub(in super::super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    options.on_each(report, |bed, report| {
        let open = bed.open(true)?;
        report.device(bed.label(), &open.io_engine())?;
        drop(open);
        layer("loop-layer", Rw::Randread, options, bed, report)?;
        layer("loop-layer-write", Rw::Randwrite, options, bed, report)
    })
}

fn layer(
    id: &str,
    rw: Rw,
    options: &Options,
    bed: &Bed,
    report: &mut Report,
) -> Result<(), Failure> {
    let open = bed.open(true)?;
    let job = options.job(rw, 4096, 64);
    let name = format!("{}!{}", bed.label(), bed.file());
    let looped = RawTarget {
        base: open.region.file_pos,
        len: open.region.len,
        ..RawTarget::whole(Arc::new(LoopDevice::new(open.file.clone(), name)))
    };
    let arms = [
        file_arm("file in image", job.clone(), &open, Policy::DIORITE),
        Arm::new("loop device on the file", job.clone(), |job| {
            drive(&looped, job)
        }),
        raw_arm(job, &open),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(id, &rounds.ratio(1, 0), bed.label(), bed.counts)?;
    report.ratio(
        &format!("{id}-raw"),
        &rounds.ratio(1, 2),
        bed.label(),
        bed.counts,
    )
}
