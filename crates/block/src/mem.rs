//! A device in memory: for tests, for images that live in RAM, and for counting instructions.
//!
//! Input: bios. Output: the same bios, executed at reap. Invariant: `submit` only moves bios to the queue's list, and `reap`
//! moves them out and executes them, so a request costs two moves and one copy. Limits: sparse; unwritten ranges cost no
//! memory; sectors of 512 bytes; no volatile cache.

pub(crate) mod arena;
#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;

use crate::bio::{Bio, BioError, BioErrorKind, BioList, BioOp};
use crate::device::{
    Device, DeviceError, DeviceQueue, DeviceReport, Geometry, QueueOptions, Run, Waker,
};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{DEVICE_SUBMIT, Mutex, Parts};
use arena::Arena;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Bytes with a geometry: executes bios for both `mem:` and `sim:`.
pub(crate) struct Medium {
    pub(crate) arena: Arena,
    pub(crate) geometry: Geometry,
    copy: AtomicBool,
}

impl Medium {
    pub(crate) fn new(geometry: Geometry) -> Result<Medium, DeviceError> {
        Ok(Medium {
            arena: Arena::new(geometry.size)?,
            geometry,
            copy: AtomicBool::new(true),
        })
    }

    /// Executes one bio, or returns why not.
    #[inline]
    pub(crate) fn execute(&self, bio: &mut Bio) -> Result<(), BioError> {
        self.geometry.check(bio)?;
        match bio.op {
            BioOp::Read | BioOp::Write => self.transfer(bio),
            BioOp::Flush => Ok(()),
            BioOp::Discard | BioOp::WriteZeroesUnmap => {
                self.arena.zero(bio.pos, bio.len, true);
                Ok(())
            }
            BioOp::WriteZeroes => {
                self.arena.zero(bio.pos, bio.len, false);
                Ok(())
            }
        }
    }

    #[inline]
    fn transfer(&self, bio: &mut Bio) -> Result<(), BioError> {
        if bio.len != bio.buf.len() as u64 {
            return Err(BioError::new(BioErrorKind::Invalid));
        }
        if !self.copy.load(Ordering::Relaxed) {
            return Ok(());
        }
        match bio.op {
            BioOp::Read => self.arena.read_buf(bio.pos, &mut bio.buf),
            _ => self.arena.write_buf(bio.pos, &bio.buf),
        }
        Ok(())
    }
}

/// A device in memory. Send and Sync; clones are the same device.
///
/// ```
/// use diorite_block::{Device, MemDevice};
///
/// let device = MemDevice::new(1 << 30); // pages that are not written take no memory
/// device.write_at(512, b"bytes");
/// let mut read = [0; 5];
/// device.read_at(512, &mut read);
/// assert_eq!((&read, device.geometry().size), (b"bytes", 1 << 30));
/// ```
#[derive(Clone)]
pub struct MemDevice {
    medium: Arc<Medium>,
}

impl fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemDevice")
            .field("size", &self.medium.geometry.size)
            .finish_non_exhaustive()
    }
}

impl MemDevice {
    /// A device of `size` zero bytes.
    ///
    /// # Panics
    /// If the host cannot map that much: see [`MemDevice::try_new`].
    #[must_use]
    pub fn new(size: u64) -> MemDevice {
        MemDevice::try_new(size).unwrap_or_else(|e| panic!("a memory device: {e}"))
    }

    /// A device of `size` zero bytes, rounded down to whole sectors.
    ///
    /// # Errors
    /// The host cannot map that much.
    pub fn try_new(size: u64) -> Result<MemDevice, DeviceError> {
        let geometry = Geometry {
            discard: true,
            write_zeroes: true,
            ..Geometry::plain(size & !511)
        };
        Ok(MemDevice {
            medium: Arc::new(Medium::new(geometry)?),
        })
    }

    /// A device with a copy of the bytes of `from`.
    pub(crate) fn copy_of(from: &Arena) -> Result<MemDevice, DeviceError> {
        let device = MemDevice::try_new(from.len())?;
        from.copy_to(&device.medium.arena);
        Ok(device)
    }

