//! The one source of locks and atomics: std, or loom or shuttle under a test's scheduler.
//!
//! Input: a [`LockClass`] from any crate. Output: the primitive, counted per class (acquisitions, contended, time waited) and,
//! in debug builds, checked against the lock order. Invariant: in a stack a thread takes all locks of a volume before those
//! of the volumes below it (decreasing level), and in a volume it takes locks in increasing rank. Limits: ranks are 16 bits; a
//! level is a volume's height over the lowest device.

pub mod bias;
mod biased;
mod class;
mod lock;
mod parts;

pub use biased::{Biased, BiasedReadGuard, BiasedWriteGuard};
pub use class::{LockClass, LockStats};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use parts::Parts;

#[cfg(feature = "_loom")]
use loom as imp;
#[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
use shuttle as imp;
#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
use std as imp;

pub use imp::thread;

/// Atomics of the scheduler in use.
pub mod atomic {
    pub use super::imp::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// The pool of queues of a [`crate::Blocking`].
pub static BLOCKING_POOL: LockClass = LockClass::new("blocking-pool", 700);
/// A running shared flush: see [`crate::flushes`].
pub static FLUSHES: LockClass = LockClass::new("flushes", 710);
/// What a wait of a [`crate::PolledQueue`] has found.
pub static DEVICE_POLLED: LockClass = LockClass::new("device-polled", 790);
/// The submitting side of a device's queue.
pub static DEVICE_SUBMIT: LockClass = LockClass::new("device-submit", 800);
/// The completing side of a device's queue.
pub static DEVICE_REAP: LockClass = LockClass::new("device-reap", 810);
/// What a device shares among its queues: work lists, tables, contents.
pub static DEVICE_SHARED: LockClass = LockClass::new("device-shared", 820);

/// The classes of this crate, for printing statistics.
pub static CLASSES: [&LockClass; 6] = [
    &BLOCKING_POOL,
    &FLUSHES,
    &DEVICE_POLLED,
    &DEVICE_SUBMIT,
    &DEVICE_REAP,
    &DEVICE_SHARED,
];

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;
