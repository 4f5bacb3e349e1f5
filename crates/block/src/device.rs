//! The interface between code that plans I/O and devices: geometry, queues, and the waker.
//!
//! Input: bios from the engine, a frontend or a benchmark. Output: the same bios, ended, to the reaper. Invariants (the queue
//! contract): `submit` takes bios from the front of the list and never completes one inside the call; a bio that does not fit
//! stays in the list, which is never an error; `reap` drains lower queues first, runs no callback, blocks on nothing but the
//! short locks of the queues below, and may be called by any thread; each bio ends exactly once. Limits: a queue has a fixed
//! depth, chosen when it is opened.

mod polling;
mod waker;

pub use polling::{NotPolled, PolledStats, PolledWaits, PolledWay};
pub use waker::Waker;

use crate::bio::{Bio, BioError, BioErrorKind, BioList, BioOp};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What a device is: sizes in bytes, and what it can do. It may change while the device is open (resize).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The device's size.
    pub size: u64,
    /// The logical block: positions and lengths are multiples of it. A power of two, 512 or more.
    pub logical: u32,
    /// The physical block: smaller writes may cost a read-modify-write in the device.
    pub physical: u32,
    /// What buffer addresses must be a multiple of. A power of two, 1 or more.
    pub dma_align: u32,
    /// The largest transfer of one bio.
    pub max_transfer: u32,
    /// The device supports discard.
    pub discard: bool,
    /// The device supports write-zeroes.
    pub write_zeroes: bool,
    /// A write with FUA is durable by itself, more cheaply than by a flush after it.
    pub fua: bool,
    /// The host follows a write with FUA by a flush of the whole cache: everything that had ended before is durable with it,
    /// and the submitter waits once for both.
    pub fua_flushes: bool,
    /// The device has a volatile cache: ended writes are durable only after a flush.
    pub volatile_cache: bool,
    /// Writes are refused.
    pub read_only: bool,
}

impl Geometry {
    /// A device of `size` bytes with 512-byte blocks that can do nothing special and has no volatile cache.
    #[must_use]
    pub fn plain(size: u64) -> Geometry {
        Geometry {
            size,
            logical: 512,
            physical: 512,
            dma_align: 1,
            max_transfer: 1 << 30,
            discard: false,
            write_zeroes: false,
            fua: false,
            fua_flushes: false,
            volatile_cache: false,
            read_only: false,
        }
    }

    /// Checks alignment, bounds and direction of a bio. Every device makes this check before it takes a bio.
    ///
    /// # Errors
    /// [`BioErrorKind::Invalid`] if it is misaligned or out of bounds, [`BioErrorKind::ReadOnly`] for a change of a read-only
    /// device.
    #[inline]
    pub fn check(&self, bio: &Bio) -> Result<(), BioError> {
        if bio.op == BioOp::Flush {
            return Ok(());
        }
        if self.read_only && bio.op != BioOp::Read {
            return Err(BioError::new(BioErrorKind::ReadOnly));
        }
        let aligned = (bio.pos | bio.len) & u64::from(self.logical - 1) == 0
            && bio.buf.alignment_bits() & (self.dma_align as usize - 1) == 0;
        let inside = bio.end().is_some_and(|end| end <= self.size);
        // Writes read the memory of others; nothing may be read into it.
        let may = bio.op != BioOp::Read || !bio.buf.is_lent();
        if aligned && inside && may {
            Ok(())
        } else {
            Err(BioError::new(BioErrorKind::Invalid))
        }
    }
}

/// Bounds of a device's atomic writes: the length is a power of two between them, the position a multiple of the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicWrites {
    /// The smallest length in bytes.
    pub unit_min: u32,
    /// The largest length in bytes.
    pub unit_max: u32,
}

/// Why a device could not be opened or a queue not be created: a message, and the host's error.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct DeviceError {
    /// What was requested, what was found, where, and what to do.
    pub what: String,
    /// The class of the failure, for exit codes.
    pub kind: DeviceErrorKind,
    /// The host's error, if there is one.
    #[source]
    pub source: Option<std::io::Error>,
}

