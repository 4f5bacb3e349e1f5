//! Keeps idle processors from sleep while requests follow each other closely.
//!
//! Input: whether the next request came soon after the last reply. Output: the latency that this process asks of processors, or threads
//! that run where nothing else does. Invariants: none is asked for before [`CLOSELY`] requests in a row came soon, and not any more once
//! one did not; the kernel forgets it with the process. Limits: the device is root's; a process that may not open it has threads instead,
//! where there are few processors. All processors of the host stay awake meanwhile.
//! Source: the kernel's documentation of PM QoS (`/dev/cpu_dma_latency`: microseconds, 32 bits, the host's byte order).
//!
//! A program that makes one call after the other sleeps until each reply. Where nothing else runs, its processor sleeps as well, and wakes
//! slower than the request was executed: in a virtual machine 14 us of 20 were measured.

use super::spinners::Spinners;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The device that takes a latency.
pub const LATENCY: &str = "/dev/cpu_dma_latency";

/// So many requests have to come soon.
const CLOSELY: u32 = 64;
/// What the kernel has where nobody asks for a latency, in microseconds.
const ANY: i32 = 2_000_000_000;

/// What keeps processors awake.
#[derive(Debug)]
enum Means {
    Device {
        device: OwnedFd,
        is_asked: AtomicBool,
    },
    Spinners(Spinners),
}

/// See the module. Only the thread on watch calls it.
#[derive(Debug)]
pub(super) struct Awake {
    means: Means,
    came_soon: AtomicU32,
}

impl Awake {
    /// None: the host has no such device, or it is not this process's, and threads cannot do the same.
    pub(super) fn open() -> Option<Awake> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let means = match rustix::fs::open(LATENCY, flags, Mode::empty()) {
            Ok(device) => Means::of(device),
            Err(_) => Means::Spinners(Spinners::start()?),
        };
        // The device asks for the shortest latency as soon as it is open, in some kernels.
        means.ask(false);
        Some(Awake::by(means))
    }

    fn by(means: Means) -> Awake {
        Awake {
            means,
            came_soon: AtomicU32::new(0),
        }
    }

    /// A request came while a thread looked for it.
    pub(super) fn came_soon(&self) {
        if self.means.is_asked() {
            return;
        }
        let count = self.came_soon.load(Relaxed).saturating_add(1);
        self.came_soon.store(count, Relaxed);
        if count >= CLOSELY {
            self.means.ask(true);
        }
    }

    /// None came, or it takes long.
    pub(super) fn rest(&self) {
        self.came_soon.store(0, Relaxed);
        if self.means.is_asked() {
            self.means.ask(false);
        }
    }
}

impl Means {
    fn of(device: OwnedFd) -> Means {
        let is_asked = AtomicBool::new(false);
        Means::Device { device, is_asked }
    }

    fn is_asked(&self) -> bool {
        match self {
            Means::Device { is_asked, .. } => is_asked.load(Relaxed),
            Means::Spinners(spinners) => spinners.are_asked(),
        }
    }

    /// Processors are to stay awake, or need not.
    fn ask(&self, stay: bool) {
        match self {
            Means::Device { device, is_asked } => {
                is_asked.store(stay, Relaxed);
                let latency = if stay { 0 } else { ANY };
                // Without it everything works, slower.
                let _ = rustix::io::write(device, &latency.to_ne_bytes());
            }
            Means::Spinners(spinners) => spinners.ask(stay),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by it")]

    use super::*;

    #[test]
    fn processors_stay_awake_while_requests_come_closely() {
        let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let awake = Awake::by(Means::of(to));
        let asked = || {
            let mut latency = [0; 4];
            let read = rustix::io::read(&from, &mut latency).ok();
            read.map(|_| i32::from_ne_bytes(latency))
        };
        let closely = |count| (0..count).for_each(|_| awake.came_soon());
        closely(CLOSELY - 1);
        awake.rest();
        closely(CLOSELY - 1);
        assert_eq!(asked(), None, "one did not come soon");
        closely(100);
        assert_eq!(asked(), Some(0));
        assert_eq!(asked(), None, "once");
        awake.rest();
        awake.rest();
        assert_eq!((asked(), asked()), (Some(ANY), None));
    }
}
