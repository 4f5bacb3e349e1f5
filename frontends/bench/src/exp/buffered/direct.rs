//! Direct overwrites of a file that has cached pages: elsewhere, and where the writes go.
//!
//! Input: a bed. Output: `dio-beside-cache`, `dio-over-cache`. Invariants: pages are cached before the run begins; where writes go over
//! them a thread reads them again all the time, and in the end the cache and the device agree. Limits: overwrites only.

use super::super::super::args::Options;
use super::super::super::bed::{Bed, OpenBed};
use super::super::super::drive::{Run, drive};
use super::super::super::failure::Failure;
use super::super::super::image::FileTarget;
use super::super::super::job::{Job, Rw};
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, interleave};
use super::super::rows;
use super::reads::read_all;
use diorite_block::Buf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are cached.
const CACHED: u64 = 64 << 20;

pub(super) fn run(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let job = options.job(Rw::Randwrite, 4096, 64);
    report.heading(
        "direct overwrites of the first half of a file, with pages of the last bytes cached",
    )?;
    let plain = Arm::new("no cached pages", job.clone(), |job| {
        drive(&half(&bed.open(true)?), job)
    });
    let beside = Arm::new("pages cached elsewhere", job.clone(), |job| {
        let open = bed.open(true)?;
        let len = CACHED.min(open.region.len / 4);
        let end = open.region.file_pos + open.region.len;
        read_all(&open.file, end - len, len)?;
        drive(&half(&open), job)
    });
    let rounds = interleave(&[plain, beside], options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(
        "dio-beside-cache",
        &rounds.ratio(1, 0),
        bed.label(),
        bed.counts,
    )?;

    report.heading("direct overwrites, the same bytes read through the cache meanwhile")?;
    let plain = Arm::new("nobody reads", job.clone(), |job| {
        drive(&first(&bed.open(true)?), job)
    });
    let over = Arm::new("a cached reader", job, |job| over(&bed.open(true)?, job));
    let rounds = interleave(&[plain, over], options.short_plan())?;
    rows(report, &rounds, bed)?;
    report.ratio(
        "dio-over-cache",
        &rounds.ratio(1, 0),
        bed.label(),
        bed.counts,
    )
}

fn half(open: &OpenBed) -> FileTarget {
    let target = open.in_file();
    FileTarget {
        len: target.len / 2,
        ..target
    }
}

fn first(open: &OpenBed) -> FileTarget {
    let target = open.in_file();
    FileTarget {
        len: target.len.min(CACHED),
        ..target
    }
}

/// Writes while another thread reads.
fn over(open: &OpenBed, job: &Job) -> Result<Run, Failure> {
    let target = first(open);
    let run = beside_reader(&target, (target.base, target.len), job)?;
    compare(&target)?;
    Ok(run)
}

/// Writes elsewhere in the file, while another thread reads cached bytes at its end.
pub(in super::super) fn elsewhere(open: &OpenBed, job: &Job) -> Result<Run, Failure> {
    let len = CACHED.min(open.region.len / 4);
    let end = open.region.file_pos + open.region.len;
    beside_reader(&half(open), (end - len, len), job)
}

/// Writes while another thread reads a range through the cache, again and again.
fn beside_reader(target: &FileTarget, (base, len): (u64, u64), job: &Job) -> Result<Run, Failure> {
    read_all(&target.file, base, len)?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                read_all(&target.file, base, len)?;
            }
            Ok(())
        });
        let run = drive(target, job);
        ended.store(true, Ordering::Relaxed);
        let panicked = |_| Err(Failure::failed("the reader panicked"));
        reader.join().unwrap_or_else(panicked).and(run)
    })
}

/// Compares the cache with the device.
fn compare(target: &FileTarget) -> Result<(), Failure> {
    let mut cached = vec![0; 1 << 20];
    for pos in (0..target.len).step_by(cached.len()) {
        let at = target.base + pos;
        let done = target.file.read_bytes(at, &mut cached)?;
        let (direct, read) = target.file.read_at(at, Buf::zeroed(cached.len()));
        let same = done.min(read?);
        if cached[..same] != direct.as_slice()[..same] {
            return Err(Failure::failed(format!(
                "the cached bytes at {at} are not those of the device"
            )));
        }
    }
    Ok(())
}