/// The class of a [`DeviceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceErrorKind {
    /// The locator cannot be understood.
    Locator,
    /// There is no such file, device or partition.
    NotFound,
    /// Permission denied.
    Denied,
    /// Another process has it open in a way that excludes this one.
    Held,
    /// This machine, build or file system does not support it.
    Unsupported,
    /// The host failed.
    Io,
}

impl DeviceError {
    /// An error without a host error behind it.
    #[must_use]
    pub fn new(kind: DeviceErrorKind, what: impl Into<String>) -> DeviceError {
        DeviceError {
            what: what.into(),
            kind,
            source: None,
        }
    }

    /// A host error, with what was being done when it occurred.
    #[must_use]
    pub fn host(what: impl Into<String>, source: std::io::Error) -> DeviceError {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => DeviceErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => DeviceErrorKind::Denied,
            std::io::ErrorKind::Unsupported => DeviceErrorKind::Unsupported,
            _ => DeviceErrorKind::Io,
        };
        DeviceError {
            what: format!("{}: {source}", what.into()),
            kind,
            source: Some(source),
        }
    }

    /// What happened, in the words of the standard library: the host's if it failed a call.
    #[must_use]
    pub fn io_kind(&self) -> std::io::ErrorKind {
        use std::io::ErrorKind;
        match (&self.source, self.kind) {
            (Some(source), _) => source.kind(),
            (None, DeviceErrorKind::NotFound) => ErrorKind::NotFound,
            (None, DeviceErrorKind::Denied) => ErrorKind::PermissionDenied,
            (None, DeviceErrorKind::Held) => ErrorKind::ResourceBusy,
            (None, DeviceErrorKind::Unsupported) => ErrorKind::Unsupported,
            (None, DeviceErrorKind::Locator) => ErrorKind::InvalidInput,
            (None, DeviceErrorKind::Io) => ErrorKind::Other,
        }
    }
}

/// A device's report for `info -v` and benchmarks.
#[derive(Clone, Debug, Default)]
pub struct DeviceReport {
    /// The I/O engine in use: `io_uring`, `aio`, `threads`, `mem`, `sim`, `loop`.
    pub engine: String,
    /// How the device works, if it can work in several ways: `direct-async` or `buffered-sync` of a loop device.
    pub mode: String,
    /// Direct or buffered.
    pub direct: bool,
    /// The lowest device is a block device of the host, not an image file.
    pub block_device: bool,
    /// One line per fallback, with its reason.
    pub fallbacks: Vec<String>,
    /// Regions registered with the lowest ring.
    pub registered: u64,
    /// Regions that could not be registered (memory lock limit, table full) and are used unregistered.
    pub plain: u64,
    /// Requests that have rewritten blocks of a device, because they changed only parts of them.
    pub rewrites: u64,
    /// The report of the device below, if this device is stacked on another.
    pub below: Option<Box<DeviceReport>>,
}

/// How a run of a device's bytes is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The bytes are stored, or the device does not say.
    Data,
    /// They have space and read as zeros.
    Zero,
    /// They have no space and read as zeros.
    Hole,
}

/// A run of bytes of a device that are stored in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The number of bytes, at least 1.
    pub len: u64,
    /// How they are stored.
    pub stored: Stored,
}

/// How to open a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Bios that may be in flight at once, 1 to 32,768.
    pub depth: u32,
    /// The one waker of the top-level queue: deferred work of every layer kicks it.
    pub waker: Arc<Waker>,
    /// The queue belongs to a thread that never blocks elsewhere, so rings may defer task work until it reaps. The owner is the
    /// thread that first submits or waits; no other thread may submit, reap, wait or, with bios in flight, drop the queue.
    pub owned_by_reaper: bool,
    /// Some: bios marked with [`crate::BioFlags::polled`] may end by polling the device's driver (IORING_SETUP_IOPOLL), and the device
    /// says here whether it does that. It then sees their ends in `reap` and `wait` only.
    pub polled: Option<Arc<PolledStats>>,
}

crate::setters! {
    QueueOptions {
        depth: u32,
        waker: Arc<Waker>,
        owned_by_reaper: bool,
    } option {
        polled: Arc<PolledStats>,
    }
}

impl QueueOptions {
    /// A top-level queue of `depth` with a waker of its own.
    ///
    /// # Errors
    /// The host has no eventfd left.
    pub fn new(depth: u32) -> Result<QueueOptions, DeviceError> {
        Ok(QueueOptions {
            depth,
            waker: Arc::new(Waker::new()?),
            owned_by_reaper: false,
            polled: None,
        })
    }

