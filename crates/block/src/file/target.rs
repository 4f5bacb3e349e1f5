//! The open file or block device that all queues of one device share.
//!
//! Input: what `open` found out. Output: a descriptor, where the device starts in it, what it can do, and counters.
//! Invariant: geometry and base never change while it is open; abilities are only ever turned off. Limits: none.

use crate::device::Geometry;
use crate::hold::Hold;
use crate::sync::{DEVICE_SHARED, Mutex};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The bottom of a file device.
pub(super) struct Target {
    pub(super) fd: OwnedFd,
    /// Against other writers; a descriptor of its own, which no ring keeps open.
    #[expect(dead_code, reason = "held for its Drop only")]
    hold: Hold,
    /// Where the device's first byte lies in the file.
    pub(super) base: u64,
    /// As it was when opened.
    pub(super) geometry: Geometry,
    pub(super) direct: bool,
    pub(super) block_device: bool,
    /// The locator, for messages.
    pub(super) name: String,
    /// The host refused to punch holes.
    pub(super) punch_off: AtomicBool,
    /// The host refused to zero ranges.
    pub(super) zero_off: AtomicBool,
    /// Regions registered with rings.
    pub(super) registered: AtomicU64,
    /// Regions that could not be registered and went plain.
    pub(super) plain: AtomicU64,
    /// Reads that lay beyond the backing's end: the file shrank under us.
    pub(super) beyond_end: AtomicU64,
    /// What was given up, and why: one line each.
    pub(super) notes: Mutex<Vec<String>>,
}

impl Target {
    /// A target with nothing counted yet.
    pub(super) fn new(
        fd: OwnedFd,
        base: u64,
        geometry: Geometry,
        name: String,
        (direct, block_device): (bool, bool),
        (hold, notes): (Hold, Vec<String>),
    ) -> Target {
        Target {
            fd,
            hold,
            base,
            geometry,
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

    /// Nothing that could be flushed: the cache is not volatile, or we never write.
    #[inline]
    pub(super) fn flush_is_free(&self) -> bool {
        self.geometry.read_only || !self.geometry.volatile_cache
    }

    /// Geometry with what has been turned off since.
    pub(super) fn current(&self) -> Geometry {
        let mut g = self.geometry;
        g.discard &= !self.punch_off.load(Ordering::Relaxed);
        g.write_zeroes &= !self.zero_off.load(Ordering::Relaxed);
        g
    }

    /// Is this position of the device at or past the backing's end, as it is now? A system call: for rare paths.
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
