//! Looking for the next request for a moment before sleeping until it comes.
//!
//! Input: the threads of a mount, and when they replied. Output: which of them may look, and for how long. Invariants: one thread of a
//! mount looks at a time; none does while requests come further apart than a look lasts. Limit: a look takes processor time from others
//! for [`LOOK`] at most; where there is one processor nobody looks.
//!
//! A program that makes one system call after the other, as tar and rm do, has its next request there a few microseconds after the reply to
//! the last. Two processors that wake each other for each of them take longer than the requests do.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed, Release},
};
use std::time::{Duration, Instant};

/// How long a thread looks.
const LOOK: Duration = Duration::from_micros(100);
/// After so many looks in vain there are none, until requests follow each other closely again.
const IN_VAIN: u32 = 8;

/// What the threads of a mount share.
#[derive(Debug)]
pub(super) struct Turns {
    is_allowed: bool,
    is_taken: AtomicBool,
    in_vain: AtomicU32,
    /// When the last reply was given, in nanoseconds since `began`.
    replied: AtomicU64,
    began: Instant,
}

impl Turns {
    pub(super) fn new(is_allowed: bool) -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns {
            is_allowed: is_allowed && processors > 1,
            is_taken: AtomicBool::new(false),
            in_vain: AtomicU32::new(0),
            replied: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    /// The right to look, unless another thread has it or there is no use in it.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let may = self.is_allowed && self.in_vain.load(Relaxed) < IN_VAIN;
        if !may || self.is_taken.swap(true, AcqRel) {
            return None;
        }
        let until = Instant::now() + LOOK;
        Some(Turn { of: self, until })
    }

    /// A reply has been given.
    pub(super) fn replied(&self) {
        if self.is_allowed {
            self.replied.store(self.now(), Relaxed);
        }
    }

    /// A request has come to a thread that slept.
    pub(super) fn woken(&self) {
        if self.is_allowed && self.in_vain.load(Relaxed) >= IN_VAIN {
            let gap = self.now().saturating_sub(self.replied.load(Relaxed));
            if u128::from(gap) < LOOK.as_nanos() {
                self.in_vain.store(0, Relaxed);
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The right to look.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    of: &'t Turns,
    until: Instant,
}

impl Turn<'_> {
    /// Looks as long as `look` finds nothing and the time has not come.
    pub(super) fn look<T>(self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = look() {
                self.of.in_vain.store(0, Relaxed);
                return Some(found);
            }
            if Instant::now() >= self.until {
                self.of.in_vain.fetch_add(1, Relaxed);
                return None;
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.is_taken.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns() -> Turns {
        Turns {
            is_allowed: true,
            ..Turns::new(true)
        }
    }

    #[test]
    fn one_thread_looks_at_a_time() {
        let turns = turns();
        let turn = turns.take().expect("nobody has it");
        assert!(turns.take().is_none());
        drop(turn);
        let mut looks = 0;
        let found = turns.take().expect("nobody has it").look(|| {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, Some(3));
        assert!(turns.take().is_some(), "given back");
    }

    #[test]
    fn nobody_looks_while_requests_are_rare() {
        let turns = turns();
        for _ in 0..IN_VAIN {
            let turn = turns.take().expect("some looks in vain are no reason");
            assert_eq!(turn.look(|| None::<()>), None);
        }
        assert!(turns.take().is_none());
        std::thread::sleep(2 * LOOK);
        turns.woken();
        assert!(turns.take().is_none(), "that request came late");
        turns.replied.store(u64::MAX, Relaxed);
        turns.woken();
        assert!(turns.take().is_some(), "that one came at once");
    }

    #[test]
    fn nobody_looks_who_must_not() {
        assert!(Turns::new(false).take().is_none());
    }
}
