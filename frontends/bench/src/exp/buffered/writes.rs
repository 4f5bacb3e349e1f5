//! Buffered writes: one long file, many small ones, appends with a sync after each, and the extents of files that grow side by side.
//!
//! Input: devices made new for every run. Output: `buf-seqwrite`, `buf-small`, `buf-sync`, `buf-extents`. Invariant: the first three run
//! beside the kernel's ext4 on the same device, and end with the sync that their target names. Limits: all bytes of a load are alike.

use super::super::super::args::Options;
use super::super::super::bed::{Fresh, Space};
use super::super::super::calls::until_end;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::job::{Job, Rw};
use super::super::super::peer::{KernelAnew, Peer};
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, Spread, interleave, median};
use super::super::fresh_rows;
use super::files::{Calls, Files, Kernels, Ours, ours};
use diorite::{File, MappingState, OpenOptions};

const MIB: usize = 1 << 20;
/// Bytes of a small file.
const SMALL: usize = 8 << 10;
/// Small files in one directory.
const TOGETHER: u64 = 1000;
/// Bytes of an append, and how many of them each thread makes.
const APPEND: usize = 16 << 10;
const APPENDS: u64 = 500;
const APPENDERS: u64 = 4;
/// Files that grow side by side, by calls of so many bytes.
const SIDE_BY_SIDE: u64 = 16;
const CALL: usize = 64 << 10;

pub(super) fn run(options: &Options, fresh: &Fresh, report: &mut Report) -> Result<(), Failure> {
    report.heading("one file, written in calls of 1 MiB, then fsync")?;
    let calls = fresh.file_size() / MIB as u64;
    let job = options.job(Rw::Write, MIB as u32, 1).blocking();
    beside_kernel(
        "buf-seqwrite",
        options,
        job,
        &Sequential(calls),
        fresh,
        report,
    )?;

    let files = options.own::<super::SmallFiles>()?.files;
    report.heading(&format!(
        "{files} files of 8 KiB, created, written, closed; then a sync of all"
    ))?;
    let job = Job {
        calls: Some(format!("{files} files of 8 KiB, 1 thread, synced once")),
        ..options.job(Rw::Write, SMALL as u32, 1)
    };
    beside_kernel("buf-small", options, job, &Small(files), fresh, report)?;

    report.heading("appends of 16 KiB, each with fdatasync, 4 threads with a file each")?;
    let job = Job {
        calls: Some(format!("append 16k, fdatasync, {APPENDERS} threads")),
        ..options.job(Rw::Write, APPEND as u32, 1)
    };
    beside_kernel("buf-sync", options, job, &Synced, fresh, report)?;

    report.heading("16 files written side by side")?;
    side_by_side(fresh, report)
}

fn beside_kernel(
    id: &str,
    options: &Options,
    job: Job,
    calls: &impl Calls,
    fresh: &Fresh,
    report: &mut Report,
) -> Result<(), Failure> {
    let diorite = Arm::new("diorite, buffered", job.clone(), |_| {
        ours(&fresh.ready(Space::Empty)?, calls)
    });
    if !options.asks_for_kernel(id, report)? {
        fresh_rows(
            report,
            &interleave(&[diorite], options.short_plan())?,
            fresh,
        )?;
        return Ok(());
    }
    let kernel = KernelAnew {
        name: "kernel's ext4, buffered",
        fresh,
        space: Space::Empty,
    };
    let kernel = kernel.arm(&job, |(mounted, _), _| calls.run(&Kernels(mounted.path())));
    let rounds = interleave(&[diorite, kernel], options.plan());
    let Some(rounds) = report.unless_skipped(id, rounds)? else {
        return Ok(());
    };
    fresh_rows(report, &rounds, fresh)?;
    report.ratio(id, &rounds.ratio(0, 1), fresh.label(), fresh.counts)
}

/// So many calls of 1 MiB.
struct Sequential(u64);

impl Calls for Sequential {
    fn run<F: Files>(&self, files: &F) -> Result<Run, Failure> {
        let data = vec![0xd1; MIB];
        let run = until_end(&[()], self.0, |()| {
            let file = files.create("/long")?;
            for n in 0..self.0 {
                files.write(&file, n * MIB as u64, &data)?;
            }
            files.sync(&file)
        })?;
        Ok(Run {
            bytes_per_second: run.iops * MIB as f64,
            ..run
        })
    }
}

/// So many files.
struct Small(u64);

impl Calls for Small {
    fn run<F: Files>(&self, files: &F) -> Result<Run, Failure> {
        let data = vec![0xd1; SMALL];
        until_end(&[()], self.0, |()| {
            for n in 0..self.0 {
                if n % TOGETHER == 0 {
                    files.make_dir(&format!("/d{:03}", n / TOGETHER))?;
                }
                let path = format!("/d{:03}/file-{n:06}", n / TOGETHER);
                files.write(&files.create(&path)?, 0, &data)?;
            }
            files.sync_all()
        })
    }
}

/// Appends, each made durable.
struct Synced;

impl Calls for Synced {
    fn run<F: Files>(&self, files: &F) -> Result<Run, Failure> {
        let data = vec![0xd1; APPEND];
        let of_thread = |n| files.create(&format!("/log-{n}"));
        let logs = (0..APPENDERS).map(of_thread);
        let logs: Vec<F::File> = logs.collect::<Result<_, _>>()?;
        until_end(&logs, APPENDERS * APPENDS, |log| {
            (0..APPENDS).try_for_each(|n| {
                files.write(log, n * APPEND as u64, &data)?;
                files.sync_data(log)
            })
        })
    }
}

/// The extents per file, after threads have written files at the same time.
fn side_by_side(fresh: &Fresh, report: &mut Report) -> Result<(), Failure> {
    let calls = fresh.file_size() / SIDE_BY_SIDE / CALL as u64;
    let ready = fresh.ready(Space::Empty)?;
    let volume = ready.volume(&OpenOptions::writable())?;
    let files = Ours(&volume);
    let all = (0..SIDE_BY_SIDE).map(|n| files.create(&format!("/side-{n}")));
    let all: Vec<File> = all.collect::<Result<_, _>>()?;
    let data = vec![0xd1; CALL];
    until_end(&all, SIDE_BY_SIDE * calls, |file| {
        (0..calls).try_for_each(|n| files.write(file, n * CALL as u64, &data))
    })?;
    files.sync_all()?;
    let extents = |file: &File| -> Result<f64, Failure> {
        let all = file.mappings(0, file.size())?;
        let written = all
            .iter()
            .filter(|m| matches!(m.state, MappingState::Written(_)));
        Ok(written.count() as f64)
    };
    let each: Vec<f64> = all.iter().map(extents).collect::<Result<_, _>>()?;
    drop(all);
    volume.close()?;
    let most = each.iter().copied().fold(0.0, f64::max);
    report.note(format!("extents of each file: at most {most}"))?;
    let median = Spread {
        runs: 1,
        ..Spread::of(&[median(&each)])
    };
    report.ratio("buf-extents", &median, fresh.label(), fresh.counts)
}
