//! Keeps idle processors from sleep while requests follow each other closely.
//!
//! Input: whether the next request came soon after the last reply. Output: the latency that this process asks of processors. Invariants:
//! none is asked for before [`CLOSELY`] requests in a row came soon, and not any more once one did not; the kernel forgets it with the
//! process. Limits: the device is root's; a process that may not open it goes without. All processors of the host stay awake meanwhile.
//! Source: the kernel's documentation of PM QoS (`/dev/cpu_dma_latency`: microseconds, 32 bits, the host's byte order).
//!
//! A program that makes one call after the other sleeps until each reply. Where nothing else runs, its processor sleeps as well, and wakes
//! slower than the request was executed: in a virtual machine 14 us of 20 were measured.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// The device that takes a latency.
pub const LATENCY: &str = "/dev/cpu_dma_latency";

/// So many requests have to come soon.
const CLOSELY: u32 = 64;
/// What the kernel has where nobody asks for a latency, in microseconds.
const ANY: i32 = 2_000_000_000;

/// The latency that is asked for. Only the thread on watch calls it.
#[derive(Debug)]
pub(super) struct Awake {
    device: OwnedFd,
    came_soon: AtomicU32,
    is_asked: AtomicBool,
}

impl Awake {
    /// None: the host has no such device, or it is not this process's.
    pub(super) fn open() -> Option<Awake> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let device = rustix::fs::open(LATENCY, flags, Mode::empty()).ok()?;
        let awake = Awake::over(device);
        // The device asks for the shortest latency as soon as it is open, in some kernels.
        awake.ask(ANY);
        Some(awake)
    }

    fn over(device: OwnedFd) -> Awake {
        Awake {
            device,
            came_soon: AtomicU32::new(0),
            is_asked: AtomicBool::new(false),
        }
    }

    /// A request came while a thread looked for it.
    pub(super) fn came_soon(&self) {
        if self.is_asked.load(Relaxed) {
            return;
        }
        let count = self.came_soon.load(Relaxed) + 1;
        self.came_soon.store(count, Relaxed);
        if count >= CLOSELY {
            self.is_asked.store(true, Relaxed);
            self.ask(0);
        }
    }

    /// None came, or it takes long.
    pub(super) fn rest(&self) {
        self.came_soon.store(0, Relaxed);
        if self.is_asked.swap(false, Relaxed) {
            self.ask(ANY);
        }
    }

    fn ask(&self, latency: i32) {
        // Without it everything works, slower.
        let _ = rustix::io::write(&self.device, &latency.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by it")]

    use super::*;

    #[test]
    fn processors_stay_awake_while_requests_come_closely() {
        let (from, to) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let awake = Awake::over(to);
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
