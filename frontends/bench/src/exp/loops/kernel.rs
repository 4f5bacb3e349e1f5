//! A file of the host as a device of this process, beside the kernel's loop device on the same file.
//!
//! Input: a file in memory. Output: `loop-kernel`, `loop-kernel-write`. Invariants: both use direct I/O on the file, and one generator
//! drives both; the file is written before. Limits: root.

use super::super::super::args::Options;
use super::super::super::bed::{LoopBack, Scratch, write_random};
use super::super::super::drive::{Run, drive};
use super::super::super::failure::Failure;
use super::super::super::host;
use super::super::super::job::{Job, Rw};
use super::super::super::raw::RawTarget;
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, interleave};
use diorite_block::{Device, IoEngine, Locator, WindowDevice, WindowOptions, locator};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the file at most.
const MOST: u64 = 1 << 30;
const LABEL: &str = "file on tmpfs";

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if !options.asks_for_kernel("loop-kernel", report)? {
        return Ok(());
    }
    if !host::is_root() {
        return report.note("loop-kernel: skipped: a loop device needs root");
    }
    let dir = Scratch::in_memory()?;
    let path = dir.path().join("disk");
    write_random(&path, options.file_size.min(MOST), false)?;
    for (id, rw) in [
        ("loop-kernel", Rw::Randread),
        ("loop-kernel-write", Rw::Randwrite),
    ] {
        let done = beside(id, rw, options, &path, report);
        report.unless_skipped(id, done)?;
    }
    Ok(())
}

fn beside(
    id: &str,
    rw: Rw,
    options: &Options,
    path: &Path,
    report: &mut Report,
) -> Result<(), Failure> {
    let engine = options.io_engine;
    report.heading(&format!("{} 4k on a file of the host, depth 64", rw.word()))?;
    let job = options.job(rw, 4096, 64);
    let ours = Arm::new("loop in this process", job.clone(), |job| {
        let file = open(path, engine)?;
        let window = WindowDevice::new(file, &WindowOptions::default(), "loop".to_owned())?;
        load(Arc::new(window), job)
    });
    let kernel = Arm::new("kernel's loop, direct I/O", job, |job| {
        let back = LoopBack::on(path)?;
        load(open(back.path(), engine)?, job)
    });
    let rounds = interleave(&[ours, kernel], options.plan())?;
    report.rows(&rounds, LABEL)?;
    report.ratio(id, &rounds.ratio(0, 1), LABEL, true)
}

fn open(path: &Path, io_engine: Option<IoEngine>) -> Result<Arc<dyn Device>, Failure> {
    let options = diorite_block::OpenOptions::default()
        .io_engine(io_engine)
        // The file is the bench's own, and the kernel may let go of it a moment after its device was closed.
        .force(true);
    Ok(locator::open(&Locator::file(path), &options)?)
}

fn load(device: Arc<dyn Device>, job: &Job) -> Result<Run, Failure> {
    drive(&RawTarget::whole(device), job)
}
