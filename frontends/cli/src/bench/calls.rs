//! Times plain function calls: a number of them by several threads, or as many as one thread makes in a given time.
//!
//! Input: a function. Output: a [`Run`] whose rate is calls per second. Invariant: time is counted from when all threads have
//! started until the last one has ended. Limits: no latencies: reading the clock for each call would distort the result.

use super::drive::Run;
use super::failure::Failure;
use super::host::Sample;
use super::job::Job;
use super::{locks, signals};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The number of calls between two readings of the clock.
const BATCH: u32 = 256;

/// Runs one thread for each element of `all`; they make `count` calls in total.
pub(super) fn until_end<T: Sync>(
    all: &[T],
    count: u64,
    work: impl Fn(&T) -> Result<(), Failure> + Sync,
) -> Result<Run, Failure> {
    let ready = Barrier::new(all.len() + 1);
    let (before, since, ended) = std::thread::scope(|scope| {
        let (ready, work) = (&ready, &work);
        let start = |part| {
            scope.spawn(move || {
                ready.wait();
                work(part)
            })
        };
        let threads: Vec<_> = all.iter().map(start).collect();
        let before = (Sample::take(), locks::snapshot());
        ready.wait();
        let since = Instant::now();
        let panicked = |_| Err(Failure::failed("a thread of the load panicked"));
        let ended = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(panicked));
        let ended: Result<(), Failure> = ended.collect();
        (before, since.elapsed(), ended)
    });
    ended?;
    signals::check()?;
    Ok(told(count, since, &before))
}

/// Calls until the job's time is over; calls during its ramp are not counted.
pub(super) fn within(
    job: &Job,
    mut call: impl FnMut() -> Result<(), Failure>,
) -> Result<Run, Failure> {
    let mut batches = |time: Duration| -> Result<(u64, Duration), Failure> {
        let (since, mut count) = (Instant::now(), 0);
        loop {
            for _ in 0..BATCH {
                call()?;
            }
            count += u64::from(BATCH);
            let took = since.elapsed();
            if took >= time {
                signals::check()?;
                return Ok((count, took));
            }
        }
    };
    batches(job.ramp_time)?;
    let before = (Sample::take(), locks::snapshot());
    let (count, took) = batches(job.runtime)?;
    Ok(told(count, took, &before))
}

fn told(count: u64, took: Duration, before: &(Sample, Vec<locks::ClassStats>)) -> Run {
    Run {
        usage: before.0.until(&Sample::take()),
        locks: locks::since(&before.1),
        wall: took,
        requests: count,
        ..Run::of_calls(count as f64 / took.as_secs_f64().max(1e-9))
    }
}
