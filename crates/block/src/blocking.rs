//! A blocking helper over any device: one bio, or a few, and a thread that waits for them.
//!
//! Input: bios from code that may block (metadata, workers, tools). Output: the same bios, ended. Invariant: each
//! caller has a queue to itself while it waits, so callers never wait for one another's I/O. Limits: one thread at a
//! time per queue; queues are kept for the next caller, at most `KEPT` of them.

use crate::bio::{Bio, BioError, BioErrorKind, BioList};
use crate::buf::Buf;
use crate::device::{Device, DeviceQueue, QueueOptions, Waker};
use crate::sync::{BLOCKING_POOL, Mutex};
use std::fmt;
use std::sync::Arc;

/// Queues that are kept open for later callers.
const KEPT: usize = 8;
const DEPTH: u32 = 32;

/// A blocking helper. Send and Sync; blocks the calling thread only.
pub struct Blocking {
    device: Arc<dyn Device>,
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
    /// A helper over `device`. Opens nothing yet.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Blocking {
        Blocking {
            device,
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
    /// The device's; the buf is given back by neither, then.
    pub fn read(&self, pos: u64, buf: Buf) -> Result<Buf, BioError> {
        let bio = self.run(Bio::read(pos, buf, 0));
        bio.result.map(|()| bio.buf)
    }

    /// Makes durable all that ended before. Blocks.
    ///
    /// # Errors
    /// The device's.
    pub fn flush(&self) -> Result<(), BioError> {
        if !self.device.geometry().volatile_cache {
            return Ok(());
        }
        self.run(Bio::flush(0)).result
    }

    /// Runs one bio to its end. Blocks.
    #[must_use]
    pub fn run(&self, mut bio: Bio) -> Bio {
        let own = self.idle.lock().pop();
        let own = match own.map_or_else(|| self.open(), Ok) {
            Ok(own) => own,
            Err(e) => {
                bio.result = Err(e);
                return bio;
            }
        };
        let (mut todo, mut done) = (BioList::from([bio]), BioList::new());
        while done.is_empty() {
            own.queue.submit(&mut todo);
            if own.queue.reap(&mut done) == 0 {
                own.queue.wait(1, None);
                // Before the next look, as every waiter does: a kick left standing would turn the wait into a spin.
                own.waker.clear();
            }
        }
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(own);
        }
        drop(idle);
        done.pop_front()
            .expect("the loop ended with a bio in the list")
    }

    fn open(&self) -> Result<Own, BioError> {
        // A queue that cannot be opened is the host's failure: the reason is lost here, the kind is not.
        let options = QueueOptions::new(DEPTH).map_err(|_| BioError::new(BioErrorKind::Gone))?;
        let waker = options.waker.clone();
        self.device
            .open_queue(options)
            .map(|queue| Own { queue, waker })
            .map_err(|_| BioError::new(BioErrorKind::Gone))
    }
}
