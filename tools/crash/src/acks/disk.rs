//! What it is: one or two disks that have latencies, lose what they may lose in a power cut, and record their requests.
//! Input: bios; marks of the threads that write and wait above. Output: the same bios, ended; one log of all disks, in order.
//! Invariants: a bio takes effect and its end is recorded in one step, before it can be reaped; its request is recorded before it
//! is served; a mark is in the log after everything that had ended before it. Limits: images are in memory; nothing fails;
//! latencies are as exact as the host's timers.

use crate::rng::Rng;
use diorite_block::device::DeviceError;
use diorite_block::{
    Bio, BioError, BioErrorKind, BioList, BioOp, Device, DeviceQueue, DeviceReport, Geometry,
    QueueOptions, Waker,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The cache of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// No cache: a write that has ended is durable.
    Through,
    /// A volatile cache; a write with FUA is durable by itself.
    Fua,
    /// A volatile cache; a write with FUA is followed by a flush.
    Plain,
    /// A volatile cache that the disk does not report: for the test that the judge finds lost data.
    Denied,
}

impl Cache {
    /// The caches on which a correct volume loses nothing.
    pub const ALL: [Cache; 3] = [Cache::Fua, Cache::Plain, Cache::Through];

    /// The cache with this name, as the command line uses it.
    #[must_use]
    pub fn named(name: &str) -> Option<Cache> {
        match name {
            "through" => Some(Cache::Through),
            "fua" => Some(Cache::Fua),
            "plain" => Some(Cache::Plain),
            "denied" => Some(Cache::Denied),
            _ => None,
        }
    }
}

/// The latencies of a disk.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The least time of a request.
    pub least: Duration,
    /// The most time that is added at random.
    pub more: Duration,
    /// A flush takes this many times as long.
    pub flush: u32,
    /// The seed of the random part.
    pub seed: u64,
}

/// The data of a write.
#[derive(Debug, Clone)]
pub enum Data {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// This many zeros.
    Zeros(usize),
}

/// An event of the log. Requests are numbered over all disks.
#[derive(Debug, Clone)]
pub enum Event {
    /// A write was submitted to a disk.
    Write {
        /// The request's number.
        id: u64,
        /// The disk's number.
        disk: usize,
        /// The position in bytes.
        pos: u64,
        /// The data.
        data: Data,
        /// Durable once it has ended.
        durable: bool,
        /// The disk flushes after it: everything that had ended before the request is durable, too.
        flushes: bool,
    },
    /// A flush was submitted to a disk.
    Flush {
        /// The request's number.
        id: u64,
        /// The disk's number.
        disk: usize,
    },
    /// A write or a flush ended.
    Ended {
        /// The request's number.
        id: u64,
    },
    /// A thread above made a request, or got an acknowledgement.
    Mark,
}

#[derive(Debug, Default)]
struct State {
    images: Vec<Vec<u8>>,
    log: Vec<Event>,
    next: u64,
}

/// All disks of a machine. Send and Sync; clones refer to the same disks.
#[derive(Debug, Clone, Default)]
pub struct Disks {
    state: Arc<Mutex<State>>,
}

