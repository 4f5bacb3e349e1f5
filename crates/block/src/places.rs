//! The places of a queue that keeps bios from their submission until they are reaped.
//!
//! Input: a depth; bios taken and reaped. Output: whether one more fits. Invariant: never more than the depth are taken. Limits: numbers
//! only.

use crate::sync::atomic::{AtomicU32, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Places {
    depth: u32,
    /// Taken and not reaped, in any state.
    taken: AtomicU32,
}

impl Places {
    /// As many as a queue of this depth has: 1 to 32,768.
    pub(crate) fn new(depth: u32) -> Places {
        Places {
            depth: depth.clamp(1, 32_768),
            taken: AtomicU32::new(0),
        }
    }

    /// Takes one, if one is free.
    pub(crate) fn reserve(&self) -> bool {
        let more = |n| (n < self.depth).then_some(n + 1);
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// Gives so many back.
    pub(crate) fn release(&self, count: usize) {
        let count = u32::try_from(count).expect("no more than the depth, which is at most 32,768");
        self.taken.fetch_sub(count, Ordering::SeqCst);
    }

    /// Those that are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::SeqCst)
    }
}