    /// A queue of `depth` whose waker is another's, too: of a layer below, or beside.
    #[must_use]
    pub fn with_waker(depth: u32, waker: Arc<Waker>) -> QueueOptions {
        QueueOptions {
            depth,
            waker,
            owned_by_reaper: false,
            polled: None,
        }
    }

    /// As [`QueueOptions::new`], for a queue whose descriptor nobody asks for: if the host has none left it does without.
    #[must_use]
    pub fn waited_on(depth: u32) -> QueueOptions {
        QueueOptions {
            depth,
            waker: Arc::new(Waker::new().unwrap_or_else(|_| Waker::without_descriptor())),
            owned_by_reaper: false,
            polled: None,
        }
    }
}

/// A place that stores blocks. A device of one's own that has blocking calls is a [`crate::CallsDevice`]; one that stands in front of
/// another answers what it changes:
///
/// ```
/// use diorite_block::{Device, DeviceError, DeviceQueue, Geometry, MemDevice, QueueOptions};
///
/// /// Another device, read-only.
/// struct ReadOnly(MemDevice);
///
/// impl Device for ReadOnly {
///     fn below(&self) -> Option<&dyn Device> {
///         Some(&self.0)
///     }
///     fn geometry(&self) -> Geometry {
///         Geometry { read_only: true, ..self.0.geometry() }
///     }
///     fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
///         self.0.open_queue(options)
///     }
/// }
///
/// let device = ReadOnly(MemDevice::new(1 << 20));
/// assert!(device.geometry().read_only);
/// assert_eq!(device.name(), "mem:1048576");
/// ```
pub trait Device: Send + Sync {
    /// Current sizes and abilities.
    fn geometry(&self) -> Geometry;

    /// The locator that it was opened with, for messages. A device in front of another has the name of that one; the lowest device has to
    /// give a name.
    fn name(&self) -> String {
        self.below().map_or_else(String::new, Device::name)
    }

    /// The device's report. A device in front of another has the report of that one; the lowest device has to give one.
    fn report(&self) -> DeviceReport {
        self.below()
            .map_or_else(DeviceReport::default, Device::report)
    }

    /// As [`Device::report`], but without a look for an I/O engine: its name is empty as long as no queue was opened.
    fn report_so_far(&self) -> DeviceReport {
        self.report()
    }

    /// The device that it stands in front of, with other contents, sizes or abilities; None for the lowest one. What it does not answer
    /// itself that one answers.
    fn below(&self) -> Option<&dyn Device>;

    /// Its atomic writes ([`crate::BioFlags::atomic`]): of such a write of one contiguous buf all is there after a power cut, or nothing.
    /// Whether a read at the same time sees all or nothing is up to the device; a file or block device of the host does not promise it.
    /// None if it has none. A device in front of another answers for itself.
    fn atomic_writes(&self) -> Option<AtomicWrites> {
        None
    }

    /// The number of volumes below it: 0 for the lowest device. Part of the lock order.
    fn level(&self) -> u8 {
        self.below().map_or(0, Device::level)
    }

