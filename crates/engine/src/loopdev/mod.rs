//! The loop device: a file in a volume as a device for another volume.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `queue` | bios -> requests on a queue of the volume below -> the same bios, ended |
//! | `flying` | what a bio's request does not carry -> a token -> the same, when the request has ended |
//! | `words` | a bio -> the operation on the file; a completion -> the bio's result |
//!
//! Input: a file. Output: a device. Invariants: it has no thread of its own; what its file cannot do is neither announced in the geometry
//! nor asked of the file (rule L5). Limits: each volume in a stack is one level above the volume of its device.
//!
//! # Stacks of volumes
//!
//! `outer.img!/inner.img` is a loop device on a file in a volume. The loop device's queue holds a queue of the volume below, and its
//! submit is that queue's submit. All queues of a stack share one waker, made for the top queue, so an event at any level wakes the one
//! thread that waits. Only the top queue's owner clears the waker: any thread may reap a lower queue, and if it cleared the waker the
//! owner would miss its kick. A request that ends while it is submitted (a read of a hole, a refusal) kicks too, since the thread that
//! submitted it may be another than the one that waits. Each volume has workers of its own, and a volume waits only for volumes below it.

mod flying;
mod queue;
#[cfg(test)]
mod tests;
mod words;

use crate::error::Error;
use crate::inode::Fs;
use crate::queue::File;
use crate::queue::Queue;
use diorite_block::device::DeviceErrorKind;
use diorite_block::{Device, DeviceError, DeviceQueue, DeviceReport, Geometry, QueueOptions};
use diorite_format::MapKind;
use queue::LoopQueue;
use std::sync::Arc;
use words::Abilities;

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
    file: File,
    name: String,
    able: Abilities,
}

impl LoopDevice {
    /// A device on `file`, with a name for messages. It is read-only if `file` cannot be written.
    #[must_use]
    pub fn new(file: File, name: String) -> LoopDevice {
        let kind = file.metadata().map_kind();
        let able = Abilities {
            punch: matches!(kind, MapKind::Extents | MapKind::Indirect),
            zero: kind == MapKind::Extents,
        };
        LoopDevice { file, name, able }
    }

    fn volume(&self) -> &Arc<Fs> {
        &self.file.inode().volume
    }
}

impl Device for LoopDevice {
    fn geometry(&self) -> Geometry {
        let below = self.volume().device.geometry();
        let writable = self.file.open_file().check_writable().is_ok();
        Geometry {
            // A last partial sector counts: it reads as the file's bytes followed by zeros (rule L2).
            size: self.file.size().next_multiple_of(u64::from(below.logical)),
            read_only: !writable,
            discard: self.able.punch && writable,
            write_zeroes: self.able.zero && writable,
            max_transfer: below.max_transfer.min(1 << 30),
            // Rule D2: changes of the file's map and size are durable only after a sync of the file, whatever cache its device has.
            volatile_cache: true,
            // FUA is an O_DSYNC write of the file. If the device below has no volatile cache, its flushes cost nothing.
            fua: below.fua || !below.volatile_cache,
            fua_flushes: false,
            ..below
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn report(&self) -> DeviceReport {
        let below = self.volume().device.report();
        DeviceReport {
            engine: "loop".to_owned(),
            direct: below.direct,
            below: Some(Box::new(below)),
            ..DeviceReport::default()
        }
    }

    fn level(&self) -> u8 {
        self.volume().level
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let failed =
            |e: Error| DeviceError::new(DeviceErrorKind::Io, format!("{}: {e}", self.name));
        let queue = Queue::open_under(self.file.pool().service(), options).map_err(failed)?;
        let file = queue.attach(&self.file).map_err(failed)?;
        let level = self.volume().level;
        let queue = LoopQueue::new(queue, file, self.geometry(), self.able, level);
        Ok(Box::new(queue))
    }
}
