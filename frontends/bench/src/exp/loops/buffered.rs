//! The published loads: blocking buffered jobs in the inner volume, by one thread or 16, from cold to synced, in both modes.
//!
//! Input: a working set. Output: `loop-randwrite-16`, `loop-randwrite-1`, the same for `write`, `read` and `randread`, and
//! `loop-switches`. Invariants: each job takes every block of its file once, as fio's do; a job that writes ends with a sync of its file,
//! inside the measured time; every read is checked, and after a run that wrote, a sample of what it wrote. Limits: calls of 4 KiB, also
//! the sequential ones: fio's default, since the published test does not say.

use super::super::super::args::Options;
use super::super::super::calls::until_end;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::job::{Job, Rw};
use super::super::super::load::{Load, Rng};
use super::super::super::report::Report;
use super::super::super::rounds::{Arm, Plan, Rounds, interleave};
use super::MODES;
use super::nest::BLOCK;
use super::set::{JOBS, Part, Set};
use diorite::PageStats;
use diorite::policy::LoopMode;
use diorite_block::Buf;
use diorite_block::sim::SimCounters;

const PATTERNS: [Rw; 4] = [Rw::Randwrite, Rw::Write, Rw::Read, Rw::Randread];
/// Blocks of each job that are looked at after it has written.
const SAMPLE: u64 = 16;

/// All loads, with ratios whose ids begin with `prefix`.
pub(super) fn run(
    options: &Options,
    set: &Set,
    (prefix, plan): (&str, Plan),
    report: &mut Report,
) -> Result<(), Failure> {
    for rw in PATTERNS {
        for jobs in [JOBS, 1] {
            let rounds = measure(options, set, (rw, jobs), plan, report)?;
            let id = format!("{prefix}-{}-{jobs}", rw.word());
            report.ratio(&id, &rounds.ratio(0, 1), set.label(), set.counts)?;
            if (rw, jobs) == (Rw::Randread, JOBS) {
                let (id, ratio) = (
                    format!("{prefix}-switches"),
                    rounds.ratio_of(0, 1, switches),
                );
                report.ratio(&id, &ratio, set.label(), set.counts)?;
            }
        }
    }
    Ok(())
}

fn measure(
    options: &Options,
    set: &Set,
    (rw, jobs): (Rw, u64),
    plan: Plan,
    report: &mut Report,
) -> Result<Rounds, Failure> {
    let mib = set.bytes as f64 / f64::from(1 << 20);
    let budget = mib / 8.0;
    let calls = match jobs {
        1 => format!("{} 4k, buffered, 1 job", rw.word()),
        _ => format!("{} 4k, buffered, {jobs} jobs", rw.word()),
    };
    report.heading(&format!(
        "{calls}, {mib} MiB in the inner volume, {budget} MiB for the pages of both"
    ))?;
    let job = Job {
        calls: Some(calls),
        ..options.job(rw, BLOCK as u32, 1).blocking()
    };
    let arm = |(name, mode)| Arm::new(name, job.clone(), move |job| one(set, mode, job, jobs));
    let rounds = interleave(&MODES.map(arm), plan)?;
    report.rows(&rounds, set.label())?;
    Ok(rounds)
}

/// Context switches of the process, for each request.
fn switches(run: &Run) -> f64 {
    let all = run.usage.voluntary + run.usage.involuntary;
    all as f64 / run.requests.max(1) as f64
}

/// One run.
fn one(set: &Set, mode: LoopMode, job: &Job, jobs: u64) -> Result<Run, Failure> {
    let open = set.open(mode)?;
    let run = match job.rw.writes() {
        true => set.next_run(),
        false => set.last_run(),
    };
    let parts = open.parts(jobs, run)?;
    let before = (open.cache.stats(), set.disk().counters());
    let mut told = until_end(&parts, set.bytes / BLOCK, |part| part.calls(job))?;
    let after = (open.cache.stats(), set.disk().counters().since(&before.1));
    told.counters = counters(&before.0, &after.0, &after.1);
    told.bytes_per_second = told.iops * BLOCK as f64;
    told.verified = set.bytes / BLOCK;
    if job.rw.writes() {
        let looked = parts.iter().map(|part| part.look(job.seed));
        told.verified = looked.sum::<Result<u64, Failure>>()?;
    }
    drop(parts);
    open.close()?;
    Ok(told)
}

/// What the run has cost the disk and the page cache.
fn counters(before: &PageStats, after: &PageStats, disk: &SimCounters) -> Vec<(String, u64)> {
    let mib = |bytes: u64| bytes >> 20;
    [
        ("disk reads", disk.reads),
        ("disk read MiB", mib(disk.read_bytes)),
        ("disk writes", disk.writes),
        ("disk written MiB", mib(disk.write_bytes)),
        ("write-backs", after.write_backs - before.write_backs),
        ("throttled", after.throttled - before.throttled),
        ("reclaimed", after.reclaimed - before.reclaimed),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into()
}

impl Part {
    /// The calls of one job.
    fn calls(&self, job: &Job) -> Result<(), Failure> {
        let once = Job {
            seed: job.seed + self.mark.file,
            ..job.clone().once()
        };
        let mut load = Load::new(&once, self.len, 0);
        let mut block = vec![0xd1; BLOCK as usize];
        while let Some((write, at)) = load.draw() {
            let pos = at * BLOCK;
            let done = if write {
                self.mark.put(pos, &mut block);
                self.file.write_bytes(pos, &block)?
            } else {
                self.file.read_bytes(pos, &mut block)?
            };
            if done < block.len() {
                let what = format!("only {done} of {BLOCK} bytes were read or written at {pos}");
                return Err(Failure::failed(what));
            }
            if !write {
                self.mark.check(pos, &block)?;
            }
        }
        match job.rw.writes() {
            true => Ok(self.file.sync()?),
            false => Ok(()),
        }
    }

    /// Reads some of the blocks from the device and checks them. Returns how many.
    fn look(&self, seed: u64) -> Result<u64, Failure> {
        let mut rng = Rng::new(seed ^ self.mark.run);
        for _ in 0..SAMPLE {
            let pos = rng.below(self.len / BLOCK) * BLOCK;
            let (buf, read) = self.file.read_at(pos, Buf::zeroed(BLOCK as usize));
            read?;
            self.mark.check_written(pos, buf.as_slice())?;
        }
        Ok(SAMPLE)
    }
}
