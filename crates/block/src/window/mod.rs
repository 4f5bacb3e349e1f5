//! A part of another device, with sectors of another size: what `?offset=`, `?size=`, `?part=` and `?sector=` make of any device.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `shift` | bios whose blocks are blocks below -> the same bios at another position |
//! | `fine` | bios with smaller sectors -> the same bios, or jobs |
//! | `job` | a request for parts of blocks -> reads, then changes of whole blocks |
//! | `blocks` | claims of blocks -> the order in which they may be changed |
//!
//! Input: a device and [`WindowOptions`]. Output: a [`WindowDevice`]. Invariants: nothing outside the part is changed; a request of
//! whole blocks goes down as it is; a smaller one rewrites the blocks at its ends, and no neighbour in them is lost, whatever else
//! is in flight in this window (read-modify-write under a range lock, counted). Limits: two windows of one device do not know of
//! each other, so they must not share a block; a power cut may tear a block that is being rewritten.

mod blocks;
mod fine;
mod job;
mod shift;
#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;

use crate::bio::{Bio, BioOp};
use crate::device::{
    Device, DeviceError, DeviceErrorKind, DeviceQueue, DeviceReport, Geometry, QueueOptions, Run,
};
use crate::sync::{DEVICE_SHARED, Mutex};
use blocks::Blocks;
use fine::{FineQueue, Inner};
use shift::ShiftQueue;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The part of a device, and its sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowOptions {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; by default all that follow.
    pub size: Option<u64>,
    /// The logical block: a power of two from 512 to 65,536; by default that of the device.
    pub sector: Option<u32>,
    /// Refuse changes.
    pub read_only: bool,
}

crate::setters! {
    WindowOptions {
        offset: u64,
        read_only: bool,
    } option {
        size: u64,
        sector: u32,
    }
}

/// A part of another device. Send and Sync.
///
/// ```
/// use diorite_block::{Blocking, Buf, MemDevice, WindowDevice, WindowOptions};
/// use std::sync::Arc;
///
/// let disk = MemDevice::new(4 << 20);
/// let options = WindowOptions::default().offset(1 << 20).size(1 << 20);
/// let part = WindowDevice::new(Arc::new(disk.clone()), &options, "a part".to_owned())?;
/// let mut page = Buf::zeroed(4096);
/// page.as_mut_slice().fill(7);
/// Blocking::new(Arc::new(part)).write_durably(0, page).expect("memory does not fail");
/// let mut there = [0; 4096];
/// disk.read_at(1 << 20, &mut there);
/// assert_eq!(there, [7; 4096]);
/// # Ok::<(), diorite_block::DeviceError>(())
/// ```
pub struct WindowDevice {
    shared: Arc<Shared>,
}

/// What the queues of a window share.
struct Shared {
    below: Arc<dyn Device>,
    name: String,
    offset: u64,
    limit: Option<u64>,
    /// The logical block of the device below.
    block: u64,
    /// The geometry at opening. Only the size changes.
    opened: Geometry,
    size: AtomicU64,
    lock_level: u8,
    rewrites: AtomicU64,
    blocks: Mutex<Blocks>,
    fine_queues: Mutex<Vec<Weak<Inner>>>,
}

impl fmt::Debug for WindowDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowDevice")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

impl WindowDevice {
    /// A part of `below`, with a name for messages.
    ///
    /// # Errors
    /// The part does not lie inside the device; the sector is not one.
    pub fn new(
        below: Arc<dyn Device>,
        options: &WindowOptions,
        name: String,
    ) -> Result<WindowDevice, DeviceError> {
        let geometry = below.geometry();
        let sector = options.sector.unwrap_or(geometry.logical);
        if !sector.is_power_of_two() || !(512..=65536).contains(&sector) {
            let what = format!("{name}: sector={sector}: must be a power of two from 512 to 65536");
            return Err(DeviceError::new(DeviceErrorKind::Locator, what));
        }
        let end = options
            .offset
            .checked_add(options.size.unwrap_or(0))
            .filter(|end| *end <= geometry.size);
        if end.is_none() {
            let of = options
                .size
                .map_or(String::new(), |s| format!(" of {s} bytes"));
            let what = format!(
                "{name}: the range from {}{of} does not lie inside the {} bytes of {}",
                options.offset,
                geometry.size,
                below.name()
            );
            return Err(DeviceError::new(DeviceErrorKind::Locator, what));
        }
        let lock_level = below.level().saturating_add(1);
        let mut shared = Shared {
            name,
            offset: options.offset,
            limit: options.size,
            block: geometry.logical.into(),
            opened: Geometry {
                logical: sector,
                physical: geometry.physical.max(geometry.logical).max(sector),
                read_only: geometry.read_only || options.read_only,
                ..geometry
            },
            size: AtomicU64::new(0),
            lock_level,
            rewrites: AtomicU64::new(0),
            blocks: Mutex::at_level(&DEVICE_SHARED, lock_level, Blocks::default()),
            fine_queues: Mutex::at_level(&DEVICE_SHARED, lock_level, Vec::new()),
            below,
        };
        if shared.is_fine() {
            // A request may grow by a block at each end.
            let most = u64::from(geometry.max_transfer).saturating_sub(2 * shared.block);
            let most = most / u64::from(sector) * u64::from(sector);
            shared.opened.max_transfer = u32::try_from(most).unwrap_or(u32::MAX).max(sector);
        }
        shared.measure();
        Ok(WindowDevice {
            shared: Arc::new(shared),
        })
    }

