//! Atomic (untorn) overwrites of 16 KiB by mapping new blocks: beside pages that are written twice, as a doublewrite buffer does, and
//! beside plain overwrites.
//!
//! Input: a simulated disk with a volatile cache and FUA. Output: `atomic-doublewrite`, `atomic-plain`. Invariants: both arms of
//! `atomic-doublewrite` acknowledge pages that are durable, and that a power cut has not torn; a page counts when it is acknowledged.
//! Limits: one thread, 32 pages at a time.

use super::super::args::Options;
use super::super::bed::{Bed, BedOptions, OpenBed};
use super::super::calls::within;
use super::super::drive::Run;
use super::super::failure::Failure;
use super::super::job::{Job, Rw};
use super::super::load::Rng;
use super::super::report::Report;
use super::super::rounds::{Arm, interleave};
use super::super::targets::least;
use super::Experiment;
use super::{SIM_80, file_arm, rows};
use diorite::{Completion, FileId, Policy, Queue, Request};
use diorite_block::Buf;
use std::collections::VecDeque;

const PAGE: u32 = 16 << 10;
const DEPTH: u32 = 32;

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "atomic",
    about: "Atomic overwrites of 16 KiB, against pages written twice and against plain overwrites",
    goals: &[
        least(
            "atomic-doublewrite",
            1.5,
            "16k untorn durable overwrites, depth 32, sim at 80 us and 1000 MiB/s: atomic / written twice",
        ),
        least(
            "atomic-plain",
            0.5,
            "16k overwrites, depth 32, sim at 80 us: atomic / plain",
        ),
    ],
    own: None,
    run,
};

fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    if options.image.is_some() {
        return Err(Failure::usage(
            "this experiment makes its own disks; for an image: bench run --atomic",
        ));
    }
    let small = BedOptions {
        file_size: options.file_size.min(256 << 20),
        ..options.bed_options()
    };
    // Both write at this rate at most: pages that are written twice take twice as much of it.
    let disk = format!("{SIM_80},bandwidth=1000M,cache=volatile");
    doublewrite(options, &Bed::touched_sim(&disk, &small)?, report)?;
    plain(options, &Bed::touched_sim(SIM_80, &small)?, report)
}

fn overwrites(options: &Options) -> Job {
    options.job(Rw::Randwrite, PAGE, DEPTH)
}

fn doublewrite(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let open = bed.open(true)?;
    report.device(bed.label(), &open.io_engine())?;
    report.heading("durable pages that are not torn: atomic writes, and pages written twice")?;
    let atomic = Job {
        atomic: true,
        dsync: true,
        ..overwrites(options)
    };
    let twice = Job {
        calls: Some(format!(
            "{DEPTH} pages of 16k: copies, flush, in place, flush"
        )),
        ..overwrites(options)
    };
    let arms = [
        file_arm("atomic", atomic, &open, Policy::DIORITE),
        Arm::new("written twice", twice, |job| written_twice(&open, job)),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    let ratio = rounds.ratio(0, 1);
    report.ratio("atomic-doublewrite", &ratio, bed.label(), true)
}

fn plain(options: &Options, bed: &Bed, report: &mut Report) -> Result<(), Failure> {
    let open = bed.open(true)?;
    report.device(bed.label(), &open.io_engine())?;
    report.heading("overwrites without durability: atomic and plain")?;
    let atomic = Job {
        atomic: true,
        ..overwrites(options)
    };
    let arms = [
        file_arm("atomic", atomic, &open, Policy::DIORITE),
        file_arm("plain", overwrites(options), &open, Policy::DIORITE),
    ];
    let rounds = interleave(&arms, options.plan())?;
    rows(report, &rounds, bed)?;
    report.ratio("atomic-plain", &rounds.ratio(0, 1), bed.label(), true)
}

/// Writes pages as a doublewrite buffer does. The copies are at the start of the file.
fn written_twice(open: &OpenBed, job: &Job) -> Result<Run, Failure> {
    let target = open.in_file();
    target.volume.set_policy(Policy::DIORITE);
    let queue = target.volume.queue(DEPTH)?;
    let file = queue.attach(&target.file)?;
    let page = u64::from(PAGE);
    let (first, pages) = (u64::from(DEPTH), target.len / page);
    let mut rng = Rng::new(job.seed);
    let mut copies = Some(Buf::zeroed(PAGE as usize * DEPTH as usize));
    let mut spare: Vec<Buf> = (0..DEPTH).map(|_| Buf::zeroed(PAGE as usize)).collect();
    let run = within(job, || {
        let buf = copies.take().expect("it came back from the write before");
        let done = all(&queue, [Request::write(file, target.base, buf, 0)])?;
        copies = done.into_iter().next();
        flush(&queue, file)?;
        let place = |buf| {
            let page_of_file = first + rng.below(pages - first);
            Request::write(file, target.base + page_of_file * page, buf, 0)
        };
        let batch: Vec<Request> = spare.drain(..).map(place).collect();
        spare = all(&queue, batch)?;
        flush(&queue, file)
    })?;
    let pages = f64::from(DEPTH);
    Ok(Run {
        iops: run.iops * pages,
        bytes_per_second: run.iops * pages * f64::from(PAGE),
        requests: run.requests * u64::from(DEPTH),
        ..run
    })
}

fn flush(queue: &Queue, file: FileId) -> Result<(), Failure> {
    all(queue, [Request::sync(file, true, 0)]).map(drop)
}

/// Runs requests together, and returns their buffers.
fn all(queue: &Queue, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Buf>, Failure> {
    let mut batch: VecDeque<Request> = requests.into_iter().collect();
    let (count, mut done) = (batch.len(), Vec::<Completion>::with_capacity(batch.len()));
    queue.submit(&mut batch);
    while done.len() < count {
        let missing = count - done.len();
        queue.reap(&mut done, missing, None);
    }
    let bufs = done.into_iter().map(|one| match one.result {
        Ok(_) => Ok(one.buf),
        Err(error) => Err(error.into()),
    });
    bufs.collect()
}
