//! Mutex, reader-writer lock and condition variable with a class.
//!
//! Input: a class, a level and a value. Output: guards. Invariant: a lock is tried first, so only a lock that was not free
//! costs a clock reading. Limits: poisoning is ignored: a panic elsewhere is that thread's failure, and the owner of the value
//! keeps it consistent.

use super::atomic::{AtomicU32, Ordering};
use super::class::{Held, LockClass, Place};
use super::imp::sync as raw;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

fn unpoison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn unpoison_try<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Tries the lock; if it is not free, waits and counts the wait.
#[inline]
fn acquire<G>(
    class: &LockClass,
    attempt: impl FnOnce() -> TryLockResult<G>,
    wait: impl FnOnce() -> LockResult<G>,
) -> G {
    class.count_acquired();
    if let Some(guard) = unpoison_try(attempt()) {
        return guard;
    }
    let since = Instant::now();
    let guard = unpoison(wait());
    class.count_contended(since.elapsed());
    guard
}

/// A mutex with a class.
#[derive(Debug)]
pub struct Mutex<T> {
    class: &'static LockClass,
    level: u8,
    raw: raw::Mutex<T>,
}

/// A mutex's guard. Fields are dropped in order: first the lock, then the record of it.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    raw: raw::MutexGuard<'a, T>,
    #[expect(dead_code, reason = "held for its Drop only")]
    held: Held,
    #[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
    of: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A mutex at the lowest level.
    pub fn new(class: &'static LockClass, value: T) -> Mutex<T> {
        Mutex::at_level(class, 0, value)
    }

    /// A mutex of a volume at `level` of its stack.
    pub fn at_level(class: &'static LockClass, level: u8, value: T) -> Mutex<T> {
        Mutex {
            class,
            level,
            raw: raw::Mutex::new(value),
        }
    }

    /// Takes the lock; waits if it is not free.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::note(Place::new(self.class, self.level), self.class);
        let raw = acquire(self.class, || self.raw.try_lock(), || self.raw.lock());
        self.guard(raw, held)
    }

    /// Takes the lock if it is free now.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let raw = unpoison_try(self.raw.try_lock())?;
        self.class.count_acquired();
        let held = Held::note(Place::new(self.class, self.level), self.class);
        Some(self.guard(raw, held))
    }

    #[inline]
    fn guard<'a>(&'a self, raw: raw::MutexGuard<'a, T>, held: Held) -> MutexGuard<'a, T> {
        MutexGuard {
            raw,
            held,
            #[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
            of: self,
        }
    }

    /// The value of a mutex that nobody else can access any more.
    pub fn into_inner(self) -> T {
        unpoison(self.raw.into_inner())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

/// A reader-writer lock with a class.
#[derive(Debug)]
pub struct RwLock<T> {
    class: &'static LockClass,
    level: u8,
    raw: raw::RwLock<T>,
}

/// A shared guard.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    raw: raw::RwLockReadGuard<'a, T>,
    #[expect(dead_code, reason = "held for its Drop only")]
    held: Held,
}

/// An exclusive guard.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    raw: raw::RwLockWriteGuard<'a, T>,
    #[expect(dead_code, reason = "held for its Drop only")]
    held: Held,
}

impl<T> RwLock<T> {
    /// A lock of a volume at `level` of its stack.
    pub fn at_level(class: &'static LockClass, level: u8, value: T) -> RwLock<T> {
        RwLock {
            class,
            level,
            raw: raw::RwLock::new(value),
        }
    }

    /// Shares the lock; waits if it is held exclusively.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.note();
        RwLockReadGuard {
            raw: acquire(self.class, || self.raw.try_read(), || self.raw.read()),
            held,
        }
    }

    /// Takes the lock exclusively; waits if it is held.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.note();
        RwLockWriteGuard {
            raw: acquire(self.class, || self.raw.try_write(), || self.raw.write()),
            held,
        }
    }

    /// As [`RwLock::write`], for several locks of one class, taken in the order of their numbers.
    pub fn write_numbered(&self, number: u32) -> RwLockWriteGuard<'_, T> {
        let place = Place::numbered(self.class, self.level, number);
        let held = Held::note(place, self.class);
        RwLockWriteGuard {
            raw: acquire(self.class, || self.raw.try_write(), || self.raw.write()),
            held,
        }
    }

    /// Shares the lock if that does not need to wait.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let raw = unpoison_try(self.raw.try_read())?;
        self.class.count_acquired();
        Some(RwLockReadGuard {
            raw,
            held: self.note(),
        })
    }

    /// Takes the lock exclusively if that does not need to wait.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let raw = unpoison_try(self.raw.try_write())?;
        self.class.count_acquired();
        Some(RwLockWriteGuard {
            raw,
            held: self.note(),
        })
    }

    #[inline]
    fn note(&self) -> Held {
        Held::note(Place::new(self.class, self.level), self.class)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

/// A condition variable for [`Mutex`]. A notification without waiters makes no system call.
#[derive(Debug)]
pub struct Condvar {
    raw: raw::Condvar,
    /// Threads inside a wait. Each counts itself under the lock: a thread that changed the condition under the same lock either
    /// finds the waiter here, or the waiter finds the change.
    waiting: AtomicU32,
}

impl Default for Condvar {
    fn default() -> Self {
        Condvar::new()
    }
}

impl Condvar {
    /// A condition variable that nobody waits on.
    #[must_use]
    pub fn new() -> Condvar {
        Condvar {
            raw: raw::Condvar::new(),
            waiting: AtomicU32::new(0),
        }
    }

    /// Releases the lock, waits for a notification, takes the lock again. May wake spuriously.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let raw = unpoison(self.raw.wait(guard.raw));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        MutexGuard { raw, ..guard }
    }

    /// As [`Condvar::wait`], for at most `timeout`. Shuttle has no time: a wait of less than a second only yields, a longer one
    /// waits for a notification.
    #[cfg(all(feature = "_shuttle", not(feature = "_loom")))]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        if timeout >= Duration::from_secs(1) {
            return self.wait(guard);
        }
        let of = guard.of;
        drop(guard);
        super::thread::yield_now();
        of.lock()
    }

    /// As [`Condvar::wait`], for at most `timeout`.
    #[cfg(not(all(feature = "_shuttle", not(feature = "_loom"))))]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (raw, _) = self
            .raw
            .wait_timeout(guard.raw, timeout)
            .unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        MutexGuard { raw, ..guard }
    }

    /// Wakes one waiter. Its condition was changed under its lock.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.raw.notify_one();
        }
    }

    /// Wakes all waiters. Their condition was changed under their lock.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.raw.notify_all();
        }
    }
}
