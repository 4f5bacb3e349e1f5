//! What is known of a queue that polls: which way it polls, and how its waits and requests have ended.
//!
//! Input: the queue that looks before it sleeps, and the device below it. Output: [`PolledWaits`]. Invariant: a queue looks by `reap`
//! until its device says that it polls, and again after the device has said that it cannot. Limits: the last reason is kept, not all.

use crate::sync::{DEVICE_SHARED, Mutex};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why the device of a queue is not polled (IORING_SETUP_IOPOLL). Waits of the queue look for completions all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotPolled {
    /// The device is no file and no block device of the host.
    #[default]
    Device,
    /// The I/O engine is not io_uring.
    Engine,
    /// The file is not read and written directly (O_DIRECT).
    Buffered,
    /// The host's block device below has no queues for it: its `queue/io_poll` in sysfs is not 1.
    NoQueues,
    /// The process has the rings that were made ahead, and may make no others: it is in a sandbox.
    Sandbox,
    /// The host refused to make the ring, with this errno; 0 if it gave none.
    NoRing(i32),
    /// A request was refused with this errno.
    Refused(i32),
    /// A read that was tried when the queue was opened has not ended in a second.
    Late,
    /// The caller polls the queue's descriptor, which nothing makes readable when a polled request ends.
    Descriptor,
}

impl NotPolled {
    /// The word that names it in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NotPolled::Device => "device",
            NotPolled::Engine => "engine",
            NotPolled::Buffered => "buffered",
            NotPolled::NoQueues => "no-queues",
            NotPolled::Sandbox => "sandbox",
            NotPolled::NoRing(_) => "no-ring",
            NotPolled::Refused(_) => "refused",
            NotPolled::Late => "late",
            NotPolled::Descriptor => "descriptor",
        }
    }
}

impl fmt::Display for NotPolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = |e: i32| std::io::Error::from_raw_os_error(e);
        match *self {
            NotPolled::Device => f.write_str("the device is no file or block device of the host"),
            NotPolled::Engine => f.write_str("the I/O engine is not io_uring"),
            NotPolled::Buffered => f.write_str("the file is not used directly (O_DIRECT)"),
            NotPolled::NoQueues => {
                f.write_str("the block device has no poll queues (queue/io_poll)")
            }
            NotPolled::Sandbox => f.write_str("a process in a sandbox makes no rings"),
            NotPolled::NoRing(0) => f.write_str("the host has made no ring for it"),
            NotPolled::NoRing(e) => write!(f, "the host has made no ring for it: {}", errno(e)),
            NotPolled::Refused(e) => write!(f, "a request was refused: {}", errno(e)),
            NotPolled::Late => f.write_str("a read that was tried has not ended in a second"),
            NotPolled::Descriptor => f.write_str("the caller polls the queue's descriptor"),
        }
    }
}

/// How a queue finds completions before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolledWay {
    /// The device is polled: requests end without an interrupt.
    Device,
    /// It looks whether the device has told of a completion; and why the device is not polled.
    Looks(NotPolled),
}

/// How waits and requests of a [`crate::PolledQueue`] ended. Waits that had nothing to wait for are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolledWaits {
    /// Waits that ended while the queue looked.
    pub spun: u64,
    /// Waits that ended asleep, after a look or at once.
    pub slept: u64,
    /// How it looks now.
    pub way: PolledWay,
    /// Requests that ended by polling the device.
    pub polled: u64,
    /// Requests that the device did not carry out when polled. Each was repeated in the ordinary way.
    pub repeated: u64,
}

impl Default for PolledWaits {
    fn default() -> PolledWaits {
        PolledStats::default().waits()
    }
}

/// Numbers that outlive the queue's hold on them.
#[derive(Debug)]
pub struct PolledStats {
    spun: AtomicU64,
    slept: AtomicU64,
    polled: AtomicU64,
    repeated: AtomicU64,
    way: Mutex<PolledWay>,
}

impl Default for PolledStats {
    fn default() -> PolledStats {
        let way = PolledWay::Looks(NotPolled::default());
        PolledStats {
            spun: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            polled: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            way: Mutex::new(&DEVICE_SHARED, way),
        }
    }
}

impl PolledStats {
    /// The numbers by now.
    #[must_use]
    pub fn waits(&self) -> PolledWaits {
        PolledWaits {
            spun: self.spun.load(Ordering::Relaxed),
            slept: self.slept.load(Ordering::Relaxed),
            way: *self.way.lock(),
            polled: self.polled.load(Ordering::Relaxed),
            repeated: self.repeated.load(Ordering::Relaxed),
        }
    }

    /// From now on the queue looks in this way: said by the device that opened it.
    pub fn set_way(&self, way: PolledWay) {
        *self.way.lock() = way;
    }

    pub(crate) fn note_spun(&self) {
        self.spun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_slept(&self) {
        self.slept.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_requests(&self, polled: u64, repeated: u64) {
        self.polled.fetch_add(polled, Ordering::Relaxed);
        if repeated > 0 {
            self.repeated.fetch_add(repeated, Ordering::Relaxed);
        }
    }
}
