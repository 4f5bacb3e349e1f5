//! A device that records all changes, so that every power cut can be tried afterwards.
//!
//! Input: bios on their way to any device below. Output: the same bios; the log of changes ([`Event`]); from it the images that
//! a power cut may leave ([`PowerCuts`]). Invariants: the end of a bio is in the log before the bio can be reaped; a flush is
//! in the log before the device below gets it; the device's own lock is never held while the queue below is called. Limits:
//! memory grows with the bytes written.

pub(crate) mod cache;
pub(crate) mod log;
mod states;
#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;

pub use log::{Data, Event};
pub use states::{Cut, PowerCuts, Survival, plan};

use crate::bio::{Bio, BioList, BioOp};
use crate::device::{Device, DeviceError, DeviceQueue, Geometry, QueueOptions, Run};
use crate::places::Places;
use crate::sync::{DEVICE_SHARED, Mutex};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A recording device. Send and Sync; clones are the same device.
///
/// ```
/// use diorite_block::{Blocking, Buf, MemDevice, RecordDevice};
/// use std::sync::Arc;
///
/// let device = RecordDevice::new(Arc::new(MemDevice::new(1 << 20)));
/// let blocking = Blocking::new(Arc::new(device.clone()));
/// blocking.write_durably(0, Buf::zeroed(512)).expect("memory does not fail");
/// let acknowledged = device.mark(1); // in every image of a cut behind it, the write is there
/// assert!(acknowledged > 0 && device.log().len() > acknowledged);
/// ```
#[derive(Clone)]
pub struct RecordDevice {
    below: Arc<dyn Device>,
    geometry: Overstated,
    log: Arc<Mutex<Log>>,
}

/// What the device reports in addition to the one below.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overstated {
    /// Nothing.
    No,
    /// A volatile cache.
    VolatileCache,
}

struct Log {
    events: Vec<Event>,
    next_id: u64,
}

impl fmt::Debug for RecordDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordDevice")
            .field("below", &self.below.name())
            .finish_non_exhaustive()
    }
}

impl RecordDevice {
    /// Records every change of `below` from now on. If `below` has no volatile cache, every write is durable when it has ended.
    #[must_use]
    pub fn new(below: Arc<dyn Device>) -> RecordDevice {
        RecordDevice::with(below, Overstated::No)
    }

    /// As [`RecordDevice::new`], but reports a volatile cache, so that the layers above have to flush.
    #[must_use]
    pub fn with_volatile_cache(below: Arc<dyn Device>) -> RecordDevice {
        RecordDevice::with(below, Overstated::VolatileCache)
    }

    fn with(below: Arc<dyn Device>, geometry: Overstated) -> RecordDevice {
        let log = Log {
            events: Vec::new(),
            next_id: 0,
        };
        RecordDevice {
            below,
            geometry,
            log: Arc::new(Mutex::new(&DEVICE_SHARED, log)),
        }
    }

    /// Puts a mark into the log and returns its index. Everything acknowledged before the call must hold in every state of a
    /// cut after that index.
    pub fn mark(&self, mark: u64) -> usize {
        let mut log = self.log.lock();
        log.events.push(Event::Mark(mark));
        log.events.len() - 1
    }

    /// The log so far. Copies share the data.
    #[must_use]
    pub fn log(&self) -> Vec<Event> {
        self.log.lock().events.clone()
    }
}

impl Log {
    /// Records a bio about to be submitted; returns its number if it changes anything.
    fn taken(&mut self, bio: &Bio, data: Option<Data>, volatile: bool) -> Option<u64> {
        let id = self.next_id;
        let event = match (bio.op, data) {
            (BioOp::Flush, _) => Event::Flush { id },
            (_, Some(data)) => Event::Write {
                id,
                pos: bio.pos,
                data,
                fua: bio.flags.fua || !volatile,
            },
            (_, None) => return None,
        };
        self.events.push(event);
        self.next_id += 1;
        Some(id)
    }

    fn ended(&mut self, id: u64, well: bool, flushes: bool) {
        self.events.push(if well {
            Event::Ended { id }
        } else {
            Event::Failed { id }
        });
        if flushes {
            let id = self.next_id;
            self.next_id += 1;
            self.events
                .extend([Event::Flush { id }, Event::Ended { id }]);
        }
    }
}

impl Device for RecordDevice {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        let below = self.below.geometry();
        Geometry {
            volatile_cache: below.volatile_cache || self.geometry == Overstated::VolatileCache,
            ..below
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        self.below.stored(range, most)
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let places = Places::new(options.depth);
        Ok(Box::new(RecordQueue {
            below: self.below.open_queue(options)?,
            log: self.log.clone(),
            volatile: self.geometry().volatile_cache,
            places,
            fua_flushes: self.geometry().fua_flushes,
            tokens: Mutex::new(&DEVICE_SHARED, HashMap::new()),
        }))
    }
}

struct RecordQueue {
    below: Box<dyn DeviceQueue>,
    log: Arc<Mutex<Log>>,
    volatile: bool,
    fua_flushes: bool,
    places: Places,
    /// The submitters' tokens of bios in flight; the bios carry a number of the log instead.
    tokens: Mutex<HashMap<u64, u64>>,
}

impl RecordQueue {
    /// Records a bio on submit.
    fn note(&self, bio: &mut Bio) {
        // The data is copied before the lock is taken.
        let data = Data::of(bio);
        let id = self.log.lock().taken(bio, data, self.volatile);
        if let Some(id) = id {
            self.tokens.lock().insert(id, bio.token);
            bio.token = id;
        }
    }

    /// Records the end of a bio.
    fn note_end(&self, bio: &mut Bio, well: bool) {
        if bio.op == BioOp::Read {
            return;
        }
        let id = bio.token;
        let flushes = well && bio.flags.fua && self.fua_flushes;
        self.log.lock().ended(id, well, flushes);
        bio.token = self
            .tokens
            .lock()
            .remove(&id)
            .expect("noted when it was taken, by this queue");
    }
}

impl DeviceQueue for RecordQueue {
    crate::forward_queue! { below => below, wait }

    fn submit(&self, bios: &mut BioList) {
        let mut down = BioList::new();
        // What has a place fits into the queue below, so nothing is recorded that does not happen.
        while !bios.is_empty() && self.places.reserve() {
            let mut bio = bios.pop_front().expect("the list is not empty");
            self.note(&mut bio);
            down.push_back(bio);
        }
        self.below.submit(&mut down);
        self.places.release(down.len());
        while let Some(mut bio) = down.pop_back() {
            self.note_end(&mut bio, false);
            bios.push_front(bio);
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let from = out.len();
        self.below.reap(out);
        for bio in out.range_mut(from..) {
            self.note_end(bio, bio.result.is_ok());
        }
        self.places.release(out.len() - from);
        out.len() - from
    }

    fn in_flight(&self) -> u32 {
        self.places.taken()
    }
}
