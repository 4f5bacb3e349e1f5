//! A reader-writer lock for values that are read often and briefly, and seldom changed.
//!
//! Input: a class, a level and a value. Output: guards. Invariants: as of [`super::RwLock`]; besides, a reader may hold the lock by its
//! thread's slot alone (`bias`), which costs it two plain stores instead of two atomic operations. Beside a copy of a few kilobytes the
//! atomic operations are the largest cost, as each of them waits until the copy before it has ended. Limits: reads by slots are not counted
//! in the class, as they take no lock and wait for nothing; they should be short, since a writer that meets one does not sleep on it.

use super::bias::Bias;
use super::class::{Held, LockClass, Place};
use super::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
use super::bias::{ReaderSlot, can_be_biased, slots, with_slot};
#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
use std::sync::atomic::{AtomicU32, Ordering};

/// So many readers in a row must have taken the lock itself, with no writer among them, until they may take it by slots: then a writer's
/// barrier, some microseconds, is little beside what they save.
#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
const READS: u32 = 100;

/// A reader-writer lock with a class, biased towards readers.
pub struct Biased<T> {
    lock: RwLock<()>,
    class: &'static LockClass,
    level: u8,
    bias: Bias,
    /// Reads since the last write.
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    reads: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: as of `std::sync::RwLock`: shared access is given to several threads at once (T: Sync), exclusive access to any (T: Send).
unsafe impl<T: Send> Send for Biased<T> {}
// SAFETY: as above. That no exclusive guard lives together with another guard is argued at each `Deref`.
unsafe impl<T: Send + Sync> Sync for Biased<T> {}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased")
            .field("class", &self.class.name())
            .finish_non_exhaustive()
    }
}

/// A shared guard. It stays in the thread that took it.
#[derive(Debug)]
pub struct BiasedReadGuard<'a, T> {
    of: &'a Biased<T>,
    #[cfg_attr(not(test), expect(dead_code, reason = "held for its Drop only"))]
    hold: Hold<'a>,
}

/// By what a reader holds the lock.
#[derive(Debug)]
enum Hold<'a> {
    Lock(#[expect(dead_code, reason = "held for its Drop only")] RwLockReadGuard<'a, ()>),
    /// A slot is its thread's: the guard is not Send, as neither is that of a lock.
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    Slot {
        slot: &'static ReaderSlot,
        #[expect(dead_code, reason = "held for its Drop only")]
        held: Held,
        of_thread: std::marker::PhantomData<*const ()>,
    },
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        match self {
            Hold::Lock(_) => {}
            #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
            Hold::Slot { slot, .. } => slot.leave(),
        }
    }
}

/// An exclusive guard.
#[derive(Debug)]
pub struct BiasedWriteGuard<'a, T> {
    of: &'a Biased<T>,
    #[expect(dead_code, reason = "held for its Drop only")]
    lock: RwLockWriteGuard<'a, ()>,
}

impl<T> Biased<T> {
    /// A lock of a volume at `level` of its stack.
    pub fn at_level(class: &'static LockClass, level: u8, value: T) -> Biased<T> {
        Biased {
            lock: RwLock::at_level(class, level, ()),
            class,
            level,
            bias: Bias::default(),
            #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
            reads: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Shares the lock, for a moment; waits if it is held exclusively.
    #[inline]
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    pub fn read_briefly(&self) -> BiasedReadGuard<'_, T> {
        if let Some(hold) = self.by_slot() {
            return BiasedReadGuard { of: self, hold };
        }
        let guard = self.read();
        self.count_read();
        guard
    }

    /// As [`Biased::read_briefly`], if that does not need to wait.
    #[inline]
    pub fn try_read_briefly(&self) -> Option<BiasedReadGuard<'_, T>> {
        if let Some(hold) = self.by_slot() {
            return Some(BiasedReadGuard { of: self, hold });
        }
        let guard = self.try_read()?;
        self.count_read();
        Some(guard)
    }