    /// How the bytes of a range are stored: runs that follow one another from `range.start` on. They are at most `most`, so they may end
    /// before the range does, but at least one unless the range is empty. Of bytes that are changed meanwhile it shows the state before or
    /// after. A device that cannot tell calls everything data. Blocks.
    ///
    /// # Errors
    /// The range is not inside the device; reading what it needs for the answer failed.
    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        self.all_data(range, most)
    }

    /// Looks at the size again of what the device is on: a file may have grown or shrunk. Queues that were opened before go by the
    /// new size, too. A device with a fixed size does nothing. Blocks.
    ///
    /// # Errors
    /// The size cannot be found out; it stays as it was.
    fn refresh(&self) -> Result<(), DeviceError> {
        self.below().map_or(Ok(()), Device::refresh)
    }

    /// The answer of a device that cannot tell: see [`Device::stored`].
    ///
    /// # Errors
    /// The range is not inside the device.
    fn all_data(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        let size = self.geometry().size;
        if range.start > range.end || range.end > size {
            let what = format!(
                "{}: bytes {} to {} are not inside the device, which has {size} bytes",
                self.name(),
                range.start,
                range.end
            );
            return Err(DeviceError::new(DeviceErrorKind::Unsupported, what));
        }
        let len = range.end - range.start;
        let run = Run {
            len,
            stored: Stored::Data,
        };
        Ok(Vec::from_iter((len > 0 && most > 0).then_some(run)))
    }

    /// Opens a queue for the caller.
    ///
    /// # Errors
    /// The host refuses: memory, descriptors, limits.
    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError>;

    /// Runs one bio to its end in the calling thread, if that is cheaper than a queue; otherwise returns it unchanged. Not for
    /// writes with FUA: FUA saves a wait in a queue, but costs a flush of its own in a system call. Blocks.
    ///
    /// # Errors
    /// The bio, unchanged: it has to go through a queue.
    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        Err(bio)
    }

    /// Says that nobody writes for now: a device that marks itself as being written makes everything durable and takes the mark off. The
    /// next write sets it again. Blocks.
    ///
    /// # Errors
    /// Something could not be made durable; the mark stays.
    fn rest(&self) -> Result<(), DeviceError> {
        self.below().map_or(Ok(()), Device::rest)
    }

    /// Whether the device's bytes are in memory, so that [`Device::run_here`] copies them without waiting, while a queue would have to
    /// hand a request to another thread.
    fn is_memory(&self) -> bool {
        false
    }
}

/// A queue of a device: see the contract at the top of this module. Dropping it waits for the bios in flight.
///
/// ```
/// use diorite_block::{Bio, BioList, Buf, Device, MemDevice, QueueOptions};
///
/// # fn main() -> std::io::Result<()> {
/// let device = MemDevice::new(1 << 20);
/// let queue = device.open_queue(QueueOptions::new(4)?)?;
/// // The token says which one has ended.
/// let mut bios: BioList = (0..3).map(|n| Bio::read(n * 4096, Buf::zeroed(4096), n)).collect();
/// queue.submit(&mut bios);
/// assert!(bios.is_empty()); // what had no room would have stayed
/// let mut ended = BioList::new();
/// while ended.len() < 3 {
///     queue.wait(1, None);
///     queue.reap(&mut ended);
/// }
/// assert!(ended.iter().all(|bio| bio.result.is_ok()));
/// # Ok(())
/// # }
/// ```
pub trait DeviceQueue: Send + Sync {
    /// The queue that it hands bios down to; None for the lowest one.
    fn below(&self) -> Option<&dyn DeviceQueue>;

    /// Takes bios from the front of `bios` while there is room and starts them. Never blocks on their I/O.
    fn submit(&self, bios: &mut BioList);

    /// Moves ended bios to the end of `out` and returns their number. Never blocks, never runs a callback. A thread that reaps
    /// a queue on which another thread may wait must kick the waker afterwards: the other thread may sleep for exactly these
    /// bios.
    fn reap(&self, out: &mut BioList) -> usize;

    /// Blocks until about `min` bios can be reaped, the waker was kicked, or the time is over. May return early for no reason,
    /// and returns at once if nothing is in flight and `timeout` is zero. Holds no lock that `submit` or `reap` of another
    /// thread would wait for.
    fn wait(&self, min: u32, timeout: Option<Duration>);

    /// As [`DeviceQueue::submit`] and then [`DeviceQueue::wait`] for one bio without a limit of time; in one call of the host if that is
    /// possible.
    fn submit_and_wait(&self, bios: &mut BioList) {
        self.submit(bios);
        self.wait(1, None);
    }

    /// Bios taken and not yet reaped.
    fn in_flight(&self) -> u32;

    /// From now on the waker's descriptor becomes readable also when a bio has ended, for callers that poll it instead of
    /// calling [`DeviceQueue::wait`].
    fn signal_waker(&self) {
        if let Some(below) = self.below() {
            below.signal_waker();
        }
    }

    /// The host gets memory back that bufs were cut from: what the queue keeps of such memory, registered with a ring, it lets go. It may
    /// keep that of later bufs again.
    fn forget_memory(&self) {
        if let Some(below) = self.below() {
            below.forget_memory();
        }
    }
}

#[cfg(test)]
mod tests;
