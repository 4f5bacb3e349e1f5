//! Lock classes: the name that a lock is counted under, its rank in the lock order, and the counters.
//!
//! Input: acquisitions from `lock`. Output: [`LockStats`] per class. Invariant: counters only grow. Limits: counting is
//! striped over 16 cache lines, so threads seldom share one; debug builds keep a thread's held locks in a small list.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const STRIPES: usize = 16;

#[repr(align(64))]
#[derive(Debug)]
struct Stripe {
    acquired: AtomicU64,
    contended: AtomicU64,
    waited_ns: AtomicU64,
}

/// A class of locks: all locks with the same purpose, whatever object they belong to.
#[derive(Debug)]
pub struct LockClass {
    name: &'static str,
    rank: u16,
    stripes: [Stripe; STRIPES],
}

/// The counters of a class since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Times a lock of the class was taken.
    pub acquired: u64,
    /// Times it was not free at once.
    pub contended: u64,
    /// Time spent waiting for it, summed over all threads.
    pub waited: Duration,
}

impl LockStats {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &LockStats) -> LockStats {
        LockStats {
            acquired: self.acquired - earlier.acquired,
            contended: self.contended - earlier.contended,
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

thread_local! {
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl LockClass {
    /// A class; `rank` is its place in the lock order, lower ranks are taken first.
    #[must_use]
    pub const fn new(name: &'static str, rank: u16) -> LockClass {
        LockClass {
            name,
            rank,
            stripes: [const {
                Stripe {
                    acquired: AtomicU64::new(0),
                    contended: AtomicU64::new(0),
                    waited_ns: AtomicU64::new(0),
                }
            }; STRIPES],
        }
    }

    /// The class's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The class's place in the lock order.
    #[must_use]
    pub fn rank(&self) -> u16 {
        self.rank
    }

    /// What has been counted so far, over all threads.
    #[must_use]
    pub fn stats(&self) -> LockStats {
        let sum = |f: fn(&Stripe) -> &AtomicU64| {
            self.stripes
                .iter()
                .map(|s| f(s).load(Ordering::Relaxed))
                .sum()
        };
        LockStats {
            acquired: sum(|s| &s.acquired),
            contended: sum(|s| &s.contended),
            waited: Duration::from_nanos(sum(|s| &s.waited_ns)),
        }
    }

    #[inline]
    pub(super) fn count_acquired(&self) {
        self.stripe().acquired.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_contended(&self, waited: Duration) {
        let stripe = self.stripe();
        stripe.contended.fetch_add(1, Ordering::Relaxed);
        stripe.waited_ns.fetch_add(
            u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    #[inline]
    fn stripe(&self) -> &Stripe {
        &self.stripes[STRIPE.with(|s| *s)]
    }
}

/// A lock's place in the order: first the depth of its volume in the stack, from the top; then the rank; then the number among
/// locks of one class. [`Held::note`] compares in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    rank: u16,
    depth: u8,
    number: u32,
}

impl Place {
    pub(super) fn new(class: &LockClass, level: u8) -> Place {
        Place::numbered(class, level, 0)
    }

    /// One of several locks of a class that a thread may hold in the order of their numbers.
    pub(super) fn numbered(class: &LockClass, level: u8, number: u32) -> Place {
        Place {
            rank: class.rank,
            depth: u8::MAX - level,
            number,
        }
    }
}

/// In debug builds: records that this thread holds a lock, and checks the order. Under a test's scheduler all threads are one
/// host thread, so nothing can be recorded there.
#[derive(Debug)]
pub(super) struct Held {
    #[cfg(all(debug_assertions, not(any(feature = "_loom", feature = "_shuttle"))))]
    place: Place,
}

impl Held {
    #[cfg(not(all(debug_assertions, not(any(feature = "_loom", feature = "_shuttle")))))]
    #[inline]
    pub(super) fn note(_: Place, _: &LockClass) -> Held {
        Held {}
    }

    #[cfg(all(debug_assertions, not(any(feature = "_loom", feature = "_shuttle"))))]
    pub(super) fn note(place: Place, class: &LockClass) -> Held {
        HELD.with_borrow_mut(|held| {
            // A volume's locks all come before those of the volumes below it.
            let order = |p: &Place| (p.depth, p.rank, p.number);
            if let Some(last) = held.iter().max_by_key(|p| order(p)) {
                assert!(
                    order(last) < order(&place),
                    "lock order: {} (rank {}, level {}) taken while holding rank {}, level {}",
                    class.name,
                    place.rank,
                    u8::MAX - place.depth,
                    last.rank,
                    u8::MAX - last.depth
                );
            }
            held.push(place);
        });
        Held { place }
    }
}

#[cfg(all(debug_assertions, not(any(feature = "_loom", feature = "_shuttle"))))]
thread_local! {
    static HELD: std::cell::RefCell<Vec<Place>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(all(debug_assertions, not(any(feature = "_loom", feature = "_shuttle"))))]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            let at = held
                .iter()
                .rposition(|p| *p == self.place)
                .expect("a lock is released by the thread that took it");
            held.remove(at);
        });
    }
}
