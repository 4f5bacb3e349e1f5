//! The driver: threads that keep a target busy for a time, and measure it.
//!
//! Input: a [`Target`] and a [`Job`]. Output: a [`Run`]. Invariants: the driver is generic over the target, so each kind has
//! its own compiled copy that does the same work; a thread counts from the first batch after the ramp to the last one before
//! the end, and divides by its own time. Limits: latencies are taken per batch: from its submission to the reaping that brought
//! the request.

use super::failure::Failure;
use super::host::{OneCpu, Sample, Usage};
use super::job::{Call, Job};
use super::lane::{Ended, Io, Lane, Target};
use super::load::{Load, Rng};
use super::signals;
use super::verify::Verifier;
use diorite_block::Buf;
use diorite_block::sync::LockStats;
use hdrhistogram::Histogram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const RAMP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// The result of one run.
pub(super) struct Run {
    pub(super) iops: f64,
    pub(super) bytes_per_second: f64,
    /// Nanoseconds.
    pub(super) latency: Histogram<u64>,
    pub(super) usage: Usage,
    pub(super) wall: Duration,
    /// The counters of the lanes, over the whole run.
    pub(super) counters: Vec<(String, u64)>,
    pub(super) locks: Vec<(&'static str, LockStats)>,
    /// Requests whose contents were checked.
    pub(super) verified: u64,
    /// Requests that ended, over the whole run.
    pub(super) requests: u64,
}

impl Run {
    /// A run of which only the rate is known, measured by another program.
    pub(super) fn of_rate(iops: f64, job: &Job) -> Run {
        Run {
            bytes_per_second: iops * f64::from(job.bs),
            ..Run::of_calls(iops)
        }
    }

    /// A run of calls that move no data.
    pub(super) fn of_calls(per_second: f64) -> Run {
        Run {
            iops: per_second,
            bytes_per_second: 0.0,
            latency: histogram(),
            usage: Usage::default(),
            wall: Duration::ZERO,
            counters: Vec::new(),
            locks: Vec::new(),
            verified: 0,
            requests: 0,
        }
    }

    /// One piece of work: how often it could be done in a second.
    pub(super) fn of_one(work: impl FnOnce() -> Result<(), Failure>) -> Result<Run, Failure> {
        let since = Instant::now();
        work()?;
        let wall = since.elapsed();
        Ok(Run {
            wall,
            ..Run::of_calls(1.0 / wall.as_secs_f64())
        })
    }

    /// The requests of the measured part.
    pub(super) fn counted_requests(&self) -> f64 {
        self.iops * self.wall.as_secs_f64()
    }

    /// User and system time of this process per request of the measured part, in microseconds; not a number if another program ran it.
    pub(super) fn cpu_us(&self) -> f64 {
        1e6 * self.usage.cpu.total().as_secs_f64() / self.counted_requests()
    }

