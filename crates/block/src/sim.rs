//! A model of a disk: memory with latency, limited parallelism, a volatile cache, faults, and a clock that a test can control.
//!
//! Input: bios, and the steps of a test. Output: the same bios, ended when the model says so; counters; the images that a power
//! cut leaves. Invariant: with the stepped clock and one thread, the same seed and the same calls give the same order of ends.
//! Limits: a request takes effect on the bytes when it ends; queues share nothing on the hot path unless the limit on
//! parallelism can apply.

mod alarm;
mod crash;
mod options;
mod queue;
mod stats;
#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;

pub use options::{SimClock, SimOptions};
pub use stats::{SimCounters, SimLatency};

use crate::device::{
    AtomicWrites, Device, DeviceError, DeviceErrorKind, DeviceQueue, DeviceReport, Geometry,
    QueueOptions, Run,
};
use crate::fault::FaultPlan;
use crate::mem::{Medium, MemDevice};
use crate::rng::Rng;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{DEVICE_SHARED, Mutex};
use crash::CrashLog;
use queue::{QueueCore, SimQueue, Slots};
use stats::Histogram;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the queues of a disk share.
struct Disk {
    options: SimOptions,
    medium: Medium,
    log: Option<CrashLog>,
    plan: Option<FaultPlan>,
    slots: Slots,
    epoch: Instant,
    hold: AtomicBool,
    /// The next request number, in the order in which the disk took the requests.
    taken: AtomicU64,
    shared: Mutex<Shared>,
}

struct Shared {
    queues: Vec<Arc<QueueCore>>,
    rng: Rng,
    /// Counters of closed queues.
    retired: (SimCounters, Histogram),
}

impl Disk {
    #[inline]
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn held(&self) -> bool {
        self.hold.load(Ordering::SeqCst)
    }

    fn is_real(&self) -> bool {
        self.options.clock == SimClock::Real
    }

    /// The first of `count` request numbers. If neither chance nor steps need numbers, the shared counter is not touched.
    #[inline]
    fn numbers(&self, count: usize) -> u64 {
        if self.is_real() && self.options.jitter.is_zero() {
            return 0;
        }
        self.taken.fetch_add(count as u64, Ordering::Relaxed)
    }

    /// Ends one request of a stepped disk. Returns whether there was one to end. A thread that steps at the same time may have
    /// chosen the same request; then another is chosen, because a thread that sleeps on a false answer would never be woken.
    fn step(&self) -> bool {
        loop {
            let Some((queue, number)) = self.choose() else {
                return false;
            };
            if queue.end(self, number) {
                return true;
            }
        }
    }

    /// As `step`, for a disk that steps by itself.
    fn step_by_itself(&self) -> bool {
        self.options.clock == SimClock::Auto && !self.held() && self.step()
    }

    /// Chooses, by the seed, one of the requests being served.
    fn choose(&self) -> Option<(Arc<QueueCore>, u64)> {
        let mut shared = self.shared.lock();
        let (queues, luck) = (shared.queues.clone(), shared.rng.next());
        drop(shared);
        let mut waiting: Vec<(u64, usize)> = Vec::new();
        for (at, queue) in queues.iter().enumerate() {
            waiting.extend(queue.pending_numbers().into_iter().map(|n| (n, at)));
        }
        waiting.sort_unstable();
        if self.options.parallel > 0 {
            waiting.truncate(self.options.parallel as usize);
        }
        let chosen = luck.checked_rem(waiting.len() as u64).unwrap_or(0);
        let chosen = usize::try_from(chosen).expect("an index of a list in memory");
        let (number, queue) = waiting.get(chosen)?;
        Some((queues[*queue].clone(), *number))
    }
}

/// A simulated disk. Send and Sync; clones are the same disk.
///
/// ```
/// use diorite_block::{Blocking, Buf, SimDevice, SimOptions};
/// use std::sync::Arc;
///
/// let disk = SimDevice::new(SimOptions::parse("1M,cache=volatile,crash=yes")?)?;
/// let blocking = Blocking::new(Arc::new(disk.clone()));
/// let mut page = Buf::zeroed(4096);
/// page.as_mut_slice().fill(7);
/// blocking.write_durably(0, page).expect("no fault was asked for");
/// // Whatever a power cut leaves now, the page is there.
/// let mut left = [0; 4096];
/// disk.crash(1)?.read_at(0, &mut left);
/// assert_eq!(left, [7; 4096]);
/// # Ok::<(), diorite_block::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct SimDevice {
    disk: Arc<Disk>,
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDevice")
            .field("options", &self.disk.options)
            .finish_non_exhaustive()
    }
}

