//! What wakes a thread that waits on a queue.
//!
//! Input: kicks, from the thread that ends a bio. Output: the thread wakes, or the thread that polls the eventfd. Invariant: a kick behind
//! a bio that has ended is seen by every wait that begins later, or is under way. Limits: not for the child of a fork.

use super::DeviceError;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Wakes the thread that waits on a top-level queue. It is an eventfd, which user code may poll as well.
///
/// Send and Sync. After a fork the child must not use it.
pub struct Waker {
    /// None: the host had none left. Whoever waits sleeps in `bed`.
    fd: Option<OwnedFd>,
    /// A kick is pending: further kicks need no system call.
    kicked: AtomicBool,
    /// The kernel signals the eventfd as well, without setting `kicked`.
    kernel: AtomicBool,
    /// Threads that are asleep on the eventfd or may be soon. A kick that finds none makes no system call.
    sleepers: AtomicU32,
    /// User code may poll the eventfd without announcing it.
    watched: AtomicBool,
    /// The eventfd has a signal.
    signalled: AtomicBool,
    /// The queue got less than others have, as the host was short of descriptors: it works, slower.
    makeshift: AtomicBool,
    /// Where threads sleep that have no descriptor to sleep on; and under shuttle, as all of them are one host thread, which must not
    /// sleep.
    #[cfg(not(feature = "_loom"))]
    bed: Bed,
}

#[cfg(not(feature = "_loom"))]
static WAKER: crate::sync::LockClass = crate::sync::LockClass::new("waker", 900);

#[cfg(not(feature = "_loom"))]
struct Bed {
    lock: crate::sync::Mutex<()>,
    woken: crate::sync::Condvar,
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker")
            .field("kicked", &self.kicked)
            .finish_non_exhaustive()
    }
}

impl Waker {
    /// A waker with its eventfd.
    ///
    /// # Errors
    /// The host has no descriptor left.
    pub fn new() -> Result<Waker, DeviceError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| DeviceError::host("cannot make an eventfd", e.into()))?;
        Ok(Waker::of(Some(fd)))
    }

    /// A waker for threads that call [`Waker::wait`]; nobody can poll it.
    #[must_use]
    pub fn without_descriptor() -> Waker {
        let waker = Waker::of(None);
        waker.note_makeshift();
        waker
    }

    fn of(fd: Option<OwnedFd>) -> Waker {
        Waker {
            fd,
            makeshift: AtomicBool::new(false),
            kicked: AtomicBool::new(false),
            kernel: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            watched: AtomicBool::new(false),
            signalled: AtomicBool::new(false),
            #[cfg(not(feature = "_loom"))]
            bed: Bed {
                lock: crate::sync::Mutex::new(&WAKER, ()),
                woken: crate::sync::Condvar::new(),
            },
        }
    }

    /// Has it a descriptor?
    #[must_use]
    pub fn has_descriptor(&self) -> bool {
        self.fd.is_some()
    }

    /// The queue with this waker got less than others have, as the host was short of descriptors.
    pub fn note_makeshift(&self) {
        self.makeshift.store(true, Ordering::Relaxed);
    }

    /// See [`Waker::note_makeshift`].
    #[must_use]
    pub fn is_makeshift(&self) -> bool {
        self.makeshift.load(Ordering::Relaxed)
    }

    /// Wakes the waiting thread, or the next one that waits. No system call if a kick is pending or nobody sleeps. Never
    /// blocks.
    pub fn kick(&self) {
        if !self.kicked.swap(true, Ordering::SeqCst) && self.has_listener() {
            self.signal();
        }
    }

    /// Clears pending kicks: the waiter calls it after it woke and before it looks for work.
    pub fn clear(&self) {
        let signalled = self.signalled.load(Ordering::SeqCst);
        if signalled || self.kernel.load(Ordering::Relaxed) {
            self.signalled.store(false, Ordering::SeqCst);
            self.drain();
        }
        if signalled || self.is_kicked() {
            // A swap, not a store: a kicker that found `kicked` set sent no signal, and its work must be visible here.
            self.kicked.swap(false, Ordering::SeqCst);
        }
    }

    /// The kernel will signal the eventfd, too (registered with a ring, or named in an AIO request).
    pub fn kernel_signals(&self) {
        self.kernel.store(true, Ordering::Relaxed);
    }

    /// From now on every kick makes the eventfd readable, for code that polls it without [`Waker::asleep`].
    pub fn watch(&self) {
        self.watched.store(true, Ordering::SeqCst);
        if self.is_kicked() {
            self.signal();
        }
    }

    /// Runs `sleep`, which may sleep on the eventfd, unless a kick is pending.
    pub fn asleep(&self, sleep: impl FnOnce()) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if !self.is_kicked() {
            sleep();
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn has_listener(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0 || self.watched.load(Ordering::SeqCst)
    }

    /// Whether a kick is pending.
    #[must_use]
    pub fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::SeqCst)
    }

    /// Blocks until kicked or the time is over. Does not consume the kick.
    #[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
    pub fn wait(&self, timeout: Option<Duration>) {
        self.wait_in_bed(timeout);
    }

    #[cfg(not(feature = "_loom"))]
    fn wait_in_bed(&self, timeout: Option<Duration>) {
        self.asleep(|| {
            let mut bed = self.bed.lock.lock();
            match timeout {
                Some(timeout) if !self.is_kicked() => {
                    drop(self.bed.woken.wait_timeout(bed, timeout));
                }
                Some(_) => {}
                None => {
                    while !self.is_kicked() {
                        bed = self.bed.woken.wait(bed);
                    }
                }
            }
        });
    }

    /// Blocks until kicked or the time is over. Does not consume the kick.
    #[cfg(not(all(feature = "_shuttle", not(feature = "_loom"))))]
    pub fn wait(&self, timeout: Option<Duration>) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        #[cfg(not(feature = "_loom"))]
        if self.fd.is_none() {
            return self.wait_in_bed(timeout);
        }
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        self.asleep(|| match poll(&mut fds, timeout.as_ref()) {
            // The signal of a kick that was cleared before the signal was sent: if it stayed, it would wake every later wait.
            Ok(1..) if !self.is_kicked() => self.drain(),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => panic!("polling an eventfd of our own cannot fail: {e}"),
        });
    }

    /// Empties the descriptor's counter; EAGAIN means that it was empty.
    fn drain(&self) {
        let Some(fd) = &self.fd else {
            return;
        };
        let mut count = [0u8; 8];
        match rustix::io::read(fd, &mut count) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => panic!("reading an eventfd of our own cannot fail: {e}"),
        }
    }

    #[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
    fn signal(&self) {
        self.signal_bed();
    }

    #[cfg(not(feature = "_loom"))]
    fn signal_bed(&self) {
        drop(self.bed.lock.lock());
        self.bed.woken.notify_all();
    }

    #[cfg(not(all(feature = "_shuttle", not(feature = "_loom"))))]
    fn signal(&self) {
        #[cfg(not(feature = "_loom"))]
        if self.fd.is_none() {
            return self.signal_bed();
        }
        // EAGAIN means that the counter is at its maximum: every waiter is awake anyway.
        match rustix::io::write(self, &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(e) => panic!("writing an eventfd of our own cannot fail: {e}"),
        }
        // After the write: a clear in between leaves the signal in place, and the next clear takes it.
        self.signalled.store(true, Ordering::SeqCst);
    }
}

/// Only of a waker that has one.
impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref();
        fd.expect("without a descriptor it is for nobody who asks for one")
            .as_fd()
    }
}