    /// The value of the lanes' counter with this name.
    pub(super) fn counted(&self, name: &str) -> u64 {
        let counter = self.counters.iter().find(|(n, _)| n == name);
        counter.map_or(0, |(_, count)| *count)
    }
}

/// The result of one thread.
struct Tally {
    ios: u64,
    time: Duration,
    latency: Histogram<u64>,
    counters: Vec<(String, u64)>,
    verified: u64,
    requests: u64,
}

/// Runs the job against the target.
pub(super) fn drive<T: Target>(target: &T, job: &Job) -> Result<Run, Failure> {
    job.check(target.len())?;
    let _pinned = job.one_cpu.then(OneCpu::pin).transpose()?;
    let phase = AtomicU8::new(if job.ramp_time.is_zero() {
        MEASURE
    } else {
        RAMP
    });
    let running = AtomicU32::new(job.numjobs);
    let ready = Barrier::new(job.numjobs as usize + 1);
    std::thread::scope(|scope| {
        let start = |index| {
            let (phase, ready, running) = (&phase, &ready, &running);
            scope.spawn(move || {
                let worker = target
                    .lane(job)
                    .and_then(|lane| Worker::new(lane, job, target.len(), index));
                ready.wait();
                let tally = worker.and_then(|worker| worker.run(phase));
                running.fetch_sub(1, Ordering::Release);
                tally
            })
        };
        let threads: Vec<_> = (0..job.numjobs).map(start).collect();
        ready.wait();
        let clocked = clock_out(job, &phase, &running);
        let tallies = threads.into_iter().map(|t| {
            t.join()
                .unwrap_or_else(|_| Err(Failure::failed("a thread of the load panicked")))
        });
        let tallies: Vec<Tally> = tallies.collect::<Result<_, _>>()?;
        let (usage, wall, locks) = clocked?;
        Ok(sum(job, tallies, usage, wall, locks))
    })
}

type Clocked = (Usage, Duration, Vec<(&'static str, LockStats)>);

/// Advances the phases of the load: ramp, measured time, end; the end is always reached, also after an error. A load that has
/// nothing left to do ends earlier.
fn clock_out(job: &Job, phase: &AtomicU8, running: &AtomicU32) -> Result<Clocked, Failure> {
    let busy = || running.load(Ordering::Acquire) > 0;
    let measured = || {
        signals::sleep_while(job.ramp_time, busy)?;
        let (before, locks) = (Sample::take(), super::locks::snapshot());
        let since = Instant::now();
        phase.store(MEASURE, Ordering::Release);
        signals::sleep_while(job.runtime, busy)?;
        let wall = since.elapsed();
        let usage = before.until(&Sample::take());
        Ok((usage, wall, super::locks::since(&locks)))
    };
    let result = measured();
    phase.store(STOP, Ordering::Release);
    result
}

fn sum(
    job: &Job,
    tallies: Vec<Tally>,
    usage: Usage,
    wall: Duration,
    locks: Vec<(&'static str, LockStats)>,
) -> Run {
    let mut run = Run {
        usage,
        wall,
        locks,
        ..Run::of_calls(0.0)
    };
    for tally in tallies {
        run.iops += tally.ios as f64 / tally.time.as_secs_f64().max(1e-9);
        run.latency
            .add(&tally.latency)
            .expect("both histograms were made alike");
        run.verified += tally.verified;
        run.requests += tally.requests;
        add_counters(&mut run.counters, tally.counters);
    }
    run.bytes_per_second = run.iops * f64::from(job.bs);
    run
}

fn add_counters(sum: &mut Vec<(String, u64)>, more: Vec<(String, u64)>) {
    for (name, count) in more {
        match sum.iter_mut().find(|(n, _)| *n == name) {
            Some((_, total)) => *total += count,
            None => sum.push((name, count)),
        }
    }
}

/// A histogram from one nanosecond to an hour, with three significant digits.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are in order")
}

/// A request in flight, as the driver remembers it.
#[derive(Clone, Copy, Default)]
struct Flight {
    begun: u64,
    block: u64,
    write: bool,
}

struct Worker<'a, L> {
    lane: L,
    job: &'a Job,
    load: Load,
    verifier: Option<Verifier>,
    epoch: Instant,
    free: Vec<(u32, Buf)>,
    flights: Vec<Flight>,
    ended: Vec<Ended>,
    /// The time at which the measured part began; none during the ramp.
    since: Option<u64>,
    ios: u64,
    latency: Histogram<u64>,
    requests: u64,
    /// The load takes each block once, and all have been requested.
    exhausted: bool,
}

impl<'a, L: Lane> Worker<'a, L> {
    fn new(lane: L, job: &'a Job, len: u64, index: u32) -> Result<Worker<'a, L>, Failure> {
        let mut rng = Rng::new(job.seed.wrapping_add(u64::from(index)));
        let depth = job.iodepth;
        let bs = job.bs as usize;
        let pool = diorite_block::BufPool::new(bs, depth as usize);
        let mut free = Vec::with_capacity(depth as usize);
        for slot in 0..depth {
            let mut buf = pool
                .get()
                .ok_or_else(|| Failure::failed("the buffer pool is too small"))?;
            if !job.zeros {
                rng.fill(buf.as_mut_slice());
            }
            free.push((slot, buf));
        }
        Ok(Worker {
            lane,
            job,
            load: Load::new(job, len, index),
            verifier: job.verify.then(|| Verifier::new(job, len, index)),
            epoch: Instant::now(),
            free,
            flights: vec![Flight::default(); depth as usize],
            ended: Vec::with_capacity(depth as usize),
            since: None,
            ios: 0,
            latency: histogram(),
            requests: 0,
            exhausted: false,
        })
    }

    fn run(mut self, phase: &AtomicU8) -> Result<Tally, Failure> {
        let min = match self.job.call {
            Call::Queue => self.job.batch_complete as usize,
            Call::Blocking => 1,
        };
        loop {
            let now = phase.load(Ordering::Acquire);
            // With a slow target this may be reached only after the end: then the next batch is the measured one.
            if now != RAMP && self.since.is_none() {
                self.since = Some(self.clock());
                self.ios = 0;
            }
            if now == STOP && self.ios > 0 || self.exhausted && self.nothing_in_flight() {
                break;
            }
            self.fill();
            self.reap(min)?;
        }
        let until = self.clock();
        let since = self.since.unwrap_or(until);
        let (ios, latency) = (self.ios, self.latency.clone());
        self.drain()?;
        let verified = self.last_look()?;
        Ok(Tally {
            ios,
            time: Duration::from_nanos(until - since),
            latency,
            counters: self.lane.counters(),
            verified,
            requests: self.requests,
        })
    }

    #[inline]
    fn nothing_in_flight(&self) -> bool {
        self.free.len() == self.job.iodepth as usize
    }

    #[inline]
    fn clock(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Fills the queue to its depth, batch by batch.
    #[inline]
    fn fill(&mut self) {
        while !self.free.is_empty() {
            let begun = self.clock();
            let count = self.free.len().min(self.job.batch_submit as usize);
            let mut pushed = 0;
            for _ in 0..count {
                pushed += usize::from(self.push(begun));
            }
            self.lane.submit();
            if pushed < count {
                return;
            }
        }
    }

    #[inline]
    fn push(&mut self, begun: u64) -> bool {
        let Some((write, mut block)) = self.load.draw() else {
            self.exhausted = true;
            return false;
        };
        if let Some(verifier) = &mut self.verifier {
            match verifier.claim(block) {
                Some(claimed) => block = claimed,
                None => return false,
            }
        }
        let (slot, mut buf) = self.free.pop().expect("the caller counted the free slots");
        if let (true, Some(verifier)) = (write, &mut self.verifier) {
            verifier.fill(block, &mut buf);
        }
        self.flights[slot as usize] = Flight {
            begun,
            block,
            write,
        };
        self.lane.push(
            Io {
                write,
                pos: self.load.pos(block),
                slot,
            },
            buf,
        );
        true
    }

    #[inline]
    fn reap(&mut self, min: usize) -> Result<(), Failure> {
        let in_flight = self.job.iodepth as usize - self.free.len();
        self.lane.reap(min.min(in_flight), &mut self.ended);
        let now = self.clock();
        let mut ended = std::mem::take(&mut self.ended);
        for Ended { slot, buf, error } in ended.drain(..) {
            let flight = self.flights[slot as usize];
            if let Some(error) = error {
                let what = if flight.write { "write" } else { "read" };
                let pos = self.load.pos(flight.block);
                return Err(Failure::failed(format!(
                    "{what} of {} bytes at {pos}: {error}",
                    self.job.bs
                )));
            }
            if let Some(verifier) = &mut self.verifier {
                verifier
                    .ended(flight.block, flight.write, &buf)
                    .map_err(Failure::failed)?;
            }
            if self.since.is_some() {
                self.latency.saturating_record(now - flight.begun);
            }
            self.ios += 1;
            self.requests += 1;
            self.free.push((slot, buf));
        }
        self.ended = ended;
        // Requests that the device did not accept before are submitted now that there is room.
        self.lane.submit();
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        self.since = None;
        while !self.nothing_in_flight() {
            self.reap(1)?;
        }
        Ok(())
    }

    /// Reads every written block once more. Returns how many reads were checked in total.
    fn last_look(&mut self) -> Result<u64, Failure> {
        let Some(verifier) = &mut self.verifier else {
            return Ok(0);
        };
        for block in verifier.written() {
            let (slot, buf) = self.free.pop().expect("nothing is in flight");
            self.flights[slot as usize] = Flight {
                block,
                ..Flight::default()
            };
            self.lane.push(
                Io {
                    write: false,
                    pos: self.load.pos(block),
                    slot,
                },
                buf,
            );
            self.lane.submit();
            if self.free.is_empty() {
                self.drain()?;
            }
        }
        self.drain()?;
        Ok(self.verifier.as_ref().map_or(0, |v| v.checked))
    }
}
