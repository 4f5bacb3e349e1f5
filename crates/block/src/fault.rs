//! Fault injection: which requests fail and how, and a device that applies such a plan to any other device.
//!
//! Input: bios on submit, and ended bios on reap. Output: the same bios, some of them failed or held back. Invariant: a failed
//! bio never reaches the device below; every bio still ends exactly once, at reap. Limits: one plan counts requests over all
//! queues of its device, so with several threads only the totals are reproducible.

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;

use crate::bio::{Bio, BioError, BioErrorKind, BioList, BioOp};
use crate::device::{Device, DeviceError, DeviceQueue, Geometry, QueueOptions, Run, Waker};
use crate::places::Places;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{DEVICE_SHARED, Mutex};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Which of the matching requests a fault hits. Requests are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// `count` requests from the `first` one on.
    Span {
        /// The first request that is hit.
        first: u64,
        /// How many.
        count: u64,
    },
    /// Every nth request.
    Every(u64),
    /// One request in n on average, chosen by the plan's seed.
    OneIn(u64),
}

impl When {
    /// Only the `n`th request.
    #[must_use]
    pub fn nth(n: u64) -> When {
        When::Span { first: n, count: 1 }
    }

    /// Parses `7`: the 7th; `7+20`: 20 from the 7th on; `every-7`; `1in500`: random by the seed.
    #[must_use]
    pub fn parse(text: &str) -> Option<When> {
        let positive = |t: &str| t.parse::<u64>().ok().filter(|n| *n > 0);
        if let Some(n) = text.strip_prefix("every-") {
            return positive(n).map(When::Every);
        }
        if let Some(n) = text.strip_prefix("1in") {
            return positive(n).map(When::OneIn);
        }
        let (first, count) = text.split_once('+').unwrap_or((text, "1"));
        Some(When::Span {
            first: positive(first)?,
            count: positive(count)?,
        })
    }

    fn hits(self, nth: u64, seed: u64) -> bool {
        match self {
            When::Span { first, count } => nth >= first && nth - first < count,
            When::Every(n) => nth.is_multiple_of(n),
            When::OneIn(n) => crate::rng::mix(seed ^ nth.rotate_left(32)).is_multiple_of(n),
        }
    }
}

/// One kind of failure.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The error of the requests that are hit.
    pub kind: BioErrorKind,
    /// Which of the requests that match are hit.
    pub when: When,
    /// Only requests of this operation match, if given.
    pub op: Option<BioOp>,
    /// Only requests that overlap this range match, if given.
    pub range: Option<Range<u64>>,
}

impl Fault {
    /// A fault that matches every request.
    #[must_use]
    pub fn new(kind: BioErrorKind, when: When) -> Fault {
        Fault {
            kind,
            when,
            op: None,
            range: None,
        }
    }

    /// Matches only requests of `op`.
    #[must_use]
    pub fn on(mut self, op: BioOp) -> Fault {
        self.op = Some(op);
        self
    }

    /// Matches only requests that overlap `range`.
    #[must_use]
    pub fn within(mut self, range: Range<u64>) -> Fault {
        self.range = Some(range);
        self
    }

    fn looks_at(&self, bio: &Bio) -> bool {
        self.op.is_none_or(|op| op == bio.op)
            && self
                .range
                .as_ref()
                .is_none_or(|r| bio.pos < r.end && bio.end().is_none_or(|end| end > r.start))
    }
}

/// Faults with their counters. Send and Sync.
#[derive(Debug, Default)]
pub struct FaultPlan {
    faults: Vec<(Fault, AtomicU64)>,
    seed: u64,
    failed: AtomicU64,
}

impl FaultPlan {
    /// A plan of these faults. The first fault that hits a request decides; each fault counts the requests that match it.
    #[must_use]
    pub fn new(faults: Vec<Fault>, seed: u64) -> FaultPlan {
        FaultPlan {
            faults: faults.into_iter().map(|f| (f, AtomicU64::new(0))).collect(),
            seed,
            failed: AtomicU64::new(0),
        }
    }

    /// How many requests have been failed so far.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Counts the request, and returns its error if a fault hits it.
    #[must_use]
    pub fn check(&self, bio: &Bio) -> Option<BioError> {
        let mut hit = None;
        for (fault, seen) in self.faults.iter().filter(|(f, _)| f.looks_at(bio)) {
            let nth = seen.fetch_add(1, Ordering::Relaxed) + 1;
            if fault.when.hits(nth, self.seed) {
                hit = hit.or(Some(BioError::new(fault.kind)));
            }
        }
        if hit.is_some() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        hit
    }
}

