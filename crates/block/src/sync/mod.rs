//! The one place where locks and atomics come from: std, or loom or shuttle when a test's scheduler owns them.
//!
//! Input: every crate's wish for a lock, with its [`LockClass`]. Output: the primitive, counted per class
//! (acquisitions, contended, time waited) and, in debug builds, checked against the lock order. Invariant: a thread takes
//! locks in rising rank, and at equal rank in falling level (a volume waits only downwards in its stack). Limits: ranks
//! are 16 bits; a level is a volume's height over the bottom device.

mod class;
mod lock;

pub use class::{LockClass, LockStats};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "loom")]
use loom as imp;
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
use shuttle as imp;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use std as imp;

pub use imp::thread;

/// Atomics of the scheduler in force.
pub mod atomic {
    pub use super::imp::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// The pool of queues of a [`crate::Blocking`].
pub static BLOCKING_POOL: LockClass = LockClass::new("blocking-pool", 700);
/// A shared flush under way: see [`crate::flushes`].
pub static FLUSHES: LockClass = LockClass::new("flushes", 710);
/// What a device's queue keeps on its submitting side.
pub static DEVICE_SUBMIT: LockClass = LockClass::new("device-submit", 800);
/// What a device's queue keeps on its completing side.
pub static DEVICE_REAP: LockClass = LockClass::new("device-reap", 810);
/// What a device shares among its queues: work lists, tables, contents.
pub static DEVICE_SHARED: LockClass = LockClass::new("device-shared", 820);

/// The classes of this crate, for whoever prints statistics.
pub static CLASSES: [&LockClass; 5] = [
    &BLOCKING_POOL,
    &FLUSHES,
    &DEVICE_SUBMIT,
    &DEVICE_REAP,
    &DEVICE_SHARED,
];

#[cfg(all(test, not(any(feature = "loom", feature = "shuttle"))))]
mod tests;
