//! A blocking helper over any device: submits one or a few bios and waits for them in the calling thread.
//!
//! Input: bios from code that may block (metadata, workers, tools). Output: the same bios, ended. Invariant: each caller has a
//! queue of its own while it waits, so callers never wait for each other's I/O. Limits: one thread at a time per queue; at most
//! `KEPT` idle queues are kept for later callers. If the host cannot provide a queue, bios run one by one in the calling
//! thread, or fail if the device cannot do that.

use crate::bio::{Bio, BioError, BioErrorKind, BioList};
use crate::buf::Buf;
use crate::device::{Device, DeviceError, DeviceQueue, QueueOptions, Waker};
use crate::flushes::{Epoch, Flushes};
use crate::sync::{BLOCKING_POOL, Mutex};
use std::fmt;
use std::sync::Arc;

mod bytes;

pub use bytes::NotRead;

/// Queues that are kept open for later callers.
const KEPT: usize = 8;
const DEPTH: u32 = 32;

/// A blocking helper. Send and Sync; only the calling thread blocks.
///
/// ```
/// use diorite_block::{Blocking, Buf, MemDevice};
/// use std::sync::Arc;
///
/// let blocking = Blocking::new(Arc::new(MemDevice::new(1 << 20)));
/// blocking.write_durably(4096, Buf::zeroed(4096))?;
/// assert_eq!(blocking.read(4096, Buf::zeroed(512))?.len(), 512);
/// // Any range, copied; one past the end is an error of its own.
/// assert_eq!(blocking.read_bytes(4100, 10).expect("it lies inside"), [0; 10]);
/// assert!(blocking.read_bytes(u64::MAX, 10).is_err());
/// # Ok::<(), diorite_block::BioError>(())
/// ```
pub struct Blocking {
    device: Arc<dyn Device>,
    flushes: Flushes,
    idle: Mutex<Vec<Own>>,
}

/// A queue with its waker.
struct Own {
    queue: Box<dyn DeviceQueue>,
    waker: Arc<Waker>,
}

impl fmt::Debug for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking")
            .field("device", &self.device.name())
            .finish_non_exhaustive()
    }
}

