//! A queue whose waits look for completions before they sleep: this spends processor time and saves an interrupt and a wake-up.
//!
//! Input: bios. Output: the same, from the queue below. Invariants: a wait looks for as long as recent waits took, at most for its bound,
//! and then sleeps as the queue below does. If recent waits took longer than the bound it sleeps at once, but for one of `LOOK_AGAIN`
//! waits, as the device may be fast again. A kick of the waker ends both. The bios that were found by looking are returned by the next
//! reap, before any other; until then they count for the depth. Limits: it looks by `reap`; whether a look makes
//! the driver poll its device (IORING_SETUP_IOPOLL) is up to the queue below, which says so in the [`PolledStats`].

use crate::bio::BioList;
use crate::device::{Device, DeviceError, DeviceQueue, PolledStats, QueueOptions, Waker};
use crate::sync::{DEVICE_POLLED, Mutex, bias};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Of so many waits that would sleep at once one looks all the same.
const LOOK_AGAIN: u32 = 16;

/// See the module.
pub struct PolledQueue {
    below: Box<dyn DeviceQueue>,
    waker: Arc<Waker>,
    longest: Duration,
    depth: u32,
    /// How long a wait takes, in nanoseconds, an eighth of it the last one. 0: not known.
    usual: AtomicU64,
    /// Waits for which that was longer than the bound.
    unlucky: AtomicU32,
    found: Mutex<BioList>,
    /// Threads inside `wait`.
    waiting: AtomicU32,
    stats: Arc<PolledStats>,
}

impl std::fmt::Debug for PolledQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolledQueue")
            .field("longest", &self.longest)
            .finish_non_exhaustive()
    }
}

impl PolledQueue {
    /// A queue of the device, for a volume at this level of a stack. A wait looks for at most `longest`. Of the requests that the owner
    /// marks ([`crate::BioFlags::polled`]) the device's driver is polled, if it can be.
    ///
    /// # Errors
    /// Those of [`Device::open_queue`].
    pub fn open(
        device: &dyn Device,
        options: QueueOptions,
        level: u8,
        longest: Duration,
    ) -> Result<PolledQueue, DeviceError> {
        let (waker, depth) = (options.waker.clone(), options.depth);
        let stats = Arc::new(PolledStats::default());
        let below = device.open_queue(QueueOptions {
            polled: Some(stats.clone()),
            ..options
        })?;
        Ok(PolledQueue {
            below,
            waker,
            longest,
            depth,
            usual: AtomicU64::new(0),
            unlucky: AtomicU32::new(0),
            found: Mutex::at_level(
                &DEVICE_POLLED,
                level,
                BioList::with_capacity(depth as usize),
            ),
            waiting: AtomicU32::new(0),
            stats,
        })
    }

    /// How its waits have ended so far.
    #[must_use]
    pub fn stats(&self) -> Arc<PolledStats> {
        self.stats.clone()
    }

    /// How long the next wait looks: twice as long as waits usually take. To be called once for each wait.
    fn limit(&self, timeout: Option<Duration>) -> Duration {
        let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed));
        let limit = match usual {
            Duration::ZERO => self.longest,
            usual if usual > self.longest => {
                let before = self.unlucky.fetch_add(1, Ordering::Relaxed);
                match (before + 1).is_multiple_of(LOOK_AGAIN) {
                    true => self.longest,
                    false => Duration::ZERO,
                }
            }
            usual => (2 * usual).min(self.longest),
        };
        timeout.map_or(limit, |timeout| timeout.min(limit))
    }

    fn note(&self, took: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let (took, longest) = (nanos(took), nanos(self.longest));
        let usual = match self.usual.load(Ordering::Relaxed) {
            0 => took,
            // A slow spell is over.
            usual if usual > longest && took <= longest => took,
            usual => usual - usual / 8 + took / 8,
        };
        self.usual.store(usual.max(1), Ordering::Relaxed);
    }

    /// Takes in what has ended; how many bios there are to be reaped.
    fn look(&self) -> usize {
        let mut found = self.found.lock();
        self.below.reap(&mut found);
        found.len()
    }

    fn wait_alone(&self, min: usize, timeout: Option<Duration>) {
        let mut have = self.look();
        if have >= min || self.waker.is_kicked() {
            return;
        }
        let (begun, limit) = (Instant::now(), self.limit(timeout));
        let mut passed = Duration::ZERO;
        while passed < limit && self.below.in_flight() > 0 {
            bias::pause(0);
            have = self.look();
            passed = begun.elapsed();
            if have >= min {
                self.note(passed);
                self.stats.note_spun();
                return;
            }
            if self.waker.is_kicked() {
                return;
            }
        }
        let in_flight = self.below.in_flight() > 0;
        if have > 0 && !in_flight {
            return;
        }
        // What is there is worth a return to a caller who has waited as long as he wanted to.
        let left = timeout.map(|timeout| timeout.saturating_sub(passed));
        if left.is_some_and(|left| left.is_zero()) {
            return;
        }
        self.below.wait((min - have) as u32, left);
        if in_flight && !self.waker.is_kicked() {
            self.note(begun.elapsed());
        }
        self.stats.note_slept();
    }
}

