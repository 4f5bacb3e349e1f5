//! On which processor the thread of a ring runs.
//!
//! Input: the requests of all processors, as they come. Output: whether a ring's thread stays on the processor whose requests it executes,
//! or may run on any. Invariants: it is judged anew every [`JUDGED`] requests of its processor. Limits: processors that are busy with
//! something else than requests are not known.
//!
//! Where callers are on few processors the kernel's scheduler knows better: a caller with many requests under way goes on meanwhile, on
//! another processor. One that sleeps until each reply takes turns with a server that looks for the next request: on one processor, where
//! others are busy, else on two. Pinned to the caller's processor the server would keep it from coming back there, and each request would
//! come to the thread of another processor, which has to be woken; pinned to another one both wait for their turns there. Where callers are
//! on most processors no other one is free, and each serves its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// So many requests of a processor are judged together.
const JUDGED: u64 = 64;
/// A processor that has a quarter as many requests meanwhile is busy, too.
const BUSY: u64 = JUDGED / 4;

/// Where the thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Where {
    /// On the processor whose requests it executes.
    Own,
    /// On any.
    #[default]
    Any,
}

/// What has come through the rings of a processor. It changes often, so its cache line is its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Count {
    requests: AtomicU64,
    /// System calls.
    calls: AtomicU64,
}

/// The requests of all processors of a mount.
#[derive(Debug)]
pub struct Crowd(Box<[Count]>);

impl Crowd {
    /// Of so many processors.
    #[must_use]
    pub fn new(processors: u16) -> Crowd {
        Crowd((0..processors).map(|_| Count::default()).collect())
    }

    /// Requests that have come through rings, and system calls that took them and gave the replies.
    #[must_use]
    pub fn all(&self) -> (u64, u64) {
        let sum =
            |of: fn(&Count) -> &AtomicU64| self.0.iter().map(|count| of(count).load(Relaxed)).sum();
        (sum(|count| &count.requests), sum(|count| &count.calls))
    }

    /// A system call of a ring of this processor.
    pub(super) fn called(&self, processor: u16) {
        if let Some(count) = self.0.get(usize::from(processor)) {
            count.calls.fetch_add(1, Relaxed);
        }
    }

    /// A request has come to a ring of this processor. Returns how many have.
    pub(super) fn came(&self, processor: u16) -> u64 {
        let count = self.0.get(usize::from(processor));
        count.map_or(0, |count| count.requests.fetch_add(1, Relaxed) + 1)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Judge {
    processor: usize,
    /// Processors that the thread may use.
    usable: usize,
    /// The counts of the last judgement.
    last: Vec<u64>,
    is_now: Where,
}

impl Judge {
    pub(super) fn new(processor: u16, usable: usize) -> Judge {
        Judge {
            processor: usize::from(processor),
            usable,
            last: Vec::new(),
            is_now: Where::default(),
        }
    }

    pub(super) fn is_now(&self) -> Where {
        self.is_now
    }

    /// So many requests of the judge's processor have come. Says where the thread runs, if that changes.
    pub(super) fn came(&mut self, crowd: &Crowd, mine: u64) -> Option<Where> {
        let before = self.last.get(self.processor).copied().unwrap_or(0);
        if mine.saturating_sub(before) < JUDGED {
            return None;
        }
        self.last.resize(crowd.0.len(), 0);
        let mut busy = 0;
        for (count, last) in crowd.0.iter().zip(&mut self.last) {
            let now = count.requests.load(Relaxed);
            busy += usize::from(now.wrapping_sub(*last) >= BUSY);
            *last = now;
        }
        let next = match 2 * busy > self.usable {
            true => Where::Own,
            false => Where::Any,
        };
        let changes = next != self.is_now;
        self.is_now = next;
        changes.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many requests of each of these processors, in turns. Returns where the first judge has its thread afterwards.
    fn after(judges: &mut [Judge], crowd: &Crowd, count: u64) -> Where {
        for _ in 0..count {
            for judge in judges.iter_mut() {
                let mine = crowd.came(u16::try_from(judge.processor).expect("small"));
                judge.came(crowd, mine);
            }
        }
        judges[0].is_now()
    }

    #[test]
    fn a_lone_caller_is_served_on_any_processor() {
        let crowd = Crowd::new(2);
        let mut one = [Judge::new(1, 2)];
        assert_eq!(after(&mut one, &crowd, 10 * JUDGED), Where::Any);
    }

    #[test]
    fn where_callers_are_everywhere_each_processor_serves_its_own() {
        let crowd = Crowd::new(2);
        let mut both = [Judge::new(0, 2), Judge::new(1, 2)];
        assert_eq!(after(&mut both, &crowd, 2 * JUDGED), Where::Own);
        // One of them has ended.
        assert_eq!(after(&mut both[..1], &crowd, 2 * JUDGED), Where::Any);
    }

    #[test]
    fn half_of_the_processors_leave_the_others_for_threads() {
        let crowd = Crowd::new(4);
        let mut two = [Judge::new(0, 4), Judge::new(1, 4)];
        assert_eq!(after(&mut two, &crowd, 2 * JUDGED), Where::Any);
        let mut three = [Judge::new(0, 4), Judge::new(1, 4), Judge::new(2, 4)];
        assert_eq!(after(&mut three, &crowd, 2 * JUDGED), Where::Own);
    }

    /// A mount that may use one processor of many has no other one.
    #[test]
    fn who_has_one_processor_stays_there() {
        let crowd = Crowd::new(4);
        let mut one = [Judge::new(2, 1)];
        assert_eq!(after(&mut one, &crowd, JUDGED), Where::Own);
    }
}