impl Disks {
    /// Disks that hold these images.
    #[must_use]
    pub fn new(images: Vec<Vec<u8>>) -> Disks {
        let state = State {
            images,
            ..State::default()
        };
        Disks {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// A disk as a device.
    #[must_use]
    pub fn device(&self, disk: usize, cache: Cache, pace: Pace) -> Arc<dyn Device> {
        let size = self.lock().images[disk].len() as u64;
        let geometry = Geometry {
            discard: true,
            write_zeroes: true,
            fua: cache == Cache::Fua,
            fua_flushes: cache == Cache::Plain,
            volatile_cache: matches!(cache, Cache::Fua | Cache::Plain),
            ..Geometry::plain(size)
        };
        Arc::new(Disk {
            disks: self.clone(),
            disk,
            geometry,
            through: cache == Cache::Through,
            pace,
            began: Instant::now(),
            served: Arc::default(),
        })
    }

    /// Records that a thread above makes a request or was acknowledged just now; returns the position in the log.
    pub fn mark(&self) -> usize {
        let mut state = self.lock();
        state.log.push(Event::Mark);
        state.log.len() - 1
    }

    /// The events so far.
    #[must_use]
    pub fn log(&self) -> Vec<Event> {
        self.lock().log.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Records a request; returns its number if it is a write or a flush.
    fn begin(&mut self, of: &Disk, bio: &Bio) -> Option<u64> {
        let (id, disk) = (self.next, of.disk);
        let event = match bio.op {
            BioOp::Read => return None,
            BioOp::Flush => Event::Flush { id, disk },
            _ => Event::Write {
                id,
                disk,
                pos: bio.pos,
                data: data_of(bio),
                durable: bio.flags.fua || of.through,
                flushes: bio.flags.fua && of.geometry.fua_flushes,
            },
        };
        self.log.push(event);
        self.next += 1;
        Some(id)
    }

    /// Performs the bio and records its end.
    fn end(&mut self, disk: usize, bio: &mut Bio, id: Option<u64>) {
        let at = usize::try_from(bio.pos).unwrap_or(usize::MAX);
        let image = &mut self.images[disk];
        match bio.op {
            BioOp::Read => {
                let mut from = at;
                for part in bio.buf.parts_mut() {
                    part.copy_from_slice(&image[from..from + part.len()]);
                    from += part.len();
                }
            }
            BioOp::Write => {
                let mut to = at;
                for part in bio.buf.parts() {
                    image[to..to + part.len()].copy_from_slice(part);
                    to += part.len();
                }
            }
            BioOp::Flush => {}
            BioOp::Discard | BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => {
                let len = usize::try_from(bio.len).unwrap_or(usize::MAX);
                image[at..at + len].fill(0);
            }
        }
        self.log.extend(id.map(|id| Event::Ended { id }));
    }
}

fn data_of(bio: &Bio) -> Data {
    if bio.buf.is_empty() || bio.buf.parts().all(|part| part.iter().all(|b| *b == 0)) {
        return Data::Zeros(usize::try_from(bio.len).unwrap_or(usize::MAX));
    }
    let mut bytes = Vec::with_capacity(bio.buf.len());
    bio.buf.parts().for_each(|p| bytes.extend_from_slice(p));
    Data::Bytes(bytes.into())
}

struct Disk {
    disks: Disks,
    disk: usize,
    geometry: Geometry,
    /// No cache: a write that has ended is durable.
    through: bool,
    pace: Pace,
    began: Instant,
    served: Arc<AtomicU64>,
}

impl Device for Disk {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        format!("disk {}", self.disk)
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "disk".into(),
            direct: true,
            ..DeviceReport::default()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(DiskQueue {
            disk: Disk {
                disks: self.disks.clone(),
                served: self.served.clone(),
                ..*self
            },
            depth: options.depth.clamp(1, 32_768),
            waker: options.waker,
            taken: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            pending: Mutex::default(),
        }))
    }
}

impl Disk {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time in nanoseconds at which a request that is taken now ends.
    fn due(&self, op: BioOp) -> u64 {
        let number = self.served.fetch_add(1, Ordering::Relaxed);
        let mut rng = Rng::new(self.pace.seed ^ number);
        let nanos = |t: Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
        let time = nanos(self.pace.least) + rng.below(nanos(self.pace.more));
        let times = match op {
            BioOp::Flush => u64::from(self.pace.flush),
            _ => 1,
        };
        self.now() + time * times
    }
}

/// A request that is being served.
struct Pending {
    due: u64,
    id: Option<u64>,
    bio: Bio,
}

struct DiskQueue {
    disk: Disk,
    depth: u32,
    waker: Arc<Waker>,
    /// Taken and not reaped. Only increased under the lock.
    taken: AtomicU32,
    /// Threads that wait although nothing is in flight; a submission wakes them.
    waiters: AtomicU32,
    /// In the order in which the requests end.
    pending: Mutex<VecDeque<Pending>>,
}

impl DiskQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks and records a bio, and inserts it at its place in that order.
    fn take(&self, pending: &mut VecDeque<Pending>, mut bio: Bio) {
        let has_buf = matches!(bio.op, BioOp::Read | BioOp::Write);
        bio.result = self.disk.geometry.check(&bio);
        if bio.result.is_ok() && has_buf && bio.len != bio.buf.len() as u64 {
            bio.result = Err(BioError::new(BioErrorKind::Invalid));
        }
        let id = match bio.result {
            Ok(()) => self.disk.disks.lock().begin(&self.disk, &bio),
            Err(_) => None,
        };
        let due = self.disk.due(bio.op);
        let behind = pending.iter().rev().take_while(|p| p.due > due).count();
        pending.insert(pending.len() - behind, Pending { due, id, bio });
    }

    /// Ends the requests that are due by `time`, in order.
    fn end(&self, time: u64, out: &mut BioList) {
        let mut pending = self.lock();
        while pending.front().is_some_and(|p| p.due <= time) {
            let Some(Pending { id, mut bio, .. }) = pending.pop_front() else {
                return;
            };
            if bio.result.is_ok() {
                self.disk.disks.lock().end(self.disk.disk, &mut bio, id);
            }
            out.push_back(bio);
        }
    }
}

impl DeviceQueue for DiskQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let mut pending = self.lock();
        let room = self.depth - self.taken.load(Ordering::SeqCst);
        let count = bios.len().min(room as usize);
        for bio in bios.drain(..count) {
            self.take(&mut pending, bio);
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.taken.fetch_add(count, Ordering::SeqCst);
        drop(pending);
        if count > 0 && self.waiters.load(Ordering::SeqCst) > 0 {
            self.waker.kick();
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let from = out.len();
        self.end(self.disk.now(), out);
        let count = out.len() - from;
        self.taken
            .fetch_sub(u32::try_from(count).unwrap_or(u32::MAX), Ordering::SeqCst);
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let pending = self.lock();
        let nth = (min.max(1) as usize).min(pending.len());
        let due = nth.checked_sub(1).map(|nth| pending[nth].due);
        drop(pending);
        let left = due.map(|due| Duration::from_nanos(due.saturating_sub(self.disk.now())));
        let time = match (left, timeout) {
            (Some(left), Some(timeout)) => Some(left.min(timeout)),
            (left, timeout) => left.or(timeout),
        };
        if time.is_none_or(|t| !t.is_zero()) {
            self.waker.wait(time);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    fn in_flight(&self) -> u32 {
        self.taken.load(Ordering::SeqCst)
    }
}

impl Drop for DiskQueue {
    /// Performs all requests that were taken, although nobody will reap them.
    fn drop(&mut self) {
        self.end(u64::MAX, &mut BioList::new());
    }
}
