//! The loop device: a file in a volume as a device for another volume.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `able` | what the file has refused -> what it is asked for |
//! | `backing` | a file -> the device's size, abilities, and how its bytes are stored |
//! | `queue` | bios -> requests on a queue of the volume below, or the worker's tasks -> the same bios, ended |
//! | `flying` | what a bio's request does not carry -> a token -> the same, when the request has ended |
//! | `words` | a bio -> the operation on the file; a completion -> the bio's result |
//! | `worker` | bios -> blocking calls in arrival order, for what is measured against |
//!
//! Input: a file. Output: a device. Invariants: it has no thread of its own, unless the policy of the file's volume is
//! [`LoopMode::BufferedSync`]; what its file cannot do is neither announced in the geometry nor asked of the file (rule L5). Limits: each
//! volume in a stack is one level above the volume of its device; the size follows the file on request.
//!
//! # Stacks of volumes
//!
//! `outer.img!/inner.img` is a loop device on a file in a volume. The loop device's queue holds a queue of the volume below, and its
//! submit is that queue's submit. All queues of a stack share one waker, made for the top queue, so an event at any level wakes the one
//! thread that waits. Only the top queue's owner clears the waker: any thread may reap a lower queue, and if it cleared the waker the
//! owner would miss its kick. A request that ends while it is submitted (a read of a hole, a refusal) kicks too, since the thread that
//! submitted it may be another than the one that waits. Each volume has workers of its own, and a volume waits only for volumes below it.
//! A device is made of a file of an open volume, and a volume of a device, so no stack comes back to itself (rule L8).
//!
//! # Modes
//!
//! The policy of the file's volume says how a bio is done, and may change at any time. A queue changes its mode when all bios that it has
//! taken have ended; until then it takes none (rule L1). Requests of other queues may go on in the other mode meanwhile: direct and
//! buffered requests of a file see each other's bytes. When direct requests follow buffered ones, what is dirty is written back (rule L9).

mod able;
mod backing;
mod flying;
mod queue;
#[cfg(test)]
mod tests;
mod words;
mod worker;

use crate::error::Error;
use crate::policy::LoopMode;
use crate::queue::{File, Queue};
use backing::Backing;
use diorite_block::device::DeviceErrorKind;
use diorite_block::{Device, DeviceError, DeviceQueue, DeviceReport, Geometry, QueueOptions, Run};
use queue::LoopQueue;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A file as a device.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
/// use diorite::{LoopDevice, OpenOptions, Volume};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), diorite::Error> {
/// # let outer = Volume::open_device(example_volume(), &OpenOptions::writable())?;
/// let image = outer.create("/inner.img", 0o644)?;
/// image.truncate(1 << 20)?;
/// let device = LoopDevice::new(image, "inner.img".to_owned());
/// // An empty file is a device without a file system.
/// let opened = Volume::open_device(Arc::new(device), &OpenOptions::default());
/// assert!(opened.is_err());
/// # Ok(())
/// # }
/// ```
///
/// Send and Sync; it must not be used in the child after a fork; dropping it closes the file. The
/// file's volume need not be kept for it.
#[derive(Debug)]
pub struct LoopDevice {
    backing: Arc<Backing>,
}

impl LoopDevice {
    /// A device on `file`, with a name for messages. It is read-only if `file` cannot be written. The caller sees to it that no other
    /// device writes to the file.
    #[must_use]
    pub fn new(file: File, name: String) -> LoopDevice {
        LoopDevice {
            backing: Arc::new(Backing::new(file, name)),
        }
    }

    /// As [`LoopDevice::new`]; a file that can be written is taken for this device until it is dropped, with its queues.
    ///
    /// # Errors
    /// Another device that was made in this way has the file: the error names it.
    pub(crate) fn claimed(file: File, name: String) -> Result<LoopDevice, DeviceError> {
        let device = LoopDevice::new(file, name);
        let backing = &device.backing;
        if backing.geometry().read_only {
            return Ok(device);
        }
        match backing.claim() {
            Ok(()) => Ok(device),
            Err(holder) => {
                let what = format!(
                    "{}: the file is open for writing as the device {holder}; close that, or open this read-only",
                    backing.name
                );
                Err(DeviceError::new(DeviceErrorKind::Held, what))
            }
        }
    }

    /// Reads wholly behind the end of the file, which has shrunk (rule L2): zeros and an error.
    #[must_use]
    pub fn reads_beyond_end(&self) -> u64 {
        self.backing.beyond_end.load(Ordering::Relaxed)
    }
}

impl Device for LoopDevice {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.backing.geometry()
    }

    fn name(&self) -> String {
        self.backing.name.clone()
    }

    fn rest(&self) -> Result<(), DeviceError> {
        self.backing.volume().device.rest()
    }

    fn report(&self) -> DeviceReport {
        let below = self.backing.volume().device.report();
        let mode = self.backing.mode();
        DeviceReport {
            engine: "loop".to_owned(),
            mode: mode.name().to_owned(),
            direct: mode == LoopMode::DirectAsync && below.direct,
            below: Some(Box::new(below)),
            ..DeviceReport::default()
        }
    }

    fn level(&self) -> u8 {
        self.backing.volume().level
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        if range.start >= range.end || range.end > self.backing.size() || most == 0 {
            return self.all_data(range, most);
        }
        let runs = self.backing.stored(range, most);
        runs.map_err(|e| self.failed(&e))
    }

    fn refresh(&self) -> Result<(), DeviceError> {
        self.backing.measure();
        Ok(())
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let (depth, waker) = (options.depth, options.waker.clone());
        let service = self.backing.file.pool().service();
        let queue = Queue::open_under(service, options).map_err(|e| self.failed(&e))?;
        let file = queue.attach(&self.backing.file);
        let file = file.map_err(|e| self.failed(&e))?;
        let queue = LoopQueue::new(queue, file, self.backing.clone(), depth, waker);
        Ok(Box::new(queue))
    }
}

impl LoopDevice {
    fn failed(&self, error: &Error) -> DeviceError {
        let what = format!("{}: {error}", self.backing.name);
        DeviceError::new(DeviceErrorKind::Io, what)
    }
}
