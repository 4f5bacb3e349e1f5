//! Times plain function calls: a number of them by several threads, or as many as one thread makes in a given time.
//!
//! Input: a function. Output: a [`Run`] whose rate is calls per second. Invariants: time is counted from when all threads have started
//! until the last one has done its work; the threads live until the host's counters were read. Limits: no latencies: reading the clock for
//! each call would distort the result.

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
    let barrier = Barrier::new(all.len() + 1);
    let (told, ended) = std::thread::scope(|scope| {
        let (barrier, work) = (&barrier, &work);
        let start = |part| {
            scope.spawn(move || {
                barrier.wait();
                let _ends = Ends(barrier);
                work(part)
            })
        };
        let threads: Vec<_> = all.iter().map(start).collect();
        let before = (Sample::take(), locks::snapshot());
        barrier.wait();
        let since = Instant::now();
        barrier.wait();
        let told = told(count, since.elapsed(), &before);
        barrier.wait();
        let panicked = |_| Err(Failure::failed("a thread of the load panicked"));
        let ended = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(panicked));
        let ended: Result<(), Failure> = ended.collect();
        (told, ended)
    });
    ended?;
    signals::check()?;
    Ok(told)
}

/// The end of a thread's work, also by a panic: tells that it is reached, and waits until the counters were read.
struct Ends<'a>(&'a Barrier);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.wait();
        self.0.wait();
    }
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