    /// The report of the device below, with what this window adds: it is no layer of its own.
    fn with_own(&self, mut report: DeviceReport) -> DeviceReport {
        if self.shared.is_fine() {
            let (sector, block) = (self.shared.opened.logical, self.shared.block);
            let line = format!(
                "sectors of {sector} bytes from {} on, over blocks of {block}: smaller requests read and rewrite whole blocks",
                self.shared.offset
            );
            report.fallbacks.push(line);
            report.rewrites += self.rewrites();
        }
        report
    }

    /// How many requests have rewritten blocks of the device below, because they changed only parts of them.
    #[must_use]
    pub fn rewrites(&self) -> u64 {
        self.shared.rewrites.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Whether a request may begin or end inside a block of the device below.
    fn is_fine(&self) -> bool {
        u64::from(self.opened.logical) < self.block || !self.offset.is_multiple_of(self.block)
    }

    /// Takes the size that the device below has now.
    fn measure(&self) {
        let rest = self.below.geometry().size.saturating_sub(self.offset);
        let size = self.limit.map_or(rest, |limit| limit.min(rest));
        let sector = u64::from(self.opened.logical);
        self.size.store(size / sector * sector, Ordering::Release);
    }

    /// The geometry for checks: its abilities may be out of date.
    #[inline]
    fn checked(&self) -> Geometry {
        Geometry {
            size: self.size.load(Ordering::Acquire),
            ..self.opened
        }
    }

    fn register(&self, queue: &Arc<Inner>) {
        let mut queues = self.fine_queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue));
    }

    fn queues(&self) -> Vec<Arc<Inner>> {
        let queues = self.fine_queues.lock();
        queues.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Device for WindowDevice {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.shared.below)
    }

    fn geometry(&self) -> Geometry {
        let (below, own) = (self.shared.below.geometry(), self.shared.checked());
        let writable = !own.read_only;
        Geometry {
            discard: below.discard && writable,
            write_zeroes: below.write_zeroes && writable,
            fua: below.fua,
            fua_flushes: below.fua_flushes,
            volatile_cache: below.volatile_cache,
            read_only: own.read_only || below.read_only,
            ..own
        }
    }

    fn name(&self) -> String {
        self.shared.name.clone()
    }

    fn report(&self) -> DeviceReport {
        self.with_own(self.shared.below.report())
    }

    fn report_so_far(&self) -> DeviceReport {
        self.with_own(self.shared.below.report_so_far())
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        if range.end > self.geometry().size || range.start > range.end {
            return self.all_data(range, most);
        }
        let offset = self.shared.offset;
        let below = &self.shared.below;
        below.stored(range.start + offset..range.end + offset, most)
    }

    fn refresh(&self) -> Result<(), DeviceError> {
        self.shared.below.refresh()?;
        self.shared.measure();
        Ok(())
    }

    fn rest(&self) -> Result<(), DeviceError> {
        self.shared.below.rest()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let shared = self.shared.clone();
        let (depth, waker) = (options.depth.clamp(1, 32_768), options.waker.clone());
        let is_fine = shared.is_fine();
        let below = shared.below.open_queue(QueueOptions {
            // The window's other queues may have to do this one's work.
            owned_by_reaper: options.owned_by_reaper && !is_fine,
            ..options
        })?;
        Ok(match is_fine {
            true => Box::new(FineQueue::new(below, shared, depth, waker)),
            false => Box::new(ShiftQueue::new(below, shared, depth, waker)),
        })
    }

    fn run_here(&self, mut bio: Bio) -> Result<Bio, Bio> {
        let shared = &self.shared;
        // Changes need the range lock, and what has to be refused is refused by the queue.
        let is_simple = !shared.is_fine() || bio.op == BioOp::Flush;
        if !is_simple || shared.checked().check(&bio).is_err() {
            return Err(bio);
        }
        let back = |mut bio: Bio| {
            bio.pos = bio.pos.wrapping_sub(shared.offset);
            bio
        };
        bio.pos = bio.pos.wrapping_add(shared.offset);
        shared.below.run_here(bio).map(back).map_err(back)
    }
}
