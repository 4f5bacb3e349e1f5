//! The open file or block device that all queues of one device share.
//!
//! Input: the results of `open`. Output: a descriptor, the device's start in it, its abilities, and counters. Invariant:
//! base and geometry never change while it is open, except that abilities are turned off, and the size follows the file on request.
//! Limits: none.

use super::host;
use crate::device::{AtomicWrites, Geometry};
use crate::hold::Hold;
use crate::sync::{DEVICE_SHARED, Mutex};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a device reaches in its file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    /// To the end of the file, and over it up to this size. The last, partial sector counts (rule L2).
    WholeFile { grow_to: u64 },
    /// For so many bytes, or to the end of the file; whole sectors only.
    Part { limit: Option<u64> },
}

impl Reach {
    /// The size of the device, if the file has `rest` bytes from the device's start on.
    pub(super) fn of(self, rest: u64, logical: u32) -> u64 {
        let block = u64::from(logical);
        match self {
            Reach::WholeFile { grow_to } => rest.max(grow_to).div_ceil(block) * block,
            Reach::Part { limit } => limit.map_or(rest, |limit| limit.min(rest)) / block * block,
        }
    }
}

/// The file below a file device.
pub(super) struct Target {
    pub(super) fd: OwnedFd,
    /// The lock against other writers; it has a descriptor of its own, which no ring keeps open.
    #[expect(dead_code, reason = "held for its Drop only")]
    hold: Hold,
    /// Where the device's first byte lies in the file.
    pub(super) base: u64,
    /// The geometry at opening.
    pub(super) geometry: Geometry,
    reach: Reach,
    /// The size now.
    size: AtomicU64,
    pub(super) direct: bool,
    pub(super) block_device: bool,
    /// The file's bytes are in memory: it lies in a tmpfs.
    pub(super) memory: bool,
    /// The locator, for messages.
    pub(super) name: String,
    /// The host has refused to punch holes.
    pub(super) punch_off: AtomicBool,
    /// The host has refused to zero ranges.
    pub(super) zero_off: AtomicBool,
    /// Regions registered with rings.
    pub(super) registered: AtomicU64,
    /// Regions that could not be registered.
    pub(super) plain: AtomicU64,
    /// Reads past the end of the backing file: it has shrunk.
    pub(super) beyond_end: AtomicU64,
    /// Fallbacks and their reasons, one line each.
    pub(super) notes: Mutex<Vec<String>>,
}

impl Target {
    /// A target with nothing counted yet.
    pub(super) fn new(
        fd: OwnedFd,
        (base, reach): (u64, Reach),
        geometry: Geometry,
        name: String,
        (direct, block_device): (bool, bool),
        (hold, notes): (Hold, Vec<String>),
    ) -> Target {
        Target {
            memory: host::is_memory(&fd),
            fd,
            hold,
            base,
            geometry,
            reach,
            size: AtomicU64::new(geometry.size),
            direct,
            block_device,
            name,
            punch_off: AtomicBool::new(false),
            zero_off: AtomicBool::new(false),
            registered: AtomicU64::new(0),
            plain: AtomicU64::new(0),
            beyond_end: AtomicU64::new(0),
            notes: Mutex::new(&DEVICE_SHARED, notes),
        }
    }

    /// The descriptor's number, for the host's structures.
    #[inline]
    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether there is nothing to flush: the cache is not volatile, or the target is never written.
    #[inline]
    pub(super) fn flush_is_free(&self) -> bool {
        self.geometry.read_only || !self.geometry.volatile_cache
    }

    /// The geometry with the size that bios are checked against. Its abilities may be out of date.
    #[inline]
    pub(super) fn sized(&self) -> Geometry {
        Geometry {
            size: self.size.load(Ordering::Relaxed),
            ..self.geometry
        }
    }

    /// Takes the size that the file has now.
    pub(super) fn measure(&self) -> Result<(), rustix::io::Errno> {
        let now = host::size(&self.fd, self.block_device)?;
        let rest = now.saturating_sub(self.base);
        let size = self.reach.of(rest, self.geometry.logical);
        self.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// The geometry without the abilities that were turned off since.
    pub(super) fn current(&self) -> Geometry {
        let mut g = self.sized();
        g.discard &= !self.punch_off.load(Ordering::Relaxed);
        g.write_zeroes &= !self.zero_off.load(Ordering::Relaxed);
        g
    }

    /// The atomic writes of the host's file or block device, as far as positions in this device are positions there.
    pub(super) fn atomic_writes(&self) -> Option<AtomicWrites> {
        let host = host::atomic_writes(&self.fd).filter(|_| self.direct)?;
        let aligned = 1 << self.base.trailing_zeros().min(31);
        let unit_max = host.unit_max.min(aligned);
        (host.unit_min <= unit_max).then_some(AtomicWrites { unit_max, ..host })
    }

    /// Whether this position of the device is at or past the current end of the backing file. A system call: for rare paths.
    pub(super) fn is_past_end(&self, pos: u64) -> bool {
        let size = rustix::fs::fstat(&self.fd).map_or(0, |s| u64::try_from(s.st_size).unwrap_or(0));
        !self.block_device && self.base.saturating_add(pos) >= size
    }

    /// Notes a fallback once.
    pub(super) fn note(&self, line: String) {
        let mut notes = self.notes.lock();
        if !notes.contains(&line) {
            notes.push(line);
        }
    }
}