impl DeviceQueue for PolledQueue {
    crate::forward_queue! { below => below }

    fn submit(&self, bios: &mut BioList) {
        let room = self.depth.saturating_sub(self.in_flight()) as usize;
        let mut rest = bios.split_off(room.min(bios.len()));
        self.below.submit(bios);
        bios.append(&mut rest);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let before = out.len();
        out.append(&mut self.found.lock());
        self.below.reap(out);
        out.len() - before
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.in_flight() == 0 && timeout.is_some_and(|t| t.is_zero()) {
            return;
        }
        let others = self.waiting.fetch_add(1, Ordering::SeqCst);
        // No more can end than are in flight.
        let min = min.clamp(1, self.in_flight().max(1));
        self.wait_alone(min as usize, timeout);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        // Another thread may sleep below for what this one has found.
        if others > 0 || self.waiting.load(Ordering::SeqCst) > 0 {
            self.waker.kick();
        }
    }

    fn in_flight(&self) -> u32 {
        // Not in one step: a bio that is found in between is counted twice rather than never.
        let below = self.below.in_flight();
        let found = self.found.lock().len();
        below + u32::try_from(found).expect("a queue's depth is a u32")
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;
    use crate::bio::Bio;
    use crate::buf::Buf;
    use crate::device::{NotPolled, PolledWay};
    use crate::sim::{SimDevice, SimOptions};

    const LONG: Duration = Duration::from_secs(60);

    fn open(sim: &SimDevice, depth: u32, longest: Duration) -> (PolledQueue, Arc<Waker>) {
        let options = QueueOptions::new(depth).expect("a descriptor");
        let waker = options.waker.clone();
        let queue = PolledQueue::open(sim, options, 0, longest).expect("a queue");
        (queue, waker)
    }

    fn read(token: u64) -> Bio {
        Bio::read(token % 2048 * 512, Buf::zeroed(512), token)
    }

    /// Waits as an owner does: clears the waker, reaps, and waits if that was not enough.
    fn reap(queue: &PolledQueue, waker: &Waker, min: usize) -> Vec<u64> {
        let mut out = BioList::new();
        loop {
            waker.clear();
            queue.reap(&mut out);
            if out.len() >= min {
                return out.iter().map(|bio| bio.token).collect();
            }
            queue.wait((min - out.len()) as u32, None);
        }
    }

    #[test]
    fn what_ends_soon_is_found_while_it_looks() {
        let sim = SimDevice::new(SimOptions::parse("1M,latency=20us").expect("options"));
        let sim = sim.expect("a device");
        let (queue, waker) = open(&sim, 8, LONG);
        for round in 0..20 {
            let mut bios: BioList = (0..8).map(|n| read(round * 8 + n)).collect();
            queue.submit(&mut bios);
            assert_eq!(queue.in_flight(), 8);
            let mut tokens = reap(&queue, &waker, 8);
            tokens.sort_unstable();
            assert_eq!(tokens, (round * 8..round * 8 + 8).collect::<Vec<_>>());
            assert_eq!(queue.in_flight(), 0);
        }
        let waits = queue.stats().waits();
        assert!(waits.spun > 0, "{waits:?}");
        assert_eq!(waits.way, PolledWay::Looks(NotPolled::Device));
    }

    /// A device that takes longer than the bound is not looked at, but for the first wait.
    #[test]
    fn what_takes_long_is_slept_for() {
        let options = SimOptions::parse("1M,latency=5ms").expect("options");
        let sim = SimDevice::new(options).expect("a device");
        let (queue, waker) = open(&sim, 1, Duration::from_micros(50));
        for token in 0..8 {
            queue.submit(&mut BioList::from([read(token)]));
            assert_eq!(reap(&queue, &waker, 1), [token]);
        }
        let waits = queue.stats().waits();
        assert!(waits.spun == 0 && waits.slept >= 8, "{waits:?}");
        assert_eq!(queue.limit(None), Duration::ZERO);
    }

    /// A kick ends a wait for what never ends, and bios that were found by looking are in flight until they are reaped.
    #[test]
    fn a_kick_ends_the_look_and_nothing_is_lost() {
        let sim = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a device");
        let (queue, waker) = open(&sim, 4, LONG);
        queue.submit(&mut (0..3).map(read).collect());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.wait(3, None));
            // The waiter takes this one in while it looks.
            assert!(sim.step());
            while queue.found.lock().is_empty() {
                std::thread::yield_now();
            }
            assert_eq!(queue.in_flight(), 3);
            waker.kick();
            waiter.join().expect("it ends");
        });
        let mut out = BioList::new();
        waker.clear();
        assert_eq!(queue.reap(&mut out), 1);
        assert_eq!(queue.in_flight(), 2);
        sim.advance(2);
        assert_eq!(reap(&queue, &waker, 2).len(), 2);
    }

    /// A wait for more than are in flight returns with those.
    #[test]
    fn a_wait_for_too_many_ends() {
        let options = SimOptions::parse("1M,latency=20us").expect("options");
        let sim = SimDevice::new(options).expect("a device");
        for longest in [Duration::ZERO, LONG] {
            let (queue, _waker) = open(&sim, 8, longest);
            queue.submit(&mut (0..2).map(read).collect());
            let mut out = BioList::new();
            while out.len() < 2 {
                queue.wait(5, None);
                queue.reap(&mut out);
            }
            assert_eq!(queue.in_flight(), 0);
        }
    }

    /// After a slow spell waits went on to sleep at once if only the sleep made them long.
    #[test]
    fn one_wait_in_some_looks_again() {
        let sim = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a device");
        let longest = Duration::from_micros(50);
        let (queue, _waker) = open(&sim, 1, longest);
        queue.note(Duration::from_secs(1));
        let looks: Vec<_> = (0..2 * LOOK_AGAIN).map(|_| queue.limit(None)).collect();
        let looked = looks.iter().filter(|limit| **limit == longest).count();
        let slept = looks.iter().filter(|limit| limit.is_zero()).count();
        assert_eq!((looked, slept), (2, looks.len() - 2));
        queue.note(Duration::from_micros(10));
        assert_eq!(queue.limit(None), Duration::from_micros(20));
    }

    /// What was found and not reaped took no room, so an owner that waits between two submissions had any number in flight.
    #[test]
    fn what_was_found_counts_for_the_depth() {
        let sim = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a device");
        let (queue, _waker) = open(&sim, 4, LONG);
        let mut bios: BioList = (0..7).map(read).collect();
        queue.submit(&mut bios);
        assert_eq!((bios.len(), queue.in_flight()), (3, 4));
        sim.advance(4);
        queue.wait(4, None);
        assert_eq!(queue.found.lock().len(), 4);
        queue.submit(&mut bios);
        assert_eq!((bios.len(), queue.in_flight()), (3, 4));
        let mut out = BioList::new();
        assert_eq!(queue.reap(&mut out), 4);
        queue.submit(&mut bios);
        assert_eq!((bios.len(), queue.in_flight()), (0, 3));
        let mut tokens: Vec<u64> = out.iter().map(|bio| bio.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [0, 1, 2, 3]);
        sim.advance(3);
    }

    /// With no time, and with nothing in flight, a wait returns.
    #[test]
    fn a_wait_has_its_limit() {
        let sim = SimDevice::new(SimOptions::stepped(1 << 20, 1)).expect("a device");
        let (queue, _waker) = open(&sim, 4, LONG);
        queue.wait(1, Some(Duration::ZERO));
        queue.wait(1, Some(Duration::from_millis(2)));
        queue.submit(&mut BioList::from([read(0)]));
        queue.wait(1, Some(Duration::ZERO));
        queue.wait(1, Some(Duration::from_millis(2)));
        assert_eq!(queue.in_flight(), 1);
        assert!(sim.step());
        let mut out = BioList::new();
        assert_eq!(queue.reap(&mut out), 1);
    }

    /// Two threads wait and reap; whoever looks finds what the other one sleeps for, and tells it.
    #[test]
    fn two_threads_get_all_bios_once() {
        let options = SimOptions::parse("1M,latency=30us,jitter=60us,interrupts=yes");
        let sim = SimDevice::new(options.expect("options")).expect("a device");
        let (queue, waker) = open(&sim, 16, Duration::from_micros(40));
        let (left, seen) = (AtomicU32::new(400), Mutex::new(&DEVICE_POLLED, Vec::new()));
        let work = || {
            while left.load(Ordering::SeqCst) > 0 {
                waker.clear();
                let mut out = BioList::new();
                let count = queue.reap(&mut out) as u32;
                if count > 0 {
                    left.fetch_sub(count, Ordering::SeqCst);
                    waker.kick();
                    seen.lock().extend(out.iter().map(|bio| bio.token));
                } else {
                    queue.wait(1, Some(Duration::from_millis(20)));
                }
            }
            waker.kick();
        };
        std::thread::scope(|scope| {
            let workers = [scope.spawn(work), scope.spawn(work)];
            let mut bios: BioList = (0..400).map(read).collect();
            while !bios.is_empty() {
                queue.submit(&mut bios);
                std::thread::yield_now();
            }
            for worker in workers {
                worker.join().expect("it ends");
            }
        });
        let mut seen = std::mem::take(&mut *seen.lock());
        seen.sort_unstable();
        assert_eq!(seen, (0..400).collect::<Vec<_>>());
    }
}