    /// Holds the lock by the thread's slot, if it has one that is free and the lock is biased.
    #[inline]
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    fn by_slot(&self) -> Option<Hold<'_>> {
        let slot = with_slot()?;
        // Noted first: a wrong order panics, and must not leave the slot taken.
        let held = Held::note(Place::new(self.class, self.level), self.class);
        let entered = self.bias.enter(self.name(), slot);
        entered.then_some(Hold::Slot {
            slot,
            held,
            of_thread: std::marker::PhantomData,
        })
    }

    #[cfg(any(feature = "_loom", feature = "_shuttle"))]
    fn by_slot(&self) -> Option<Hold<'_>> {
        None
    }

    /// Counts a read by the lock itself; enough of them bias it.
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    fn count_read(&self) {
        if self.reads.fetch_add(1, Ordering::Relaxed) == READS && can_be_biased() {
            self.bias.grant();
        }
    }

    #[cfg(any(feature = "_loom", feature = "_shuttle"))]
    fn count_read(&self) {}

    /// Shares the lock if that does not need to wait.
    pub fn try_read(&self) -> Option<BiasedReadGuard<'_, T>> {
        let hold = Hold::Lock(self.lock.try_read()?);
        Some(BiasedReadGuard { of: self, hold })
    }

    /// Shares the lock; waits if it is held exclusively. Under a test's scheduler there are no slots.
    #[cfg(any(feature = "_loom", feature = "_shuttle"))]
    pub fn read_briefly(&self) -> BiasedReadGuard<'_, T> {
        self.read()
    }

    /// Shares the lock; waits if it is held exclusively.
    pub fn read(&self) -> BiasedReadGuard<'_, T> {
        let hold = Hold::Lock(self.lock.read());
        BiasedReadGuard { of: self, hold }
    }

    /// Takes the lock exclusively; waits if it is held.
    pub fn write(&self) -> BiasedWriteGuard<'_, T> {
        self.exclusive(self.lock.write())
    }

    /// As [`Biased::write`], for several locks of one class, taken in the order of their numbers.
    pub fn write_numbered(&self, number: u32) -> BiasedWriteGuard<'_, T> {
        self.exclusive(self.lock.write_numbered(number))
    }

    /// Takes the lock exclusively if nobody holds it by the lock itself; waits for those who hold it by their slots, for a moment.
    pub fn try_write(&self) -> Option<BiasedWriteGuard<'_, T>> {
        Some(self.exclusive(self.lock.try_write()?))
    }

    fn exclusive<'a>(&'a self, lock: RwLockWriteGuard<'a, ()>) -> BiasedWriteGuard<'a, T> {
        #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
        {
            self.reads.store(0, Ordering::Relaxed);
            self.bias.revoke(self.name(), slots());
        }
        BiasedWriteGuard { of: self, lock }
    }

    /// What it is called in slots: no two locks that live at once have one address, as none is of size zero.
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    #[inline]
    fn name(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> Deref for BiasedReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: an exclusive guard lives only while `lock` is held exclusively and after `revoke` has waited for all slots with this
        // lock's name. This guard holds `lock` shared, or such a slot, which `bias` lets no writer overlook. Both are given back in its
        // Drop.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> Deref for BiasedWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `lock` is held exclusively, and no reader holds a slot: see `deref_mut`.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for BiasedWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `lock` is held exclusively, which keeps out writers and those readers that take it. The bias was revoked after that,
        // which waited for readers by slots; it is granted only by readers that hold `lock`.
        unsafe { &mut *self.of.value.get() }
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    static CLASS: LockClass = LockClass::new("biased", 7);

    /// Readers by slots see both halves of a pair that writers change one after the other. Without `revoke`'s barrier or its wait they do
    /// not.
    #[test]
    fn readers_never_see_half_a_change() {
        let pair = Arc::new(Biased::at_level(&CLASS, 0, [0u64; 64]));
        let end = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (pair, end) = (pair.clone(), end.clone());
                std::thread::spawn(move || {
                    let mut by_slot = 0u64;
                    while !end.load(Ordering::Relaxed) {
                        let guard = pair.read_briefly();
                        let all = *guard;
                        assert!(all.iter().all(|n| *n == all[0]), "{all:?}");
                        by_slot += u64::from(matches!(guard.hold, Hold::Slot { .. }));
                    }
                    by_slot
                })
            })
            .collect();
        for n in 1..3_000u64 {
            let mut guard = pair.write();
            guard.iter_mut().for_each(|half| *half = n);
            drop(guard);
            // So that readers are biased again before the next write.
            let alive = || readers.iter().all(|t| !t.is_finished());
            while can_be_biased() && pair.reads.load(Ordering::Relaxed) <= READS && alive() {
                std::thread::yield_now();
            }
        }
        end.store(true, Ordering::Relaxed);
        let by_slot: u64 = readers
            .into_iter()
            .map(|t| t.join().expect("it ends well"))
            .sum();
        assert_eq!(pair.read()[0], 2_999);
        assert!(by_slot > 0 || !can_be_biased(), "no reader used a slot");
    }

    /// A reader inside another read has no second slot: it takes the lock, and a writer waits for both.
    #[test]
    fn a_read_inside_a_read_takes_the_lock() {
        static OTHER: LockClass = LockClass::new("biased-inside", 8);
        let one = Biased::at_level(&CLASS, 0, 1);
        let two = Biased::at_level(&OTHER, 0, 2);
        let warm = |lock: &Biased<i32>| (0..=READS + 1).for_each(|_| drop(lock.read_briefly()));
        warm(&one);
        warm(&two);
        let outer = one.read_briefly();
        let inner = two.read_briefly();
        assert_eq!((*outer, *inner), (1, 2));
        assert!(matches!(outer.hold, Hold::Slot { .. }) || !can_be_biased());
        assert!(matches!(inner.hold, Hold::Lock(_)));
        drop((outer, inner));
        *one.write() = 3;
        assert_eq!(*one.read_briefly(), 3);
        assert!(one.lock.try_write().is_some(), "nobody holds it");
    }

    /// Slots are those of living threads: a thousand threads, one after another, do not use up 64 of them.
    #[test]
    fn slots_come_back() {
        let lock = Arc::new(Biased::at_level(&CLASS, 0, 0));
        for _ in 0..1000 {
            let lock = lock.clone();
            let thread = std::thread::spawn(move || {
                (0..=READS + 1).for_each(|_| drop(lock.read_briefly()));
                matches!(lock.read_briefly().hold, Hold::Slot { .. })
            });
            assert!(thread.join().expect("it ends well") || !can_be_biased());
        }
    }
}