impl SimDevice {
    /// A disk of zeros.
    ///
    /// # Errors
    /// The host cannot map that much memory, or the size is no multiple of the logical block.
    pub fn new(options: SimOptions) -> Result<SimDevice, DeviceError> {
        if !matches!(options.logical, 512 | 4096)
            || !options.size.is_multiple_of(u64::from(options.logical))
        {
            let what = format!(
                "sim: {} bytes in blocks of {}: blocks are 512 or 4096 bytes, and the size a multiple",
                options.size, options.logical
            );
            return Err(DeviceError::new(DeviceErrorKind::Locator, what));
        }
        let medium = Medium::new(Geometry {
            logical: options.logical,
            physical: options.logical,
            discard: true,
            write_zeroes: true,
            fua: options.fua,
            fua_flushes: !options.fua,
            volatile_cache: options.volatile_cache,
            ..Geometry::plain(options.size)
        })?;
        let log = options.crash.then(|| CrashLog::new(&options)).transpose()?;
        let plan = (!options.faults.is_empty())
            .then(|| FaultPlan::new(options.faults.clone(), options.seed));
        let shared = Shared {
            queues: Vec::new(),
            rng: Rng::new(options.seed),
            retired: (SimCounters::default(), Histogram::new()),
        };
        let disk = Disk {
            medium,
            log,
            plan,
            slots: Slots::new(&options),
            epoch: Instant::now(),
            hold: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            shared: Mutex::new(&DEVICE_SHARED, shared),
            options,
        };
        Ok(SimDevice {
            disk: Arc::new(disk),
        })
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &SimOptions {
        &self.disk.options
    }

    /// Ends one request of a stepped disk, chosen by the seed among those being served. Returns whether there was one. Nothing
    /// ends while completions are held.
    #[must_use]
    pub fn step(&self) -> bool {
        !self.disk.is_real() && !self.disk.held() && self.disk.step()
    }

    /// Makes up to `steps` steps; returns how many requests ended.
    pub fn advance(&self, steps: usize) -> usize {
        (0..steps).take_while(|_| self.step()).count()
    }

    /// Holds completions back, or releases them and wakes all waiters.
    pub fn hold(&self, hold: bool) {
        self.disk.hold.store(hold, Ordering::SeqCst);
        if !hold {
            let queues = self.disk.shared.lock().queues.clone();
            queues.iter().for_each(|q| q.release());
        }
    }

    /// The requests taken so far.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.totals().0
    }

    /// Requests failed by its faults so far.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.disk.plan.as_ref().map_or(0, FaultPlan::failed)
    }

    /// The latency so far, from submit to reap.
    #[must_use]
    pub fn latency(&self) -> SimLatency {
        self.totals().1.summary()
    }

    fn totals(&self) -> (SimCounters, Histogram) {
        let shared = self.disk.shared.lock();
        let mut totals = shared.retired.clone();
        let queues = shared.queues.clone();
        drop(shared);
        for queue in queues {
            queue.add_to(&mut totals);
        }
        totals
    }

    /// An image that a power cut at this moment might leave; another seed gives another image.
    ///
    /// # Errors
    /// The disk was not made with [`SimOptions::crash`], or the host cannot map the image.
    pub fn crash(&self, seed: u64) -> Result<MemDevice, DeviceError> {
        match &self.disk.log {
            Some(log) => log.image(seed),
            None => Err(DeviceError::new(
                DeviceErrorKind::Unsupported,
                "this simulated disk does not remember what is durable: make it with crash=yes",
            )),
        }
    }

    /// Reads without a queue what a read request would read now.
    ///
    /// # Panics
    /// If the range is not inside the device.
    pub fn read_at(&self, pos: u64, dst: &mut [u8]) {
        self.disk.medium.arena.read(pos, dst);
    }

    /// Makes the host commit all of its memory now: for measurements. Takes as long as writing it once.
    pub fn populate(&self) {
        self.disk.medium.arena.populate();
    }

    /// Writes without a queue, durably: for loading an image.
    ///
    /// # Panics
    /// If the range is not inside the device.
    pub fn write_at(&self, pos: u64, src: &[u8]) {
        self.disk.medium.arena.write(pos, src);
        if let Some(log) = &self.disk.log {
            log.load(pos, src);
        }
    }
}

impl Device for SimDevice {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.disk.medium.geometry
    }

    fn atomic_writes(&self) -> Option<AtomicWrites> {
        let options = &self.disk.options;
        (options.atomic >= options.logical).then_some(AtomicWrites {
            unit_min: options.logical,
            unit_max: options.atomic,
        })
    }

    fn name(&self) -> String {
        let o = &self.disk.options;
        let latency = Duration::as_micros(&o.latency);
        format!("sim:{},latency={latency}us,parallel={}", o.size, o.parallel)
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "sim".into(),
            direct: true,
            ..DeviceReport::default()
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        self.all_data(range.clone(), most)?;
        Ok(self.disk.medium.arena.stored(range, most))
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(SimQueue::open(self.disk.clone(), options)))
    }
}