    /// Switches the copying of data off or on. For counting instructions only: with it off, data reads leave their
    /// buffers untouched and data writes go nowhere.
    pub fn set_copy(&self, copy: bool) {
        self.medium.copy.store(copy, Ordering::Relaxed);
    }

    /// Reads without a queue: for tests and for saving an image.
    ///
    /// # Panics
    /// If the range is not inside the device.
    pub fn read_at(&self, pos: u64, dst: &mut [u8]) {
        self.medium.arena.read(pos, dst);
    }

    /// Names its parts for a trace of accesses. For measurements only.
    #[doc(hidden)]
    pub fn parts_in_memory(&self, parts: &mut Parts) {
        parts.add("device: mem", &*self.medium);
        self.medium.arena.parts_in_memory(parts);
    }

    /// Makes the host commit all of its memory now: for measurements. Takes as long as writing it once.
    pub fn populate(&self) {
        self.medium.arena.populate();
    }

    /// Writes without a queue: for tests and for loading an image.
    ///
    /// # Panics
    /// If the range is not inside the device.
    pub fn write_at(&self, pos: u64, src: &[u8]) {
        self.medium.arena.write(pos, src);
    }
}

impl Device for MemDevice {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.medium.geometry
    }

    fn name(&self) -> String {
        format!("mem:{}", self.medium.geometry.size)
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "mem".into(),
            direct: true,
            ..DeviceReport::default()
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        self.all_data(range.clone(), most)?;
        Ok(self.medium.arena.stored(range, most))
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let depth = options.depth.clamp(1, 32_768) as usize;
        Ok(Box::new(MemQueue {
            medium: self.medium.clone(),
            depth,
            waker: options.waker,
            taken: AtomicU32::new(0),
            state: Mutex::new(
                &DEVICE_SUBMIT,
                State {
                    bios: BioList::with_capacity(depth),
                    waiters: 0,
                    signals: false,
                },
            ),
        }))
    }
}

struct State {
    bios: BioList,
    /// Threads in `wait`: a submitter kicks the waker for them.
    waiters: u32,
    /// The waker's descriptor is polled: a submitter kicks it.
    signals: bool,
}

struct MemQueue {
    medium: Arc<Medium>,
    depth: usize,
    waker: Arc<Waker>,
    /// The length of the list, for `in_flight` without the lock. Written under the lock.
    taken: AtomicU32,
    state: Mutex<State>,
}

impl MemQueue {
    fn publish(&self, state: &State) {
        let taken = u32::try_from(state.bios.len()).expect("the depth is at most 32,768");
        self.taken.store(taken, Ordering::Release);
    }
}

impl DeviceQueue for MemQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let mut state = self.state.lock();
        let room = self.depth - state.bios.len();
        if bios.len() <= room {
            state.bios.append(bios);
        } else {
            state.bios.extend(bios.drain(..room));
        }
        self.publish(&state);
        if state.waiters > 0 || state.signals {
            self.waker.kick();
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        if self.in_flight() == 0 {
            return 0;
        }
        let from = out.len();
        let mut state = self.state.lock();
        out.append(&mut state.bios);
        self.publish(&state);
        drop(state);
        for bio in out.range_mut(from..) {
            bio.result = self.medium.execute(bio);
        }
        out.len() - from
    }

    fn wait(&self, _min: u32, timeout: Option<Duration>) {
        let mut state = self.state.lock();
        if !state.bios.is_empty() || timeout.is_some_and(|t| t.is_zero()) {
            return;
        }
        state.waiters += 1;
        drop(state);
        self.waker.wait(timeout);
        self.state.lock().waiters -= 1;
    }

    fn in_flight(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    fn signal_waker(&self) {
        let mut state = self.state.lock();
        state.signals = true;
        if !state.bios.is_empty() {
            self.waker.kick();
        }
    }
}

impl Drop for MemQueue {
    /// Taken bios are executed, though nobody reaps them.
    fn drop(&mut self) {
        self.reap(&mut BioList::new());
    }
}