/// A device that fails, holds back or refuses requests to the device below. Send and Sync.
///
/// ```
/// use diorite_block::{BioErrorKind, BioOp, Blocking, Buf, Fault, FaultDevice, FaultPlan, MemDevice, When};
/// use std::sync::Arc;
///
/// let second = Fault::new(BioErrorKind::Io, When::nth(2)).on(BioOp::Read);
/// let device = FaultDevice::new(Arc::new(MemDevice::new(1 << 20)), FaultPlan::new(vec![second], 1));
/// let blocking = Blocking::new(Arc::new(device));
/// assert!(blocking.read(0, Buf::zeroed(512)).is_ok());
/// assert!(blocking.read(0, Buf::zeroed(512)).is_err());
/// ```
pub struct FaultDevice {
    below: Arc<dyn Device>,
    control: Arc<Control>,
}

impl fmt::Debug for FaultDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultDevice")
            .field("below", &self.below.name())
            .finish_non_exhaustive()
    }
}

struct Control {
    plan: FaultPlan,
    hold: AtomicBool,
    read_only: AtomicBool,
    /// The wakers of the open queues: releasing held completions kicks them.
    wakers: Mutex<Vec<Weak<Waker>>>,
}

impl FaultDevice {
    /// A device over `below` that applies `plan`.
    #[must_use]
    pub fn new(below: Arc<dyn Device>, plan: FaultPlan) -> FaultDevice {
        FaultDevice {
            below,
            control: Arc::new(Control {
                plan,
                hold: AtomicBool::new(false),
                read_only: AtomicBool::new(false),
                wakers: Mutex::new(&DEVICE_SHARED, Vec::new()),
            }),
        }
    }

    /// The plan, for its counters.
    #[must_use]
    pub fn plan(&self) -> &FaultPlan {
        &self.control.plan
    }

    /// Holds completions back: nothing can be reaped until `hold(false)`, which wakes all waiters.
    pub fn hold(&self, hold: bool) {
        self.control.hold.store(hold, Ordering::SeqCst);
        if !hold {
            let wakers = self.control.wakers.lock();
            wakers
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|w| w.kick());
        }
    }

    /// Makes the device refuse every change, or accept changes again.
    pub fn set_read_only(&self, read_only: bool) {
        self.control.read_only.store(read_only, Ordering::SeqCst);
    }
}

impl Device for FaultDevice {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        let below = self.below.geometry();
        Geometry {
            read_only: below.read_only || self.control.read_only.load(Ordering::SeqCst),
            ..below
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        self.below.stored(range, most)
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let mut wakers = self.control.wakers.lock();
        wakers.retain(|w| w.strong_count() > 0);
        wakers.push(Arc::downgrade(&options.waker));
        drop(wakers);
        let waker = options.waker.clone();
        let places = Places::new(options.depth);
        Ok(Box::new(FaultQueue {
            below: self.below.open_queue(options)?,
            control: self.control.clone(),
            waker,
            places,
            failed: Mutex::new(&DEVICE_SHARED, BioList::new()),
            held: Mutex::new(&DEVICE_SHARED, BioList::new()),
        }))
    }
}

/// No lock of its own is held while the queue below is called.
struct FaultQueue {
    below: Box<dyn DeviceQueue>,
    control: Arc<Control>,
    waker: Arc<Waker>,
    places: Places,
    /// Failed here, not reaped yet.
    failed: Mutex<BioList>,
    /// Ended below while completions were held.
    held: Mutex<BioList>,
}

impl FaultQueue {
    fn verdict(&self, bio: &Bio) -> Option<BioError> {
        let changes = !matches!(bio.op, BioOp::Read | BioOp::Flush);
        if changes && self.control.read_only.load(Ordering::SeqCst) {
            return Some(BioError::new(BioErrorKind::ReadOnly));
        }
        self.control.plan.check(bio)
    }
}

impl DeviceQueue for FaultQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        Some(&*self.below)
    }

    fn submit(&self, bios: &mut BioList) {
        let (mut pass, mut fail) = (BioList::new(), BioList::new());
        while !bios.is_empty() && self.places.reserve() {
            let mut bio = bios.pop_front().expect("the list is not empty");
            match self.verdict(&bio) {
                Some(error) => {
                    bio.result = Err(error);
                    fail.push_back(bio);
                }
                None => pass.push_back(bio),
            }
        }
        self.below.submit(&mut pass);
        self.places.release(pass.len());
        while let Some(bio) = pass.pop_back() {
            bios.push_front(bio);
        }
        if !fail.is_empty() {
            self.failed.lock().append(&mut fail);
            self.waker.kick();
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut ended = BioList::new();
        self.below.reap(&mut ended);
        let mut held = self.held.lock();
        held.append(&mut ended);
        if self.control.hold.load(Ordering::SeqCst) {
            return 0;
        }
        let from = out.len();
        out.append(&mut held);
        drop(held);
        out.append(&mut self.failed.lock());
        self.places.release(out.len() - from);
        out.len() - from
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.control.hold.load(Ordering::SeqCst) {
            self.waker.wait(timeout);
        } else if self.held.lock().is_empty() && self.failed.lock().is_empty() {
            self.below.wait(min, timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        self.places.taken()
    }
}