impl Blocking {
    /// A helper over `device`. Does not open a queue yet.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Blocking {
        Blocking {
            device,
            flushes: Flushes::new(),
            idle: Mutex::new(&BLOCKING_POOL, Vec::new()),
        }
    }

    /// The device below.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Reads `buf.len()` bytes at `pos` and gives the buf back, filled. Blocks.
    ///
    /// # Errors
    /// The device's error; the buf is lost then.
    pub fn read(&self, pos: u64, buf: Buf) -> Result<Buf, BioError> {
        let bio = self.run(Bio::read(pos, buf, 0));
        bio.result.map(|()| bio.buf)
    }

    /// The account of what is durable on the device. It records every flush of this helper, and nothing else flushes the
    /// device.
    #[must_use]
    pub fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// Makes durable everything that ended before the call. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn flush(&self) -> Result<(), BioError> {
        self.flush_since(self.flushes.now())
    }

    /// Makes durable everything that had ended at `epoch`. Returns at once if it already is, and shares another caller's flush
    /// if that began later. Blocks.
    ///
    /// # Errors
    /// The device's error, also if another caller's flush failed since `epoch`: the data of that flush may be lost.
    pub fn flush_since(&self, epoch: Epoch) -> Result<(), BioError> {
        if !self.device.geometry().volatile_cache {
            return Ok(());
        }
        let flush = || self.run(Bio::flush(0)).result;
        self.flushes.make_durable(epoch, flush)
    }

    /// Runs a write with FUA. With `flushes` it counts as a flush, because the host flushes after it.
    fn run_fua(&self, mut bio: Bio, flushes: bool) -> Bio {
        bio.flags.fua = true;
        if !flushes {
            return self.run(bio);
        }
        self.flushes.run(|| {
            let bio = self.run(bio);
            (bio.result, bio)
        })
    }

    /// Runs a write on a device whose host follows a write with FUA by a flush ([`crate::Geometry::fua_flushes`]), as one request and one
    /// wait. If it succeeds the write is durable, and so is everything that had ended before the call. If it fails the write is made once
    /// more, alone: if that succeeds the flush had failed, which may concern everybody's data; if not, this place cannot be written, and
    /// nothing was flushed behind it, so it concerns its caller alone unless a flush fails now. On other devices it is a write, and a
    /// flush if they need one. Blocks.
    #[must_use]
    pub fn write_and_flush(&self, mut bio: Bio) -> Bio {
        let before = self.flushes.now();
        if !self.device.geometry().fua_flushes {
            bio = self.run(bio);
            if bio.result.is_ok() {
                bio.result = self.flush().and_then(|()| self.flushes.check(before));
            }
            return bio;
        }
        bio.flags.fua = true;
        let mut bio = self.flushes.run(|| {
            let mut bio = self.run(bio);
            let mut flushed = bio.result;
            if flushed.is_err_and(|error| error.kind != BioErrorKind::WouldBlock) {
                (bio.flags.fua, bio.result) = (false, Ok(()));
                bio = self.run(bio);
                bio.flags.fua = true;
                match bio.result {
                    Ok(()) => bio.result = flushed,
                    Err(_) => flushed = self.run(Bio::flush(0)).result,
                }
            }
            (flushed, bio)
        });
        if bio.result.is_ok() {
            // Another flush may have lost the data before the one behind this write began.
            bio.result = self.flushes.check(before);
        }
        bio
    }

    /// Writes `buf` to `pos`; it is durable when the call returns, by FUA if that saves a wait, else by a flush. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn write_durably(&self, pos: u64, buf: Buf) -> Result<(), BioError> {
        let geometry = self.device.geometry();
        let bio = Bio::write(pos, buf, 0);
        if geometry.volatile_cache && geometry.fua && !geometry.fua_flushes {
            return self.run_fua(bio, false).result;
        }
        let done = self.run_all_durably(BioList::from([bio]))?;
        done.into_iter().try_for_each(|bio| bio.result)
    }

    /// Runs writes to their ends, then makes durable what they wrote and everything that ended before. Returns the writes in
    /// the order in which they ended, each with its own result; if one failed, nothing is promised. Blocks.
    ///
    /// # Errors
    /// The error of the flush, or of any flush that failed since the first write was submitted.
    pub fn run_all_durably(&self, mut todo: BioList) -> Result<BioList, BioError> {
        let geometry = self.device.geometry();
        let merges = geometry.volatile_cache && geometry.fua_flushes;
        let last = merges.then(|| todo.pop_back()).flatten();
        let before = self.flushes.now();
        let mut done = self.run_all(todo);
        match last {
            // The other writes have ended when this one is submitted, so the flush after it covers them, too.
            Some(last) => done.push_back(self.run_fua(last, true)),
            None => self.flush()?,
        }
        if done.iter().all(|bio| bio.result.is_ok()) {
            self.flushes.check(before)?;
        }
        Ok(done)
    }

    /// Runs one bio to its end. Blocks.
    #[must_use]
    pub fn run(&self, bio: Bio) -> Bio {
        self.device.run_here(bio).unwrap_or_else(|bio| {
            self.run_queued(BioList::from([bio]))
                .pop_front()
                .expect("as many bios come back as were given")
        })
    }

    /// Runs bios to their ends and returns them in the order in which they ended. As many run at once as the device takes, but one by
    /// one in the calling thread if the device is memory. Blocks.
    #[must_use]
    pub fn run_all(&self, todo: BioList) -> BioList {
        if todo.len() > 1 && !self.device.is_memory() {
            return self.run_queued(todo);
        }
        todo.into_iter().map(|bio| self.run(bio)).collect()
    }

    fn run_queued(&self, mut todo: BioList) -> BioList {
        let own = self.idle.lock().pop();
        let own = match own.map_or_else(|| self.open(), Ok) {
            Ok(own) => own,
            // The host has run out of a resource that queues need, for example descriptors.
            Err(_) => return todo.into_iter().map(|b| self.run_without(b)).collect(),
        };
        let (all, mut done) = (todo.len(), BioList::new());
        while done.len() < all {
            own.queue.submit_and_wait(&mut todo);
            // Before the next check, as every waiter does: a kick that stays pending would turn the wait into a busy loop.
            own.waker.clear();
            own.queue.reap(&mut done);
        }
        let mut idle = self.idle.lock();
        if idle.len() < KEPT && !own.waker.is_makeshift() {
            idle.push(own);
        }
        drop(idle);
        done
    }

    /// Runs a bio without a queue, if the device can: slower, with the same result. A write with FUA becomes a write and a
    /// flush.
    fn run_without(&self, bio: Bio) -> Bio {
        let (fua, before) = (bio.flags.fua, self.flushes.now());
        let mut bio = match self.device.run_here(bio) {
            Ok(bio) => return bio,
            Err(bio) => bio,
        };
        bio.flags.fua = false;
        let (mut bio, ran) = match self.device.run_here(bio) {
            Ok(bio) => (bio, true),
            Err(bio) => (bio, false),
        };
        if !ran {
            bio.result = Err(BioError::new(BioErrorKind::Gone));
        } else if bio.result.is_ok() {
            let gone = Err(BioError::new(BioErrorKind::Gone));
            let flush = || {
                let ran = self.device.run_here(Bio::flush(0));
                ran.map_or(gone, |flush| flush.result)
            };
            bio.result = match self.device.geometry().fua_flushes {
                // The caller already counts the whole as a flush.
                true => flush(),
                // If the flush fails, other data may be lost by it, so the account must have it before it is submitted.
                false => {
                    let flushed = self.flushes.run(|| {
                        let flushed = flush();
                        (flushed, flushed)
                    });
                    // Another flush may have lost the data before this one began.
                    flushed.and_then(|()| self.flushes.check(before))
                }
            };
        }
        bio.flags.fua = fua;
        bio
    }

    fn open(&self) -> Result<Own, DeviceError> {
        let options = QueueOptions::waited_on(DEPTH);
        let waker = options.waker.clone();
        let queue = self.device.open_queue(options)?;
        Ok(Own { queue, waker })
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;
